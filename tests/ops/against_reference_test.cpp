// The cpu backend against the double-precision reference: every case, dtype and instruction-set level. Both
// start from the same numbers, so that only roundings inside the op and of its results differ.
#include <cmath>
#include <sstream>

#include "ops/harness.h"
#include "support/catch.h"

namespace trainctl {
namespace {

std::string check_case(const OpCase& op_case, const CaseTensors& wanted, CpuBench& bench, DType dtype,
                       CpuIsa isa) {
    const CaseTensors found = run_case(op_case, bench, bench.cpu(), dtype, dtype);
    std::ostringstream problems;
    for (const auto& [name, view] : wanted.all()) {
        const double worst = worst_error(found.all().at(name), view, op_case, dtype);
        if (!(worst <= 1.0)) {
            problems << op_case.name << " in " << dtype_name(dtype) << " on " << cpu_isa_name(isa) << ": "
                     << name << " is off by " << worst << " tolerances\n";
        }
    }
    return problems.str();
}

}  // namespace

TEST_CASE("the cpu backend agrees with the reference on every level", "[ops]") {
    CpuBench oracle(1, CpuIsa::V3);
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
        std::string problems;
        for (const OpCase& op_case : op_cases()) {
            const CaseTensors wanted = run_case(op_case, oracle, oracle.reference(), DType::F64, dtype);
            for (const CpuIsa isa : isa_levels()) {
                CpuBench bench(2, isa);
                problems += check_case(op_case, wanted, bench, dtype, isa);
            }
        }
        CHECK(problems == "");
    }
}

TEST_CASE("the comparison with the reference notices a wrong element", "[ops]") {
    CpuBench bench(1, detect_cpu_isa());
    const OpCase op_case = op_cases().front();
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
        CaseTensors found = run_case(op_case, bench, bench.cpu(), dtype, dtype);
        const CaseTensors wanted = run_case(op_case, bench, bench.reference(), DType::F64, dtype);
        const TensorView y = found["y"];
        set_element(y, 3, element(y, 3) + 0.05);
        CHECK(worst_error(y, wanted.all().at("y"), op_case, dtype) > 1.0);
        set_element(y, 3, std::nan(""));  // right elements follow it
        CHECK(std::isnan(worst_error(y, wanted.all().at("y"), op_case, dtype)));
    }
}

}  // namespace trainctl
