// RankLinks for threads of one process: a world of ranks in a test.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "trainctl/comm/rank_link.h"

namespace trainctl::test {

// A world of one.
class SoloLink final : public RankLink {
  public:
    [[nodiscard]] int rank() const override { return 0; }
    [[nodiscard]] int size() const override { return 1; }
    std::vector<std::string> gather(const std::string& mine) override { return {mine}; }
    std::string broadcast(const std::string& from_rank_0) override { return from_rank_0; }
    std::string pass(int /*to*/, const std::string& mine, int from) override {
        return from == nobody ? std::string() : mine;
    }
};

enum class RankOrder {
    Serial,      // one rank runs at a time, in rank order between messages: the same program does the same,
                 // always; no pass()
    Concurrent,  // as real ranks do
};

// What the links of one world share.
class LinkedWorld {
  public:
    LinkedWorld(int size, RankOrder order) : order_(order), arrived_(size), slots_(size), left_(size) {}

    void start(int rank);  // waits for this rank's turn
    std::vector<std::string> gather(int rank, const std::string& mine);
    std::string broadcast(int rank, const std::string& from_rank_0);
    std::string pass(int rank, int to, const std::string& mine, int from);
    void leave(int rank);  // this rank is done: whoever needs it from now on gets Exit::Peer
    [[nodiscard]] int size() const { return static_cast<int>(slots_.size()); }

  private:
    using Lock = std::unique_lock<std::mutex>;
    void pass_turn(int rank);
    void wait_for_turn(Lock& lock, int rank);

    const RankOrder order_;
    std::mutex mutex_;
    std::condition_variable changed_;
    int turn_ = 0;
    std::vector<long> arrived_;  // gathers that each rank has entered
    std::vector<std::string> slots_;
    std::vector<bool> left_;
    long gathers_ = 0;     // complete ones
    long broadcasts_ = 0;  // done by rank 0
    std::string value_;
    std::vector<long> received_ = std::vector<long>(slots_.size());
    std::map<std::pair<int, int>, std::deque<std::string>> passed_;  // by sender and receiver
};

// Runs `body` on `size` ranks, each on a thread of its own, and waits for all. Rethrows the exception of the
// lowest rank that threw. No assertions inside `body`: collect results and assert afterwards.
void run_linked_ranks(int size, RankOrder order, const std::function<void(RankLink&)>& body);

}  // namespace trainctl::test
