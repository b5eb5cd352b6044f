// The reference's backward against central differences of its forward, in double: for every case, every
// differentiable input.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

#include "ops/harness.h"
#include "support/catch.h"

namespace trainctl {
namespace {

// sum over outputs of (d output) x output: its gradient is what backward must find.
double objective(const OpCase& op_case, CaseTensors& t) {
    double sum = 0.0;
    for (const CaseTensor& spec : op_case.tensors) {
        if (spec.role != CaseRole::Output && spec.role != CaseRole::WideOutput) continue;
        for (std::int64_t i = 0; i < t[spec.name].elements(); ++i) {
            sum += element(t[spec.name], i) * element(t["d" + spec.name], i);
        }
    }
    return sum;
}

struct Probe {
    std::string name;
    std::int64_t index;
    double before;  // what an accumulated gradient started from
};

// Central differences at up to 12 elements of every input.
std::string check_gradients(const OpCase& op_case, CpuBench& bench) {
    const Ops ops = bench.reference();
    CaseTensors t = op_case.allocate(bench.device(), ops, DType::F64, DType::F64, 99);
    std::vector<Probe> probes;
    for (const CaseTensor& spec : op_case.tensors) {
        if (spec.role != CaseRole::Activation && spec.role != CaseRole::Parameter) continue;
        const std::int64_t count = t[spec.name].elements();
        const std::int64_t stride = std::max<std::int64_t>(1, count / 11);
        for (std::int64_t i = 0; i < count; i += stride) {
            const bool adds = spec.role == CaseRole::Parameter && op_case.into == Into::Accumulate;
            probes.push_back({spec.name, i, adds ? element(t["d" + spec.name], i) : 0.0});
        }
    }
    op_case.forward(ops, bench.stream(), t);
    op_case.backward(ops, bench.stream(), t);

    std::ostringstream problems;
    constexpr double step = 1e-5;
    for (const Probe& probe : probes) {
        const double found = element(t["d" + probe.name], probe.index) - probe.before;
        const double here = element(t[probe.name], probe.index);
        set_element(t[probe.name], probe.index, here + step);
        op_case.forward(ops, bench.stream(), t);
        const double above = objective(op_case, t);
        set_element(t[probe.name], probe.index, here - step);
        op_case.forward(ops, bench.stream(), t);
        const double below = objective(op_case, t);
        set_element(t[probe.name], probe.index, here);
        const double wanted = (above - below) / (2.0 * step);
        if (!(std::fabs(found - wanted) <= 1e-6 * (1.0 + std::fabs(wanted)))) {
            problems << op_case.name << ": d" << probe.name << "[" << probe.index << "] is " << found
                     << ", differences give " << wanted << "\n";
        }
    }
    return problems.str();
}

bool small_enough(const OpCase& op_case) {
    std::int64_t elements = 0;
    for (const CaseTensor& spec : op_case.tensors) elements += spec.shape.elements();
    return elements < 20000;
}

}  // namespace

TEST_CASE("reference gradients equal finite differences", "[ops]") {
    CpuBench bench(1, CpuIsa::V3);
    std::string problems;
    int checked = 0;
    for (const OpCase& op_case : op_cases()) {
        if (!small_enough(op_case)) continue;  // longer attention differs only in size
        problems += check_gradients(op_case, bench);
        ++checked;
    }
    CHECK(problems == "");
    CHECK(checked >= 28);
}

TEST_CASE("the gradient check notices a wrong backward", "[ops]") {
    CpuBench bench(1, CpuIsa::V3);
    OpCase op_case = op_cases().front();
    op_case.backward = [right = op_case.backward](Ops ops, Stream& stream, CaseTensors& t) {
        right(ops, stream, t);
        set_element(t["dx"], 0, element(t["dx"], 0) * 1.001);
    };
    CHECK(check_gradients(op_case, bench) != "");
}

}  // namespace trainctl
