// Gradients of which every tensor-parallel rank has computed a part of the sum only, although each needs all
// of it: norms when rows are sharded, key/value heads that several ranks hold.
//
// They are added once per step, when they are reduced over the data axis and on the ranges that this rank
// updates, in one message: packed, summed in rank order, copied back. A parameter of which the ranks hold
// several different parts has a place for each; a rank leaves the others' zero.
#pragma once

#include <memory>
#include <vector>

#include "parallel/gradient_memory.h"
#include "trainctl/comm/communicator.h"
#include "trainctl/ops/ops.h"

namespace trainctl {

class ReplicaSums {
  public:
    // `tensor` may be nullptr: no other rank.
    ReplicaSums(const ShardPlan& plan, const GradientMemory& gradients, Device& device, Ops ops,
                Communicator* tensor, Stream& compute, Stream& communication);

    // After BucketedReducer::finish(); later work of the compute stream sees the sums. No message if there is
    // nothing to add.
    void add();

    [[nodiscard]] std::vector<MemoryRow> memory_table() const;

  private:
    struct Piece {
        std::size_t unit = 0;
        Range of_held;            // elements of the unit's held range
        std::int64_t packed = 0;  // where this rank's values lie in the message
    };
    [[nodiscard]] TensorView gradient(const Piece& piece) const;
    [[nodiscard]] TensorView packed(const Piece& piece) const;

    const GradientMemory& gradients_;
    Device& device_;
    Ops ops_;
    Communicator* tensor_;
    Stream& compute_;
    Stream& communication_;
    std::vector<Piece> pieces_;
    std::int64_t elements_ = 0;
    bool several_parts_ = false;  // some places of the message are other ranks' alone
    Buffer memory_;
    std::unique_ptr<Event> packed_;
    std::unique_ptr<Event> summed_;
};

}  // namespace trainctl
