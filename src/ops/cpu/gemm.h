// Dense layers of the cpu backend over oneDNN.
//
// bf16 is multiplied as such where oneDNN has instructions for it and the device's level allows them;
// elsewhere it is converted to float in scratch, multiplied and converted back (oneDNN's emulated bf16 is
// slower than its float). fp16, which oneDNN 2.6 does not have, always goes that way. Note that oneDNN picks
// its own instruction set: a device pinned to a lower level still gets oneDNN's float kernels for this
// processor.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/onednn.h"
#include "trainctl/device/cpu_device.h"
#include "trainctl/ops/ops.h"

namespace trainctl::cpu {

// Weight gradients are summed over pieces of at most this many rows: beyond it oneDNN 2.6 splits the inner
// dimension by the number of threads, and the bits follow. Its AMX kernels do so already from 1024 on.
inline constexpr std::int64_t weight_gradient_rows = 1024;
inline constexpr std::int64_t weight_gradient_rows_amx = 512;

class CpuMatmul final : public MatmulOps {
  public:
    CpuMatmul(int threads, CpuIsa isa, ElementwiseKernels elementwise);
    void forward(Stream& stream, TensorView y, TensorView x, TensorView w, TensorView bias,
                 TensorView scratch) override;
    void backward_input(Stream& stream, TensorView dx, TensorView dy, TensorView w, Into into,
                        TensorView scratch) override;
    void backward_weight(Stream& stream, TensorView dw, TensorView dy, TensorView x, Into into,
                         TensorView scratch) override;
    [[nodiscard]] std::size_t scratch_bytes(MatmulKind kind, std::int64_t m, std::int64_t n, std::int64_t k,
                                            DType dtype) const override;

  private:
    [[nodiscard]] bool native(DType dtype) const;
    // Scratch of oneDNN for any use of this kind of call: the plan does not know which there will be.
    [[nodiscard]] std::size_t pad_bytes(MatmulKind kind, std::int64_t m, std::int64_t n, std::int64_t k,
                                        DType in) const;
    const std::byte* widen(std::byte*& scratch, const std::byte* from, std::int64_t count, DType dtype) const;

    int threads_;
    bool native_bf16_;
    std::int64_t piece_rows_;  // of weight gradients
    ElementwiseKernels elementwise_;
    mutable ProductCache products_;
};

}  // namespace trainctl::cpu
