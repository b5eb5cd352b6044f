#include "trainctl/config/model_math.h"

#include "support/catch.h"
#include "trainctl/config/presets.h"

using namespace trainctl;

namespace {

ModelSpec preset(const char* name) {
    const auto found = find_preset(name);
    REQUIRE(found.has_value());
    return found->model;
}

}  // namespace

TEST_CASE("Published parameter counts are met exactly", "[config][presets]") {
    struct Published {
        const char* name;
        std::int64_t parameters;
    };
    const Published published[] = {
        {"gpt2-124m", 124'439'808},     {"gpt2-350m", 354'823'168},     {"gpt2-774m", 774'030'080},
        {"gpt2-1558m", 1'557'611'200},  {"llama-1b", 1'100'048'384},    {"llama-3b", 3'426'473'600},
        {"llama-7b", 6'738'415'616},    {"llama-13b", 13'015'864'320},  {"llama-70b", 68'976'648'192},
        {"llama3-8b", 8'030'261'248},   {"llama3-70b", 70'553'706'496}, {"llama3.2-1b", 1'235'814'400},
        {"llama3.2-3b", 3'212'749'824},
    };
    for (const Published& each : published) {
        INFO(each.name);
        CHECK(parameter_count(preset(each.name)) == each.parameters);
    }
}

TEST_CASE("Small presets have the size their name says", "[config][presets]") {
    CHECK(parameter_count(preset("tiny")) == 230'080);
    CHECK(parameter_count(preset("tiny-gpt2")) == 232'896);
    CHECK(parameter_count(preset("llama-4m")) / 1'000'000 == 4);
    CHECK((parameter_count(preset("llama-15m")) + 500'000) / 1'000'000 == 15);
    CHECK((parameter_count(preset("llama-110m")) + 500'000) / 1'000'000 == 110);
}

TEST_CASE("FLOPs per token equal the golden figures", "[config][flops]") {
    struct Golden {
        const char* name;
        std::int64_t length;
        double palm;
        double causal;  // 0: not published
    };
    const Golden goldens[] = {
        {"gpt2-124m", 1024, 855'166'464.0, 798'543'360.0},
        {"gpt2-350m", 1024, 2'424'637'440.0, 2'273'642'496.0},
        {"gpt2-774m", 1024, 5'202'547'200.0, 0.0},
        {"gpt2-1558m", 1024, 10'279'555'200.0, 9'807'696'000.0},
        {"llama-1b", 2048, 7'314'370'560.0, 6'760'722'432.0},
        {"llama-7b", 4096, 46'086'512'640.0, 42'865'287'168.0},
        {"llama-13b", 4096, 87'178'475'520.0, 82'145'310'720.0},
        {"llama3-8b", 8192, 57'914'449'920.0, 51'471'998'976.0},
        {"llama3.2-1b", 8192, 10'636'111'872.0, 0.0},
    };
    for (const Golden& golden : goldens) {
        INFO(golden.name);
        CHECK(palm_flops_per_token(preset(golden.name), golden.length) == golden.palm);
        if (golden.causal != 0.0) CHECK(flops_per_token(preset(golden.name), golden.length) == golden.causal);
    }
    ModelSpec padded = preset("gpt2-124m");
    padded.vocab_size = 50304;
    CHECK(parameter_count(padded) == 124'475'904);
    CHECK(palm_flops_per_token(padded, 1024) == 855'383'040.0);
    CHECK(flops_per_token(padded, 1024) == 798'759'936.0);
}

TEST_CASE("Attention is the only part that depends on the length, and causal is half of it",
          "[config][flops]") {
    for (const Preset& each : presets()) {
        const double without = 6.0 * static_cast<double>(active_parameters(each.model));
        for (const std::int64_t length : {1, 7, 1024}) {
            const double causal = flops_per_token(each.model, length) - without;
            const double full = palm_flops_per_token(each.model, length) - without;
            CHECK(full == 2.0 * causal);
            CHECK(causal ==
                  6.0 * static_cast<double>(each.model.layers * each.model.heads * each.model.head_dim) *
                      static_cast<double>(length));
        }
    }
}

TEST_CASE("Tying removes one vocabulary matrix from the count and none from the work", "[config][flops]") {
    for (const Preset& each : presets()) {
        ModelSpec tied = each.model;
        tied.tie_embeddings = true;
        ModelSpec untied = each.model;
        untied.tie_embeddings = false;
        CHECK(parameter_count(untied) - parameter_count(tied) == untied.vocab_size * untied.hidden_size);
        CHECK(active_parameters(untied) == active_parameters(tied));
    }
}
