// The real model on real ranks: the number of ranks changes results to rounding, the stage and the buckets
// not by a bit.
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "parallel/zero_harness.h"
#include "support/catch.h"
#include "trainctl/base/philox.h"
#include "trainctl/device/host_stream.h"
#include "trainctl/model/transformer.h"
#include "trainctl/ops/backends.h"

namespace trainctl::test {
namespace {

constexpr std::int64_t length = 16;
constexpr std::int64_t vocabulary = 97;
constexpr int global_batch = 4;

ModelSpec tiny(Architecture architecture) {
    ModelSpec model;
    model.architecture = architecture;
    model.layers = 2;
    model.hidden_size = 32;
    model.heads = 4;
    model.kv_heads = architecture == Architecture::Llama ? 2 : 4;
    model.head_dim = 8;
    model.ffn_size = architecture == Architecture::Llama ? 88 : 128;
    model.vocab_size = vocabulary;
    model.max_sequence_length = length;
    model.tie_embeddings = architecture == Architecture::Gpt2;
    return model;
}

// The heap instead of a plan: this test is about what travels, not where activations lie.
class HeapArena : public Arena {
  public:
    void begin(PassKind /*kind*/) override {}
    void end() override { invariant(live_.empty(), "activations left"); }
    std::byte* allocate(std::size_t bytes) override {
        auto block = std::make_unique<std::max_align_t[]>(bytes / sizeof(std::max_align_t) + 64);
        auto address = reinterpret_cast<std::uintptr_t>(block.get());
        address = (address + alignment - 1) / alignment * alignment;
        auto* data = reinterpret_cast<std::byte*>(address);
        live_[data] = std::move(block);
        return data;
    }
    void release(std::byte* data) override { live_.erase(data); }

  private:
    std::map<std::byte*, std::unique_ptr<std::max_align_t[]>> live_;
};

// A learnable sequence: each token is an affine function of the one before, with some noise.
std::vector<std::int32_t> sample_tokens(std::uint64_t sample) {
    std::vector<std::int32_t> tokens;
    for (std::uint64_t t = 0; t <= length; ++t) {
        const PhiloxBlock words = philox4x32(philox_key(99), t, sample);
        const auto noise = static_cast<std::int32_t>(words[0] % static_cast<std::uint32_t>(vocabulary));
        const bool follows = t > 0 && words[1] % 4U != 0;
        tokens.push_back(follows ? static_cast<std::int32_t>((tokens.back() * 5 + 7) % vocabulary) : noise);
    }
    return tokens;
}

struct Training {
    ModelSpec model;
    int ranks = 1;
    int samples_per_micro = 1;
    int steps = 20;
    ZeroOptions options;
};

struct Trained {
    std::vector<double> losses, norms;
    NamedTensors state;
};

void train_rank(RankContext& context, Ops ops, const Training& training, Trained& trained,
                std::mutex& mutex) {
    ModelOptions model_options;
    model_options.compute = training.options.compute;
    const auto model = make_transformer(context.device, training.model, model_options, length);
    const auto zero = make_zero_state(context.device, ops, {context.data}, context.compute,
                                      context.communication, model->parameters(), training.options);
    zero->initialise(7);
    HeapArena arena;
    Runtime runtime{ops, arena, context.compute, zero->params(), zero->grads()};
    const std::int64_t batch = training.samples_per_micro;
    const auto bytes = static_cast<std::size_t>(batch * length) * sizeof(std::int32_t);
    const Buffer tokens = context.device.allocate(bytes, Memory::Device, "tokens");
    const Buffer targets = context.device.allocate(bytes, Memory::Device, "targets");
    const Buffer scalar_memory =
        context.device.allocate(step_scalars * sizeof(double), Memory::Device, "scalars");
    const TensorView scalars = scalar_memory.view(Shape{step_scalars}, DType::F64);
    const int micros = global_batch / training.ranks / training.samples_per_micro;
    std::vector<double> losses;
    std::vector<double> norms;
    for (int step = 0; step < training.steps; ++step) {
        for (int micro = 0; micro < micros; ++micro) {
            const std::int64_t first = step * global_batch + (micro * training.ranks + context.rank) * batch;
            context.compute.synchronize();
            for (std::int64_t s = 0; s < batch; ++s) {
                const auto sample = sample_tokens(static_cast<std::uint64_t>(first + s));
                std::copy_n(sample.begin(), length,
                            reinterpret_cast<std::int32_t*>(tokens.data()) + s * length);
                std::copy_n(sample.begin() + 1, length,
                            reinterpret_cast<std::int32_t*>(targets.data()) + s * length);
            }
            MicroBatch input;
            input.tokens = tokens.view(Shape{batch * length}, DType::I32);
            input.targets = targets.view(Shape{batch * length}, DType::I32);
            input.batch = batch;
            input.length = length;
            input.first_sample = static_cast<std::uint64_t>(first);
            zero->grads().begin_micro(0, micro, micro + 1 == micros ? MicroKind::Last : MicroKind::Inner);
            arena.begin(PassKind::OnlyMicro);
            model->train_micro(runtime, input, 1.0F / static_cast<float>(global_batch * length),
                               scalars.flat(scalar_loss_sum, 1),
                               micro == 0 ? Into::Overwrite : Into::Accumulate);
            arena.end();
        }
        UpdateSettings settings;
        settings.lr = 3e-3;
        settings.applied_updates = step;
        zero->update(scalars, settings);
        context.compute.synchronize();
        losses.push_back(scalars.as<double>()[scalar_loss_sum] / static_cast<double>(global_batch * length));
        norms.push_back(scalars.as<double>()[scalar_grad_norm]);
    }
    context.communication.synchronize();
    const std::lock_guard lock(mutex);
    if (context.rank == 0) {
        trained.losses = losses;
        trained.norms = norms;
    }
    for (const NamedSlice& slice : zero->state_slices()) {
        auto& tensor = trained.state[slice.name];
        tensor.resize(static_cast<std::size_t>(slice.global.elements()));
        std::copy_n(slice.view.as<float>(), slice.flat.size(), tensor.begin() + slice.flat.begin);
    }
}

Trained train(const Training& training) {
    Trained trained;
    std::mutex mutex;
    on_ranks(training.ranks, [&](RankContext& context) {
        const auto cpu = make_cpu_ops(context.device);
        train_rank(context, cpu->ops(), training, trained, mutex);
    });
    return trained;
}

void check_bitwise(const Trained& a, const Trained& b) {
    CHECK(a.losses == b.losses);
    CHECK(a.norms == b.norms);
    CHECK(a.state == b.state);
}

double norm(const std::vector<float>& tensor) {
    double sum = 0.0;
    for (const float value : tensor) sum += static_cast<double>(value) * static_cast<double>(value);
    return std::sqrt(sum);
}

// |a - b| / |a|
double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
    std::vector<float> difference(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
    return norm(difference) / norm(a);
}

bool is_key_bias(const std::string& name) { return name.find(".k.bias") != std::string::npos; }

void check_to_rounding(const Trained& a, const Trained& b) {
    for (std::size_t step = 0; step < a.losses.size(); ++step) {
        CHECK(b.losses[step] == Approx(a.losses[step]).margin(2e-6).epsilon(0));
        CHECK(b.norms[step] == Approx(a.norms[step]).margin(2e-6).epsilon(2e-6));
    }
    for (const auto& [name, tensor] : a.state) {
        const bool moment = name.ends_with(".m") || name.ends_with(".v");
        if (moment || is_key_bias(name)) continue;
        INFO(name);
        CHECK(relative_difference(tensor, b.state.at(name)) < 1e-5);
    }
}

TEST_CASE("A tiny transformer trains alike on 1, 2 and 4 ranks, and the stage changes no bit") {
    for (const Architecture architecture : {Architecture::Gpt2, Architecture::Llama}) {
        Training training;
        training.model = tiny(architecture);
        training.options.compute = DType::F32;
        training.options.stage = 0;
        const Trained one = train(training);
        CHECK(one.losses.front() == Approx(std::log(static_cast<double>(vocabulary))).margin(0.3));
        CHECK(one.losses.back() < one.losses.front() - 0.2);
        for (const int ranks : {2, 4}) {
            training.ranks = ranks;
            training.options.stage = 0;
            const Trained zero0 = train(training);
            check_to_rounding(one, zero0);
            training.options.stage = 1;
            check_bitwise(zero0, train(training));
            training.options.stage = 2;
            const Trained zero2 = train(training);
            if (ranks == global_batch)
                check_bitwise(zero0, zero2);  // no accumulation
            else
                check_to_rounding(zero0, zero2);
            training.options.stage = 3;
            check_bitwise(zero2, train(training));
        }
        if (architecture == Architecture::Gpt2) {
            // The softmax does not see a shift of the keys: the exact gradient is 0.
            for (const auto& [name, tensor] : one.state) {
                if (!is_key_bias(name) || !name.ends_with(".m")) continue;
                std::string query = name;
                query.replace(query.find(".k."), 3, ".q.");
                CHECK(norm(tensor) < 1e-5 * norm(one.state.at(query)));
            }
        }
    }
}

TEST_CASE("Bucket size and overlap change no bit of a tiny transformer") {
    for (const int stage : {1, 2, 3}) {
        Training training;
        training.model = tiny(Architecture::Gpt2);
        training.ranks = 2;
        training.steps = 5;
        training.options.compute = DType::F32;
        training.options.stage = stage;
        const Trained automatic = train(training);
        for (const double megabytes : {0.001, 0.02, 1e9}) {
            for (const bool overlap : {true, false}) {
                training.options.gradient_bucket_mb = megabytes;
                training.options.overlap = overlap;
                check_bitwise(automatic, train(training));
            }
        }
    }
}

}  // namespace
}  // namespace trainctl::test
