// Matrix products by cuBLASLt: plans are made once per kind of product and kept, so that nothing is looked up
// in a step.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "trainctl/base/error.h"
#include "trainctl/tensor/into.h"
#include "trainctl/tensor/tensor_view.h"

namespace trainctl::cuda {

// Returns on success; otherwise Exit::Resource naming the call, the status and the place.
void check(cublasStatus_t status, const char* what, Where where = Where::here());

// F32 operands: multiplied as they are, or rounded to TF32 on tensor cores (10 bits of mantissa, about 8
// times faster).
enum class F32Products : std::uint8_t { Exact, Tf32 };

// What makes products alike. Row-major tensors, as ops.h has them.
struct ProductKey {
    enum class Kind : std::uint8_t { Forward, BackwardInput, BackwardWeight } kind = Kind::Forward;
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    DType operands = DType::BF16;
    DType result = DType::BF16;
    bool bias = false;
    bool aligned = true;  // all tensors to 16 bytes
    auto operator<=>(const ProductKey&) const = default;
};

struct ProductTensors {
    const void* left = nullptr;   // x; dy for both gradients
    const void* right = nullptr;  // w; w; x
    void* result = nullptr;       // y; dx; dw
    const void* bias = nullptr;
};

// Scratch of every product, in bytes: what NVIDIA recommends for its newest kernels.
inline constexpr std::size_t product_workspace_bytes = std::size_t{32} << 20U;

// Thread rule: the rank's compute thread.
class Products {
  public:
    explicit Products(F32Products f32);
    ~Products();
    Products(const Products&) = delete;
    Products& operator=(const Products&) = delete;

    // Makes the plan if it is not there. Exit::Resource with the sizes if the library has no kernel for them.
    void prepare(const ProductKey& key);
    // Asynchronous; `workspace` has product_workspace_bytes and belongs to this call until the stream has
    // passed it.
    void run(cudaStream_t stream, const ProductKey& key, const ProductTensors& tensors, Into into,
             void* workspace);

  private:
    class Plan;
    Plan& plan(const ProductKey& key);

    F32Products f32_;
    cublasLtHandle_t library_ = nullptr;
    std::map<ProductKey, std::unique_ptr<Plan>> plans_;
};

}  // namespace trainctl::cuda
