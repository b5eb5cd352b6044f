#include "cuda/nccl_watch.h"

#include <fmt/core.h>

#include "cuda/check.h"
#include "trainctl/base/text.h"

namespace trainctl::cuda {
namespace {

constexpr std::chrono::milliseconds look_every{50};
// Messages whose end is watched, per communicator: more are under way only when the host is far ahead.
constexpr std::size_t most_watched = 64;

}  // namespace

void check(ncclResult_t result, const char* what, ncclComm_t communicator, Where where) {
    if (result == ncclSuccess || result == ncclInProgress) return;
    const char* detail = ncclGetLastError(communicator);
    fail(Exit::Peer,
         fmt::format("{} failed: {}{}{}; NCCL_DEBUG=INFO shows more", what, ncclGetErrorString(result),
                     detail != nullptr && *detail != '\0' ? ": " : "", detail != nullptr ? detail : ""),
         where);
}

NcclWatch::NcclWatch(double timeout_s, std::function<void(const Error&)> on_failure)
    : timeout_s_(timeout_s), on_failure_(std::move(on_failure)) {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    thread_ = std::thread([this, device] { watch(device); });
}

NcclWatch::~NcclWatch() {
    {
        const std::scoped_lock lock(mutex_);
        ending_ = true;
    }
    wake_.notify_all();
    thread_.join();
    for (cudaEvent_t event : free_events_) static_cast<void>(cudaEventDestroy(event));
}

void NcclWatch::add(ncclComm_t communicator, std::string name) {
    const std::scoped_lock lock(mutex_);
    communicators_[communicator] = {std::move(name), {}, Clock::now()};
}

bool NcclWatch::remove(ncclComm_t communicator) {
    const std::scoped_lock lock(mutex_);
    const auto found = communicators_.find(communicator);
    if (found == communicators_.end()) return false;
    for (const Message& message : found->second.under_way) free_events_.push_back(message.passed);
    communicators_.erase(found);
    return failure_.empty();
}

void NcclWatch::issued(ncclComm_t communicator, cudaStream_t stream, const char* what, unsigned sequence,
                       std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    Watched& watched = communicators_.at(communicator);
    if (watched.under_way.size() >= most_watched) return;
    cudaEvent_t passed = nullptr;
    if (free_events_.empty()) {
        check(cudaEventCreateWithFlags(&passed, cudaEventDisableTiming), "cudaEventCreate");
    } else {
        passed = free_events_.back();
        free_events_.pop_back();
    }
    check(cudaEventRecord(passed, stream), "cudaEventRecord");
    watched.under_way.push_back({passed, what, sequence, bytes, Clock::now()});
}

void NcclWatch::rethrow() {
    const std::scoped_lock lock(mutex_);
    if (!failure_.empty()) fail(Exit::Peer, failure_);
}

std::string NcclWatch::look_at(ncclComm_t communicator, Watched& watched) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(communicator, &state);
    if (asked != ncclSuccess) state = asked;
    if (state != ncclSuccess && state != ncclInProgress) {
        const char* detail = ncclGetLastError(communicator);
        return fmt::format("communicator '{}': {}{}{}", watched.name, ncclGetErrorString(state),
                           detail != nullptr && *detail != '\0' ? ": " : "", detail != nullptr ? detail : "");
    }
    std::size_t done = 0;
    while (done < watched.under_way.size() &&
           cudaEventQuery(watched.under_way[done].passed) != cudaErrorNotReady) {
        free_events_.push_back(watched.under_way[done].passed);
        ++done;
    }
    if (done > 0) {
        watched.under_way.erase(watched.under_way.begin(),
                                watched.under_way.begin() + static_cast<std::ptrdiff_t>(done));
        watched.last_progress = Clock::now();
    }
    if (watched.under_way.empty()) return {};
    // What waits behind other work of its stream has not started; only a stream without any progress is
    // stuck.
    const Message& oldest = watched.under_way.front();
    const auto since = std::max(oldest.issued, watched.last_progress);
    const double waited = std::chrono::duration<double>(Clock::now() - since).count();
    if (waited < timeout_s_) return {};
    return fmt::format(
        "communicator '{}': {} number {} ({}) made no progress for {} (communication.timeout_s); a rank of "
        "it has died, hangs, or issued another message",
        watched.name, oldest.what, oldest.sequence, format_bytes(oldest.bytes), format_duration(waited));
}

std::string NcclWatch::look() {
    for (auto& [communicator, watched] : communicators_) {
        std::string problem = look_at(communicator, watched);
        if (!problem.empty()) return problem;
    }
    return {};
}

void NcclWatch::watch(int device) {
    static_cast<void>(cudaSetDevice(device));
    std::unique_lock lock(mutex_);
    while (!ending_) {
        wake_.wait_for(lock, look_every);
        if (ending_) return;
        failure_ = look();
        if (failure_.empty()) continue;
        for (auto& [communicator, watched] : communicators_) static_cast<void>(ncclCommAbort(communicator));
        communicators_.clear();
        const Error error(Exit::Peer, failure_, Where::here());
        lock.unlock();
        if (on_failure_) on_failure_(error);
        return;
    }
}

}  // namespace trainctl::cuda
