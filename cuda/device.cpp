// Device, streams, events and memory over the CUDA run time.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <fmt/core.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <map>

#include "cuda/check.h"
#include "cuda/graphs/section_graphs.h"
#include "cuda/nvtx_ranges.h"
#include "cuda/stream.h"
#include "trainctl/base/text.h"
#include "trainctl/device/cuda_device.h"

namespace trainctl::cuda {
namespace {

constexpr int oldest_capability = 80;  // of the kernels in this build: bf16 tensor cores, cp.async

class CudaEvent final : public Event {
  public:
    CudaEvent() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate"); }
    ~CudaEvent() override { static_cast<void>(cudaEventDestroy(event_)); }
    CudaEvent(const CudaEvent&) = delete;
    CudaEvent& operator=(const CudaEvent&) = delete;

    [[nodiscard]] bool complete() const override {
        const cudaError_t state = cudaEventQuery(event_);
        if (state == cudaErrorNotReady) return false;
        check(state, "cudaEventQuery");
        return true;
    }
    void synchronize() override { check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
    [[nodiscard]] cudaEvent_t raw() const { return event_; }

  private:
    cudaEvent_t event_ = nullptr;
};

cudaEvent_t raw_event(const Event& event) {
    const auto* mine = dynamic_cast<const CudaEvent*>(&event);
    invariant(mine != nullptr, "an event of another kind of device was used with a cuda stream");
    return mine->raw();
}

// How long a stream was held up by waits, by pairs of events around them. Pairs are read when they have
// passed and used again; when all are under way a wait goes unmeasured rather than stop the host.
class HoldUps {
  public:
    explicit HoldUps(cudaStream_t stream) : stream_(stream) {
        for (Pair& pair : pairs_) {
            check(cudaEventCreateWithFlags(&pair.before, cudaEventDefault), "cudaEventCreate");
            check(cudaEventCreateWithFlags(&pair.after, cudaEventDefault), "cudaEventCreate");
        }
    }
    ~HoldUps() {
        for (const Pair& pair : pairs_) {
            static_cast<void>(cudaEventDestroy(pair.before));
            static_cast<void>(cudaEventDestroy(pair.after));
        }
    }
    HoldUps(const HoldUps&) = delete;
    HoldUps& operator=(const HoldUps&) = delete;

    void wait(cudaEvent_t event) {
        Pair& pair = pairs_[next_];
        if (pair.used) read(pair);
        const bool measured = !pair.used;
        if (measured) check(cudaEventRecord(pair.before, stream_), "cudaEventRecord");
        check(cudaStreamWaitEvent(stream_, event, 0), "cudaStreamWaitEvent");
        if (!measured) return;
        check(cudaEventRecord(pair.after, stream_), "cudaEventRecord");
        pair.used = true;
        next_ = (next_ + 1) % pairs_.size();
    }

    double seconds() {
        for (Pair& pair : pairs_) {
            if (pair.used) read(pair);
        }
        return seconds_;
    }

  private:
    struct Pair {
        cudaEvent_t before = nullptr;
        cudaEvent_t after = nullptr;
        bool used = false;
    };

    void read(Pair& pair) {
        if (cudaEventQuery(pair.after) != cudaSuccess) return;
        float milliseconds = 0.0F;
        check(cudaEventElapsedTime(&milliseconds, pair.before, pair.after), "cudaEventElapsedTime");
        // Two events in a row are some microseconds apart without any wait.
        constexpr float nothing = 0.005F;
        if (milliseconds > nothing) seconds_ += static_cast<double>(milliseconds) * 1e-3;
        pair.used = false;
    }

    cudaStream_t stream_;
    std::array<Pair, 64> pairs_;
    std::size_t next_ = 0;
    double seconds_ = 0.0;
};

class CudaStream final : public Stream {
  public:
    CudaStream(std::string_view name, StreamRole role, CudaGraphs graphs)
        : name_(name), stream_(open(role)), hold_ups_(stream_) {
        if (graphs == CudaGraphs::On && role == StreamRole::Compute)
            gathered_ = std::make_shared<SectionGraphs>(stream_);
    }
    ~CudaStream() override {
        gathered_.reset();  // its graphs may still run on the stream
        static_cast<void>(cudaStreamDestroy(stream_));
    }
    CudaStream(const CudaStream&) = delete;
    CudaStream& operator=(const CudaStream&) = delete;

    void record(Event& event) override {
        flush();
        check(cudaEventRecord(raw_event(event), stream_), "cudaEventRecord");
    }
    void wait(const Event& event) override {
        flush();
        const RangeScope range(shown_, RangeKind::CommunicationWait);
        hold_ups_.wait(raw_event(event));
    }
    void synchronize() override {
        flush();
        check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    }
    void flush() override {
        if (gathered_) gathered_->flush();
    }
    [[nodiscard]] std::string_view name() const override { return name_; }
    [[nodiscard]] double held_up_s() const override { return hold_ups_.seconds(); }
    void show_waits(Ranges* ranges) override { shown_ = ranges; }
    [[nodiscard]] cudaStream_t raw() const { return stream_; }
    [[nodiscard]] const std::shared_ptr<SectionGraphs>& gathered() const { return gathered_; }

  private:
    // Communication goes first wherever both could start: what waits for it is on the critical path.
    static cudaStream_t open(StreamRole role) {
        int least = 0;
        int greatest = 0;
        check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
        cudaStream_t stream = nullptr;
        check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                           role == StreamRole::Communication ? greatest : least),
              "cudaStreamCreate");
        return stream;
    }

    std::string name_;
    cudaStream_t stream_;
    mutable HoldUps hold_ups_;
    std::shared_ptr<SectionGraphs> gathered_;
    Ranges* shown_ = nullptr;
};

class Gpu final : public CudaDevice {
  public:
    Gpu(CudaDeviceEntry entry, CudaGraphs graphs) : entry_(std::move(entry)), graphs_(graphs) {
        copies_ = std::make_unique<CudaStream>("fill", StreamRole::Compute, CudaGraphs::Off);
    }

    [[nodiscard]] DeviceInfo info() const override {
        DeviceInfo info;
        info.kind = "cuda";
        info.name = entry_.name;
        info.memory_bytes = free_bytes() + use_.device_bytes;
        info.memory = DeviceMemoryKind::Own;
        return info;
    }

    Buffer allocate(std::size_t bytes, Memory memory, std::string_view what) override {
        if (bytes == 0) return {this, nullptr, 0, memory};
        void* data = nullptr;
        const cudaError_t state = memory == Memory::Device
                                      ? cudaMalloc(&data, bytes)
                                      : cudaHostAlloc(&data, bytes, cudaHostAllocDefault);
        if (state != cudaSuccess) check(state, refusal(bytes, memory, what).c_str());
        auto* start = static_cast<std::byte*>(data);
        count(bytes, memory);
        Buffer buffer(this, start, bytes, memory);
        if (memory == Memory::Device) {
            check(cudaMemsetAsync(start, 0, bytes, handle(*copies_)), "cudaMemset");
            copies_->synchronize();
        } else {
            std::fill(start, start + bytes, std::byte{0});
        }
        return buffer;
    }

    std::unique_ptr<Stream> make_stream(std::string_view name, StreamRole role) override {
        auto stream = std::make_unique<CudaStream>(name, role, graphs_);
        if (stream->gathered()) gathered_.push_back(stream->gathered());
        return stream;
    }
    std::unique_ptr<Event> make_event() override { return std::make_unique<CudaEvent>(); }

    void copy(Stream& stream, std::byte* to, const std::byte* from, std::size_t bytes) override {
        if (bytes == 0) return;
        check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, handle(stream)), "cudaMemcpyAsync");
    }

    [[nodiscard]] MemoryUse memory_use() const override { return use_; }

    [[nodiscard]] Ranges* ranges() override { return &ranges_; }

    [[nodiscard]] CudaGraphs graphs() const override { return graphs_; }
    [[nodiscard]] CudaGraphUse graph_use() const override {
        CudaGraphUse sum;
        for (const auto& weak : gathered_) {
            const std::shared_ptr<SectionGraphs> sections = weak.lock();
            if (!sections) continue;
            sum.replayed += sections->use().replayed;
            sum.issued += sections->use().issued;
            sum.captured += sections->use().captured;
            if (sum.refusal.empty()) sum.refusal = sections->use().refusal;
        }
        return sum;
    }

  private:
    // What other processes, the context and the libraries have left.
    static std::uint64_t free_bytes() {
        std::size_t free = 0;
        std::size_t total = 0;
        check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
        return free;
    }

    std::string refusal(std::size_t bytes, Memory memory, std::string_view what) const {
        if (memory == Memory::Pinned)
            return fmt::format("pinning {} of host memory for {}", format_bytes(bytes), what);
        std::size_t free = 0;
        std::size_t total = 0;
        static_cast<void>(cudaMemGetInfo(&free, &total));
        return fmt::format("allocating {} for {} ({} are taken by this rank, {} of {} free)",
                           format_bytes(bytes), what, format_bytes(use_.device_bytes), format_bytes(free),
                           format_bytes(total));
    }

    void count(std::size_t bytes, Memory memory) {
        ++use_.allocations;
        std::uint64_t& now = memory == Memory::Device ? use_.device_bytes : use_.pinned_bytes;
        std::uint64_t& peak = memory == Memory::Device ? use_.device_peak_bytes : use_.pinned_peak_bytes;
        now += bytes;
        peak = std::max(peak, now);
    }

    void deallocate(std::byte* data, std::size_t bytes, Memory memory) noexcept override {
        if (data == nullptr) return;
        flush_streams();
        // Both wait for work that may use the memory; a failure of that work shows at the next call.
        static_cast<void>(memory == Memory::Device ? cudaFree(data) : cudaFreeHost(data));
        (memory == Memory::Device ? use_.device_bytes : use_.pinned_bytes) -= bytes;
    }

    // Calls that were asked for before memory goes away may use it.
    void flush_streams() noexcept {
        for (const auto& weak : gathered_) {
            const std::shared_ptr<SectionGraphs> sections = weak.lock();
            if (sections) sections->flush_and_tell_later();
        }
    }

    CudaDeviceEntry entry_;
    CudaGraphs graphs_;
    MemoryUse use_;
    NvtxRanges ranges_;
    std::unique_ptr<CudaStream> copies_;
    std::vector<std::weak_ptr<SectionGraphs>> gathered_;  // of the streams that gather
};

}  // namespace

namespace {

CudaStream& own(Stream& stream) {
    auto* mine = dynamic_cast<CudaStream*>(&stream);
    invariant(mine != nullptr, "a stream of another kind of device was given to the cuda backend");
    return *mine;
}

}  // namespace

cudaStream_t handle(Stream& stream) {
    CudaStream& mine = own(stream);
    mine.flush();
    return mine.raw();
}

SectionGraphs* gathered_by(Stream& stream) { return own(stream).gathered().get(); }

}  // namespace trainctl::cuda

namespace trainctl {
namespace {

std::string why_no_devices(cudaError_t state) {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) return "there is no NVIDIA driver";
    if (state != cudaErrorInsufficientDriver) return cudaGetErrorString(state);
    return fmt::format("the NVIDIA driver supports CUDA {}.{}, this binary needs {}.{}", driver / 1000,
                       driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

}  // namespace

std::vector<CudaDeviceEntry> list_cuda_devices(std::string* why) {
    int count = 0;
    const cudaError_t state = cudaGetDeviceCount(&count);
    if (state != cudaSuccess) {
        if (why != nullptr) *why = why_no_devices(state);
        static_cast<void>(cudaGetLastError());
        return {};
    }
    std::vector<CudaDeviceEntry> entries;
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        cudaDeviceProp properties{};
        cuda::check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
        std::array<char, 32> bus{};
        cuda::check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), ordinal),
                    "cudaDeviceGetPCIBusId");
        entries.push_back({ordinal, properties.name, bus.data(), 10 * properties.major + properties.minor,
                           properties.multiProcessorCount, properties.totalGlobalMem});
    }
    return entries;
}

std::string cuda_version() {
    const std::size_t blas = cublasLtGetVersion();
    int nccl = 0;
    static_cast<void>(ncclGetVersion(&nccl));
    return fmt::format("{}.{}, cuBLASLt {}.{}.{}, NCCL {}.{}.{}", CUDART_VERSION / 1000,
                       CUDART_VERSION % 1000 / 10, blas / 10000, blas % 10000 / 100, blas % 100, nccl / 10000,
                       nccl % 10000 / 100, nccl % 100);
}

std::unique_ptr<CudaDevice> make_cuda_device(int ordinal, CudaGraphs graphs) {
    std::string why;
    const std::vector<CudaDeviceEntry> entries = list_cuda_devices(&why);
    if (ordinal < 0 || ordinal >= static_cast<int>(entries.size())) {
        fail(Exit::Resource, fmt::format("expected CUDA device {}, found {} device{}{}{}; check `nvidia-smi` "
                                         "and CUDA_VISIBLE_DEVICES, or "
                                         "set device.kind = \"cpu\"",
                                         ordinal, entries.size(), entries.size() == 1 ? "" : "s",
                                         why.empty() ? "" : ": ", why));
    }
    const CudaDeviceEntry& entry = entries[static_cast<std::size_t>(ordinal)];
    if (entry.compute_capability < cuda::oldest_capability) {
        fail(Exit::Resource,
             fmt::format("expected a GPU of compute capability {}.{} or newer, found {} with {}.{}; this "
                         "binary has no kernels for it: use another GPU, or device.kind = \"cpu\"",
                         cuda::oldest_capability / 10, cuda::oldest_capability % 10, entry.name,
                         entry.compute_capability / 10, entry.compute_capability % 10));
    }
    cuda::check(cudaSetDevice(ordinal), "cudaSetDevice");
    return std::make_unique<cuda::Gpu>(entry, graphs);
}

}  // namespace trainctl
