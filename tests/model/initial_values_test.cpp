// Initial weights: a pure function of seed, name and element.
#include <cmath>
#include <vector>

#include "model/tiny_model.h"
#include "support/catch.h"
#include "trainctl/model/param.h"

namespace trainctl {
namespace {

ParamSpec normal(const std::string& name, const Shape& shape, double std_deviation) {
    ParamSpec param;
    param.name = name;
    param.global = shape;
    param.padded = shape;
    param.init_std = std_deviation;
    return param;
}

std::vector<float> values(const ParamSpec& param, std::uint64_t seed, std::int64_t begin,
                          std::int64_t count) {
    std::vector<float> out(static_cast<std::size_t>(count), -7.0F);
    initial_values(param, seed, begin, out);
    return out;
}

}  // namespace

// Computed with Python's math.log, cos and sin over an independent Philox4x32-10, rounded to float.
TEST_CASE("initial values equal the golden ones") {
    struct Golden {
        const char* name;
        std::uint64_t seed;
        double std_deviation;
        float values[8];
    };
    const std::int64_t elements[] = {0, 1, 2, 3, 4, 5, 97, 1001};
    const Golden goldens[] = {
        {"embedding.tokens.weight",
         1234,
         0.02,
         {0x1.c3a758p-6F, -0x1.c999e4p-11F, -0x1.8c80f8p-9F, -0x1.155ec6p-9F, -0x1.1eab58p-7F,
          -0x1.555f4ep-6F, -0x1.204ee6p-12F, -0x1.681c7ep-6F}},
        {"blocks.0.attention.q.weight",
         0x123456789ABCDEF0U,
         0.02,
         {0x1.4243eep-6F, 0x1.1c7760p-6F, 0x1.7c26fap-9F, -0x1.4b1f2cp-7F, 0x1.682196p-10F, -0x1.21143ep-6F,
          0x1.4d3ec6p-5F, -0x1.02f150p-10F}},
        {"blocks.1.mlp.down.weight",
         1234,
         0.01,
         {-0x1.498a7ep-10F, 0x1.799b8ep-9F, -0x1.2fcfb8p-7F, 0x1.95cd60p-9F, -0x1.2fe804p-7F, -0x1.715faap-8F,
          -0x1.d99df4p-7F, -0x1.231a1ap-7F}},
    };
    for (const Golden& golden : goldens) {
        INFO(golden.name);
        const ParamSpec param = normal(golden.name, Shape{1100}, golden.std_deviation);
        for (std::size_t i = 0; i < 8; ++i) {
            CHECK(values(param, golden.seed, elements[i], 1)[0] == golden.values[i]);
        }
    }
}

TEST_CASE("initial values do not depend on how they are asked for") {
    const ParamSpec param = normal("blocks.2.mlp.up.weight", Shape{33, 31}, 0.02);
    const std::vector<float> whole = values(param, 7, 0, 1023);
    for (const std::int64_t chunk : {1, 3, 4, 64, 127, 1000}) {
        for (std::int64_t begin = 0; begin < 1023; begin += chunk) {
            const std::int64_t length = std::min<std::int64_t>(chunk, 1023 - begin);
            const std::vector<float> part = values(param, 7, begin, length);
            REQUIRE(std::equal(part.begin(), part.end(), whole.begin() + begin));
        }
    }
    CHECK(values(param, 8, 0, 1023) != whole);
    CHECK(values(normal("blocks.3.mlp.up.weight", Shape{33, 31}, 0.02), 7, 0, 1023) != whole);
}

TEST_CASE("normal initial values have mean 0, the asked deviation and normal tails") {
    const ParamSpec param = normal("head.output.weight", Shape{400, 1000}, 0.02);
    const std::vector<float> all = values(param, 3, 0, 400000);
    double sum = 0.0;
    double squares = 0.0;
    std::int64_t beyond_two = 0;
    for (const float value : all) {
        const double z = static_cast<double>(value) / 0.02;
        sum += z;
        squares += z * z;
        if (std::abs(z) > 2.0) ++beyond_two;
    }
    const auto n = static_cast<double>(all.size());
    CHECK(std::abs(sum / n) < 5.0 / std::sqrt(n));
    CHECK(std::abs(squares / n - 1.0) < 5.0 * std::sqrt(2.0 / n));
    CHECK(std::abs(static_cast<double>(beyond_two) / n - 0.0455) < 5.0 * std::sqrt(0.0455 / n));
}

TEST_CASE("gains are 1, biases 0 and padded vocabulary rows 0") {
    for (const ModelSpec& model : {tiny_gpt2(2, false), tiny_llama(2, 2, true)}) {
        for (const ParamSpec& param : model_parameters(model)) {
            INFO(param.name);
            const std::vector<float> all = values(param, 11, 0, param.padded.elements());
            const auto logical = static_cast<std::size_t>(param.global.elements());
            for (std::size_t i = 0; i < all.size(); ++i) {
                if (i >= logical || param.init == InitKind::Zero) REQUIRE(all[i] == 0.0F);
                if (i < logical && param.init == InitKind::One) REQUIRE(all[i] == 1.0F);
                if (i < logical && param.init == InitKind::Normal) REQUIRE(all[i] != 0.0F);
            }
            if (param.padded == param.global) continue;
            // A range that begins in the padding, and one across its edge.
            CHECK(values(param, 11, param.global.elements() + 5, 9) == std::vector<float>(9, 0.0F));
            const std::vector<float> edge = values(param, 11, param.global.elements() - 2, 4);
            CHECK((edge[1] == all[logical - 1] && edge[1] != 0.0F && edge[2] == 0.0F && edge[3] == 0.0F));
        }
    }
}

}  // namespace trainctl
