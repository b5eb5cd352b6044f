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

void refuse_live_owner(FileSystem& files, ProcessTable& processes, const RunLayout& layout) {
    const OwnershipEvidence evidence = read_ownership(files, layout, any_attempt);
    if (!evidence.free() && evidence.owner && processes.look(*evidence.owner) == Liveness::Alive)
        fail_owned(layout, evidence);
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
    lease->claimant_ = attempt_owner(services.files, layout, attempt);
    lease->keep(layout.attempt_claim(attempt));
    if (launcher_attempt) lease->keep(layout.attempt_adoption(attempt));
    lease->keep(layout.lease());
    return lease;
}

void Lease::keep(const std::string& path) {
    std::string text = read_text(services_.files, path, 1U << 20U);
    if (text.empty()) return;  // torn by somebody's crash: nothing to bring back
    const std::string directory = parent_path(path);
    const std::lock_guard lock(mutex_);
    kept_.push_back({directory, path.substr(directory == "/" ? 1 : directory.size() + 1), std::move(text)});
}

void Lease::require_ours() {
    require_newest_attempt(services_.files, layout_, record_.attempt);
    const auto found = read_lease(services_.files, layout_);
    if (found && (found->attempt > record_.attempt || !(found->owner == record_.owner))) {
        fail_owned(layout_, read_ownership(services_.files, layout_, any_attempt));
    }
    // Somebody who emptied the directory and started there has a claim of the same number.
    const auto claimant = attempt_owner(services_.files, layout_, record_.attempt);
    if (claimant && claimant_ && !(*claimant == *claimant_)) {
        fail(Exit::Fenced,
             fmt::format("run directory {}: its files were removed, and {} started a run there. "
                         "This process must not write there any more and stops",
                         layout_.root(), describe_owner(*claimant)));
    }
}

void Lease::restore() {
    FileSystem& files = services_.files;
    for (const KeptFile& kept : kept_) {
        const std::string path = join_path(kept.directory, kept.name);
        const auto found = files.status(path);
        if (found && found->size > 0) continue;
        if (std::find(lost_.begin(), lost_.end(), path) == lost_.end()) lost_.push_back(path);
        make_durable_directories(files, kept.directory);
        if (found) {
            write_durably(files, kept.directory, kept.name, kept.text);
        } else {
            // Exclusively: if somebody is just starting here, one of the two claims must fail.
            create_exclusively(files, kept.directory, kept.name, kept.text);
        }
    }
}

std::vector<std::string> Lease::write() {
    write_durably(services_.files, layout_.root(), "LEASE", lease_text(record_));
    return std::exchange(lost_, {});
}

std::vector<std::string> Lease::renew() {
    const std::lock_guard lock(mutex_);
    require_ours();
    restore();
    ++record_.counter;
    return write();
}

std::vector<std::string> Lease::release() {
    const std::lock_guard lock(mutex_);
    try {
        require_ours();
    } catch (const Error& error) {
        if (error.code() == Exit::Fenced) return {};
        throw;
    }
    restore();
    ++record_.counter;
    record_.released = true;
    return write();
}

std::string describe_lost(const std::string& root, const std::vector<std::string>& lost) {
    return fmt::format(
        "somebody removed {} under this training. Written again; what else lay in {} before cannot be "
        "brought "
        "back (`trainctl ckpt list {}` shows which checkpoints are there). Let nothing clean up there",
        fmt::join(lost, ", "), root, root);
}

LeaseKeeper::LeaseKeeper(Lease& lease, Clock& clock, Log& log, double poll_s, std::function<void()> on_lost)
    : lease_(lease),
      clock_(clock),
      log_(log),
      poll_s_(poll_s),
      on_lost_(std::move(on_lost)),
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

void LeaseKeeper::confirm() {
    renew();
    check();
}

void LeaseKeeper::renew() {
    try {
        const std::vector<std::string> lost = lease_.renew();
        if (lost.empty()) return;
        log_.error(describe_lost(lease_.root(), lost));
        if (on_lost_) on_lost_();
    } catch (const Error& error) {
        if (error.code() == Exit::Fenced) {
            const std::lock_guard lock(mutex_);
            lost_ = error;
            return;
        }
        log_.warn(
            fmt::format("the lease of the run directory was not renewed, trying again: {}", error.what()));
    }
}

void LeaseKeeper::run() {
    std::unique_lock lock(mutex_);
    while (!lost_) {
        wake_.wait_for(lock, std::chrono::duration<double>(poll_s_), [this] { return stopping_; });
        if (stopping_) return;
        if (clock_.monotonic_s() - last_renewal_ < lease_.timing().renew_s) continue;
        last_renewal_ = clock_.monotonic_s();
        lock.unlock();  // renewing may take as long as the disk does
        try {
            renew();
        } catch (const std::exception& error) {  // memory: this thread must not end the process
            log_.warn(error.what());
        }
        lock.lock();
    }
}

}  // namespace trainctl
