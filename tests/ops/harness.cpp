#include "ops/harness.h"

#include "support/reference_ops.h"

namespace trainctl {

CpuBench::CpuBench(int threads, CpuIsa isa)
    : device_(make_cpu_device({threads, isa})),
      stream_(device_->make_stream("compute", StreamRole::Compute)),
      cpu_(make_cpu_ops(*device_)),
      reference_(make_reference_ops()) {}

TensorView CpuBench::tensor(const Shape& shape, DType dtype) {
    TensorView view{nullptr, shape, dtype};
    buffers_.push_back(device_->allocate(view.bytes(), Memory::Device, "test"));
    view.data = buffers_.back().data();
    return view;
}

TensorView CpuBench::scratch(std::size_t bytes) {
    if (bytes == 0) return {};
    return tensor(Shape{static_cast<std::int64_t>(bytes)}, DType::U8);
}

std::vector<CpuIsa> isa_levels() {
    std::vector<CpuIsa> levels;
    for (const CpuIsa isa : {CpuIsa::V3, CpuIsa::V4, CpuIsa::Avx512Bf16}) {
        if (isa <= detect_cpu_isa()) levels.push_back(isa);
    }
    return levels;
}

CaseTensors run_case(const OpCase& op_case, CpuBench& bench, Ops ops, DType dtype, DType rounded_to) {
    CaseTensors tensors = op_case.allocate(bench.device(), ops, dtype, rounded_to, 4711);
    op_case.forward(ops, bench.stream(), tensors);
    if (op_case.backward) op_case.backward(ops, bench.stream(), tensors);
    bench.stream().synchronize();
    return tensors;
}

std::vector<std::byte> all_bytes(const CaseTensors& tensors) {
    std::vector<std::byte> bytes;
    for (const auto& [name, view] : tensors.all())
        bytes.insert(bytes.end(), view.data, view.data + view.bytes());
    return bytes;
}

}  // namespace trainctl
