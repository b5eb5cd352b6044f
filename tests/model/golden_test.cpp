// Parity with PyTorch in float64: files written by scripts/reference.py, whose head says what they hold.
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "model/tiny_model.h"
#include "support/catch.h"
#include "support/reference/elements.h"

namespace trainctl {
namespace {

using Arrays = std::map<std::string, std::vector<double>>;

Arrays read_golden(const std::string& name) {
    const std::string path = TRAINCTL_GOLDEN_DIRECTORY "/" + name + ".golden";
    std::ifstream in(path, std::ios::binary);
    std::string line;
    if (!std::getline(in, line) || line != "trainctl-golden 1") {
        fail(Exit::BadInput, path + " is not a golden file: run scripts/reference.py");
    }
    Arrays arrays;
    while (std::getline(in, line)) {
        std::istringstream header(line);
        std::string array;
        std::size_t count = 0;
        header >> array >> count;
        std::vector<double>& values = arrays[array];
        values.resize(count);
        in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(count * sizeof(double)));
        if (!in) fail(Exit::BadInput, path + " is truncated in " + array);
    }
    return arrays;
}

struct Case {
    const char* name;
    Architecture architecture;
    std::int64_t heads;
    std::int64_t kv_heads;
    bool tied;
};
const Case cases[] = {
    {"gpt2_tied", Architecture::Gpt2, 4, 4, true},
    {"gpt2_untied", Architecture::Gpt2, 4, 4, false},
    {"llama_tied", Architecture::Llama, 4, 2, true},
    {"llama_untied", Architecture::Llama, 6, 2, false},
};

ModelSpec spec_of(const Case& c) {
    ModelSpec model;
    model.architecture = c.architecture;
    model.layers = 2;
    model.hidden_size = 16;
    model.heads = c.heads;
    model.kv_heads = c.kv_heads;
    model.head_dim = 4;
    model.ffn_size = 24;
    model.vocab_size = 61;
    model.max_sequence_length = 13;
    model.tie_embeddings = c.tied;
    return model;
}

constexpr std::int64_t batch = 2;
constexpr std::int64_t length = 11;
constexpr double target_tokens = 16.0;

// Parameter numbers of the script: the order in which the model reads them.
std::vector<std::string> script_order(const ModelSpec& model) {
    const bool gpt2 = model.architecture == Architecture::Gpt2;
    std::vector<std::string> names = {"embedding.tokens.weight"};
    if (gpt2) names.emplace_back("embedding.positions.weight");
    const auto add = [&](const std::string& name) {
        names.push_back(name + ".weight");
        if (gpt2) names.push_back(name + ".bias");
    };
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        const std::string block = "blocks." + std::to_string(layer) + ".";
        for (const char* name : {"attention_norm", "attention.q", "attention.k", "attention.v",
                                 "attention.output", "mlp_norm", "mlp.gate", "mlp.up", "mlp.down"}) {
            if (gpt2 && std::string(name) == "mlp.gate") continue;
            add(block + name);
        }
    }
    add("head.norm");
    if (!model.tie_embeddings) names.emplace_back("head.output.weight");
    return names;
}

void set_weights(TinyModel& model, const ModelSpec& spec) {
    const std::vector<std::string> names = script_order(spec);
    REQUIRE(names.size() == model.params().params().size());
    for (std::size_t k = 0; k < names.size(); ++k) {
        const int index = model.params().index(names[k]);
        const ParamSpec& param = model.params().params()[static_cast<std::size_t>(index)];
        const TensorView weight = model.params().weight(index);
        for (std::int64_t i = 0; i < param.global.elements(); ++i) {
            const auto number = static_cast<std::int64_t>(k);
            const double p =
                static_cast<double>((31 * i * i + 7919 * i + 104729 * number) % 2003) / 1001.0 - 1.0;
            double value = 0.2 * p;
            if (names[k].rfind("embedding.", 0) == 0) value = 0.5 * p;
            if (param.init == InitKind::One) value = 1.0 + 0.1 * p;
            if (param.init == InitKind::Zero) value = 0.1 * p;
            set_element(weight, i, value);
        }
    }
}

TinyBatch batch_of(const ModelSpec& spec, std::int64_t step) {
    TinyBatch data(spec, batch, length, 0);
    for (std::int64_t b = 0; b < batch; ++b) {
        for (std::int64_t t = 0; t < length; ++t) {
            const auto token = [&](std::int64_t at) {
                return static_cast<std::int32_t>((131 * step + 17 * b + 7 * at * at + 3 * at) %
                                                 spec.vocab_size);
            };
            const std::int64_t phase = (2 * b + t) % 11;
            const bool ignored = phase == 0 || phase == 4 || phase == 7;
            const auto at = static_cast<std::size_t>(b * length + t);
            data.tokens[at] = token(t);
            data.targets[at] = ignored ? -1 : token(t + 1);
        }
    }
    return data;
}

// AdamW over whole units: one buffer each for m, v, flags and the step's scalars.
class Optimizer {
  public:
    Optimizer(TinyModel& model, DType state) : model_(model) {
        for (const UnitLayout& layout : model.params().layouts()) {
            Unit unit;
            const auto elements = static_cast<std::size_t>(layout.padded);
            unit.m.resize(elements * dtype_size(state));
            unit.v.resize(elements * dtype_size(state));
            unit.flags.assign(elements / norm_block, 0);
            for (const ParamPlace& place : layout.places) {
                if (!model.params().params()[static_cast<std::size_t>(place.param)].decay) continue;
                for (std::int64_t e = place.offset; e < place.offset + place.elements; e += norm_block) {
                    unit.flags[static_cast<std::size_t>(e / norm_block)] |= block_decays;
                }
            }
            units_.push_back(std::move(unit));
        }
        state_ = state;
    }

    // Returns the norm before clipping.
    double step(std::int64_t number) {
        OptimizerOps& ops = model_.ops().optimizer;
        std::vector<std::int64_t> bins(norm_bins, 0);
        std::vector<double> scalars(step_scalars, 0.0);
        const TensorView bins_view{reinterpret_cast<std::byte*>(bins.data()), Shape{norm_bins}, DType::I64};
        const TensorView scalars_view{reinterpret_cast<std::byte*>(scalars.data()), Shape{step_scalars},
                                      DType::F64};
        for (std::size_t u = 0; u < units_.size(); ++u) {
            const auto unit = static_cast<UnitId>(u);
            ops.sum_squares(model_.stream(), bins_view, model_.params().unit_gradients(unit),
                            u == 0 ? Into::Overwrite : Into::Accumulate);
        }
        ops.finish_norm(model_.stream(), scalars_view, bins_view, 1.0, 1.0);
        AdamwSettings settings;
        settings.lr = 3e-3;
        settings.weight_decay = 0.1;
        settings.step = number;
        for (std::size_t u = 0; u < units_.size(); ++u) {
            const auto unit = static_cast<UnitId>(u);
            const TensorView master = model_.params().unit_weights(unit);
            const TensorView m{units_[u].m.data(), master.shape, state_};
            const TensorView v{units_[u].v.data(), master.shape, state_};
            ops.adamw(model_.stream(), {}, master, m, v, model_.params().unit_gradients(unit),
                      flags(units_[u]), scalars_view, settings);
        }
        model_.stream().synchronize();
        REQUIRE(scalars[scalar_apply] == 1.0);
        return scalars[scalar_grad_norm];
    }

  private:
    struct Unit {
        std::vector<std::byte> m;
        std::vector<std::byte> v;
        std::vector<std::uint8_t> flags;
    };
    static TensorView flags(Unit& unit) {
        return {reinterpret_cast<std::byte*>(unit.flags.data()),
                Shape{static_cast<std::int64_t>(unit.flags.size())}, DType::U8};
    }

    TinyModel& model_;
    DType state_ = DType::F64;
    std::vector<Unit> units_;
};

// The logical part of a padded tensor.
std::vector<double> logical(const TensorView& view, const ParamSpec& param) {
    std::vector<double> values = values_of(view);
    values.resize(static_cast<std::size_t>(param.global.elements()));
    return values;
}

struct Tolerance {
    double gradients;  // relative to the largest of the tensor
    double curve;      // losses and norms
    double weights;
    double zero;  // what counts as 0 where the exact gradient is 0
};

void compare(const Case& c, Backend backend, const Tolerance& tolerance) {
    INFO(c.name);
    const Arrays golden = read_golden(c.name);
    const ModelSpec spec = spec_of(c);
    TinyModel model(spec, {backend, length, 7});
    // Padding between tensors belongs to whoever owns the gradients: the model never writes it.
    for (const UnitLayout& layout : model.params().layouts()) {
        model.ops().elementwise.fill_zero(model.stream(), model.params().unit_gradients(layout.unit));
    }
    set_weights(model, spec);
    Optimizer optimizer(model, backend == Backend::Reference ? DType::F64 : DType::F32);
    const auto& params = model.params().params();
    const auto scale = static_cast<float>(1.0 / target_tokens);
    for (std::int64_t step = 0; step < 10; ++step) {
        INFO("step " << step);
        TinyBatch data = batch_of(spec, step);
        const double loss = model.train(data.micro(), scale);
        CHECK(loss / target_tokens ==
              Approx(golden.at("losses")[static_cast<std::size_t>(step)]).epsilon(tolerance.curve));
        for (std::size_t i = 0; step == 0 && i < params.size(); ++i) {
            INFO(params[i].name);
            const auto gradient = logical(model.params().gradient(static_cast<int>(i)), params[i]);
            const std::vector<double>& expected = golden.at("grad:" + params[i].name);
            REQUIRE(gradient.size() == expected.size());
            if (params[i].name.find("attention.k.bias") != std::string::npos) {
                for (const double value : gradient) CHECK(std::abs(value) < tolerance.zero);
            } else {
                CHECK(relative_difference(gradient, expected) < tolerance.gradients);
            }
        }
        if (step == 0) CHECK(loss == Approx(golden.at("loss")[0]).epsilon(tolerance.curve));
        const double norm = optimizer.step(step + 1);
        CHECK(norm == Approx(golden.at("norms")[static_cast<std::size_t>(step)]).epsilon(tolerance.curve));
    }
    for (std::size_t i = 0; i < params.size(); ++i) {
        INFO(params[i].name);
        // Adam turns the rounding noise of a gradient that is exactly 0 into full steps.
        if (params[i].name.find("attention.k.bias") != std::string::npos) continue;
        const auto weight = logical(model.params().weight(static_cast<int>(i)), params[i]);
        CHECK(relative_difference(weight, golden.at("final:" + params[i].name)) < tolerance.weights);
    }
}

}  // namespace

TEST_CASE("the oracle agrees with PyTorch in double precision", "[golden]") {
    for (const Case& c : cases) compare(c, Backend::Reference, {1e-9, 1e-9, 1e-9, 1e-15});
}

TEST_CASE("the cpu backend agrees with PyTorch", "[golden]") {
    for (const Case& c : cases) compare(c, Backend::CpuF32, {2e-5, 2e-5, 2e-5, 1e-7});
}

// One target at a time, its loss is the logarithm of the softmax denominator minus its logit: over all tokens
// of the vocabulary that is every logit of a row, up to the common denominator.
TEST_CASE("logits agree with PyTorch", "[golden]") {
    for (const Case& c : cases) {
        INFO(c.name);
        const Arrays golden = read_golden(c.name);
        const ModelSpec spec = spec_of(c);
        TinyModel model(spec, {Backend::Reference, length});
        set_weights(model, spec);
        TinyBatch data = batch_of(spec, 0);
        for (const std::int64_t row : {0, 10, 16}) {
            double denominator = 0.0;
            const double* logits = golden.at("logits").data() + row * spec.vocab_size;
            for (std::int64_t v = 0; v < spec.vocab_size; ++v) denominator += std::exp(logits[v]);
            for (const std::int32_t token : {0, 1, 30, 59, 60}) {
                std::fill(data.targets.begin(), data.targets.end(), -1);
                data.targets[static_cast<std::size_t>(row)] = token;
                CHECK(model.evaluate(data.micro()) ==
                      Approx(std::log(denominator) - logits[token]).epsilon(1e-10));
            }
        }
    }
}

}  // namespace trainctl
