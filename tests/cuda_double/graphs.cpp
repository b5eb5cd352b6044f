// The CUDA run time's graphs, as far as the backend uses them: one stream captured by the thread that issues
// to it.
#include <cuda_runtime_api.h>

#include <utility>

#include "cuda_double/emulated_device.h"

namespace {

using namespace trainctl;               // NOLINT: everything here is about them
using namespace trainctl::cuda_double;  // NOLINT

}  // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    EmulatedDevice& device = this_device();
    const std::scoped_lock lock(device.mutex);
    EmulatedStream* found = device.find(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream == nullptr || mode != cudaStreamCaptureModeThreadLocal)
        return cudaErrorStreamCaptureUnsupported;
    if (device.capturing) return cudaErrorIllegalState;
    device.capturing = std::this_thread::get_id();
    found->capture = std::make_shared<GraphNodes>();
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    EmulatedDevice& device = this_device();
    const std::scoped_lock lock(device.mutex);
    *graph = nullptr;
    EmulatedStream* found = device.find(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (!found->capture) return cudaErrorIllegalState;
    if (device.capturing != std::this_thread::get_id()) return cudaErrorStreamCaptureWrongThread;
    device.capturing.reset();
    const std::shared_ptr<const GraphNodes> nodes = std::exchange(found->capture, nullptr);
    if (!device.fault.empty()) return cudaErrorStreamCaptureInvalidated;
    *graph = reinterpret_cast<cudaGraph_t>(const_cast<GraphNodes*>(nodes.get()));
    device.graphs.emplace(*graph, nodes);
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
    EmulatedDevice& device = this_device();
    const std::scoped_lock lock(device.mutex);
    const auto found = device.graphs.find(graph);
    if (found == device.graphs.end() || flags != 0) return cudaErrorInvalidValue;
    if (const cudaError_t refused = device.refuse_in_capture("cudaGraphInstantiate"); refused != cudaSuccess)
        return refused;
    if (device.executables.size() >= this_machine()->options.most_graphs) return cudaErrorMemoryAllocation;
    auto made = std::make_unique<EmulatedGraph>();
    made->nodes = found->second;
    *executable = reinterpret_cast<cudaGraphExec_t>(made.get());
    device.executables.emplace(*executable, std::move(made));
    return cudaSuccess;
}

// What a launch would else do first.
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
    EmulatedDevice& device = this_device();
    const std::scoped_lock lock(device.mutex);
    if (device.executables.count(executable) == 0 || device.find(stream) == nullptr)
        return cudaErrorInvalidValue;
    return device.refuse_in_capture("cudaGraphUpload");
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    EmulatedDevice& device = this_device();
    const std::scoped_lock lock(device.mutex);
    return device.graphs.erase(graph) == 1 ? cudaSuccess : cudaErrorInvalidValue;
}

// What was captured runs again with the arguments that its kernels had then.
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    EmulatedDevice& device = this_device();
    const std::scoped_lock lock(device.mutex);
    const auto found = device.executables.find(executable);
    EmulatedStream* where = device.find(stream);
    if (found == device.executables.end() || where == nullptr) return cudaErrorInvalidValue;
    if (const cudaError_t refused = device.refuse_in_capture("cudaGraphLaunch"); refused != cudaSuccess)
        return refused;
    for (const std::function<void()>& node : *found->second->nodes) {
        const cudaError_t state = enqueue_work(stream, node);
        if (state != cudaSuccess) return state;
    }
    found->second->newest = EmulatedDevice::everything(*where);
    ++device.graph_launches;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    EmulatedDevice& device = this_device();
    const std::scoped_lock lock(device.mutex);
    const auto found = device.executables.find(executable);
    if (found == device.executables.end()) return cudaErrorInvalidValue;
    if (device.fault.empty() && !LateQueues::passed(found->second->newest)) {
        device.remember("a graph was destroyed before its newest launch had run");
        return cudaErrorLaunchFailure;
    }
    device.executables.erase(found);
    return cudaSuccess;
}

}  // extern "C"
