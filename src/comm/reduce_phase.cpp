#include "comm/reduce_phase.h"

#include <algorithm>

#include "comm/combine.h"

namespace trainctl {

ReducePhase::ReducePhase(ReduceTask task, int rank, int size)
    : task_(std::move(task)),
      rank_(rank),
      size_(size),
      element_(dtype_size(task_.input.dtype)),
      missing_(static_cast<std::size_t>(task_.plan.window), 0),
      peers_(static_cast<std::size_t>(size)),
      sources_(static_cast<std::size_t>(size)) {
    const auto chunks_of = [&](int part) {
        return (end_of(part) - begin_of(part) + task_.plan.chunk - 1) / task_.plan.chunk;
    };
    own_chunks_ = chunks_of(rank);
    for (int other = 0; other < size; ++other) {
        if (other == rank) continue;
        Peer& peer = peers_[static_cast<std::size_t>(other)];
        peer.chunks = chunks_of(other);
        unsent_ += peer.chunks;
    }
}

std::int64_t ReducePhase::begin_of(int part) const {
    return std::min(part * task_.plan.part, task_.input.elements());
}

std::int64_t ReducePhase::end_of(int part) const { return begin_of(part + 1); }

// Slot of a peer's chunk: [chunk % window][peer without ourselves].
std::byte* ReducePhase::stage(int peer, std::int64_t chunk) const {
    const std::int64_t row = (chunk % task_.plan.window) * (size_ - 1) + (peer < rank_ ? peer : peer - 1);
    return task_.staging->data() + static_cast<std::size_t>(row * task_.plan.chunk) * element_;
}

void ReducePhase::step(const Start& send, const Start& receive) {
    const std::int64_t chunk_elements = task_.plan.chunk;
    while (posted_ < own_chunks_ && posted_ < added_ + task_.plan.window) {
        const std::int64_t chunk = posted_++;
        const std::int64_t begin = begin_of(rank_) + chunk * chunk_elements;
        const std::int64_t count = std::min(chunk_elements, end_of(rank_) - begin);
        missing_[static_cast<std::size_t>(chunk % task_.plan.window)] = size_ - 1;
        for (int k = 1; k < size_; ++k) {
            const int from = (rank_ + size_ - k) % size_;
            receive(from, stage(from, chunk), static_cast<std::size_t>(count) * element_, chunk);
        }
    }
    for (int k = 1; k < size_; ++k) {
        const int to = (rank_ + k) % size_;
        Peer& peer = peers_[static_cast<std::size_t>(to)];
        while (peer.posted < peer.chunks && peer.under_way < task_.plan.window) {
            const std::int64_t begin = begin_of(to) + peer.posted * chunk_elements;
            const std::int64_t count = std::min(chunk_elements, end_of(to) - begin);
            send(to, task_.input.data + static_cast<std::size_t>(begin) * element_,
                 static_cast<std::size_t>(count) * element_, peer.posted);
            ++peer.posted;
            ++peer.under_way;
        }
    }
    while (added_ < posted_ && missing_[static_cast<std::size_t>(added_ % task_.plan.window)] == 0)
        add(added_++);
}

void ReducePhase::sent(int to) {
    --peers_[static_cast<std::size_t>(to)].under_way;
    --unsent_;
}

void ReducePhase::received(std::int64_t chunk) {
    --missing_[static_cast<std::size_t>(chunk % task_.plan.window)];
}

void ReducePhase::add(std::int64_t chunk) {
    const std::int64_t offset = chunk * task_.plan.chunk;
    const std::int64_t begin = begin_of(rank_) + offset;
    const std::int64_t count = std::min(task_.plan.chunk, end_of(rank_) - begin);
    for (int source = 0; source < size_; ++source) {
        sources_[static_cast<std::size_t>(source)] =
            source == rank_ ? task_.input.data + static_cast<std::size_t>(begin) * element_
                            : stage(source, chunk);
    }
    combine(task_.output.data + storage_bytes(offset, task_.output.dtype), task_.output.dtype, task_.into,
            sources_, task_.input.dtype, task_.reduce, count);
}

}  // namespace trainctl
