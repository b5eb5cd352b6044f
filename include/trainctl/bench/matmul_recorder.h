// Records the matrix products of a step, so that they can be timed alone: the ceiling that the step is judged
// by.
#pragma once

#include <cstdint>
#include <vector>

#include "trainctl/device/device.h"
#include "trainctl/ops/ops.h"

namespace trainctl {

struct MatmulCall {
    MatmulKind kind = MatmulKind::Forward;
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    DType input = DType::BF16;
    DType output = DType::BF16;
    Into into = Into::Overwrite;
    bool bias = false;

    [[nodiscard]] double flops() const {
        return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    }
    bool operator==(const MatmulCall& other) const = default;
};

// Passes every call on and remembers its shape while recording.
class MatmulRecorder final : public MatmulOps {
  public:
    explicit MatmulRecorder(MatmulOps& target) : target_(target) {}
    void start() { recording_ = true; }
    // The calls since start(), in order.
    std::vector<MatmulCall> stop();

    void forward(Stream& stream, TensorView y, TensorView x, TensorView w, TensorView bias,
                 TensorView scratch) override;
    void backward_input(Stream& stream, TensorView dx, TensorView dy, TensorView w, Into into,
                        TensorView scratch) override;
    void backward_weight(Stream& stream, TensorView dw, TensorView dy, TensorView x, Into into,
                         TensorView scratch) override;
    [[nodiscard]] std::size_t scratch_bytes(MatmulKind kind, std::int64_t m, std::int64_t n, std::int64_t k,
                                            DType dtype) const override;

  private:
    MatmulOps& target_;
    bool recording_ = false;
    std::vector<MatmulCall> calls_;
};

// Runs recorded calls on buffers of its own. Weights of different calls lie in different memory (as in a
// model), so that the replay is not flattered by a warm cache.
class MatmulReplay {
  public:
    MatmulReplay(Device& device, MatmulOps& matmul, std::vector<MatmulCall> calls);
    // All calls once, in order; returns when they are done.
    void run(Stream& stream);
    [[nodiscard]] double flops() const;
    [[nodiscard]] std::size_t size() const { return calls_.size(); }

  private:
    MatmulOps& matmul_;
    std::vector<MatmulCall> calls_;
    Buffer a_;
    Buffer b_;
    Buffer out_;
    Buffer scratch_;
};

}  // namespace trainctl
