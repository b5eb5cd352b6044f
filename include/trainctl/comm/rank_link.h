// The part of the control channel (host_channel.h) that ranks need to agree on something; all that a test has
// to imitate.
#pragma once

#include <string>
#include <vector>

namespace trainctl {

// Small host messages, same calls in the same order on all ranks. A lost peer is Exit::Peer.
class RankLink {
  public:
    virtual ~RankLink() = default;
    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;
    // Name of this rank's host, for messages; may be empty.
    [[nodiscard]] virtual std::string host() const { return {}; }
    // At rank 0: one string per rank, in rank order. Elsewhere: empty.
    virtual std::vector<std::string> gather(const std::string& mine) = 0;
    // Rank 0's string, everywhere (the argument of other ranks is ignored).
    virtual std::string broadcast(const std::string& from_rank_0) = 0;
    // Sends `mine` to rank `to` and returns what rank `from` sends here, in one go; nobody: no message that
    // way. Called by all ranks together like the others, also by those that neither send nor receive; a `to`
    // must be met by a `from`. Up to 1 GiB.
    static constexpr int nobody = -1;
    virtual std::string pass(int to, const std::string& mine, int from) = 0;
};

}  // namespace trainctl
