// The few messages that saving and loading need between the ranks of a run, and how ranks agree on one
// outcome.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace trainctl {

// Small host messages, same calls in the same order on all ranks. Implemented over the control communicator.
// A lost peer is Exit::Peer, on its own authority: that one is not agreed upon.
class RankLink {
  public:
    virtual ~RankLink() = default;
    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;
    // Name of this rank's host, for messages; may be empty.
    [[nodiscard]] virtual std::string host() const { return {}; }
    // At rank 0: one string per rank, in rank order. Elsewhere: empty.
    virtual std::vector<std::string> gather(const std::string& mine) = 0;
    // Rank 0's string, everywhere.
    virtual std::string broadcast(const std::string& from_rank_0) = 0;
};

// A world of one.
class SoloLink final : public RankLink {
  public:
    [[nodiscard]] int rank() const override { return 0; }
    [[nodiscard]] int size() const override { return 1; }
    std::vector<std::string> gather(const std::string& mine) override { return {mine}; }
    std::string broadcast(const std::string& from_rank_0) override { return from_rank_0; }
};

// One agreed step. Every rank does `work`; rank 0 gets all results and makes the decision, which every rank
// returns. If any rank's work or the decision throws, every rank throws the same Error (Scope::Shared): code
// and text of the lowest failing rank (Exit::Fenced first). If only some ranks' work failed, "[rank 1 host] "
// is in front, and the text ends with how many others failed.
std::string agree(RankLink& link, const std::function<std::string()>& work,
                  const std::function<std::string(const std::vector<std::string>&)>& decide);

}  // namespace trainctl
