// A tiny model on a backend, with weights, gradients and batches at hand.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/poison_arena.h"
#include "support/plain_params.h"
#include "trainctl/config/job_spec.h"
#include "trainctl/device/cpu_device.h"
#include "trainctl/model/transformer.h"

namespace trainctl {

enum class Backend {
    Reference,      // double-precision oracle, F64 throughout
    ReferenceBf16,  // the oracle's arithmetic over BF16 tensors (gradients F32)
    ReferenceF16,   // ... over F16 tensors
    CpuF32,
    CpuBf16,
    CpuF16,
};

// 97 tokens (padded to 128), 6 heads of 4, hidden 24 unless changed.
ModelSpec tiny_gpt2(std::int64_t layers, bool tied);
ModelSpec tiny_llama(std::int64_t layers, std::int64_t kv_heads, bool tied);

struct TinyOptions {
    Backend backend = Backend::Reference;
    std::int64_t length = 19;
    std::int64_t head_chunk_rows = 0;
    int threads = 1;
    GradientCheckpointing checkpointing = GradientCheckpointing::None;
    std::int64_t checkpoint_every_blocks = 1;
};

// Tokens and targets of `batch` samples of `length`, pseudo-random of `seed`; a few targets are ignored.
struct TinyBatch {
    TinyBatch(const ModelSpec& model, std::int64_t batch, std::int64_t length, std::uint64_t seed);
    // Samples [begin, begin + count) as a micro-batch; this object owns the memory.
    [[nodiscard]] MicroBatch micro(std::int64_t begin, std::int64_t count);
    [[nodiscard]] MicroBatch micro() { return micro(0, batch); }

    std::int64_t batch;
    std::int64_t length;
    std::uint64_t first_sample = 5;
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> targets;
};

class TinyModel {
  public:
    TinyModel(const ModelSpec& model, const TinyOptions& options);
    ~TinyModel();
    TinyModel(const TinyModel&) = delete;
    TinyModel& operator=(const TinyModel&) = delete;

    // Weights far from the initial ones, so that every path of the gradient matters: gains near 1, biases
    // near 0.
    void scatter_weights(std::uint64_t seed);
    void copy_weights(const TinyModel& other);

    // One micro-batch; returns the sum of its losses. index 0 overwrites the gradients, others accumulate.
    double train(const MicroBatch& micro, float gradient_scale, int index = 0, Arena* arena = nullptr);
    // The same over other ops, for example a counting layer over ops().
    double train_with(const Ops& ops, const MicroBatch& micro, float gradient_scale);
    double evaluate(const MicroBatch& micro, Arena* arena = nullptr);

    [[nodiscard]] std::vector<double> gradient(int param) const;
    [[nodiscard]] std::vector<double> all_gradients() const;
    [[nodiscard]] PlainParams& params() { return *params_; }
    [[nodiscard]] const PlainParams& params() const { return *params_; }
    [[nodiscard]] const PoisonArena& arena() const { return arena_; }
    [[nodiscard]] Ops ops() { return backend_->ops(); }
    [[nodiscard]] Stream& stream() { return *stream_; }
    [[nodiscard]] Device& device() { return *device_; }

  private:
    double pass(const Ops& ops, Arena* arena, PassKind kind,
                const std::function<void(Runtime&, TensorView)>& body);

    std::unique_ptr<CpuDevice> device_;
    std::unique_ptr<OpsBackend> backend_;
    std::unique_ptr<Stream> stream_;
    std::unique_ptr<Transformer> model_;
    std::unique_ptr<PlainParams> params_;
    PoisonArena arena_;
    double loss_ = 0.0;
};

// max |a - b| / max |b|; NaN anywhere gives infinity.
double relative_difference(const std::vector<double>& a, const std::vector<double>& b);
std::vector<double> values_of(const TensorView& view);

}  // namespace trainctl
