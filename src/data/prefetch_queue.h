// Windows read ahead by one thread: a ring of slots that the thread fills in order and the consumer takes in
// order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

namespace trainctl::data_detail {

// One micro-batch: b x (T + 1) ids and how many rows are real.
struct Slot {
    std::vector<std::int32_t> ids;
    std::int64_t rows = 0;
    std::exception_ptr error;
};

// `fill(item, slot)` reads item number `item` (a micro-batch in reading order). It runs on the queue's thread
// only. Consumer: one thread. The thread starts with the first take(), and after an error it rests until a
// seek.
class PrefetchQueue {
  public:
    using Fill = std::function<void(std::int64_t item, Slot& slot)>;

    PrefetchQueue(std::size_t slots, std::size_t slot_ids, Fill fill);
    ~PrefetchQueue();
    PrefetchQueue(const PrefetchQueue&) = delete;
    PrefetchQueue& operator=(const PrefetchQueue&) = delete;

    // The slot of `item`, valid until release(); nullptr if `stop` (asked every 50 ms at least) said so
    // first. An item other than the next one drops what was read ahead. Rethrows what fill() threw for this
    // item.
    const Slot* take(std::int64_t item, const std::function<bool()>& stop);
    void release();
    // Waits until `count` items from `item` on are there to be taken, at most as many as there are slots;
    // else as take(), and an error of any of them is thrown.
    bool await(std::int64_t item, std::size_t count, const std::function<bool()>& stop);

  private:
    // Under the lock.
    void seek(std::int64_t item);
    void rethrow(Slot& slot);
    void run();

    const Fill fill_;
    std::vector<Slot> ring_;

    std::mutex mutex_;
    std::condition_variable changed_;
    bool ending_ = false;
    bool resting_ = false;        // the thread met an error and waits for a seek
    std::uint64_t seeks_ = 0;     // a fill begun before the latest seek is thrown away
    std::int64_t head_item_ = 0;  // item in the oldest ready slot, or the next to come
    std::size_t head_ = 0;        // its place in the ring
    std::size_t ready_ = 0;       // slots that are filled
    std::thread thread_;          // last: its members above exist before it runs
};

}  // namespace trainctl::data_detail
