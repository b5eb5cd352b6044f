// Threads that take numbered work in turns and hand results to the calling thread in order of number, with a
// bound on what is in flight. The outcome, errors included, does not depend on the number of threads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace trainctl::data_detail {

// Work and Done are movable. `next(work)` is called by one thread at a time and returns false at the end;
// make_worker() is called once per thread and gives the function Work -> Done; `use(done)` runs on the
// calling thread in order; `idle()` runs there at least every 100 ms. Exceptions of any of them end
// everything and come out of run(): of several the one of the lowest number.
template <class Work, class Done>
class OrderedWorkers {
  public:
    using Next = std::function<bool(Work&)>;
    using MakeWorker = std::function<std::function<Done(Work&)>()>;
    using Use = std::function<void(Done&&)>;

    void run(std::int64_t threads, const Next& next, const MakeWorker& make_worker, const Use& use,
             const std::function<void()>& idle) {
        const Join join{*this};  // also when use() or idle() throws
        bound_ = threads * 2 + 1;
        for (std::int64_t i = 0; i < threads; ++i) {
            threads_.emplace_back([this, &next, &make_worker] { work(next, make_worker); });
        }
        std::unique_lock lock(mutex_);
        for (;;) {
            const auto found = results_.find(used_);
            if (found == results_.end()) {
                if (end_ && used_ == *end_) return;
                changed_.wait_for(lock, std::chrono::milliseconds(100));
                lock.unlock();
                idle();
                lock.lock();
                continue;
            }
            Result result = std::move(found->second);
            results_.erase(found);
            ++used_;
            lock.unlock();
            changed_.notify_all();
            if (result.error) std::rethrow_exception(result.error);
            use(std::move(*result.done));
            idle();
            lock.lock();
        }
    }

  private:
    struct Result {
        std::optional<Done> done;
        std::exception_ptr error;
    };
    struct Join {
        OrderedWorkers& workers;
        explicit Join(OrderedWorkers& all) : workers(all) {}
        Join(const Join&) = delete;
        Join& operator=(const Join&) = delete;
        ~Join() {
            {
                const std::lock_guard lock(workers.mutex_);
                workers.stop_ = true;
            }
            workers.changed_.notify_all();
            for (std::thread& thread : workers.threads_) thread.join();
        }
    };

    void work(const Next& next, const MakeWorker& make_worker) {
        std::function<Done(Work&)> worker;
        for (;;) {
            Work item;
            std::int64_t number = 0;
            Result result;
            {
                const std::lock_guard turn(turn_);
                {
                    std::unique_lock lock(mutex_);
                    changed_.wait(lock, [&] { return stop_ || end_ || taken_ < used_ + bound_; });
                    if (stop_ || end_) return;
                    number = taken_++;
                }
                try {
                    if (!worker) worker = make_worker();
                    if (!next(item)) {
                        finish_at(number);
                        return;
                    }
                } catch (...) {
                    result.error = std::current_exception();
                }
                if (result.error) finish_at(number + 1);  // nothing can be read behind it
            }
            if (!result.error) {
                try {
                    result.done = worker(item);
                } catch (...) {
                    result.error = std::current_exception();
                }
            }
            {
                const std::lock_guard lock(mutex_);
                results_.emplace(number, std::move(result));
            }
            changed_.notify_all();
        }
    }

    void finish_at(std::int64_t number) {
        {
            const std::lock_guard lock(mutex_);
            end_ = number;
        }
        changed_.notify_all();
    }

    std::mutex turn_;  // held while next() runs
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::int64_t, Result> results_;
    std::int64_t taken_ = 0;
    std::int64_t used_ = 0;
    std::int64_t bound_ = 1;
    std::optional<std::int64_t> end_;  // number of results in all
    bool stop_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace trainctl::data_detail
