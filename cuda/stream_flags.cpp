#include "cuda/stream_flags.h"

#include <fmt/core.h>

#include "cuda/check.h"
#include "trainctl/base/error.h"

namespace trainctl::cuda {
namespace {

constexpr std::size_t spacing = 256;  // bytes: each counter in a cache line of its own
constexpr const char* write_name = "cuStreamWriteValue32";
constexpr const char* wait_name = "cuStreamWaitValue32";
enum Index : int { from_stream = 0, from_host = 1 };

void check_driver(CUresult result, const char* what) {
    if (result == CUDA_SUCCESS) return;
    fail(Exit::Resource, fmt::format("{} failed with driver error {}", what, static_cast<int>(result)));
}

}  // namespace

// The run time hands out the driver's functions, so that the binary starts on machines without a driver.
StreamFlags::ValueCall StreamFlags::driver_call(const char* name) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    constexpr unsigned since_cuda = 11070;
    check(cudaGetDriverEntryPointByVersion(name, &function, since_cuda, cudaEnableDefault, &found), name);
    if (found != cudaDriverEntryPointSuccess || function == nullptr)
        fail(Exit::Resource,
             fmt::format("expected a driver with {} (CUDA 11.7 or newer), found one without it; "
                         "install a newer NVIDIA driver, or use communication.backend = \"nccl\"",
                         name));
    return reinterpret_cast<ValueCall>(function);
}

StreamFlags::StreamFlags(Device& device)
    : memory_(device.allocate(2 * spacing, Memory::Pinned, "flags between stream and host")),
      write_value_(driver_call(write_name)),
      wait_value_(driver_call(wait_name)) {
    static_assert(sizeof(Word) == sizeof(std::uint32_t) && Word::is_always_lock_free);
    for (const int index : {from_stream, from_host}) new (&word(index)) Word(0);
}

StreamFlags::Word& StreamFlags::word(int index) const {
    return *reinterpret_cast<Word*>(memory_.data() + static_cast<std::size_t>(index) * spacing);
}

void StreamFlags::store_on_stream(cudaStream_t stream, std::uint32_t value) {
    check_driver(write_value_(stream, reinterpret_cast<CUdeviceptr>(&word(from_stream)), value,
                              CU_STREAM_WRITE_VALUE_DEFAULT),
                 write_name);
}

bool StreamFlags::stream_has_stored(std::uint32_t value) const {
    return static_cast<std::int32_t>(word(from_stream).load(std::memory_order_acquire) - value) >= 0;
}

void StreamFlags::wait_on_stream(cudaStream_t stream, std::uint32_t value) {
    check_driver(
        wait_value_(stream, reinterpret_cast<CUdeviceptr>(&word(from_host)), value, CU_STREAM_WAIT_VALUE_GEQ),
        wait_name);
}

void StreamFlags::store_on_host(std::uint32_t value) {
    word(from_host).store(value, std::memory_order_release);
}

}  // namespace trainctl::cuda
