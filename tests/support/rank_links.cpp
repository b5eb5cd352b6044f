#include "support/rank_links.h"

#include <exception>
#include <thread>

#include "trainctl/base/error.h"

namespace trainctl::test {
namespace {

class ThreadLink final : public RankLink {
  public:
    ThreadLink(LinkedWorld& world, int rank) : world_(world), rank_(rank) {}
    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return world_.size(); }
    std::vector<std::string> gather(const std::string& mine) override { return world_.gather(rank_, mine); }
    std::string broadcast(const std::string& from_rank_0) override {
        return world_.broadcast(rank_, from_rank_0);
    }
    std::string pass(int to, const std::string& mine, int from) override {
        return world_.pass(rank_, to, mine, from);
    }

  private:
    LinkedWorld& world_;
    int rank_;
};

}  // namespace

void LinkedWorld::pass_turn(int rank) {
    turn_ = rank;
    for (int step = 0; step < size(); ++step) {
        turn_ = (turn_ + 1) % size();
        if (!left_[static_cast<std::size_t>(turn_)]) break;
    }
    changed_.notify_all();
}

void LinkedWorld::wait_for_turn(Lock& lock, int rank) {
    if (order_ == RankOrder::Serial) changed_.wait(lock, [&] { return turn_ == rank; });
}

void LinkedWorld::start(int rank) {
    Lock lock(mutex_);
    wait_for_turn(lock, rank);
}

std::vector<std::string> LinkedWorld::gather(int rank, const std::string& mine) {
    Lock lock(mutex_);
    const auto me = static_cast<std::size_t>(rank);
    slots_[me] = mine;
    ++arrived_[me];
    pass_turn(rank);
    if (rank != 0) return {};
    ++gathers_;
    bool lost = false;
    changed_.wait(lock, [&] {
        bool all = true;
        for (std::size_t other = 0; other < slots_.size(); ++other) {
            if (arrived_[other] >= gathers_) continue;
            all = false;
            lost = lost || left_[other];
        }
        return all || lost;
    });
    if (lost) fail(Exit::Peer, "a rank left");
    wait_for_turn(lock, 0);
    return slots_;
}

std::string LinkedWorld::broadcast(int rank, const std::string& from_rank_0) {
    Lock lock(mutex_);
    if (rank == 0) {
        value_ = from_rank_0;
        ++broadcasts_;
        changed_.notify_all();
        return value_;
    }
    const long wanted = ++received_[static_cast<std::size_t>(rank)];
    changed_.wait(lock, [&] { return broadcasts_ >= wanted || left_[0]; });
    if (broadcasts_ < wanted) fail(Exit::Peer, "rank 0 left");
    std::string value = value_;  // rank 0 cannot send another before this rank has entered the next gather
    wait_for_turn(lock, rank);
    return value;
}

std::string LinkedWorld::pass(int rank, int to, const std::string& mine, int from) {
    Lock lock(mutex_);
    if (to != RankLink::nobody) passed_[{rank, to}].push_back(mine);
    changed_.notify_all();
    if (from == RankLink::nobody) return {};
    invariant(order_ == RankOrder::Concurrent, "ranks that run one at a time cannot wait for one another");
    std::deque<std::string>& arrived = passed_[{from, rank}];
    changed_.wait(lock, [&] { return !arrived.empty() || left_[static_cast<std::size_t>(from)]; });
    if (arrived.empty()) fail(Exit::Peer, "a rank left");
    std::string value = std::move(arrived.front());
    arrived.pop_front();
    return value;
}

void LinkedWorld::leave(int rank) {
    const Lock lock(mutex_);
    left_[static_cast<std::size_t>(rank)] = true;
    if (turn_ == rank) pass_turn(rank);
    changed_.notify_all();
}

void run_linked_ranks(int size, RankOrder order, const std::function<void(RankLink&)>& body) {
    LinkedWorld world(size, order);
    std::vector<std::exception_ptr> problems(static_cast<std::size_t>(size));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
            try {
                ThreadLink link(world, rank);
                world.start(rank);
                body(link);
            } catch (...) {
                problems[static_cast<std::size_t>(rank)] = std::current_exception();
            }
            world.leave(rank);
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& problem : problems) {
        if (problem) std::rethrow_exception(problem);
    }
}

}  // namespace trainctl::test
