// The CUDA backend's ops, on a GPU or on the double, against the double-precision reference: every case and
// dtype, started from the same numbers, in more than one order of threads, blocks and streams.
#include <sstream>

#include "cuda/cuda_bench.h"
#include "support/catch.h"
#include "support/reference_ops.h"

namespace trainctl::cuda_test {
namespace {

CaseTensors reference_results(const OpCase& op_case, DType rounded_to) {
    static const auto device = make_cpu_device({1, CpuIsa::V3});
    const auto reference = make_reference_ops();
    const auto stream = device->make_stream("compute", StreamRole::Compute);
    CaseTensors tensors = op_case.allocate(*device, reference->ops(), DType::F64, rounded_to, 4711);
    op_case.forward(reference->ops(), *stream, tensors);
    if (op_case.backward) op_case.backward(reference->ops(), *stream, tensors);
    return tensors;
}

std::vector<OpCase> all_cases() {
    std::vector<OpCase> cases = op_cases();
    for (OpCase& wide : wide_op_cases()) cases.push_back(std::move(wide));
    return cases;
}

// What is wrong with the cases whose name begins with `family`.
std::string problems(const std::string& family, DType dtype, Placement placement = Placement::Aligned) {
    std::ostringstream text;
    std::uint64_t seed = 0;
    int cases = 0;
    for (const OpCase& op_case : all_cases()) {
        if (!op_case.name.starts_with(family)) continue;
        ++cases;
        try {
            CudaBench bench(++seed);
            const CaseTensors found = bench.run(op_case, dtype, placement);
            const CaseTensors wanted = reference_results(op_case, dtype);
            for (const auto& [name, view] : wanted.all()) {
                const double worst = worst_error(found.all().at(name), view, op_case, dtype);
                if (worst <= 1.0) continue;
                text << op_case.name << " in " << dtype_name(dtype) << ": " << name << " is off by " << worst
                     << " tolerances\n";
            }
        } catch (const Error& error) {
            text << op_case.name << " in " << dtype_name(dtype) << ": " << error.what() << '\n';
        }
    }
    if (cases == 0) text << "no case is called " << family;
    return text.str();
}

void check_family(const std::string& family,
                  std::initializer_list<DType> dtypes = {DType::F32, DType::BF16, DType::F16}) {
    for (const DType dtype : dtypes) CHECK(problems(family, dtype) == "");
}

}  // namespace

TEST_CASE("cuda products agree with the reference", "[cuda]") { check_family("matmul"); }
TEST_CASE("cuda norms agree with the reference", "[cuda]") {
    check_family("layer norm");
    check_family("rms norm");
}
TEST_CASE("cuda attention in F32 agrees with the reference", "[cuda]") {
    check_family("attention", {DType::F32});
}
TEST_CASE("cuda attention on tensor cores agrees with the reference", "[cuda]") {
    check_family("attention", {DType::BF16, DType::F16});
}
TEST_CASE("cuda rotary embedding agrees with the reference", "[cuda]") { check_family("rope"); }
TEST_CASE("cuda activations agree with the reference", "[cuda]") {
    check_family("bias gelu");
    check_family("swiglu");
    check_family("add");
    check_family("dropout");
}
TEST_CASE("cuda embedding agrees with the reference", "[cuda]") { check_family("embedding"); }
TEST_CASE("cuda cross-entropy agrees with the reference", "[cuda]") { check_family("cross entropy"); }

TEST_CASE("cuda ops take tensors that begin anywhere", "[cuda]") {
    for (const DType dtype : {DType::F32, DType::BF16}) {
        for (const char* family :
             {"layer norm 5", "layer norm 9", "rms norm 70", "rope", "bias gelu", "swiglu", "add", "dropout",
              "embedding", "cross entropy 6", "cross entropy over 4"}) {
            CHECK(problems(family, dtype, Placement::OffGrid) == "");
        }
    }
}
TEST_CASE("cuda results do not depend on the order of threads, blocks and streams", "[cuda]") {
    const auto all_bytes = [](const OpCase& op_case, std::uint64_t seed) {
        CudaBench bench(seed);
        const CaseTensors tensors = bench.run(op_case, DType::BF16);
        std::vector<std::byte> bytes;
        for (const auto& [name, view] : tensors.all())
            bytes.insert(bytes.end(), view.data, view.data + view.bytes());
        return bytes;
    };
    for (const OpCase& op_case : op_cases()) {
        INFO(op_case.name);
        CHECK(all_bytes(op_case, 1) == all_bytes(op_case, 2));
    }
}

}  // namespace trainctl::cuda_test
