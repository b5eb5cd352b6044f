#include "checkpoint/toy_run.h"

#include "trainctl/base/error.h"

namespace trainctl::test {

ToyRun::ToyRun(MemoryFileSystem* disk)
    : own(disk == nullptr ? std::make_unique<MemoryFileSystem>() : nullptr),
      files(disk == nullptr ? *own : *disk) {
    if (disk != nullptr) return;
    files.put(layout.run_json(),
              R"({"format": "trainctl-run", "version": 1, "run_id": "run-1", "spec_hash": "", "created": ""})"
              "\n");
}

void ToyRun::begin(RetentionPolicy retention) {
    lease = Lease::acquire({files, clock, processes, {}, {}}, layout);
    Journal history = read_journal(files, layout);
    writer = std::make_unique<JournalWriter>(files, clock, layout, lease->attempt());
    StoreSettings settings = toy_settings(layout.checkpoints(), lease->attempt());
    settings.retention = retention;
    store = std::make_unique<CheckpointStore>(files, clock, settings, writer.get(), std::move(history));
}

void ToyRun::end() {
    store.reset();
    writer.reset();
    lease->release();
    lease.reset();
}

SaveReport ToyRun::save(std::int64_t step, Health health) {
    state.fill(static_cast<std::uint64_t>(step));
    Snapshot snapshot = toy_snapshot(step, state);
    snapshot.health = health;
    return store->save(snapshot, solo).value();
}

void ToyRun::attempt(const std::vector<std::int64_t>& steps) {
    begin();
    for (const std::int64_t step : steps) save(step);
    end();
}

LoadReport ToyRun::resume(const std::string& how) {
    state.clear();
    return store->resume(parse_resume(how), RunState::Existing, {state.slices(), {}}, solo);
}

LoadReport ToyRun::continued(const std::string& how, const std::vector<std::int64_t>& steps) {
    begin();
    LoadReport report = resume(how);
    for (const std::int64_t step : steps) save(step);
    end();
    return report;
}

CheckpointScan ToyRun::scan() { return scan_checkpoints(files, layout.checkpoints(), "run-1"); }

std::vector<std::int64_t> ToyRun::steps() {
    std::vector<std::int64_t> found;
    for (const CompleteCheckpoint& checkpoint : scan().complete) found.push_back(checkpoint.name.step);
    return found;
}

std::string ToyRun::path(std::int64_t step) {
    for (const CompleteCheckpoint& checkpoint : scan().complete) {
        if (checkpoint.name.step == step) return checkpoint.path;
    }
    fail(Exit::Internal, "the toy run has no such step");
}

}  // namespace trainctl::test
