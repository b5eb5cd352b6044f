// Names, counts and places of parameters.
#include <algorithm>
#include <map>
#include <set>

#include "model/tiny_model.h"
#include "support/catch.h"
#include "trainctl/config/presets.h"
#include "trainctl/model/param.h"
#include "trainctl/model/unit_layout.h"

namespace trainctl {
namespace {

std::int64_t count(const ModelSpec& model) {
    std::int64_t total = 0;
    for (const ParamSpec& param : model_parameters(model)) total += param.global.elements();
    return total;
}

struct Published {
    const char* name;
    Architecture architecture;
    std::int64_t layers, hidden, ffn, heads, kv_heads, vocabulary, positions;
    bool tied;
    std::int64_t parameters;
};

ModelSpec spec(const Published& row) {
    ModelSpec model;
    model.architecture = row.architecture;
    model.layers = row.layers;
    model.hidden_size = row.hidden;
    model.heads = row.heads;
    model.kv_heads = row.kv_heads;
    model.head_dim = row.hidden / row.heads;
    model.ffn_size = row.ffn;
    model.vocab_size = row.vocabulary;
    model.max_sequence_length = row.positions;
    model.tie_embeddings = row.tied;
    return model;
}

std::vector<ModelSpec> small_models() {
    return {tiny_gpt2(2, true), tiny_gpt2(3, false), tiny_llama(2, 2, true), tiny_llama(5, 6, false)};
}

}  // namespace

TEST_CASE("parameter counts equal the published ones") {
    const Published rows[] = {
        {"GPT-2 124M", Architecture::Gpt2, 12, 768, 3072, 12, 12, 50257, 1024, true, 124439808},
        {"GPT-2 124M, 50304", Architecture::Gpt2, 12, 768, 3072, 12, 12, 50304, 1024, true, 124475904},
        {"GPT-2 350M", Architecture::Gpt2, 24, 1024, 4096, 16, 16, 50257, 1024, true, 354823168},
        {"GPT-2 774M", Architecture::Gpt2, 36, 1280, 5120, 20, 20, 50257, 1024, true, 774030080},
        {"GPT-2 1558M", Architecture::Gpt2, 48, 1600, 6400, 25, 25, 50257, 1024, true, 1557611200},
        {"TinyLlama", Architecture::Llama, 22, 2048, 5632, 32, 4, 32000, 2048, false, 1100048384},
        {"OpenLLaMA 3B", Architecture::Llama, 26, 3200, 8640, 32, 32, 32000, 2048, false, 3426473600},
        {"Llama-2-7B", Architecture::Llama, 32, 4096, 11008, 32, 32, 32000, 4096, false, 6738415616},
        {"Llama-2-13B", Architecture::Llama, 40, 5120, 13824, 40, 40, 32000, 4096, false, 13015864320},
        {"Llama-2-70B", Architecture::Llama, 80, 8192, 28672, 64, 8, 32000, 4096, false, 68976648192},
        {"Llama-3-8B", Architecture::Llama, 32, 4096, 14336, 32, 8, 128256, 8192, false, 8030261248},
        {"Llama-3.2-1B", Architecture::Llama, 16, 2048, 8192, 32, 8, 128256, 131072, true, 1235814400},
    };
    for (const Published& row : rows) {
        INFO(row.name);
        CHECK(count(spec(row)) == row.parameters);
    }
}

TEST_CASE("the presets have the published counts") {
    const std::map<std::string, std::int64_t> published = {
        {"gpt2-124m", 124439808},   {"gpt2-350m", 354823168},   {"gpt2-774m", 774030080},
        {"gpt2-1558m", 1557611200}, {"llama-1b", 1100048384},   {"llama-3b", 3426473600},
        {"llama-7b", 6738415616},   {"llama-13b", 13015864320}, {"llama-70b", 68976648192},
    };
    for (const auto& [name, parameters] : published) {
        INFO(name);
        const auto preset = find_preset(name);
        REQUIRE(preset.has_value());
        CHECK(count(preset->model) == parameters);
    }
    for (const Preset& preset : presets()) {
        INFO(preset.model.preset);
        CHECK_NOTHROW(model_parameters(preset.model));
    }
}

TEST_CASE("parameters have unique names, lie in unit order and are decayed by their kind") {
    for (const ModelSpec& model : small_models()) {
        const std::vector<ParamSpec> params = model_parameters(model);
        std::set<std::string> names;
        UnitId unit = 0;
        for (const ParamSpec& param : params) {
            INFO(param.name);
            CHECK(names.insert(param.name).second);
            CHECK(param.unit >= unit);
            unit = param.unit;
            CHECK(param.decay == (param.global.rank() == 2));
            CHECK(local_box(param) == whole_box(param.global));
            const bool output = param.name.find("output.weight") != std::string::npos && param.name[0] == 'b';
            const bool down = param.name.find("mlp.down.weight") != std::string::npos;
            if (param.init == InitKind::Normal) {
                const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(model.layers));
                CHECK(param.init_std == Approx(output || down ? residual : 0.02).epsilon(1e-12));
            }
        }
        CHECK(unit == model.layers + 1);
        CHECK(names.count("head.output.weight") == (model.tie_embeddings ? 0U : 1U));
    }
}

TEST_CASE("only the vocabulary is padded, to a multiple of 128") {
    for (const ModelSpec& model : small_models()) {
        for (const ParamSpec& param : model_parameters(model)) {
            INFO(param.name);
            const bool vocabulary =
                param.name == "embedding.tokens.weight" || param.name == "head.output.weight";
            if (vocabulary) {
                CHECK(param.global == Shape{97, 24});
                CHECK(param.padded == Shape{128, 24});
            } else {
                CHECK(param.padded == param.global);
            }
        }
    }
}

TEST_CASE("layouts cover every parameter once, aligned, with fused groups adjacent") {
    for (const ModelSpec& model : small_models()) {
        const std::vector<ParamSpec> params = model_parameters(model);
        for (const int ranks : {1, 2, 3, 4, 7, 16}) {
            const std::vector<UnitLayout> layouts = unit_layouts(params, ranks);
            REQUIRE(layouts.size() == static_cast<std::size_t>(model.layers) + 2);
            std::vector<int> seen;
            for (std::size_t u = 0; u < layouts.size(); ++u) {
                const UnitLayout& layout = layouts[u];
                CHECK(layout.unit == static_cast<UnitId>(u));
                std::int64_t end = 0;
                int group = -1;
                for (const ParamPlace& place : layout.places) {
                    const ParamSpec& param = params[static_cast<std::size_t>(place.param)];
                    INFO(param.name << " over " << ranks);
                    CHECK(param.unit == layout.unit);
                    CHECK(place.elements == param.padded.elements());
                    const bool joins = param.group >= 0 && param.group == group;
                    if (joins) {
                        CHECK(place.offset == end);
                    } else {
                        CHECK(place.offset % tensor_alignment == 0);
                        CHECK((place.offset >= end && place.offset < end + tensor_alignment));
                    }
                    end = place.offset + place.elements;
                    group = param.group;
                    seen.push_back(place.param);
                }
                CHECK((layout.elements >= end && layout.elements < end + tensor_alignment));
                CHECK(layout.elements % tensor_alignment == 0);
                CHECK(layout.padded % (tensor_alignment * ranks) == 0);
                CHECK(layout.padded - layout.elements < tensor_alignment * ranks);
                CHECK(layout.part(ranks) * ranks == layout.padded);
            }
            REQUIRE(seen.size() == params.size());
            for (std::size_t i = 0; i < seen.size(); ++i) CHECK(seen[i] == static_cast<int>(i));
            // Data-parallel size changes nothing but the padding at the end.
            const std::vector<UnitLayout> alone = unit_layouts(params, 1);
            for (std::size_t u = 0; u < layouts.size(); ++u) {
                CHECK(layouts[u].elements == alone[u].elements);
                for (std::size_t p = 0; p < layouts[u].places.size(); ++p) {
                    CHECK(layouts[u].places[p].offset == alone[u].places[p].offset);
                }
            }
        }
    }
}

TEST_CASE("impossible dimensions are refused with their numbers") {
    ModelSpec model = tiny_llama(2, 2, true);
    model.kv_heads = 4;
    CHECK_THROWS_WITH(model_parameters(model), Catch::Contains("4") && Catch::Contains("6"));
    model = tiny_llama(2, 2, true);
    model.head_dim = 3;
    CHECK_THROWS_WITH(model_parameters(model), Catch::Contains("even"));
    model = tiny_gpt2(2, true);
    model.layers = 0;
    CHECK_THROWS_WITH(model_parameters(model), Catch::Contains("layers"));
    const std::unique_ptr<CpuDevice> device = make_cpu_device({1, detect_cpu_isa()});
    CHECK_THROWS_WITH(make_transformer(*device, tiny_gpt2(2, true), {}, 24), Catch::Contains("23"));
}

}  // namespace trainctl
