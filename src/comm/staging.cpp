#include "comm/staging.h"

#include <algorithm>
#include <bit>

namespace trainctl {
namespace {

constexpr std::int64_t grain = 64;  // elements: parts and chunks begin at cache lines
constexpr std::size_t smallest_chunk_bytes = 512;
constexpr std::size_t smallest_buffer = 4096;
constexpr int widest_window = 4;  // chunks: one is added while others arrive, also when the thread is late

std::int64_t round_up_to_grain(std::int64_t elements) { return (elements + grain - 1) / grain * grain; }

}  // namespace

ReducePlan plan_reduction(std::int64_t part_elements, DType dtype, int ranks, const CommTuning& tuning) {
    const std::size_t element = dtype_size(dtype);
    const auto peers = static_cast<std::size_t>(std::max(ranks - 1, 1));
    const std::size_t bound = std::min(tuning.chunk_bytes, tuning.staging_bytes / (widest_window * peers));
    const std::size_t bytes = std::max({bound, smallest_chunk_bytes, grain * element});
    const std::int64_t most = static_cast<std::int64_t>(bytes / element) / grain * grain;
    ReducePlan plan;
    plan.part = part_elements;
    plan.chunk = std::min(most, std::max(part_elements, std::int64_t{1}));
    const std::int64_t chunks = (part_elements + plan.chunk - 1) / plan.chunk;
    plan.window = static_cast<int>(std::clamp<std::int64_t>(chunks, 1, widest_window));
    return plan;
}

std::int64_t all_reduce_part(std::int64_t elements, int ranks) {
    return round_up_to_grain((elements + ranks - 1) / ranks);
}

bool all_reduce_is_small(std::size_t bytes, int ranks, const CommTuning& tuning) {
    return ranks <= 2 ? bytes <= tuning.small_bytes
                      : bytes * static_cast<std::size_t>(ranks) <= 4 * tuning.small_bytes;
}

std::size_t reduce_scatter_staging(std::int64_t shard_elements, DType dtype, int ranks,
                                   const CommTuning& tuning) {
    return plan_reduction(shard_elements, dtype, ranks, tuning).staging_bytes(ranks, dtype);
}

std::size_t all_reduce_staging(std::int64_t elements, DType dtype, int ranks, const CommTuning& tuning) {
    const std::size_t bytes = storage_bytes(elements, dtype);
    if (all_reduce_is_small(bytes, ranks, tuning)) return bytes * static_cast<std::size_t>(ranks - 1);
    return reduce_scatter_staging(all_reduce_part(elements, ranks), dtype, ranks, tuning);
}

StagingPool::StagingPool(Device& device, std::string_view communicator, Memory memory)
    : device_(device), what_("communication staging (" + std::string(communicator) + ")"), memory_(memory) {}

std::shared_ptr<Buffer> StagingPool::get(const Stream& stream, std::size_t bytes) {
    if (bytes == 0) return nullptr;
    std::shared_ptr<Buffer>& buffer = buffers_[&stream];
    if (!buffer || buffer->bytes() < bytes) {
        const std::size_t rounded = std::bit_ceil(std::max(bytes, smallest_buffer));  // few growths
        buffer = std::make_shared<Buffer>(device_.allocate(rounded, memory_, what_));
    }
    return buffer;
}

}  // namespace trainctl
