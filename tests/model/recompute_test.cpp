// Activations that are computed again in backward: the same bits, and the memory and arithmetic that were
// asked for.
#include <string>

#include "model/tiny_model.h"
#include "support/catch.h"
#include "trainctl/model/architecture.h"
#include "trainctl/ops/backends.h"

namespace trainctl {
namespace {

constexpr float scale = 0.0625F;
constexpr std::int64_t samples = 2;
constexpr std::int64_t length = 19;

std::vector<ModelSpec> families(std::int64_t layers) {
    return {tiny_gpt2(layers, true), tiny_llama(layers, 2, false)};
}

TinyOptions options(Backend backend, GradientCheckpointing checkpointing, std::int64_t every = 1) {
    TinyOptions options;
    options.backend = backend;
    options.length = length;
    options.head_chunk_rows = 16;
    options.checkpointing = checkpointing;
    options.checkpoint_every_blocks = every;
    return options;
}

struct Outcome {
    double loss = 0.0;
    double evaluated = 0.0;
    std::vector<double> gradients;
    std::size_t peak_bytes = 0;
};

// Two micro-batches, so that recomputation meets accumulation.
Outcome train(const ModelSpec& spec, const TinyOptions& how) {
    TinyModel model(spec, how);
    model.scatter_weights(4);
    TinyBatch data(spec, samples, length, 21);
    Outcome outcome;
    outcome.evaluated = model.evaluate(data.micro());
    outcome.loss = model.train(data.micro(), scale, 0);
    outcome.peak_bytes = model.arena().peak_bytes();
    outcome.loss += model.train(data.micro(1, 1), scale, 1);
    outcome.gradients = model.all_gradients();
    CHECK(model.arena().live_bytes() == 0);
    CHECK_FALSE(model.arena().strays());
    return outcome;
}

// One block's arithmetic and what it keeps, from the dimensions alone. Elements are F32 (CpuF32).
struct BlockCost {
    ModelSpec spec;

    static constexpr std::int64_t rows = samples * length;
    // As the arena counts a tensor.
    static std::size_t bytes(std::int64_t columns) {
        const auto needed = static_cast<std::size_t>(rows * columns) * sizeof(float);
        return (needed + Arena::alignment - 1) / Arena::alignment * Arena::alignment;
    }
    [[nodiscard]] std::int64_t widened() const {
        return architecture_row(spec.architecture).mlp == MlpKind::SwiGlu ? 2 * spec.ffn_size : spec.ffn_size;
    }
    [[nodiscard]] std::int64_t qkv() const { return (spec.heads + 2 * spec.kv_heads) * spec.head_dim; }
    [[nodiscard]] std::int64_t attention() const { return spec.heads * spec.head_dim; }

    [[nodiscard]] std::size_t hidden_state() const { return bytes(spec.hidden_size); }
    // Both sums with their statistics, q,k,v, attention's output and denominators, the up product.
    [[nodiscard]] std::size_t products() const {
        return 2 * (hidden_state() + bytes(2)) + bytes(qkv()) + bytes(attention()) + bytes(spec.heads) +
               bytes(widened());
    }
    [[nodiscard]] std::size_t everything() const {
        return products() + 2 * hidden_state() + bytes(spec.ffn_size);
    }
    // Forward without the last product, whose result backward does not read.
    [[nodiscard]] double recomputed_flops() const {
        const auto product = [](std::int64_t n, std::int64_t k) {
            return 2.0 * static_cast<double>(rows) * static_cast<double>(n) * static_cast<double>(k);
        };
        const double pairs = static_cast<double>(samples * spec.heads) * length * (length + 1) / 2.0;
        return product(qkv(), spec.hidden_size) + product(spec.hidden_size, attention()) +
               product(widened(), spec.hidden_size) + pairs * 4.0 * static_cast<double>(spec.head_dim);
    }
};

// FLOPs of one training pass, counted by the sim device.
double counted_flops(const ModelSpec& spec, GradientCheckpointing checkpointing) {
    const std::unique_ptr<SimDevice> device = make_sim_device({});
    TinyModel planned(spec, options(Backend::CpuF32, GradientCheckpointing::None));
    const std::unique_ptr<OpsBackend> backend = make_sim_ops(*device, planned.ops());
    const std::unique_ptr<Stream> stream = device->make_stream("compute", StreamRole::Compute);
    const std::unique_ptr<RecordingArena> arena = make_recording_arena();
    ModelOptions model_options;
    model_options.compute = DType::F32;
    model_options.gradient_checkpointing = checkpointing;
    const auto model = make_transformer(*device, spec, model_options, length);
    PlainParams params(*device, model_parameters(spec), DType::F32, DType::F32);
    const Buffer memory = device->allocate(4096, Memory::Device, "ids and loss");
    MicroBatch micro;
    micro.batch = samples;
    micro.length = length;
    micro.tokens = memory.view(Shape{samples, length}, DType::I32);
    micro.targets = micro.tokens;
    Runtime runtime{backend->ops(), *arena, *stream, params, params};
    params.begin_micro(0, 0, MicroKind::Last);
    arena->begin(PassKind::OnlyMicro);
    model->train_micro(runtime, micro, scale, memory.view(Shape{1}, DType::F64, 2048), Into::Overwrite);
    arena->end();
    return device->counters().flops;
}

}  // namespace

TEST_CASE("recomputed activations have the same bits") {
    for (ModelSpec spec : families(3)) {
        for (const Backend backend :
             {Backend::Reference, Backend::CpuF32, Backend::CpuBf16, Backend::CpuF16}) {
            for (const double dropout : {0.0, 0.2}) {
                spec.dropout = dropout;
                const Outcome kept = train(spec, options(backend, GradientCheckpointing::None));
                for (const auto mode : {GradientCheckpointing::Selective, GradientCheckpointing::Full}) {
                    for (const std::int64_t every : {1, 2, 4}) {
                        INFO("dropout " << dropout << ", mode " << static_cast<int>(mode) << ", every "
                                        << every);
                        const Outcome again = train(spec, options(backend, mode, every));
                        CHECK(again.loss == kept.loss);
                        CHECK(again.evaluated == kept.evaluated);
                        CHECK(again.gradients == kept.gradients);
                    }
                }
            }
        }
    }
}

TEST_CASE("each further block keeps exactly what its mode says") {
    const auto peak = [](const ModelSpec& spec, GradientCheckpointing mode, std::int64_t every) {
        return train(spec, options(Backend::CpuF32, mode, every)).peak_bytes;
    };
    for (std::size_t family = 0; family < 2; ++family) {
        const ModelSpec shallow = families(4)[family];
        const ModelSpec deep = families(6)[family];
        const BlockCost block{shallow};
        const auto two_more = [&](GradientCheckpointing mode, std::int64_t every = 1) {
            return peak(deep, mode, every) - peak(shallow, mode, every);
        };
        CHECK(two_more(GradientCheckpointing::None) == 2 * block.everything());
        CHECK(two_more(GradientCheckpointing::Selective) == 2 * block.products());
        CHECK(two_more(GradientCheckpointing::Full) == 2 * block.hidden_state());
        CHECK(two_more(GradientCheckpointing::Full, 2) == block.hidden_state() + block.everything());
        CHECK(two_more(GradientCheckpointing::Selective, 2) == block.products() + block.everything());
        // One hidden state per block, and what a model of a single block needs that keeps everything.
        CHECK(peak(deep, GradientCheckpointing::Full, 1) <=
              6 * block.hidden_state() + peak(families(1)[family], GradientCheckpointing::None, 1));
    }
}

TEST_CASE("full recomputation costs a block's forward without its last product, selective no product") {
    for (const ModelSpec& spec : families(3)) {
        const double kept = counted_flops(spec, GradientCheckpointing::None);
        const double full = counted_flops(spec, GradientCheckpointing::Full);
        CHECK(full - kept == 3.0 * BlockCost{spec}.recomputed_flops());
        CHECK(counted_flops(spec, GradientCheckpointing::Selective) == kept);
    }
}

}  // namespace trainctl
