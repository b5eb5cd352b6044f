#include "device/progress_engine.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>

namespace trainctl {
namespace {

using std::chrono::microseconds;

// How many rounds without any finished operation are spent yielding before the thread naps. With a host
// waiting there is nothing to disturb; beside running compute every visit costs a context switch.
constexpr int rounds_for_waiting_host = 100;
constexpr int rounds_beside_compute = 4;
constexpr microseconds first_nap{10};
constexpr microseconds longest_nap_for_waiting_host{50};
constexpr microseconds longest_nap_beside_compute{200};
constexpr microseconds longest_nap_in_background{2000};  // when nothing urgent is under way
constexpr int visits_in_a_row = 64;  // finished operations of one queue before the others get their turn

}  // namespace

ProgressEngine::ProgressEngine() : thread_([this] { loop(); }) {}

ProgressEngine::~ProgressEngine() {
    {
        const std::scoped_lock lock(mutex_);
        stopping_ = true;
        kick();
    }
    thread_.join();
}

std::shared_ptr<StreamQueue> ProgressEngine::open(std::string_view name, StreamRole role) {
    auto queue = std::make_shared<StreamQueue>(name, role);
    const std::scoped_lock lock(mutex_);
    if (aborted_) fail_queue(*queue, aborted_);
    queues_.push_back(queue);
    return queue;
}

void ProgressEngine::close(StreamQueue& queue) {
    const std::scoped_lock lock(mutex_);
    queue.closed = true;
    if (queue.operations.empty()) {
        std::erase_if(queues_, [&](const auto& other) { return other.get() == &queue; });
    }
}

void ProgressEngine::push(StreamQueue& queue, std::unique_ptr<Operation> operation) {
    const std::scoped_lock lock(mutex_);
    ++queue.issued;
    if (queue.failure) {
        queue.completed.store(queue.issued, std::memory_order_release);
        return;
    }
    queue.operations.push_back(std::move(operation));
    ++pending_;
    kick();
}

Ticket ProgressEngine::mark(const std::shared_ptr<StreamQueue>& queue) {
    const std::scoped_lock lock(mutex_);
    return {queue, queue->issued};
}

void ProgressEngine::wait(const Ticket& ticket) {
    if (ticket.queue == nullptr) return;
    if (!ticket.passed()) {
        const int urgent = ticket.queue->urgent ? 1 : 0;
        std::unique_lock lock(mutex_);
        ++waiters_;
        urgent_waiters_ += urgent;
        kick();
        done_.wait(lock, [&] { return ticket.passed(); });
        --waiters_;
        urgent_waiters_ -= urgent;
    }
    check(ticket);
}

void ProgressEngine::check(const Ticket& ticket) {
    if (ticket.queue == nullptr || !ticket.queue->failed.load(std::memory_order_acquire)) return;
    Failure failure;
    {
        const std::scoped_lock lock(mutex_);
        if (ticket.position >= ticket.queue->failed_from) failure = ticket.queue->failure;
    }
    if (failure) failure->raise();
}

void ProgressEngine::check_aborted() {
    if (!is_aborted_.load(std::memory_order_acquire)) return;
    Failure failure;
    {
        const std::scoped_lock lock(mutex_);
        failure = aborted_;
    }
    failure->raise();
}

void ProgressEngine::abort(const Error& error) {
    const std::scoped_lock lock(mutex_);
    if (aborted_) return;
    aborted_ = std::make_shared<CapturedError>(error);
    is_aborted_.store(true, std::memory_order_release);
    for (const auto& queue : queues_) fail_queue(*queue, aborted_);
    kick();  // the progress thread drops the operations: it may be in the midst of one
}

void ProgressEngine::abandon(double grace_s) noexcept {
    if (std::this_thread::get_id() == thread_.get_id()) return;
    std::unique_lock lock(mutex_);
    ++waiters_;
    ++urgent_waiters_;
    kick();
    const auto finished = [&] { return pending_ == 0; };
    if (!done_.wait_for(lock, std::chrono::duration<double>(grace_s), finished)) {
        lock.unlock();
        abort(Error(Exit::Internal, "the device was abandoned with work pending because of an earlier error",
                    Where::here()));
        lock.lock();
        done_.wait(lock, finished);
    }
    --waiters_;
    --urgent_waiters_;
}

void ProgressEngine::fail_queue(StreamQueue& queue, const Failure& failure) {
    if (queue.failure) return;
    queue.failure = failure;
    queue.failed_from = queue.completed + 1;
    queue.failed.store(true, std::memory_order_release);
    queue.completed.store(queue.issued, std::memory_order_release);
    done_.notify_all();
}

void ProgressEngine::kick() {
    kicked_ = true;
    wake_.notify_one();
}

void ProgressEngine::loop() {
    pthread_setname_np(pthread_self(), "progress");
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);  // ns; the default of 50 us is longer than our naps
    int fruitless = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
        kicked_ = false;
        if (pending_ == 0) {
            if (stopping_) return;
            wake_.wait(lock, [&] { return pending_ > 0 || stopping_; });
            fruitless = 0;
            continue;
        }
        bool urgent = false;
        for (const auto& queue : queues_) {
            if (queue->operations.empty()) continue;
            heads_.push_back(queue);
            urgent = urgent || queue->urgent;
        }
        lock.unlock();
        bool progressed = false;
        for (const auto& queue : heads_) progressed = visit(*queue) || progressed;
        heads_.clear();
        lock.lock();
        std::erase_if(queues_, [](const auto& queue) { return queue->closed && queue->operations.empty(); });
        if (progressed) {
            fruitless = 0;
        } else {
            relax(lock, ++fruitless, urgent);
        }
    }
}

// Advances the head of one queue, and its successors as long as they finish at once.
bool ProgressEngine::visit(StreamQueue& queue) {
    bool progressed = false;
    std::unique_lock lock(mutex_);
    for (int count = 0; count < visits_in_a_row && !queue.operations.empty(); ++count) {
        if (!queue.failure) {
            Operation& head = *queue.operations.front();  // only this thread removes it
            lock.unlock();
            bool finished = false;
            Failure failure;
            try {
                finished = head.advance();
            } catch (...) {
                failure = CapturedError::current();
            }
            lock.lock();
            if (failure) fail_queue(queue, failure);
            if (!finished && !queue.failure) return progressed;
        }
        progressed = true;
        // Dropped or finished. The operation is destroyed unlocked, and only then counts as passed: its
        // destructor may touch the memory that the waiting host will free.
        std::deque<std::unique_ptr<Operation>> gone;
        if (queue.failure) {
            gone.swap(queue.operations);
        } else {
            gone.push_back(std::move(queue.operations.front()));
            queue.operations.pop_front();
        }
        const std::uint64_t removed = gone.size();
        lock.unlock();
        gone.clear();
        lock.lock();
        pending_ -= removed;
        if (!queue.failure) queue.completed.store(queue.completed + removed, std::memory_order_release);
        if (waiters_ > 0) done_.notify_all();
    }
    return progressed;
}

void ProgressEngine::relax(std::unique_lock<std::mutex>& lock, int fruitless, bool urgent) {
    const bool host_waits = urgent_waiters_ > 0;
    const int rounds = host_waits ? rounds_for_waiting_host : rounds_beside_compute;
    if (fruitless <= rounds) {
        lock.unlock();
        sched_yield();
        lock.lock();
        return;
    }
    const microseconds longest_urgent =
        host_waits ? longest_nap_for_waiting_host : longest_nap_beside_compute;
    const microseconds longest = urgent ? longest_urgent : longest_nap_in_background;
    const microseconds nap = std::min(longest, first_nap * (1 << std::min(fruitless - rounds, 8)));
    wake_.wait_for(lock, nap, [&] { return kicked_; });
}

}  // namespace trainctl
