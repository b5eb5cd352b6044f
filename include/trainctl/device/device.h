// The device abstraction: memory, streams, events, copies. Backends: cpu, cuda, sim.
//
// There is no ambient stream and there are only two ordering verbs: Stream::record and Stream::wait. Work on
// one stream runs in the order it was issued; work on two streams is ordered only through an Event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "trainctl/device/ranges.h"
#include "trainctl/tensor/tensor_view.h"

namespace trainctl {

// A point in a stream's work. Reusable: a wait refers to the newest record made before the wait was issued;
// an event never recorded counts as complete.
class Event {
  public:
    virtual ~Event() = default;
    // Whether the newest record has been passed. Never blocks.
    [[nodiscard]] virtual bool complete() const = 0;
    // Blocks the host until then; rethrows the failure of the work in front of it.
    virtual void synchronize() = 0;
};

class Stream {
  public:
    virtual ~Stream() = default;
    // Marks the work issued to this stream so far.
    virtual void record(Event& event) = 0;
    // Later work of this stream starts only after the event's newest record (as of this call) has been
    // passed.
    virtual void wait(const Event& event) = 0;
    // Blocks the host until all work issued so far is done; rethrows its failure.
    virtual void synchronize() = 0;
    // A stream may gather work before it hands it to the device, at the latest with the next record, wait or
    // synchronize. This hands it over now: called where a piece of work that comes again and again ends.
    virtual void flush() {}
    [[nodiscard]] virtual std::string_view name() const = 0;
    // Seconds this stream's work has been held up by wait() so far: exposed communication, on a compute
    // stream. 0 where the device cannot tell.
    [[nodiscard]] virtual double held_up_s() const { return 0.0; }
    // Every later wait() is told to `ranges` as a communication wait, by streams that can tell; nullptr: no
    // more.
    virtual void show_waits(Ranges* /*ranges*/) {}
};

enum class StreamRole {
    Compute,        // cpu: work runs at once on the calling thread
    Communication,  // cpu: a FIFO advanced by the device's progress thread
    Background,     // as Communication, but nobody hurries for it: what training does not wait for
};

enum class Memory {
    Device,  // where ops compute
    Pinned,  // host memory that ops and copies may read asynchronously
};

class Device;

// Owns device or pinned memory; must not outlive its Device. Aligned to 256 bytes, zero-filled.
class Buffer {
  public:
    Buffer() = default;
    Buffer(Device* device, std::byte* data, std::size_t bytes, Memory memory)
        : device_(device), data_(data), bytes_(bytes), memory_(memory) {}
    Buffer(Buffer&& other) noexcept { swap(other); }
    Buffer& operator=(Buffer&& other) noexcept {
        swap(other);
        return *this;
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer();

    [[nodiscard]] std::byte* data() const { return data_; }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    [[nodiscard]] Memory memory() const { return memory_; }
    // The first elements of the buffer (from byte `offset`) seen as a tensor; must fit.
    [[nodiscard]] TensorView view(const Shape& shape, DType dtype, std::size_t offset = 0) const;

  private:
    void swap(Buffer& other) noexcept;

    Device* device_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
    Memory memory_ = Memory::Device;
};

enum class DeviceMemoryKind {
    Host,  // the host reads and writes it as its own
    Own,   // only ops and copies reach it
};

struct DeviceInfo {
    std::string kind;                // "cpu" | "cuda" | "sim"
    std::string name;                // processor or GPU name
    std::string isa;                 // cpu: the kernel level in use
    int threads = 1;                 // cpu: compute threads of this rank
    std::uint64_t memory_bytes = 0;  // what may be allocated in all
    DeviceMemoryKind memory = DeviceMemoryKind::Host;
};

struct MemoryUse {
    std::uint64_t device_bytes = 0;
    std::uint64_t device_peak_bytes = 0;
    std::uint64_t pinned_bytes = 0;
    std::uint64_t pinned_peak_bytes = 0;
    std::uint64_t allocations = 0;  // calls so far: flat in the steady state
};

// Thread rule: allocate, make_* and copy belong to the rank's compute thread.
class Device {
  public:
    virtual ~Device() = default;

    [[nodiscard]] virtual DeviceInfo info() const = 0;
    // `what` names the owner in the memory table and in the out-of-memory text (Exit::Resource).
    virtual Buffer allocate(std::size_t bytes, Memory memory, std::string_view what) = 0;
    virtual std::unique_ptr<Stream> make_stream(std::string_view name, StreamRole role) = 0;
    virtual std::unique_ptr<Event> make_event() = 0;
    // Between any two places this device can address; both stay valid until the stream has passed it.
    virtual void copy(Stream& stream, std::byte* to, const std::byte* from, std::size_t bytes) = 0;
    [[nodiscard]] virtual MemoryUse memory_use() const = 0;
    // What shows ranges in the tools of this kind of device; nullptr: there are none.
    [[nodiscard]] virtual Ranges* ranges() { return nullptr; }

  private:
    friend class Buffer;
    virtual void deallocate(std::byte* data, std::size_t bytes, Memory memory) noexcept = 0;
};

}  // namespace trainctl
