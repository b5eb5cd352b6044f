#include "parallel/random_model.h"

#include <algorithm>
#include <string>

namespace trainctl::test {
namespace {

std::int64_t draw(std::mt19937& random, std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

ParamSpec random_param(std::mt19937& random, std::int64_t max_elements) {
    ParamSpec param;
    const std::int64_t columns = draw(random, 1, 40);
    const std::int64_t rows = draw(random, 1, std::max<std::int64_t>(1, max_elements / columns));
    const bool matrix = draw(random, 0, 2) > 0;
    param.global = matrix ? Shape{rows, columns} : Shape{rows};
    param.padded = param.global;
    param.decay = matrix;
    param.init = matrix ? InitKind::Normal : InitKind::One;
    if (matrix && draw(random, 0, 3) == 0) param.padded[0] = (rows + 127) / 128 * 128;
    return param;
}

}  // namespace

std::vector<ParamSpec> random_params(std::mt19937& random, int units, std::int64_t max_elements) {
    std::vector<ParamSpec> params;
    int groups = 0;
    for (int unit = 0; unit < units; ++unit) {
        const auto tensors = draw(random, 1, 5);
        for (std::int64_t t = 0; t < tensors; ++t) {
            ParamSpec param = random_param(random, max_elements);
            param.unit = unit;
            // A fused group: the same shape again, adjacent without alignment.
            const bool fuses = param.padded == param.global && draw(random, 0, 2) == 0;
            const int members = fuses ? 3 : 1;
            if (fuses) param.group = groups++;
            for (int member = 0; member < members; ++member) {
                param.name =
                    "u" + std::to_string(unit) + ".t" + std::to_string(t) + "." + std::to_string(member);
                params.push_back(param);
            }
        }
    }
    return params;
}

}  // namespace trainctl::test
