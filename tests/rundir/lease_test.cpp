#include "trainctl/rundir/lease.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "support/catch.h"
#include "support/manual_clock.h"
#include "support/memory_file_system.h"
#include "support/temporary_directory.h"
#include "trainctl/rundir/attempt.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

// Processes that live in the test's imagination.
class FakeProcesses final : public ProcessTable {
  public:
    FakeProcesses(std::string host, std::int64_t pid, std::string boot = "") {
        me.host = host;
        me.boot_id = boot.empty() ? "boot of " + host : std::move(boot);
        me.pid_namespace = "pid:[1]";
        me.pid = pid;
        me.start_ticks = 100 + pid;
    }
    ProcessIdentity self() override { return me; }
    Liveness look(const ProcessIdentity& process) override {
        if (process.boot_id != me.boot_id) return Liveness::Unknown;
        return dead.count(process.pid) != 0 ? Liveness::Dead : Liveness::Alive;
    }

    ProcessIdentity me;
    std::set<std::int64_t> dead;
};

class CollectingLog final : public Log {
  public:
    void write(LogLevel /*level*/, std::string_view text) override {
        const std::lock_guard lock(mutex_);
        lines_.emplace_back(text);
    }
    std::size_t size() {
        const std::lock_guard lock(mutex_);
        return lines_.size();
    }
    std::string last() {
        const std::lock_guard lock(mutex_);
        return lines_.back();
    }

  private:
    std::mutex mutex_;
    std::vector<std::string> lines_;
};

Exit code_of(const std::function<void()>& action, std::string* text = nullptr) {
    try {
        action();
    } catch (const Error& error) {
        if (text != nullptr) *text = error.what();
        return error.code();
    }
    return Exit::Ok;
}

struct Site {
    MemoryFileSystem files;
    ManualClock clock;
    RunLayout layout{"run"};
};

}  // namespace

TEST_CASE("the first start takes the lease at once and claims attempt 1") {
    Site site;
    FakeProcesses me("a", 1);
    const double before = site.clock.monotonic_s();
    const auto lease = Lease::acquire({site.files, site.clock, me}, site.layout);
    CHECK(lease->attempt() == 1);
    CHECK(site.clock.monotonic_s() == before);
    const auto record = read_lease(site.files, site.layout);
    REQUIRE(record);
    CHECK(record->owner == me.me);
    CHECK(record->counter == 1);
}

TEST_CASE("a second start against a living owner is fenced and names host, pid and since") {
    for (const bool same_host : {true, false}) {
        Site site;
        FakeProcesses owner("gpu7", 4711);
        const auto lease = Lease::acquire({site.files, site.clock, owner}, site.layout);
        const std::string since = read_lease(site.files, site.layout)->since;
        FakeProcesses second(same_host ? "gpu7" : "gpu8", 12);
        // The owner renews every 10 s while the second one watches.
        double renewed = site.clock.monotonic_s();
        site.clock.on_sleep = [&] {
            if (site.clock.monotonic_s() - renewed < 10.0) return;
            renewed = site.clock.monotonic_s();
            lease->renew();
        };
        const double start = site.clock.monotonic_s();
        std::string text;
        CHECK(code_of(
                  [&] {
                      Lease::acquire({site.files, site.clock, second}, site.layout);
                  },
                  &text) == Exit::Fenced);
        CHECK(text.find("host gpu7, pid 4711") != std::string::npos);
        CHECK(text.find(since) != std::string::npos);
        CHECK(site.clock.monotonic_s() - start < 12.0);
        CHECK(highest_attempt(site.files, site.layout) == 1);  // the loser claimed nothing
        CHECK_NOTHROW(lease->renew());
    }
}

TEST_CASE("a dead owner on the same boot is replaced at once") {
    Site site;
    FakeProcesses owner("a", 1);
    Lease::acquire({site.files, site.clock, owner}, site.layout);
    FakeProcesses second("a", 2);
    second.dead.insert(1);
    const double start = site.clock.monotonic_s();
    const auto never = [](const std::optional<ProcessIdentity>&) { FAIL("waited for the dead"); };
    const auto lease = Lease::acquire({site.files, site.clock, second, never}, site.layout);
    CHECK(lease->attempt() == 2);
    CHECK(site.clock.monotonic_s() == start);
}

TEST_CASE(
    "a silent owner elsewhere, or hanging here, is replaced after 45 s on the taker's clock, then finds "
    "itself fenced") {
    for (const char* host : {"a", "b"}) {
        Site site;
        FakeProcesses owner("a", 1);
        const auto old_lease = Lease::acquire({site.files, site.clock, owner}, site.layout);
        FakeProcesses second(host, 2);
        const double start = site.clock.monotonic_s();
        const auto lease = Lease::acquire({site.files, site.clock, second}, site.layout);
        CHECK(site.clock.monotonic_s() - start >= 45.0);
        CHECK(site.clock.monotonic_s() - start < 47.0);
        CHECK(lease->attempt() == 2);
        std::string text;
        CHECK(code_of([&] { old_lease->renew(); }, &text) == Exit::Fenced);
        CHECK(code_of([&] { require_newest_attempt(site.files, site.layout, old_lease->attempt()); }) ==
              Exit::Fenced);
        CHECK_NOTHROW(old_lease->release());  // changes nothing
        CHECK(read_lease(site.files, site.layout)->owner == second.me);
    }
}

TEST_CASE("a lease ended in good order is free for anybody at once") {
    Site site;
    FakeProcesses owner("a", 1);
    Lease::acquire({site.files, site.clock, owner}, site.layout)->release();
    FakeProcesses second("b", 2);
    const double start = site.clock.monotonic_s();
    CHECK(Lease::acquire({site.files, site.clock, second}, site.layout)->attempt() == 2);
    CHECK(site.clock.monotonic_s() == start);
}

TEST_CASE("an owner between its claim and its first LEASE counts as living") {
    Site site;
    FakeProcesses owner("a", 1);
    REQUIRE(claim_attempt(site.files, site.layout, 1, owner.me));
    FakeProcesses second("b", 2);
    bool wrote = false;
    site.clock.on_sleep = [&] {
        if (wrote) return;
        wrote = true;
        Lease::acquire({site.files, site.clock, owner}, site.layout, {}, 1);  // as if it went on now
    };
    CHECK(code_of([&] { Lease::acquire({site.files, site.clock, second}, site.layout); }) == Exit::Fenced);
}

TEST_CASE("an attempt claimed by a launcher is adopted once") {
    Site site;
    FakeProcesses launcher("login", 5);
    REQUIRE(claim_attempt(site.files, site.layout, 1, launcher.me));
    FakeProcesses rank0("gpu1", 6);
    const auto lease = Lease::acquire({site.files, site.clock, rank0}, site.layout, {}, 1);
    CHECK(lease->attempt() == 1);
    lease->release();
    FakeProcesses again("gpu1", 7);
    CHECK(code_of([&] {
              Lease::acquire({site.files, site.clock, again}, site.layout, {}, 1);
          }) == Exit::Fenced);
    // An attempt that is no longer the newest cannot be adopted.
    REQUIRE(claim_attempt(site.files, site.layout, 2, launcher.me));
    REQUIRE(claim_attempt(site.files, site.layout, 3, launcher.me));
    CHECK(code_of([&] {
              Lease::acquire({site.files, site.clock, again}, site.layout, {}, 2);
          }) == Exit::Fenced);
}

TEST_CASE("a torn or foreign LEASE and a torn claim cost the wait, not the run") {
    Site site;
    site.files.put("run/LEASE", "{\"format\": \"train");
    site.files.put("run/attempts/a0003", "");
    site.files.put("run/attempts/README", "not a claim");
    FakeProcesses me("a", 1);
    const double start = site.clock.monotonic_s();
    int waits = 0;
    const auto on_wait = [&](const std::optional<ProcessIdentity>& who) {
        ++waits;
        CHECK(!who);
    };
    CHECK(Lease::acquire({site.files, site.clock, me, on_wait}, site.layout)->attempt() == 4);
    CHECK(site.clock.monotonic_s() - start >= 45.0);
    CHECK(waits == 1);
}

TEST_CASE("of many simultaneous starts exactly one runs", "[threads]") {
    for (int round = 0; round < 20; ++round) {
        MemoryFileSystem files;
        const RunLayout layout("run");
        std::atomic<int> winners{0};
        std::atomic<int> fenced{0};
        std::vector<std::unique_ptr<Lease>> leases(4);
        std::vector<std::thread> threads;
        for (int index = 0; index < 4; ++index) {
            threads.emplace_back([&, index] {
                FakeProcesses me("host" + std::to_string(index % 2), index);
                SystemClock clock;
                // Long enough a silence that a busy machine cannot feign a winner's death.
                const LeaseTiming quick{0.005, 10.0, 0.002};
                try {
                    auto lease = Lease::acquire({files, clock, me}, layout, quick);
                    ++winners;
                    CollectingLog log;
                    LeaseKeeper keeper(*lease, clock, log, 0.001);
                    std::this_thread::sleep_for(std::chrono::milliseconds(60));
                    keeper.check();
                    leases[static_cast<std::size_t>(index)] = std::move(lease);  // lives on unreleased
                } catch (const Error& error) {
                    if (error.code() == Exit::Fenced) ++fenced;
                }
            });
        }
        for (std::thread& thread : threads) thread.join();
        CHECK(winners == 1);
        CHECK(fenced == 3);
    }
}

TEST_CASE("the keeper renews every 10 s of its clock, survives a full disk, and reports a takeover",
          "[threads]") {
    Site site;
    FakeProcesses owner("a", 1);
    const auto lease = Lease::acquire({site.files, site.clock, owner}, site.layout);
    CollectingLog log;
    LeaseKeeper keeper(*lease, site.clock, log, 0.001);
    const auto eventually = [](const std::function<bool()>& reached) {
        for (int tries = 0; tries < 5000 && !reached(); ++tries)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return reached();
    };
    const auto counter = [&] { return read_lease(site.files, site.layout)->counter; };
    site.clock.advance(9.0);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK(counter() == 1);
    site.clock.advance(1.5);
    CHECK(eventually([&] { return counter() == 2; }));

    site.files.add_fault({28 /* ENOSPC */, FileOp::Write, "LEASE", 0, UINT64_MAX, FaultEffect::None});
    site.clock.advance(10.5);
    CHECK(eventually([&] { return log.size() == 1; }));
    CHECK_NOTHROW(keeper.check());
    site.files.clear_faults();
    site.clock.advance(10.5);
    CHECK(eventually([&] { return counter() > 2; }));

    FakeProcesses taker("b", 2);
    REQUIRE(claim_attempt(site.files, site.layout, 2, taker.me));
    site.clock.advance(10.5);
    CHECK(eventually([&] { return code_of([&] { keeper.check(); }) == Exit::Fenced; }));
}

TEST_CASE("the process table knows itself, the dead, and reused process ids") {
    const auto files = make_posix_file_system();
    const auto table = make_linux_process_table(*files);
    ProcessIdentity me = table->self();
    CHECK(!me.boot_id.empty());
    CHECK(table->look(me) == Liveness::Alive);
    ProcessIdentity reused = me;
    reused.start_ticks += 1;
    CHECK(table->look(reused) == Liveness::Dead);
    ProcessIdentity gone = me;
    gone.pid = (std::int64_t{1} << 22) + 1;  // above the kernel's largest
    CHECK(table->look(gone) == Liveness::Dead);
    ProcessIdentity elsewhere = me;
    elsewhere.boot_id = "another";
    CHECK(table->look(elsewhere) == Liveness::Unknown);
    ProcessIdentity container = me;
    container.pid_namespace = "pid:[7]";
    CHECK(table->look(container) == Liveness::Unknown);
}

TEST_CASE("the lease works on a real file system") {
    const auto files = make_posix_file_system();
    const TemporaryDirectory directory;
    const RunLayout layout(directory / "run");
    SystemClock clock;
    const auto table = make_linux_process_table(*files);
    const auto lease = Lease::acquire({*files, clock, *table}, layout);
    const LeaseTiming quick{10.0, 0.2, 0.01};
    CHECK(lease->attempt() == 1);
    lease->renew();
    lease->release();
    CHECK(Lease::acquire({*files, clock, *table}, layout, quick)->attempt() == 2);
}

TEST_CASE("a wait for a silent owner ends within a poll when it is asked to, and claims nothing") {
    Site site;
    FakeProcesses owner("a", 1);
    Lease::acquire({site.files, site.clock, owner}, site.layout);
    FakeProcesses second("b", 2);
    const double start = site.clock.monotonic_s();
    const auto give_up = [&] { return site.clock.monotonic_s() - start > 5.0; };
    std::string text;
    const LeaseServices services{site.files, site.clock, second, {}, give_up};
    CHECK(code_of([&] { Lease::acquire(services, site.layout); }, &text) == Exit::Interrupted);
    CHECK(text.find("nothing was started") != std::string::npos);
    CHECK(site.clock.monotonic_s() - start < 7.0);
    CHECK(highest_attempt(site.files, site.layout) == 1);
    CHECK(read_lease(site.files, site.layout)->owner == owner.me);
}

TEST_CASE("whether an owner may live is known without a wait") {
    Site site;
    FakeProcesses owner("a", 1);
    FakeProcesses neighbour("a", 2);
    FakeProcesses stranger("b", 3);
    CHECK_FALSE(owner_may_live(site.files, neighbour, site.layout));
    const auto lease = Lease::acquire({site.files, site.clock, owner}, site.layout);
    CHECK(owner_may_live(site.files, neighbour, site.layout));
    CHECK(owner_may_live(site.files, stranger, site.layout));
    neighbour.dead.insert(1);
    CHECK_FALSE(owner_may_live(site.files, neighbour, site.layout));
    CHECK(owner_may_live(site.files, stranger, site.layout));  // cannot tell from another host
    lease->release();
    CHECK_FALSE(owner_may_live(site.files, stranger, site.layout));
}

TEST_CASE("what somebody removes of a run in progress is written again, and named") {
    for (const bool launched : {false, true}) {
        Site site;
        FakeProcesses owner("a", 1);
        if (launched) REQUIRE(claim_attempt(site.files, site.layout, 1, FakeProcesses("launcher", 9).me));
        const auto lease = Lease::acquire({site.files, site.clock, owner}, site.layout, {},
                                          launched ? std::optional<int>(1) : std::nullopt);
        site.files.put("run/run.json", "{}\n");
        lease->keep(site.layout.run_json());
        CHECK(lease->renew().empty());
        const std::vector<std::string> all = [&] {
            std::vector<std::string> files{"run/LEASE", "run/attempts/a0001", "run/run.json"};
            if (launched) files.insert(files.begin() + 2, "run/attempts/a0001.rank0");
            return files;
        }();
        const auto sorted = [](std::vector<std::string> names) {
            std::sort(names.begin(), names.end());
            return names;
        };
        std::map<std::string, std::string> before;
        for (const std::string& path : all) before[path] = site.files.contents(path).value();
        const auto require_restored = [&] {
            CHECK(site.files.all_files() == all);
            for (const std::string& path : all) {
                if (path != "run/LEASE") CHECK(site.files.contents(path) == before[path]);
            }
            CHECK(read_lease(site.files, site.layout)->owner == owner.me);
            CHECK(lease->renew().empty());
        };
        for (const std::string& path : all) {
            INFO(path);
            site.files.erase(path);
            CHECK(lease->renew() == std::vector<std::string>{path});
            require_restored();
            site.files.truncate(path, 0);
            CHECK(lease->renew() == std::vector<std::string>{path});
            require_restored();
        }
        site.files.erase("run");
        CHECK(sorted(lease->renew()) == sorted(all));
        require_restored();

        // What could not be written again at once is not forgotten.
        site.files.erase("run");
        site.files.add_fault({28 /* ENOSPC */, FileOp::Write, "run.json", 0, 1, FaultEffect::None});
        CHECK(code_of([&] { lease->renew(); }) == Exit::Resource);
        CHECK(sorted(lease->renew()) == sorted(all));
        require_restored();

        site.files.erase("run");
        CHECK(sorted(lease->release()) == sorted(all));
        CHECK(read_lease(site.files, site.layout)->released);
    }
}

TEST_CASE("who starts in the emptied directory of a run has it, and the old owner is fenced") {
    Site site;
    FakeProcesses owner("a", 1);
    FakeProcesses other("b", 2);
    const auto old_lease = Lease::acquire({site.files, site.clock, owner}, site.layout);
    site.files.erase("run");
    // At each point of the other's start.
    REQUIRE(claim_attempt(site.files, site.layout, 1, other.me));
    std::string text;
    CHECK(code_of([&] { old_lease->renew(); }, &text) == Exit::Fenced);
    CHECK(text.find("host b, pid 2") != std::string::npos);
    site.files.erase("run");
    const auto lease = Lease::acquire({site.files, site.clock, other}, site.layout);
    CHECK(code_of([&] { old_lease->renew(); }) == Exit::Fenced);
    CHECK(old_lease->release().empty());
    CHECK(lease->renew().empty());
}

TEST_CASE("the keeper looks before a commit, says what was removed, and tells who wants to know") {
    Site site;
    FakeProcesses owner("a", 1);
    const auto lease = Lease::acquire({site.files, site.clock, owner}, site.layout);
    CollectingLog log;
    int told = 0;
    LeaseKeeper keeper(*lease, site.clock, log, 0.001, [&] { ++told; });
    keeper.confirm();
    CHECK(told == 0);
    site.files.erase("run");
    keeper.confirm();
    CHECK(told == 1);
    REQUIRE(log.size() == 1);
    CHECK(log.last().find("removed run/attempts/a0001, run/LEASE under this training") != std::string::npos);
    REQUIRE(claim_attempt(site.files, site.layout, 2, FakeProcesses("b", 2).me));
    CHECK(code_of([&] { keeper.confirm(); }) == Exit::Fenced);
    CHECK(code_of([&] { keeper.check(); }) == Exit::Fenced);
}
