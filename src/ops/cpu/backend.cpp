// The cpu backend: kernels of the device's level, its threads.
#include "ops/cpu/families.h"
#include "ops/cpu/gemm.h"
#include "trainctl/ops/backends.h"

namespace trainctl::cpu {
namespace {

template <class Level, class AttentionLevel>
Kernels kernels() {
    return {norm_kernels<Level>(), elementwise_kernels<Level>(), embedding_kernels<Level>(),
            loss_kernels<Level>(), optimizer_kernels<Level>(),   attention_kernels<AttentionLevel>()};
}

Kernels kernels_of(CpuIsa isa) {
    switch (isa) {
        case CpuIsa::V3:
            return kernels<LevelV3, LevelV3>();
        case CpuIsa::V4:
            return kernels<LevelV4, LevelV4>();
        case CpuIsa::Avx512Bf16:  // only attention multiplies
            return onednn_has_amx() ? kernels<LevelV4, LevelAmx>() : kernels<LevelV4, LevelAvx512Bf16>();
    }
    fail(Exit::Internal, "unknown CpuIsa");
}

class CpuBackend final : public OpsBackend {
  public:
    CpuBackend(const CpuDevice& device, const Kernels& kernels)
        : matmul_(device.threads(), device.isa(), kernels.elementwise),
          norm_(device.threads(), kernels.norm),
          attention_(device.threads(), kernels.attention),
          elementwise_(device.threads(), kernels.elementwise),
          embedding_(device.threads(), kernels.embedding),
          loss_(device.threads(), kernels.loss),
          optimizer_(device.threads(), kernels.optimizer) {}

    Ops ops() override { return {matmul_, norm_, attention_, elementwise_, embedding_, loss_, optimizer_}; }

  private:
    CpuMatmul matmul_;
    CpuNorm norm_;
    CpuAttention attention_;
    CpuElementwise elementwise_;
    CpuEmbedding embedding_;
    CpuLoss loss_;
    CpuOptimizer optimizer_;
};

}  // namespace
}  // namespace trainctl::cpu

namespace trainctl {

std::unique_ptr<OpsBackend> make_cpu_ops(CpuDevice& device) {
    return std::make_unique<cpu::CpuBackend>(device, cpu::kernels_of(device.isa()));
}

}  // namespace trainctl
