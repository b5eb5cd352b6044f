#include "data/prefetch_queue.h"

#include <chrono>
#include <utility>

namespace trainctl::data_detail {
namespace {
constexpr std::chrono::milliseconds poll_interval{50};
}

PrefetchQueue::PrefetchQueue(std::size_t slots, std::size_t slot_ids, Fill fill)
    : fill_(std::move(fill)), ring_(slots) {
    for (Slot& slot : ring_) slot.ids.resize(slot_ids);
}

PrefetchQueue::~PrefetchQueue() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void PrefetchQueue::seek(std::int64_t item) {
    if (item != head_item_) {
        ++seeks_;
        head_item_ = item;
        ready_ = 0;
        resting_ = false;
        changed_.notify_all();
    }
    if (!thread_.joinable()) thread_ = std::thread(&PrefetchQueue::run, this);
}

// Seeking to the same item tries again: a network file system may have recovered.
void PrefetchQueue::rethrow(Slot& slot) {
    const std::exception_ptr error = std::exchange(slot.error, nullptr);
    ++seeks_;
    ready_ = 0;
    resting_ = true;
    head_item_ = -1;  // no item: whatever comes next is a seek
    std::rethrow_exception(error);
}

const Slot* PrefetchQueue::take(std::int64_t item, const std::function<bool()>& stop) {
    if (!await(item, 1, stop)) return nullptr;
    return &ring_[head_];
}

bool PrefetchQueue::await(std::int64_t item, std::size_t count, const std::function<bool()>& stop) {
    std::unique_lock lock(mutex_);
    seek(item);
    for (std::size_t good = 0; good < count;) {
        if (good < ready_) {
            Slot& slot = ring_[(head_ + good) % ring_.size()];
            if (slot.error) rethrow(slot);
            ++good;
            continue;
        }
        if (stop && stop()) return false;
        changed_.wait_for(lock, poll_interval);
    }
    return true;
}

void PrefetchQueue::release() {
    {
        const std::lock_guard lock(mutex_);
        head_ = (head_ + 1) % ring_.size();
        --ready_;
        ++head_item_;
    }
    changed_.notify_all();
}

void PrefetchQueue::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return ending_ || (!resting_ && ready_ < ring_.size()); });
        if (ending_) return;
        const std::uint64_t seeks = seeks_;
        const std::int64_t item = head_item_ + static_cast<std::int64_t>(ready_);
        // After a seek head_ stays where it is, so this slot is never one that the consumer holds: the
        // consumer holds at most ring_[head_] while ready_ > 0, and it does not seek before it releases.
        Slot& slot = ring_[(head_ + ready_) % ring_.size()];
        lock.unlock();
        slot.error = nullptr;
        try {
            fill_(item, slot);
        } catch (...) {
            slot.error = std::current_exception();
        }
        lock.lock();
        if (seeks != seeks_) continue;
        resting_ = slot.error != nullptr;
        ++ready_;
        changed_.notify_all();
    }
}

}  // namespace trainctl::data_detail
