// A run directory with identity, lease, journal and checkpoints, for tests of the commands that change it.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "checkpoint/toy_state.h"
#include "support/memory_file_system.h"
#include "support/rank_links.h"
#include "trainctl/checkpoint/run_commands.h"
#include "trainctl/rundir/lease.h"
#include "trainctl/rundir/run_identity.h"

namespace trainctl::test {

class ToyProcesses final : public ProcessTable {
  public:
    ProcessIdentity self() override { return me; }
    Liveness look(const ProcessIdentity& process) override {
        const auto known = liveness.find(process.pid);
        return known == liveness.end() ? Liveness::Dead : known->second;
    }
    ProcessIdentity me{"host", "boot", "ns", 1, 1};
    std::map<std::int64_t, Liveness> liveness;
};

class QuietLog final : public Log {
  public:
    void write(LogLevel /*level*/, std::string_view text) override { lines += std::string(text) + "\n"; }
    std::string lines;
};

// One rank. Every attempt takes the lease, opens a store as `train` does, and gives both back at end().
struct ToyRun {
    // `disk`: one that a crash left, with a run in it; nullptr: a new one.
    explicit ToyRun(MemoryFileSystem* disk = nullptr);

    void begin(RetentionPolicy retention = {100, 0});
    void end();
    SaveReport save(std::int64_t step, Health health = Health::Probation);
    // An attempt that saves these and ends.
    void attempt(const std::vector<std::int64_t>& steps);
    // An attempt that continues from `how` and then saves these.
    LoadReport continued(const std::string& how, const std::vector<std::int64_t>& steps);
    LoadReport resume(const std::string& how);
    RunServices services() { return {files, clock, processes, log}; }
    [[nodiscard]] CheckpointScan scan();
    [[nodiscard]] Journal journal() { return read_journal(files, layout); }
    // Steps of the complete ones, newest first.
    std::vector<std::int64_t> steps();
    std::string path(std::int64_t step);  // of the newest attempt's

    std::unique_ptr<MemoryFileSystem> own;
    MemoryFileSystem& files;
    RunLayout layout{"run"};
    ManualClock clock;
    ToyProcesses processes;
    QuietLog log;
    SoloLink solo;
    SliceSet state = std::move(flat_layout(small_tensors(), 1)[0]);
    std::unique_ptr<Lease> lease;
    std::unique_ptr<JournalWriter> writer;
    std::unique_ptr<CheckpointStore> store;
};

}  // namespace trainctl::test
