// Small host messages between all ranks of a world, on a communicator of their own, so that control never
// waits behind tensors. Blocking; same order on all ranks; bounded by the world's deadline (Exit::Peer).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainctl/comm/communicator.h"

namespace trainctl {

class HostChannel {
  public:
    virtual ~HostChannel() = default;
    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;
    // At rank 0: one string per rank, in rank order. Elsewhere: empty.
    virtual std::vector<std::string> gather(const std::string& mine) = 0;
    // Rank 0's string, everywhere (the argument of other ranks is ignored).
    virtual std::string broadcast(const std::string& from_rank_0) = 0;
    // In place, exact.
    virtual void all_reduce(std::span<std::int64_t> values, Reduce reduce) = 0;
    virtual void barrier() = 0;
};

}  // namespace trainctl
