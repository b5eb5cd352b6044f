#include "trainctl/train/gpu_sampler.h"

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace trainctl {
namespace {

constexpr std::chrono::seconds patience{5};  // with a driver that does not answer, at the end

}  // namespace

// Outlives the sampler if its thread has to be left behind.
struct GpuSampler::Shared {
    std::unique_ptr<GpuTelemetry> telemetry;  // the thread's own
    std::mutex mutex;
    std::condition_variable changed;
    // Below the mutex.
    std::function<void(const GpuAlarm&)> report;
    std::optional<GpuSample> newest;
    std::optional<std::int64_t> last_xid;
    bool stopping = false;
    bool ended = false;
};

void GpuSampler::run(const std::shared_ptr<Shared>& shared, double interval_s) {
    GpuAlarms alarms;
    std::unique_lock lock(shared->mutex);
    while (!shared->stopping) {
        lock.unlock();
        GpuSample sample = shared->telemetry->sample();
        lock.lock();
        if (shared->stopping) break;
        for (const GpuAlarm& alarm : alarms.judge(sample)) shared->report(alarm);
        if (!sample.xids.empty()) shared->last_xid = sample.xids.back();
        const bool lost = sample.lost;
        shared->newest = std::move(sample);
        if (lost) break;
        shared->changed.wait_for(lock, std::chrono::duration<double>(interval_s),
                                 [&] { return shared->stopping; });
    }
    lock.unlock();
    shared->telemetry.reset();  // talks to the driver as well
    lock.lock();
    shared->ended = true;
    shared->changed.notify_all();
}

GpuSampler::GpuSampler(std::unique_ptr<GpuTelemetry> telemetry, double interval_s,
                       std::function<void(const GpuAlarm&)> report)
    : shared_(std::make_shared<Shared>()) {
    shared_->telemetry = std::move(telemetry);
    shared_->report = std::move(report);
    thread_ = std::thread([shared = shared_, interval_s] { run(shared, interval_s); });
}

GpuSampler::~GpuSampler() {
    std::unique_lock lock(shared_->mutex);
    shared_->stopping = true;
    shared_->changed.notify_all();
    const bool ended = shared_->changed.wait_for(lock, patience, [&] { return shared_->ended; });
    lock.unlock();
    ended ? thread_.join() : thread_.detach();
}

std::optional<GpuSample> GpuSampler::newest() const {
    const std::scoped_lock lock(shared_->mutex);
    return shared_->newest;
}

std::optional<std::int64_t> GpuSampler::last_xid() const {
    const std::scoped_lock lock(shared_->mutex);
    return shared_->last_xid;
}

}  // namespace trainctl
