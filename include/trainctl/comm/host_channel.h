// Small host messages between all ranks of a world, on a communicator of their own, so that control never
// waits behind tensors. Blocking; same order on all ranks; bounded by the world's deadline (Exit::Peer).
#pragma once

#include <cstdint>
#include <span>

#include "trainctl/comm/communicator.h"
#include "trainctl/comm/rank_link.h"

namespace trainctl {

class HostChannel : public RankLink {
  public:
    // In place, exact.
    virtual void all_reduce(std::span<std::int64_t> values, Reduce reduce) = 0;
    virtual void barrier() = 0;
    // Ends calls that are under way at this rank, and all later ones, with Exit::Peer. Any thread. For a rank
    // that is about to leave the world.
    virtual void give_up() noexcept = 0;
};

}  // namespace trainctl
