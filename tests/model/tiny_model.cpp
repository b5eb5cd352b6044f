#include "model/tiny_model.h"

#include <cmath>
#include <limits>

#include "support/reference/elements.h"
#include "support/reference_ops.h"
#include "trainctl/base/hash.h"
#include "trainctl/base/philox.h"
#include "trainctl/ops/backends.h"

namespace trainctl {
namespace {

ModelSpec tiny(Architecture architecture, std::int64_t layers, bool tied) {
    ModelSpec model;
    model.architecture = architecture;
    model.layers = layers;
    model.hidden_size = 24;
    model.heads = 6;
    model.kv_heads = 6;
    model.head_dim = 4;
    model.ffn_size = 40;
    model.vocab_size = 97;
    model.max_sequence_length = 23;
    model.tie_embeddings = tied;
    return model;
}

DType compute_of(Backend backend) {
    switch (backend) {
        case Backend::Reference:
            return DType::F64;
        case Backend::CpuF32:
            return DType::F32;
        case Backend::ReferenceBf16:
        case Backend::CpuBf16:
            return DType::BF16;
        case Backend::ReferenceF16:
        case Backend::CpuF16:
            return DType::F16;
    }
    return DType::F64;
}

// Uniform in [-1, 1).
double spread(std::uint64_t seed, std::uint64_t stream, std::int64_t index) {
    const PhiloxBlock words =
        philox4x32(philox_key(seed), static_cast<std::uint64_t>(index), stream ^ 0x5CA77E12U);
    return 2.0 * static_cast<double>(philox_uniform(words[0])) - 1.0;
}

}  // namespace

ModelSpec tiny_gpt2(std::int64_t layers, bool tied) { return tiny(Architecture::Gpt2, layers, tied); }

ModelSpec tiny_llama(std::int64_t layers, std::int64_t kv_heads, bool tied) {
    ModelSpec model = tiny(Architecture::Llama, layers, tied);
    model.kv_heads = kv_heads;
    return model;
}

TinyBatch::TinyBatch(const ModelSpec& model, std::int64_t batch_size, std::int64_t sequence_length,
                     std::uint64_t seed)
    : batch(batch_size), length(sequence_length) {
    for (std::int64_t i = 0; i < batch * length; ++i) {
        const PhiloxBlock words = philox4x32(philox_key(seed), static_cast<std::uint64_t>(i), 77);
        const auto vocabulary = static_cast<std::uint32_t>(model.vocab_size);
        tokens.push_back(static_cast<std::int32_t>(words[0] % vocabulary));
        targets.push_back(words[2] % 8 == 0 ? -1 : static_cast<std::int32_t>(words[1] % vocabulary));
    }
}

MicroBatch TinyBatch::micro(std::int64_t begin, std::int64_t count) {
    const Shape shape{count, length};
    MicroBatch micro;
    micro.tokens = {reinterpret_cast<std::byte*>(tokens.data() + begin * length), shape, DType::I32};
    micro.targets = {reinterpret_cast<std::byte*>(targets.data() + begin * length), shape, DType::I32};
    micro.batch = count;
    micro.length = length;
    micro.first_sample = first_sample + static_cast<std::uint64_t>(begin);
    return micro;
}

TinyModel::TinyModel(const ModelSpec& model, const TinyOptions& options) {
    CpuDeviceOptions device;
    device.threads = options.threads;
    device.isa = detect_cpu_isa();
    device_ = make_cpu_device(device);
    const bool oracle = options.backend == Backend::Reference || options.backend == Backend::ReferenceBf16 ||
                        options.backend == Backend::ReferenceF16;
    backend_ = oracle ? make_reference_ops() : make_cpu_ops(*device_);
    stream_ = device_->make_stream("compute", StreamRole::Compute);
    const DType compute = compute_of(options.backend);
    ModelOptions model_options;
    model_options.compute = compute;
    model_options.seed = 99;
    model_options.head_chunk_rows = options.head_chunk_rows;
    model_options.gradient_checkpointing = options.checkpointing;
    model_options.checkpoint_every_blocks = options.checkpoint_every_blocks;
    model_ = make_transformer(*device_, model, model_options, options.length);
    params_ = std::make_unique<PlainParams>(*device_, model_parameters(model), compute,
                                            compute == DType::F64 ? DType::F64 : DType::F32);
    params_->poison_gradients();
}

TinyModel::~TinyModel() = default;

void TinyModel::scatter_weights(std::uint64_t seed) {
    for (std::size_t i = 0; i < params_->params().size(); ++i) {
        const ParamSpec& param = params_->params()[i];
        const TensorView weight = params_->weight(static_cast<int>(i));
        for (std::int64_t e = 0; e < param.padded.elements(); ++e) {
            const double random = spread(seed, name_hash(param.name), e);
            double value = 0.5 * random;
            if (param.init == InitKind::One) value = 1.0 + 0.3 * random;
            if (e >= param.global.elements()) value = 0.0;
            set_element(weight, e, value);
        }
    }
}

void TinyModel::copy_weights(const TinyModel& other) {
    for (std::size_t i = 0; i < params_->params().size(); ++i) {
        const TensorView to = params_->weight(static_cast<int>(i));
        const TensorView from = other.params().weight(static_cast<int>(i));
        for (std::int64_t e = 0; e < to.elements(); ++e) set_element(to, e, element(from, e));
    }
}

double TinyModel::pass(const Ops& ops, Arena* arena, PassKind kind,
                       const std::function<void(Runtime&, TensorView)>& body) {
    Arena& used = arena == nullptr ? arena_ : *arena;
    Runtime runtime{ops, used, *stream_, *params_, *params_};
    const TensorView loss{reinterpret_cast<std::byte*>(&loss_), Shape{1}, DType::F64};
    loss_ = std::nan("");
    used.begin(kind);
    body(runtime, loss);
    used.end();
    stream_->synchronize();
    return loss_;
}

double TinyModel::train(const MicroBatch& micro, float gradient_scale, int index, Arena* arena) {
    params_->begin_micro(0, index, MicroKind::Last);
    const double loss = pass(ops(), arena, PassKind::OnlyMicro, [&](Runtime& runtime, TensorView sum) {
        model_->train_micro(runtime, micro, gradient_scale, sum, Into::Overwrite);
    });
    params_->check_idle();
    return loss;
}

double TinyModel::train_with(const Ops& ops, const MicroBatch& micro, float gradient_scale) {
    params_->begin_micro(0, 0, MicroKind::Last);
    const double loss = pass(ops, nullptr, PassKind::OnlyMicro, [&](Runtime& runtime, TensorView sum) {
        model_->train_micro(runtime, micro, gradient_scale, sum, Into::Overwrite);
    });
    params_->check_idle();
    return loss;
}

double TinyModel::evaluate(const MicroBatch& micro, Arena* arena) {
    params_->begin_micro(0, 0, MicroKind::Last);
    const double loss = pass(ops(), arena, PassKind::Evaluation, [&](Runtime& runtime, TensorView sum) {
        model_->evaluate_micro(runtime, micro, sum, Into::Overwrite);
    });
    params_->check_idle(true);
    return loss;
}

std::vector<double> TinyModel::all_gradients() const {
    std::vector<double> all;
    for (std::size_t i = 0; i < params_->params().size(); ++i) {
        const std::vector<double> part = gradient(static_cast<int>(i));
        all.insert(all.end(), part.begin(), part.end());
    }
    return all;
}

std::vector<double> TinyModel::gradient(int param) const { return values_of(params_->gradient(param)); }

std::vector<double> values_of(const TensorView& view) {
    std::vector<double> values;
    for (std::int64_t e = 0; e < view.elements(); ++e) values.push_back(element(view, e));
    return values;
}

double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
    double difference = 0.0;
    double largest = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (!(std::isfinite(a[i]) && std::isfinite(b[i]))) return std::numeric_limits<double>::infinity();
        difference = std::max(difference, std::abs(a[i] - b[i]));
        largest = std::max(largest, std::abs(b[i]));
    }
    return difference == 0.0 ? 0.0 : difference / largest;
}

}  // namespace trainctl
