// Matrix products by cuBLASLt: plans are made once per kind of product and kept, so that nothing is looked up
// in a step.
#pragma once

#include <map>
#include <memory>

#include "cuda/product_plan.h"

namespace trainctl::cuda {

// Thread rule: the rank's compute thread.
class Products {
  public:
    explicit Products(F32Products f32);
    ~Products();
    Products(const Products&) = delete;
    Products& operator=(const Products&) = delete;

    // Makes the plan if it is not there, by the library's first choice. Exit::Resource with the sizes if the
    // library has no kernel for them.
    void prepare(const ProductKey& key);
    // Asynchronous; `workspace` has product_workspace_bytes and belongs to this call until the stream has
    // passed it.
    void run(cudaStream_t stream, const ProductKey& key, const ProductTensors& tensors, Into into,
             void* workspace);
    // Calls of run() that found no plan.
    [[nodiscard]] std::uint64_t unannounced() const { return unannounced_; }

    // Lets the product run by this algorithm from now on. False, with nothing changed, if the library refuses
    // it.
    [[nodiscard]] bool adopt(const ProductKey& key, const cublasLtMatmulAlgo_t& algorithm);
    // How often a plan that was there has been replaced: what was recorded before runs by the old one.
    [[nodiscard]] std::uint64_t changes() const { return changes_; }
    // nullptr: it is not prepared.
    [[nodiscard]] const ProductPlan* find(const ProductKey& key) const;

    [[nodiscard]] F32Products f32() const { return f32_; }
    [[nodiscard]] cublasLtHandle_t library() const { return library_; }

  private:
    ProductPlan& plan(const ProductKey& key);

    F32Products f32_;
    cublasLtHandle_t library_ = nullptr;
    std::map<ProductKey, std::unique_ptr<ProductPlan>> plans_;
    std::uint64_t unannounced_ = 0;
    std::uint64_t changes_ = 0;
};

}  // namespace trainctl::cuda
