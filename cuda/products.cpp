#include "cuda/products.h"

namespace trainctl::cuda {

Products::Products(F32Products f32) : f32_(f32) { check(cublasLtCreate(&library_), "cublasLtCreate"); }

Products::~Products() {
    plans_.clear();
    static_cast<void>(cublasLtDestroy(library_));
}

ProductPlan& Products::plan(const ProductKey& key) {
    std::unique_ptr<ProductPlan>& plan = plans_[key];
    if (!plan) {
        auto made = std::make_unique<ProductPlan>(key, f32_);
        made->use(made->candidates(library_).front());
        plan = std::move(made);
    }
    return *plan;
}

void Products::prepare(const ProductKey& key) { plan(key); }

void Products::run(cudaStream_t stream, const ProductKey& key, const ProductTensors& tensors, Into into,
                   void* workspace) {
    const auto known = plans_.find(key);
    if (known == plans_.end()) ++unannounced_;
    ProductPlan& chosen = known == plans_.end() ? plan(key) : *known->second;
    check(chosen.run(library_, stream, tensors, into, workspace), "cublasLtMatmul");
}

bool Products::adopt(const ProductKey& key, const cublasLtMatmulAlgo_t& algorithm) {
    const auto known = plans_.find(key);
    if (known != plans_.end()) {
        if (!known->second->accepts(library_, algorithm)) return false;
        known->second->use(algorithm);
        ++changes_;
        return true;
    }
    auto made = std::make_unique<ProductPlan>(key, f32_);
    if (!made->accepts(library_, algorithm)) return false;
    made->use(algorithm);
    plans_.emplace(key, std::move(made));
    return true;
}

const ProductPlan* Products::find(const ProductKey& key) const {
    const auto known = plans_.find(key);
    return known == plans_.end() ? nullptr : known->second.get();
}

}  // namespace trainctl::cuda
