// A network file system at its worst, a client per rank: whatever it shows late, loses or reports wrongly,
// all ranks decide alike, nothing is committed that is not whole, what is loaded is right, what was saved
// stays, and all is well again when the weather is.
#include <algorithm>
#include <memory>
#include <random>
#include <set>

#include "checkpoint/toy_state.h"
#include "support/catch.h"
#include "support/memory_file_system.h"
#include "support/nfs_client.h"
#include "support/rank_links.h"
#include "support/trials.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/commands.h"
#include "trainctl/rundir/lease.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

const RunLayout layout("run");

// Processes on hosts that cannot see one another's.
class ProcessOfHost final : public ProcessTable {
  public:
    explicit ProcessOfHost(const std::string& host) : me_{host, "boot of " + host, "ns", 7, 1} {}
    ProcessIdentity self() override { return me_; }
    Liveness look(const ProcessIdentity& process) override {
        return process == me_ ? Liveness::Alive : Liveness::Unknown;
    }

  private:
    ProcessIdentity me_;
};

// The ranks of one start, each on a host of its own.
class Team {
  public:
    Team(MemoryFileSystem& server, ManualClock& clock, const std::string& name, int ranks, std::uint64_t seed)
        : clock_(clock), processes_(name) {
        for (int rank = 0; rank < ranks; ++rank) {
            clients_.push_back(
                std::make_unique<NfsClient>(server, clock, seed * 100 + static_cast<std::uint64_t>(rank)));
        }
    }

    // What this team's hosts remember from now on for a while.
    void look_around() {
        for (const auto& client : clients_) {
            try {
                for (const std::string& entry : client->list(layout.checkpoints())) {
                    const std::string path = join_path(layout.checkpoints(), entry);
                    client->list(path);
                    for (const char* name : {"COMMIT", "MANIFEST", "r00000.st"})
                        client->status(join_path(path, name));
                }
                client->list(layout.attempts());
                client->list(layout.journal());
            } catch (const Error&) {  // there is nothing yet
            }
        }
    }

    // Tries as often as a supervisor would; false: no luck.
    bool take_lease() {
        for (int start = 0; start < 6; ++start) {
            try {
                lease_ = Lease::acquire({*clients_[0], clock_, processes_}, layout);
                journal_ = std::make_unique<JournalWriter>(*clients_[0], clock_, layout, attempt());
                return true;
            } catch (const Error&) {
                clock_.advance(61.0);
            }
        }
        return false;
    }
    [[nodiscard]] int attempt() const { return lease_->attempt(); }

    struct Outcome {
        std::string text;  // "saved", "step 20", or the error; the same of all ranks, or this says so
        std::string directory;
        Exit code = Exit::Ok;
        std::string warnings = {};  // of a save, and what a load passed over
        [[nodiscard]] bool ok() const { return code == Exit::Ok; }
    };

    Outcome save(std::int64_t step) {
        return together([&](CheckpointStore& store, RankLink& link, SliceSet& mine) {
            mine.fill(static_cast<std::uint64_t>(step));
            const auto result = store.save(toy_snapshot(step, mine), link);
            if (!result.ok()) return Outcome{result.error().what(), "", result.error().code()};
            Outcome saved{"saved", result.value().directory, Exit::Ok};
            for (const std::string& warning : result.value().warnings) saved.warnings += warning + "\n";
            return saved;
        });
    }

    Outcome load() {
        return together([&](CheckpointStore& store, RankLink& link, SliceSet& mine) {
            mine.clear();
            const LoadReport report = store.resume({ResumeMode::Auto, -1}, RunState::Existing,
                                                   {mine.slices(), {"consumed_samples"}}, link);
            if (report.outcome == LoadOutcome::StartFresh) return Outcome{"fresh", "", Exit::Ok};
            if (!mine.holds(static_cast<std::uint64_t>(report.manifest.step)))
                return Outcome{"wrong bytes", "", Exit::Ok};
            Outcome loaded{"step " + std::to_string(report.manifest.step), report.directory, Exit::Ok};
            for (const std::string& line : report.passed_over) loaded.warnings += line + "\n";
            return loaded;
        });
    }

    void calm_down() {
        for (const auto& client : clients_) client->calm_down();
    }

  private:
    // A store per rank that lives for this call only, as after a start.
    Outcome together(const std::function<Outcome(CheckpointStore&, RankLink&, SliceSet&)>& body) {
        const int ranks = static_cast<int>(clients_.size());
        std::vector<Outcome> outcomes(clients_.size());
        run_linked_ranks(ranks, RankOrder::Serial, [&](RankLink& link) {
            const auto rank = static_cast<std::size_t>(link.rank());
            FileSystem& files = *clients_[rank];
            StoreSettings settings = toy_settings(layout.checkpoints(), attempt());
            settings.retention.keep_latest = 2;
            settings.proof_wait_s = 90.0;
            settings.fence = [&] { lease_->renew(); };
            settings.nonce = [this] { return ++nonce_; };
            Outcome& mine = outcomes[rank];
            try {
                Journal history;
                if (rank == 0) history = read_history(files);
                CheckpointStore store(files, clock_, settings, rank == 0 ? journal_.get() : nullptr, history);
                SliceSet slices = std::move(flat_layout(small_tensors(), ranks)[rank]);
                mine = body(store, link, slices);
            } catch (const Error& error) {
                mine = {error.what(), "", error.code()};
            }
        });
        Outcome common = outcomes[0];
        for (std::size_t rank = 1; rank < outcomes.size(); ++rank) {
            if (outcomes[rank].text != common.text)
                common.text = "ranks disagree: " + common.text + " / " + outcomes[rank].text;
        }
        return common;
    }

    // A start that cannot read its journal fails; this is the one that can.
    Journal read_history(FileSystem& files) {
        while (true) {
            try {
                return read_journal(files, layout);
            } catch (const Error&) {
                clock_.advance(1.0);
            }
        }
    }

    ManualClock& clock_;
    ProcessOfHost processes_;
    std::vector<std::unique_ptr<NfsClient>> clients_;
    std::unique_ptr<Lease> lease_;
    std::unique_ptr<JournalWriter> journal_;
    std::uint32_t nonce_ = 0;
};

struct Trial {
    explicit Trial(std::uint64_t number)
        : random(number),
          ranks(2 + static_cast<int>(number % 2)),
          first(server, clock, "a", ranks, 2 * number),
          second(server, clock, "b", ranks, 2 * number + 1) {}

    void pause(std::uint64_t at_most_s) { clock.advance(static_cast<double>(random() % (at_most_s + 1))); }

    // Returns warnings.
    std::string save(Team& team, std::int64_t step) {
        const Team::Outcome outcome = team.save(step);
        CAPTURE(step, outcome.text);
        REQUIRE(outcome.text.find("ranks disagree") == std::string::npos);
        if (outcome.ok()) {
            returned = step;
            committed.insert(outcome.directory);
        }
        check_server();
        if (outcome.ok()) REQUIRE(complete.count(outcome.directory) == 1);
        return outcome.warnings;
    }

    // Whoever looks 60 s after the last save sees it; earlier, what is loaded was saved whole.
    void load(Team& team, bool sees_all) {
        const Team::Outcome outcome = team.load();
        CAPTURE(outcome.text, outcome.warnings, sees_all);
        REQUIRE(outcome.text.find("ranks disagree") == std::string::npos);
        REQUIRE(outcome.text != "wrong bytes");
        if (returned > 0 && sees_all) REQUIRE(outcome.text != "fresh");
        if (!outcome.ok()) return;
        if (outcome.text == "fresh") return;
        const std::int64_t step = std::stoll(outcome.text.substr(5));
        if (sees_all) REQUIRE(step >= returned);
        REQUIRE(complete.count(outcome.directory) == 1);
    }

    // What the server has, whatever clients think.
    void check_server() {
        complete.clear();
        const CheckpointScan scan = scan_checkpoints(server, layout.checkpoints(), "run-1");
        for (const CompleteCheckpoint& found : scan.complete) {
            const CommandResult verified = checkpoint_verify(server, found.path, OutputFormat::Text);
            INFO(verified.out);
            REQUIRE(verified.exit == Exit::Ok);
            complete.insert(found.manifest.directory);
        }
        for (const RejectedCheckpoint& found : scan.rejected) {
            INFO(found.text);
            REQUIRE(found.reason == RejectReason::Uncommitted);
        }
        if (returned == 0) return;
        REQUIRE_FALSE(scan.complete.empty());
        REQUIRE(scan.complete.front().manifest.step >= returned);
        REQUIRE(scan.complete.size() >= std::min<std::size_t>(2, committed.size()));
    }

    std::mt19937_64 random;
    MemoryFileSystem server;
    ManualClock clock;
    int ranks;
    Team first;
    Team second;
    std::int64_t returned = 0;
    std::set<std::string> committed;  // directories, as the saves said
    std::set<std::string> complete;   // on the server
};

}  // namespace

TEST_CASE("a network file system that shows, loses and reports what it likes leads to no wrong decision",
          "[C10]") {
    const TrialRange trials = trial_range(150);
    std::uint64_t saves = 0;
    for (std::uint64_t number = trials.first; number < trials.end; ++number) {
        CAPTURE(number);
        Trial trial(number);
        if (!trial.first.take_lease()) continue;
        for (const std::int64_t step : {10, 20, 30}) {
            trial.second.look_around();
            trial.pause(30);
            trial.save(trial.first, step);
        }
        trial.load(trial.first, false);
        const bool later = number % 3 != 0;
        if (later) trial.clock.advance(61.0);
        // Another start takes over; the old one does not know.
        if (!trial.second.take_lease()) continue;
        trial.load(trial.second, later);
        trial.save(trial.second, 40);
        const std::set<std::string> before = trial.complete;
        const Team::Outcome late = trial.first.save(50);
        CAPTURE(late.text);
        REQUIRE_FALSE(late.ok());
        trial.check_server();
        for (const std::string& directory : trial.complete)
            REQUIRE(parse_checkpoint_directory_name(directory)->step != 50);
        // The weather clears: what was left over goes, and saving and loading are what they should be.
        trial.first.calm_down();
        trial.second.calm_down();
        trial.clock.advance(61.0);
        for (Team* team : {&trial.first, &trial.second})
            team->look_around();  // its hosts give up what they had in use
        trial.save(trial.second, 60);
        trial.clock.advance(61.0);
        trial.load(trial.second, true);  // of all that were read back the newest is kept: now 60
        const std::string warnings = trial.save(trial.second, 70);
        REQUIRE(trial.returned == 70);
        const std::vector<std::string> left = trial.server.list(layout.checkpoints());
        CAPTURE(warnings, left);
        const CheckpointScan scan = scan_checkpoints(trial.server, layout.checkpoints(), "run-1");
        REQUIRE(scan.complete.size() == 2);
        REQUIRE(left.size() == 2);
        saves += trial.committed.size();
    }
    report_trials("C10", trials.end - trials.first, "seeds of a network file system");
    CHECK(saves >= 3 * (trials.end - trials.first));
}
