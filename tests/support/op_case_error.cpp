// How wrong a result is.
#include <cmath>

#include "support/larger.h"
#include "support/op_cases.h"

namespace trainctl {

double worst_error(const TensorView& found, const TensorView& wanted, const OpCase& op_case, DType compute) {
    const double half_ulp = compute == DType::BF16 ? 0x1.0p-8 : 0x1.0p-11;  // of BF16 or F16, at most
    const bool narrow = compute != DType::F32;
    const bool stored = narrow && found.dtype == compute;
    const double relative = stored ? half_ulp : 2e-6;
    const double inside = stored || (narrow && op_case.slack > 1.0) ? op_case.slack * half_ulp / 2.0 : 3e-6;
    double largest = 0.0;
    for (std::int64_t i = 0; i < wanted.elements(); ++i) {
        largest = test::larger(largest, std::fabs(element(wanted, i)));
    }
    double worst = 0.0;
    for (std::int64_t i = 0; i < wanted.elements(); ++i) {
        const double right = element(wanted, i);
        const double error = std::fabs(element(found, i) - right);
        const double ratio = error / (relative * std::fabs(right) + inside * largest + 1e-30);
        worst = test::larger(worst, ratio);
    }
    return worst;
}

}  // namespace trainctl
