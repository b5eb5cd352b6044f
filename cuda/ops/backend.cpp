// The families of the cuda backend, together.
#include "cuda/graphs/gathering_ops.h"
#include "cuda/ops/attention.h"
#include "cuda/ops/elementwise.h"
#include "cuda/ops/embedding.h"
#include "cuda/ops/loss.h"
#include "cuda/ops/matmul.h"
#include "cuda/ops/norm.h"
#include "cuda/ops/optimizer.h"
#include "cuda/ops/product_plans.h"
#include "trainctl/device/cuda_device.h"
#include "trainctl/ops/backends.h"

namespace trainctl {
namespace {

class CudaOps final : public OpsBackend {
  public:
    CudaOps(Device& device, F32Products f32) : products_(f32), plans_(device, products_) {}
    [[nodiscard]] Ops ops() override {
        return {matmul_, norm_, attention_, elementwise_, embedding_, loss_, optimizer_};
    }
    [[nodiscard]] ProductPlans* product_plans() override { return &plans_; }
    [[nodiscard]] const cuda::Products& products() const { return products_; }

  private:
    cuda::Products products_;
    cuda::CudaProductPlans plans_;
    cuda::CudaMatmul matmul_{products_};
    cuda::CudaNorm norm_;
    cuda::CudaAttention attention_;
    cuda::CudaElementwise elementwise_;
    cuda::CudaEmbedding embedding_;
    cuda::CudaLoss loss_;
    cuda::CudaOptimizer optimizer_;
};

}  // namespace

std::unique_ptr<OpsBackend> make_cuda_ops(Device& device, F32Products f32) {
    const auto* cuda_device = dynamic_cast<const CudaDevice*>(&device);
    invariant(cuda_device != nullptr, "cuda ops need a cuda device");
    auto ops = std::make_unique<CudaOps>(device, f32);
    if (cuda_device->graphs() == CudaGraphs::Off) return ops;
    const cuda::Products& products = ops->products();
    return cuda::make_gathering_ops(std::move(ops), products);
}

}  // namespace trainctl
