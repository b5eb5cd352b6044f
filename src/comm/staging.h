// Receive buffers of a communicator: one per stream, because the operations of one stream follow each other.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "trainctl/comm/world.h"
#include "trainctl/device/device.h"

namespace trainctl {

// How a tensor is cut for a reduction over `ranks` owners.
struct ReducePlan {
    std::int64_t part = 0;   // elements owned by each rank; the last parts may be shorter or empty
    std::int64_t chunk = 0;  // elements per message
    int window = 1;          // chunks under way at a time

    [[nodiscard]] std::size_t staging_bytes(int ranks, DType dtype) const {
        return static_cast<std::size_t>(window) * static_cast<std::size_t>(ranks - 1) *
               storage_bytes(chunk, dtype);
    }
};
ReducePlan plan_reduction(std::int64_t part_elements, DType dtype, int ranks, const CommTuning& tuning);

// Elements owned by each rank when all_reduce cuts a tensor of any size.
std::int64_t all_reduce_part(std::int64_t elements, int ranks);
// Whether all_reduce has everybody add everything, in one round.
bool all_reduce_is_small(std::size_t bytes, int ranks, const CommTuning& tuning);

// What each collective stages: the same answer for the real communicator and the simulated one.
std::size_t reduce_scatter_staging(std::int64_t shard_elements, DType dtype, int ranks,
                                   const CommTuning& tuning);
std::size_t all_reduce_staging(std::int64_t elements, DType dtype, int ranks, const CommTuning& tuning);

// Allocates on the compute thread, grows while the first operations are issued, then stays. Operations share
// ownership: a buffer that was outgrown goes when its last operation has ended.
class StagingPool {
  public:
    StagingPool(Device& device, std::string_view communicator, Memory memory = Memory::Device);
    // At least `bytes` (nullptr for 0) for operations of `stream`.
    std::shared_ptr<Buffer> get(const Stream& stream, std::size_t bytes);

  private:
    Device& device_;
    std::string what_;
    Memory memory_;
    std::map<const Stream*, std::shared_ptr<Buffer>> buffers_;
};

}  // namespace trainctl
