#include "cuda/cuda_bench.h"

#include <algorithm>
#include <cstring>

namespace trainctl::cuda_test {
namespace {

std::unique_ptr<Device> fresh_device(std::uint64_t seed) {
    start_cuda_machine(seed);
    return make_cuda_device(0);
}

}  // namespace

void HostCopies::upload(TensorView to, const TensorView& from) {
    if (from.bytes() == 0) return;
    const Buffer pinned = device_.allocate(from.bytes(), Memory::Pinned, "upload");
    std::memcpy(pinned.data(), from.data, from.bytes());
    device_.copy(stream_, to.data, pinned.data(), from.bytes());
    stream_.synchronize();
}

void HostCopies::download(TensorView to, const TensorView& from) {
    if (from.bytes() == 0) return;
    const Buffer pinned = device_.allocate(from.bytes(), Memory::Pinned, "download");
    device_.copy(stream_, pinned.data(), from.data, from.bytes());
    stream_.synchronize();
    std::memcpy(to.data, pinned.data(), from.bytes());
}

CudaBench::CudaBench(std::uint64_t seed, F32Products f32) : CudaBench(fresh_device(seed), f32) {}

CudaBench::CudaBench(F32Products f32) : CudaBench(make_cuda_device(0), f32) {}

CudaBench::CudaBench(std::unique_ptr<Device> cuda, F32Products f32)
    : cpu_(make_cpu_device({1, CpuIsa::V3})),
      cuda_(std::move(cuda)),
      stream_(cuda_->make_stream("compute", StreamRole::Compute)),
      ops_(make_cuda_ops(*cuda_, f32)),
      copies_(*cuda_, *stream_) {}

CaseTensors CudaBench::run(const OpCase& op_case, DType dtype, Placement placement) {
    CaseTensors host = op_case.allocate(*cpu_, ops(), dtype, dtype, 4711);
    CaseTensors tensors = op_case.allocate_like(host, *cuda_, ops(), dtype);
    std::vector<Buffer> shifted;
    if (placement == Placement::OffGrid) {
        for (const auto& [name, view] : host.all()) {
            const std::size_t element_bytes = dtype_size(view.dtype);
            shifted.push_back(cuda_->allocate(view.bytes() + element_bytes, Memory::Device, name));
            tensors[name].data = shifted.back().data() + element_bytes;
        }
    }
    if (!host.scratch.empty()) copies_.upload(tensors.scratch, host.scratch);
    for (const auto& [name, view] : host.all()) copies_.upload(tensors[name], view);
    // Ranks' tensors meet on the host.
    tensors.combine = [&](Stream&, const std::vector<TensorView>& parts, CaseCombine how) {
        std::vector<Buffer> buffers;
        std::vector<TensorView> views;
        for (const TensorView& part : parts) {
            buffers.push_back(cpu_->allocate(part.bytes(), Memory::Device, "part"));
            views.push_back({buffers.back().data(), part.shape, part.dtype});
            copies_.download(views.back(), part);
        }
        const auto work = cpu_->make_stream("combine", StreamRole::Compute);
        host.combine(*work, views, how);
        for (std::size_t i = 0; i < parts.size(); ++i) copies_.upload(parts[i], views[i]);
    };
    op_case.forward(ops(), *stream_, tensors);
    if (op_case.backward) op_case.backward(ops(), *stream_, tensors);
    stream_->synchronize();
    for (const auto& [name, view] : tensors.all()) copies_.download(host[name], view);
    return host;
}

}  // namespace trainctl::cuda_test
