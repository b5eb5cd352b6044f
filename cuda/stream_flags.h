// Words in pinned memory through which a stream and a host thread wait for each other, without stopping
// either.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>

#include "trainctl/device/device.h"

namespace trainctl::cuda {

// Two counters, one per direction. Thread rule: made and destroyed by the rank's compute thread; the host
// side of the counters may be used by any thread.
class StreamFlags {
  public:
    explicit StreamFlags(Device& device);

    // The stream has got this far when it stores `value`.
    void store_on_stream(cudaStream_t stream, std::uint32_t value);
    [[nodiscard]] bool stream_has_stored(std::uint32_t value) const;

    // The stream waits until the host has stored `value` or one after it.
    void wait_on_stream(cudaStream_t stream, std::uint32_t value);
    void store_on_host(std::uint32_t value);

  private:
    using Word = std::atomic<std::uint32_t>;
    [[nodiscard]] Word& word(int index) const;

    using ValueCall = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
    static ValueCall driver_call(const char* name);

    Buffer memory_;
    ValueCall write_value_;  // asked of the run time once: it is a search by name
    ValueCall wait_value_;
};

}  // namespace trainctl::cuda
