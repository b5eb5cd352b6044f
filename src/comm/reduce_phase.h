// The first half of every large reduction: parts travel to their owners in chunks, and the owner adds them in
// rank order. At most `window` chunks per pair of ranks are under way, which bounds the staging.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/staging.h"
#include "trainctl/comm/communicator.h"

namespace trainctl {

struct ReduceTask {
    TensorView input;   // N elements; part r is [r * plan.part, (r + 1) * plan.part) cut at N
    TensorView output;  // this rank's part of the result; may be its part of `input`
    Into into = Into::Overwrite;
    Reduce reduce = Reduce::Sum;
    ReducePlan plan;
    std::shared_ptr<Buffer> staging;
};

class ReducePhase {
  public:
    // Start messages of this rank; the owner of the phase reports their ends with sent() and received().
    using Start = std::function<void(int peer, std::byte* data, std::size_t bytes, std::int64_t chunk)>;

    ReducePhase(ReduceTask task, int rank, int size);

    void step(const Start& send, const Start& receive);
    void sent(int to);
    void received(std::int64_t chunk);
    // All chunks of this rank are added and all its messages were taken.
    [[nodiscard]] bool finished() const { return added_ == own_chunks_ && unsent_ == 0; }

  private:
    struct Peer {
        std::int64_t chunks = 0;  // of its part
        std::int64_t posted = 0;
        int under_way = 0;
    };

    [[nodiscard]] std::int64_t begin_of(int part) const;
    [[nodiscard]] std::int64_t end_of(int part) const;
    [[nodiscard]] std::byte* stage(int peer, std::int64_t chunk) const;
    void add(std::int64_t chunk);

    ReduceTask task_;
    int rank_;
    int size_;
    std::size_t element_;
    std::int64_t own_chunks_ = 0;
    std::int64_t posted_ = 0;   // chunks whose receives were started
    std::int64_t added_ = 0;    // chunks finished
    std::vector<int> missing_;  // by chunk % window: messages still to come
    std::vector<Peer> peers_;   // by rank
    std::int64_t unsent_ = 0;   // messages to others that have not ended
    std::vector<const std::byte*> sources_;
};

}  // namespace trainctl
