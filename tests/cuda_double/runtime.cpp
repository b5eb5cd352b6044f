// The CUDA run time's functions that the backend uses, under their own names.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "cuda_double/emulated_device.h"

namespace {

using namespace trainctl;               // NOLINT: everything here is about them
using namespace trainctl::cuda_double;  // NOLINT

double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

cudaError_t state_of(const EmulatedDevice& device) {
    return device.fault.empty() ? cudaSuccess : cudaErrorLaunchFailure;
}

// Whether a copy may touch these bytes: an allocation of this device, or host memory (pinned or not: what a
// copy from pageable memory costs is not this double's concern).
bool addressable(const EmulatedDevice& device, const void* data, std::size_t bytes) {
    const auto* start = static_cast<const std::byte*>(data);
    return !device.memory.reserves(start) || device.memory.holds(start, bytes);
}

cudaError_t refuse(EmulatedDevice& device, const std::string& text) {
    device.remember(text);
    return cudaErrorLaunchFailure;
}

// Until the word has (at least) the value; words are compared like sequence numbers.
class WaitForValue final : public Operation {
  public:
    WaitForValue(CUdeviceptr word, std::uint32_t value) : word_(word), value_(value) {}
    bool advance() override {
        auto* word = reinterpret_cast<std::atomic<std::uint32_t>*>(word_);
        return static_cast<std::int32_t>(word->load(std::memory_order_acquire) - value_) >= 0;
    }

  private:
    CUdeviceptr word_;
    std::uint32_t value_;
};

CUresult wait_value(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned /*flags*/) {
    return enqueue_operation(stream, std::make_unique<WaitForValue>(word, value)) == cudaSuccess
               ? CUDA_SUCCESS
               : CUDA_ERROR_LAUNCH_FAILED;
}

CUresult write_value(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned /*flags*/) {
    return enqueue_work(stream,
                        [word, value] {
                            reinterpret_cast<std::atomic<std::uint32_t>*>(word)->store(
                                value, std::memory_order_release);
                        }) == cudaSuccess
               ? CUDA_SUCCESS
               : CUDA_ERROR_LAUNCH_FAILED;
}

// By device and kernel: bytes of dynamic shared memory.
struct SharedMemoryLimits {
    std::mutex mutex;
    std::map<std::pair<int, const void*>, std::size_t> bytes;
    std::uint64_t calls = 0;
};

SharedMemoryLimits& shared_memory_limits() {
    static SharedMemoryLimits limits;
    return limits;
}

constexpr std::size_t most_shared_memory = std::size_t{227} << 10U;

}  // namespace

namespace trainctl::cuda_double {

std::uint64_t attributes_set() {
    const std::scoped_lock lock(shared_memory_limits().mutex);
    return shared_memory_limits().calls;
}

cudaError_t require_shared_memory(const void* kernel, std::size_t bytes) {
    if (bytes <= std::size_t{48} << 10U) return cudaSuccess;
    const std::scoped_lock lock(shared_memory_limits().mutex);
    const auto limit = shared_memory_limits().bytes.find({this_device_index(), kernel});
    return limit != shared_memory_limits().bytes.end() && bytes <= limit->second ? cudaSuccess
                                                                                 : cudaErrorInvalidValue;
}

}  // namespace trainctl::cuda_double

extern "C" {

// ---- devices ----

cudaError_t cudaGetDeviceCount(int* count) {
    *count = static_cast<int>(this_machine()->devices.size());
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= static_cast<int>(this_machine()->devices.size()))
        return cudaErrorInvalidDevice;
    use_device(device);
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
    *device = this_device_index();
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    *properties = {};
    const std::vector<std::string>& names = this_machine()->options.names;
    const bool named = static_cast<std::size_t>(device) < names.size();
    std::strcpy(properties->name,
                named ? names[static_cast<std::size_t>(device)].c_str() : "emulated device");
    properties->major = 9;
    properties->minor = 0;
    properties->multiProcessorCount = 4;
    properties->totalGlobalMem = this_machine()->options.memory_bytes;
    properties->pciBusID = device;
    properties->sharedMemPerBlockOptin = most_shared_memory;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        static_cast<std::size_t>(value) > most_shared_memory)
        return cudaErrorInvalidValue;
    const std::scoped_lock lock(shared_memory_limits().mutex);
    shared_memory_limits().bytes[{this_device_index(), kernel}] = static_cast<std::size_t>(value);
    ++shared_memory_limits().calls;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
    std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", device);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    EmulatedDevice& device = this_device();
    const std::scoped_lock lock(device.mutex);
    *total = device.memory_bytes();
    *free = *total - this_machine()->options.taken_bytes - device.memory.used();
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }

// ---- errors ----

const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaSuccess:
            return "cudaSuccess";
        case cudaErrorNotReady:
            return "cudaErrorNotReady";
        case cudaErrorMemoryAllocation:
            return "cudaErrorMemoryAllocation";
        case cudaErrorLaunchFailure:
            return "cudaErrorLaunchFailure";
        default:
            return "an error of the test double";
    }
}

const char* cudaGetErrorString(cudaError_t error) {
    static thread_local std::string text;
    text = error == cudaErrorLaunchFailure ? machine_fault() : cudaGetErrorName(error);
    return text.c_str();
}

cudaError_t cudaGetLastError() { return cudaSuccess; }  // every call here answers for itself

// ---- memory ----

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
    EmulatedDevice& device = this_device();
    const std::scoped_lock lock(device.mutex);
    if (const cudaError_t refused = device.refuse_in_capture("cudaMalloc"); refused != cudaSuccess)
        return refused;
    *data = device.memory.allocate(bytes, device.memory_bytes());
    return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaFree(void* data) {
    EmulatedDevice& device = this_device();
    if (data == nullptr) return cudaSuccess;
    // Like CUDA's own, it waits for whatever may still use the memory.
    const cudaError_t state = cudaDeviceSynchronize();
    const std::scoped_lock lock(device.mutex);
    return device.memory.release(static_cast<std::byte*>(data)) ? state : cudaErrorInvalidValue;
}

cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned /*flags*/) {
    EmulatedDevice& device = this_device();
    const std::scoped_lock lock(device.mutex);
    if (const cudaError_t refused = device.refuse_in_capture("cudaHostAlloc"); refused != cudaSuccess)
        return refused;
    *data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (*data == nullptr) return cudaErrorMemoryAllocation;
    std::memset(*data, 0xFF, bytes);
    device.pinned.emplace(static_cast<std::byte*>(*data), bytes);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
    EmulatedDevice& device = this_device();
    if (data == nullptr) return cudaSuccess;
    const cudaError_t state = cudaDeviceSynchronize();
    const std::scoped_lock lock(device.mutex);
    if (device.pinned.erase(static_cast<std::byte*>(data)) == 0) return cudaErrorInvalidValue;
    std::free(data);
    return state;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
    EmulatedDevice& device = this_device();
    const std::scoped_lock lock(device.mutex);
    if (!addressable(device, to, bytes) || !addressable(device, from, bytes))
        return refuse(device, "an asynchronous copy of " + std::to_string(bytes) +
                                  " bytes leaves its allocation, or that was freed");
    return enqueue_work(stream, [to, from, bytes] { std::memcpy(to, from, bytes); });
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
    EmulatedDevice& device = this_device();
    const std::scoped_lock lock(device.mutex);
    if (!addressable(device, to, bytes)) return refuse(device, "a fill leaves its allocation");
    return enqueue_work(stream, [to, value, bytes] { std::memset(to, value, bytes); });
}

// ---- streams and events ----

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned /*flags*/, int priority) {
    EmulatedDevice& device = this_device();
    const std::scoped_lock lock(device.mutex);
    auto made = device.open_stream(priority < 0 ? StreamRole::Communication : StreamRole::Compute);
    *stream = reinterpret_cast<cudaStream_t>(made.get());
    device.streams.emplace(*stream, std::move(made));
    return state_of(device);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    const cudaError_t state = cudaStreamSynchronize(stream);
    EmulatedDevice& device = this_device();
    const std::scoped_lock lock(device.mutex);
    return device.streams.erase(stream) == 1 ? state : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    EmulatedDevice& device = this_device();
    std::unique_lock lock(device.mutex);
    if (const cudaError_t refused = device.refuse_in_capture("cudaStreamSynchronize"); refused != cudaSuccess)
        return refused;
    EmulatedStream* found = device.find(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    const LateTicket all = EmulatedDevice::everything(*found);
    lock.unlock();
    return device.force(all);
}

cudaError_t cudaDeviceSynchronize() {
    EmulatedDevice& device = this_device();
    std::unique_lock lock(device.mutex);
    if (const cudaError_t refused = device.refuse_in_capture("cudaDeviceSynchronize"); refused != cudaSuccess)
        return refused;
    std::vector<LateTicket> all = {EmulatedDevice::everything(*device.find(nullptr))};
    for (const auto& [raw, stream] : device.streams) all.push_back(EmulatedDevice::everything(*stream));
    lock.unlock();
    cudaError_t result = cudaSuccess;
    for (const LateTicket& stream : all) {
        const cudaError_t one = device.force(stream);
        if (result == cudaSuccess) result = one;
    }
    return result;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
    EmulatedDevice& device = this_device();
    const std::scoped_lock lock(device.mutex);
    if (const cudaError_t refused = device.refuse_in_capture("cudaStreamWaitEvent"); refused != cudaSuccess)
        return refused;
    const auto found = device.events.find(event);
    if (found == device.events.end()) return cudaErrorInvalidResourceHandle;
    if (found->second->ticket.queue == nullptr) return state_of(device);
    return device.push(stream, {nullptr, found->second->ticket});
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
    EmulatedDevice& device = this_device();
    const std::scoped_lock lock(device.mutex);
    auto made = std::make_unique<EmulatedEvent>();
    *event = reinterpret_cast<cudaEvent_t>(made.get());
    device.events.emplace(*event, std::move(made));
    return state_of(device);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    EmulatedDevice& device = this_device();
    const std::scoped_lock lock(device.mutex);
    return device.events.erase(event) == 1 ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    EmulatedDevice& device = this_device();
    const std::scoped_lock lock(device.mutex);
    if (const cudaError_t refused = device.refuse_in_capture("cudaEventRecord"); refused != cudaSuccess)
        return refused;
    const auto found = device.events.find(event);
    EmulatedStream* where = device.find(stream);
    if (found == device.events.end() || where == nullptr) return cudaErrorInvalidResourceHandle;
    auto seconds = std::make_shared<double>(0.0);
    const bool modelled = this_machine()->options.clock == EventClock::Modelled;
    const cudaError_t state = enqueue_work(
        stream, [seconds, modelled, &device] { *seconds = modelled ? device.modelled_s : now_s(); });
    found->second->seconds = std::move(seconds);
    found->second->ticket = EmulatedDevice::everything(*where);
    return state;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    EmulatedDevice& device = this_device();
    const std::scoped_lock lock(device.mutex);
    if (const cudaError_t refused = device.refuse_in_capture("cudaEventQuery"); refused != cudaSuccess)
        return refused;
    const auto found = device.events.find(event);
    if (found == device.events.end()) return cudaErrorInvalidResourceHandle;
    return device.query(found->second->ticket);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    EmulatedDevice& device = this_device();
    std::unique_lock lock(device.mutex);
    if (const cudaError_t refused = device.refuse_in_capture("cudaEventSynchronize"); refused != cudaSuccess)
        return refused;
    const auto found = device.events.find(event);
    if (found == device.events.end()) return cudaErrorInvalidResourceHandle;
    const LateTicket ticket = found->second->ticket;
    lock.unlock();
    return device.force(ticket);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
    EmulatedDevice& device = this_device();
    const std::scoped_lock lock(device.mutex);
    const auto begin = device.events.find(from);
    const auto end = device.events.find(to);
    if (begin == device.events.end() || end == device.events.end()) return cudaErrorInvalidResourceHandle;
    if (!begin->second->seconds || !end->second->seconds) return cudaErrorInvalidResourceHandle;
    if (!LateQueues::passed(begin->second->ticket) || !LateQueues::passed(end->second->ticket))
        return cudaErrorNotReady;
    *milliseconds = static_cast<float>((*end->second->seconds - *begin->second->seconds) * 1e3);
    return cudaSuccess;
}

// ---- the driver's functions that the run time hands out ----

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned /*version*/,
                                             unsigned long long /*flags*/,
                                             cudaDriverEntryPointQueryResult* result) {
    *function = nullptr;
    if (std::strcmp(symbol, "cuStreamWaitValue32") == 0) *function = reinterpret_cast<void*>(&wait_value);
    if (std::strcmp(symbol, "cuStreamWriteValue32") == 0) *function = reinterpret_cast<void*>(&write_value);
    if (result != nullptr)
        *result = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

}  // extern "C"
