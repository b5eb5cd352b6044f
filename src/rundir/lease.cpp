#include "trainctl/rundir/lease.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "rundir/lease_file.h"
#include "rundir/owner_json.h"
#include "trainctl/rundir/attempt.h"
#include "trainctl/rundir/durable_file.h"

namespace trainctl {
namespace {

constexpr int any_attempt = 1 << 30;

enum class Wait { OwnerGone, LookAgain };

bool known_dead(const OwnershipEvidence& evidence, ProcessTable& processes) {
    return evidence.owner && processes.look(*evidence.owner) == Liveness::Dead;
}

// Watches a directory whose owner is not known to be dead. Throws Exit::Fenced on a sign of life,
// Exit::Interrupted when asked to give up.
Wait wait_for_silence(LeaseServices& services, const RunLayout& layout, const LeaseTiming& timing, int below,
                      const OwnershipEvidence& first) {
    const double start = services.clock.monotonic_s();
    while (services.clock.monotonic_s() - start < timing.silence_s) {
        if (services.give_up && services.give_up()) {
            fail(Exit::Interrupted,
                 fmt::format("stopped on request while waiting for {}; nothing was started", layout.root()));
        }
        services.clock.sleep_s(timing.poll_s);
        const OwnershipEvidence now = read_ownership(services.files, layout, below);
        if (now.free()) return Wait::LookAgain;
        if (now.lease != first.lease || now.highest_claim != first.highest_claim) fail_owned(layout, now);
        if (known_dead(now, services.processes)) return Wait::OwnerGone;
    }
    return Wait::OwnerGone;
}

// Returns, once nobody holds the directory, the newest attempt seen: whoever then claims the next one judged
// by this.
int wait_until_free(LeaseServices& services, const RunLayout& layout, const LeaseTiming& timing, int below) {
    while (true) {
        const OwnershipEvidence evidence = read_ownership(services.files, layout, below);
        const int newest = std::max(evidence.highest_claim, evidence.record ? evidence.record->attempt : 0);
        if (evidence.free()) return newest;
        const bool dead = known_dead(evidence, services.processes);
        if (!dead && services.on_wait) services.on_wait(evidence.owner);
        if (dead || wait_for_silence(services, layout, timing, below, evidence) == Wait::OwnerGone) {
            return newest;
        }
    }
}

void adopt(LeaseServices& services, const RunLayout& layout, int attempt, const ProcessIdentity& self) {
    require_newest_attempt(services.files, layout, attempt);
    if (create_exclusively(services.files, layout.attempts(), attempt_name(attempt) + ".rank0",
                           owner_json(self) + "\n") == Claim::ExistsAlready) {
        OwnershipEvidence evidence = read_ownership(services.files, layout, attempt + 1);
        fail_owned(layout, evidence);
    }
}

}  // namespace

bool owner_may_live(FileSystem& files, ProcessTable& processes, const RunLayout& layout) {
    const OwnershipEvidence evidence = read_ownership(files, layout, any_attempt);
    return !evidence.free() && !known_dead(evidence, processes);
}

Lease::Lease(LeaseServices services, RunLayout layout, const LeaseTiming& timing, LeaseRecord record)
    : services_(std::move(services)),
      layout_(std::move(layout)),
      timing_(timing),
      record_(std::move(record)) {}

std::unique_ptr<Lease> Lease::acquire(LeaseServices services, const RunLayout& layout,
                                      const LeaseTiming& timing, std::optional<int> launcher_attempt) {
    make_durable_directories(services.files, layout.root());
    const ProcessIdentity self = services.processes.self();
    int attempt = 0;
    if (launcher_attempt) {
        attempt = *launcher_attempt;
        wait_until_free(services, layout, timing, attempt);
        adopt(services, layout, attempt, self);
    } else {
        // A claim that fails means that somebody started at the same time: judge again, now by their claim.
        do {
            attempt = wait_until_free(services, layout, timing, any_attempt) + 1;
        } while (!claim_attempt(services.files, layout, attempt, self));
    }
    LeaseRecord record{self, attempt, 1, utc_timestamp(services.clock.unix_s()), false};
    auto lease = std::unique_ptr<Lease>(new Lease(services, layout, timing, std::move(record)));
    lease->write();
    return lease;
}

void Lease::require_ours() {
    require_newest_attempt(services_.files, layout_, record_.attempt);
    const auto found = read_lease(services_.files, layout_);
    if (found && (found->attempt > record_.attempt || !(found->owner == record_.owner))) {
        fail_owned(layout_, read_ownership(services_.files, layout_, any_attempt));
    }
}

void Lease::write() { write_durably(services_.files, layout_.root(), "LEASE", lease_text(record_)); }

void Lease::renew() {
    const std::lock_guard lock(mutex_);
    require_ours();
    ++record_.counter;
    write();
}

void Lease::release() {
    const std::lock_guard lock(mutex_);
    try {
        require_ours();
    } catch (const Error& error) {
        if (error.code() == Exit::Fenced) return;
        throw;
    }
    ++record_.counter;
    record_.released = true;
    write();
}

LeaseKeeper::LeaseKeeper(Lease& lease, Clock& clock, Log& log, double poll_s)
    : lease_(lease),
      clock_(clock),
      log_(log),
      poll_s_(poll_s),
      last_renewal_(clock.monotonic_s()),
      thread_([this] { run(); }) {}

LeaseKeeper::~LeaseKeeper() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
}

void LeaseKeeper::check() {
    const std::lock_guard lock(mutex_);
    if (lost_) throw Error(*lost_);
}

void LeaseKeeper::run() {
    std::unique_lock lock(mutex_);
    while (!lost_) {
        wake_.wait_for(lock, std::chrono::duration<double>(poll_s_), [this] { return stopping_; });
        if (stopping_) return;
        if (clock_.monotonic_s() - last_renewal_ < lease_.timing().renew_s) continue;
        last_renewal_ = clock_.monotonic_s();
        lock.unlock();  // renewing may take as long as the disk does
        std::optional<Error> problem;
        try {
            lease_.renew();
        } catch (const Error& error) {
            problem = error;
        } catch (const std::exception& error) {
            problem.emplace(Exit::Resource, error.what(), Where::here());
        }
        lock.lock();
        if (!problem) continue;
        if (problem->code() == Exit::Fenced) {
            lost_ = problem;
        } else {
            log_.warn(std::string("the lease of the run directory was not renewed, trying again: ") +
                      problem->what());
        }
    }
}

}  // namespace trainctl
