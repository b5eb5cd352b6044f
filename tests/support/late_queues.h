// The queues behind a late device, and the choice of what runs next.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "trainctl/device/captured_error.h"
#include "trainctl/device/host_stream.h"

namespace trainctl::test {

struct LateQueue;
using LateFailure = std::shared_ptr<const CapturedError>;  // null: none

struct LateTicket {
    std::shared_ptr<LateQueue> queue;  // null: passed
    std::uint64_t position = 0;
};

struct LateItem {
    std::unique_ptr<Operation> operation;  // null: a wait for `ticket`
    LateTicket ticket;
};

struct LateQueue {
    std::string name;
    StreamRole role = StreamRole::Compute;
    std::deque<LateItem> items;
    std::uint64_t issued = 0;
    std::uint64_t completed = 0;
    LateFailure failure;
    std::uint64_t failed_from = 0;
};

class LateQueues {
  public:
    explicit LateQueues(std::uint64_t seed) : seed_(seed), random_(seed) {}

    std::shared_ptr<LateQueue> open(std::string_view name, StreamRole role);
    void push(LateQueue& queue, LateItem item);
    static bool passed(const LateTicket& ticket);

    // Runs what the ticket needs, then rethrows the failure that reached it. While nothing can go on but by a
    // peer's doing, `pause` is called: others may use the queues during that, if it lets them.
    void force(const LateTicket& ticket, const std::function<void()>& pause = rest);
    // One piece of work towards the ticket, for hosts that poll.
    void nudge(const LateTicket& ticket);
    // Everything, in a shuffled order; failures stay in their queues.
    void drain();
    // Nothing pending runs any more.
    void drop();
    static void rest();  // for a moment
    [[nodiscard]] bool idle() const;
    void abort(const Error& error);  // any thread

  private:
    using Need = std::map<std::shared_ptr<LateQueue>, std::uint64_t>;  // how far each queue must get
    enum class Kind { Any, Communication };

    static void add_needed(Need& need, const LateTicket& ticket);
    static bool satisfied(const Need& need);
    std::vector<LateQueue*> runnable(const Need& need, Kind kind);
    bool round(const Need& need, Kind kind);
    void run(Need need, const std::function<void()>& pause);
    bool advance(LateQueue& queue);
    static void fail_queue(LateQueue& queue, const LateFailure& failure);
    void take_abort();

    std::uint64_t seed_;
    std::mt19937_64 random_;
    std::vector<std::shared_ptr<LateQueue>> queues_;
    std::mutex abort_mutex_;
    LateFailure abort_failure_;
    std::atomic<bool> aborted_{false};
};

}  // namespace trainctl::test
