// The lease of a run directory: at most one rank 0 runs in it. Held with host, boot, pid and its start time,
// and renewed; a second start either takes it over from a dead or silent owner, or ends with Exit::Fenced
// naming the owner.
//
// The lease is a liveness hint; safety against two writers rests on the exclusive claim of the attempt
// (attempt.h), whose number is in every path that an incarnation writes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trainctl/base/clock.h"
#include "trainctl/base/error.h"
#include "trainctl/base/file_system.h"
#include "trainctl/base/log.h"
#include "trainctl/rundir/layout.h"
#include "trainctl/rundir/process_identity.h"

namespace trainctl {

struct LeaseTiming {
    double renew_s = 10.0;
    double silence_s = 45.0;  // on the taker's own clock; clocks of hosts are never compared
    double poll_s = 0.5;      // also how soon a request to give up is heard
};

// What LEASE says.
struct LeaseRecord {
    ProcessIdentity owner;
    int attempt = 0;
    std::uint64_t counter = 0;  // grows with every renewal
    std::string since;          // UTC, when the owner took it; display only
    bool released = false;      // ended in good order
};

// nullopt: none there, or unreadable (then only its silence counts).
std::optional<LeaseRecord> read_lease(FileSystem& files, const RunLayout& layout);

// Whether a start would have to wait for a sign of life: somebody holds the directory and is not known to be
// dead.
bool owner_may_live(FileSystem& files, ProcessTable& processes, const RunLayout& layout);

// For a command that can wait for no one: Exit::Fenced naming the owner if it is known to be alive (it may
// hang).
void refuse_live_owner(FileSystem& files, ProcessTable& processes, const RunLayout& layout);

// What the lease works with; all must outlive it.
struct LeaseServices {
    FileSystem& files;
    Clock& clock;
    ProcessTable& processes;
    // Told the owner (nullopt: one that left no readable trace) before a wait for its silence.
    std::function<void(const std::optional<ProcessIdentity>& owner)> on_wait = {};
    // Asked at every poll of such a wait: true ends it with Exit::Interrupted, nothing claimed.
    std::function<bool()> give_up = {};
};

// Held by one process. Thread-safe: renew, release and the accessors may be called from any thread.
class Lease {
  public:
    // Creates the run directory if needed, claims the next attempt and writes LEASE. With `launcher_attempt`
    // the attempt was claimed by a launcher; it is adopted, once. Same boot and the owner is dead: taken at
    // once. Otherwise waits at most timing.silence_s. Exit::Fenced names the owner (host, pid, since);
    // Exit::Interrupted: services.give_up said so.
    static std::unique_ptr<Lease> acquire(LeaseServices services, const RunLayout& layout,
                                          const LeaseTiming& timing = {},
                                          std::optional<int> launcher_attempt = {});

    [[nodiscard]] int attempt() const { return record_.attempt; }
    [[nodiscard]] const LeaseTiming& timing() const { return timing_; }
    [[nodiscard]] const std::string& root() const { return layout_.root(); }
    // From now on the small file at `path`, as it is now, is written again if somebody removes or empties it,
    // as the claim and LEASE are.
    void keep(const std::string& path);
    // Counts up. Returns the files that somebody had removed and that are there again, usually none.
    // Exit::Fenced when somebody took over; Exit::Resource when it cannot be written (a full disk: the caller
    // goes on and tries again).
    std::vector<std::string> renew();
    // Marks the lease as ended in good order, so that the next start need not wait; returns what renew does.
    // No effect when lost.
    std::vector<std::string> release();

  private:
    Lease(LeaseServices services, RunLayout layout, const LeaseTiming& timing, LeaseRecord record);
    struct KeptFile {
        std::string directory;
        std::string name;
        std::string text;
    };
    void require_ours();
    void restore();
    std::vector<std::string> write();

    LeaseServices services_;
    RunLayout layout_;
    LeaseTiming timing_;
    std::mutex mutex_;
    LeaseRecord record_;
    std::optional<ProcessIdentity> claimant_;  // of our attempt: this process, or the launcher
    std::vector<KeptFile> kept_;
    std::vector<std::string> lost_;  // found missing since the last successful renewal
};

// What people are told when files of a run in progress were removed.
std::string describe_lost(const std::string& root, const std::vector<std::string>& lost);

// Renews a lease from a thread of its own until destroyed (which waits for the thread, not for the interval).
class LeaseKeeper {
  public:
    // Looks at `clock` every `poll_s` of real time. `on_lost`: called, by any thread, after removed files
    // were written again.
    LeaseKeeper(Lease& lease, Clock& clock, Log& log, double poll_s = 0.25,
                std::function<void()> on_lost = {});
    ~LeaseKeeper();
    LeaseKeeper(const LeaseKeeper&) = delete;
    LeaseKeeper& operator=(const LeaseKeeper&) = delete;

    // Throws the Exit::Fenced error once the lease was lost. Any thread; called at step boundaries.
    void check();
    // The same after renewing it here and now: before commits, which may not rest on a look of seconds ago.
    void confirm();

  private:
    void run();
    void renew();

    Lease& lease_;
    Clock& clock_;
    Log& log_;
    double poll_s_;
    std::function<void()> on_lost_;
    double last_renewal_;  // the thread's own
    std::mutex mutex_;
    std::condition_variable wake_;
    bool stopping_ = false;
    std::optional<Error> lost_;
    std::thread thread_;  // last: it uses the members above
};

}  // namespace trainctl
