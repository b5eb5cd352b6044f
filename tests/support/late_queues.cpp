#include "support/late_queues.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace trainctl::test {
namespace {

// How long a peer may take before more than the needed communication is started. Long against a thread's turn
// on a busy machine, so that a defect is not hidden by running what no event asks for.
constexpr std::chrono::milliseconds patience{20};

}  // namespace

std::shared_ptr<LateQueue> LateQueues::open(std::string_view name, StreamRole role) {
    auto queue = std::make_shared<LateQueue>();
    queue->name = name;
    queue->role = role;
    queues_.push_back(queue);
    return queue;
}

void LateQueues::push(LateQueue& queue, LateItem item) {
    take_abort();
    ++queue.issued;
    if (queue.failure) {
        queue.completed = queue.issued;
        return;
    }
    queue.items.push_back(std::move(item));
}

bool LateQueues::passed(const LateTicket& ticket) {
    return ticket.queue == nullptr || ticket.queue->completed >= ticket.position;
}

void LateQueues::force(const LateTicket& ticket, const std::function<void()>& pause) {
    Need need;
    add_needed(need, ticket);
    run(std::move(need), pause);
    if (ticket.queue != nullptr && ticket.queue->failure && ticket.position >= ticket.queue->failed_from) {
        ticket.queue->failure->raise();
    }
}

void LateQueues::nudge(const LateTicket& ticket) {
    take_abort();
    Need need;
    add_needed(need, ticket);
    if (!satisfied(need)) round(need, Kind::Any);
}

void LateQueues::drain() {
    Need need;
    for (const auto& queue : queues_) add_needed(need, {queue, queue->issued});
    run(std::move(need), rest);
}

void LateQueues::drop() {
    for (const auto& queue : queues_) {
        queue->items.clear();
        queue->completed = queue->issued;
    }
}

bool LateQueues::idle() const {
    return std::all_of(queues_.begin(), queues_.end(),
                       [](const auto& queue) { return queue->items.empty(); });
}

void LateQueues::abort(const Error& error) {
    const std::scoped_lock lock(abort_mutex_);
    if (abort_failure_) return;
    abort_failure_ = std::make_shared<CapturedError>(error);
    aborted_.store(true, std::memory_order_release);
}

void LateQueues::take_abort() {
    if (!aborted_.load(std::memory_order_acquire)) return;
    const std::scoped_lock lock(abort_mutex_);
    for (const auto& queue : queues_) fail_queue(*queue, abort_failure_);
}

void LateQueues::add_needed(Need& need, const LateTicket& ticket) {
    if (passed(ticket)) return;
    std::uint64_t& position = need[ticket.queue];
    if (position >= ticket.position) return;
    const std::uint64_t known = std::max(position, ticket.queue->completed);
    position = ticket.position;
    for (std::uint64_t next = known; next < ticket.position; ++next) {
        const LateItem& item = ticket.queue->items[next - ticket.queue->completed];
        if (item.operation == nullptr) add_needed(need, item.ticket);
    }
}

bool LateQueues::satisfied(const Need& need) {
    return std::all_of(need.begin(), need.end(),
                       [](const auto& entry) { return entry.first->completed >= entry.second; });
}

// Queues that may run their head now, in this device's order.
std::vector<LateQueue*> LateQueues::runnable(const Need& need, Kind kind) {
    std::vector<LateQueue*> candidates;
    for (const auto& [queue, position] : need) {
        if (queue->completed >= position) continue;
        if (kind == Kind::Communication && queue->role != StreamRole::Communication) continue;
        const LateItem& head = queue->items.front();
        if (head.operation != nullptr || passed(head.ticket)) candidates.push_back(queue.get());
    }
    // By name first: the map is ordered by address, which differs from run to run.
    std::sort(candidates.begin(), candidates.end(), [](auto* a, auto* b) { return a->name < b->name; });
    std::shuffle(candidates.begin(), candidates.end(), random_);
    if (seed_ <= 1) {
        const StreamRole first = seed_ == 0 ? StreamRole::Communication : StreamRole::Compute;
        std::stable_partition(candidates.begin(), candidates.end(),
                              [&](auto* queue) { return queue->role == first; });
    }
    return candidates;
}

// Advances the first candidate. If that is a message on its way, the other messages are moved on, too, but no
// compute is started beside it: the peer might read what compute is about to write.
bool LateQueues::round(const Need& need, Kind kind) {
    bool waiting_for_peer = false;
    for (LateQueue* queue : runnable(need, kind)) {
        if (waiting_for_peer && queue->role != StreamRole::Communication) continue;
        if (advance(*queue)) return true;
        waiting_for_peer = true;
    }
    return false;
}

void LateQueues::rest() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

void LateQueues::run(Need need, const std::function<void()>& pause) {
    auto last_progress = std::chrono::steady_clock::now();
    bool all_communication = false;
    while (take_abort(), !satisfied(need)) {
        const bool stalled = std::chrono::steady_clock::now() - last_progress > patience;
        bool progressed = round(need, Kind::Any);
        if (!progressed && stalled) {
            for (LateQueue* queue : runnable(need, Kind::Any)) {
                if (queue->role == StreamRole::Compute) progressed = advance(*queue) || progressed;
            }
            if (!progressed && !all_communication) {
                all_communication = true;
                for (const auto& queue : queues_) {
                    if (queue->role == StreamRole::Communication) add_needed(need, {queue, queue->issued});
                }
            }
        }
        if (progressed) {
            last_progress = std::chrono::steady_clock::now();
        } else {
            pause();
        }
    }
}

bool LateQueues::advance(LateQueue& queue) {
    LateItem& head = queue.items.front();
    try {
        if (head.operation != nullptr) {
            if (!head.operation->advance()) return false;
        } else if (const LateTicket& ticket = head.ticket; ticket.queue != nullptr && ticket.queue->failure &&
                                                           ticket.position >= ticket.queue->failed_from) {
            ticket.queue->failure->raise();
        }
    } catch (...) {
        fail_queue(queue, CapturedError::current());
        return true;
    }
    queue.items.pop_front();
    ++queue.completed;
    return true;
}

void LateQueues::fail_queue(LateQueue& queue, const LateFailure& failure) {
    if (queue.failure) return;
    queue.failure = failure;
    queue.failed_from = queue.completed + 1;
    queue.items.clear();
    queue.completed = queue.issued;
}

}  // namespace trainctl::test
