// One kind of matrix product as cuBLASLt sees it, and the algorithm it runs by.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <vector>

#include "trainctl/base/error.h"
#include "trainctl/ops/product_plans.h"
#include "trainctl/tensor/into.h"

namespace trainctl::cuda {

// Returns on success; otherwise Exit::Resource naming the call, the status and the place.
void check(cublasStatus_t status, const char* what, Where where = Where::here());

// What makes calls alike. Row-major tensors, as ops.h has them.
struct ProductKey {
    Product product;
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

// A matrix as the library sees it: column-major, so a row-major [rows, columns] is its transpose.
class MatrixLayout {
  public:
    MatrixLayout(DType dtype, std::int64_t rows, std::int64_t columns);
    ~MatrixLayout();
    MatrixLayout(const MatrixLayout&) = delete;
    MatrixLayout& operator=(const MatrixLayout&) = delete;
    [[nodiscard]] cublasLtMatrixLayout_t raw() const { return layout_; }

  private:
    cublasLtMatrixLayout_t layout_ = nullptr;
};

// Without an algorithm until use(). Thread rule: the rank's compute thread.
class ProductPlan {
  public:
    ProductPlan(const ProductKey& key, F32Products f32);
    ~ProductPlan();
    ProductPlan(const ProductPlan&) = delete;
    ProductPlan& operator=(const ProductPlan&) = delete;

    // The library's own choice, the one it takes for the fastest first. Exit::Resource with the sizes if it
    // has none.
    [[nodiscard]] std::vector<cublasLtMatmulAlgo_t> candidates(cublasLtHandle_t library) const;
    // Whether the library can run this product by it, in the workspace that calls have.
    [[nodiscard]] bool accepts(cublasLtHandle_t library, const cublasLtMatmulAlgo_t& algorithm) const;

    void use(const cublasLtMatmulAlgo_t& algorithm) { algorithm_ = algorithm; }
    [[nodiscard]] const cublasLtMatmulAlgo_t& algorithm() const { return algorithm_; }

    // Asynchronous; the workspace belongs to the call until the stream has passed it.
    [[nodiscard]] cublasStatus_t run(cublasLtHandle_t library, cudaStream_t stream, const ProductTensors& t,
                                     Into into, void* workspace);

  private:
    template <class T>
    void set(cublasLtMatmulDescAttributes_t attribute, T value);

    ProductKey key_;
    MatrixLayout first_;
    MatrixLayout second_;
    MatrixLayout result_;
    cublasLtMatmulDesc_t product_ = nullptr;
    cublasLtMatmulAlgo_t algorithm_{};
};

}  // namespace trainctl::cuda
