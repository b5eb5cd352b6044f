// `ckpt rollback`: which checkpoints count afterwards, through any sequence of attempts and rollbacks.
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/toy_run.h"
#include "support/catch.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/commands.h"
#include "trainctl/checkpoint/lineage.h"
#include "trainctl/checkpoint/suspicion.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

using Names = std::vector<std::string>;

CommandResult rollback(ToyRun& run, const std::string& to, Execution execution = Execution::Real) {
    return checkpoint_rollback(run.services(), {"run", to, execution, OutputFormat::Text});
}

// "30@3": step and attempt.
std::string short_name(const CheckpointName& name) {
    return std::to_string(name.step) + "@" + std::to_string(name.attempt);
}

// What a load would try, in order.
Names line(ToyRun& run) {
    const CheckpointScan scan = run.scan();
    const Journal journal = run.journal();
    Names names;
    for (const std::size_t index :
         decide_resume({ResumeMode::Auto, -1}, RunState::Existing, scan, journal).candidates)
        names.push_back(short_name(scan.complete[index].name));
    return names;
}

Names set_aside(ToyRun& run) {
    const Lineage lineage(run.journal());
    Names names;
    for (const CompleteCheckpoint& found : run.scan().complete)
        if (lineage.set_aside(found.name)) names.push_back(short_name(found.name));
    return names;
}

}  // namespace

TEST_CASE("a run that was rolled back goes on from there, and what comes after is newer whatever its step") {
    ToyRun run;
    run.attempt({10, 20, 30, 40});
    CHECK(line(run) == Names{"40@1", "30@1", "20@1", "10@1"});
    const CommandResult result = rollback(run, "20");  // attempt 2
    CHECK(result.exit == Exit::Ok);
    CHECK(mentions(result.out, "set aside  s000000040"));
    CHECK(line(run) == Names{"20@1", "10@1"});
    CHECK(set_aside(run) == Names{"40@1", "30@1"});
    CHECK(mentions(checkpoint_list(run.files, "run", OutputFormat::Text).out, "set aside: by"));
    const auto inspected =
        nlohmann::json::parse(checkpoint_inspect(run.files, "run", OutputFormat::Json).out);
    CHECK(inspected["step"] == 20);

    // Attempt 3 comes to step 30 once more, and does not mix with what was there.
    const LoadReport report = run.continued("auto", {25, 30});
    CHECK(report.manifest.step == 20);
    CHECK(mentions(report.text, "set aside by the rollback to step 20: 40, 30"));
    CHECK(line(run) == Names{"30@3", "25@3", "20@1", "10@1"});
    run.begin();
    CHECK(run.store->newest_complete()->name.step == 30);
    CHECK(run.resume("30").manifest.attempt == 3);
    CHECK(error_of([&] { run.resume("40"); })->code() == Exit::BadInput);
    CHECK(mentions(error_of([&] { run.resume("40"); })->what(), "rollback RUN --to 40"));
    run.end();
    CHECK(short_name(
              parse_checkpoint_directory_name(run.path(30).substr(run.path(30).rfind('/') + 1)).value()) ==
          "30@3");

    // A damaged newest one falls back along the line, not to what was set aside.
    run.files.truncate(run.path(30) + "/r00000.st", 100);
    CHECK(run.continued("auto", {}).manifest.step == 25);
    CHECK(checkpoint_verify(run.files, "run", OutputFormat::Text).exit == Exit::BadInput);
    // Damage of what was set aside does not concern the present line.
    rollback(run, "10");
    CHECK(checkpoint_verify(run.files, "run", OutputFormat::Text).exit == Exit::Ok);
}

TEST_CASE("rollbacks forth and back follow what each attempt went on from") {
    ToyRun run;
    run.attempt({10, 20, 30, 40});
    rollback(run, "20");              // 2
    run.continued("auto", {25, 30});  // 3
    rollback(run, "40");              // 4: forward again
    CHECK(line(run) == Names{"40@1", "30@1", "20@1", "10@1"});
    CHECK(set_aside(run) == Names{"30@3", "25@3"});
    run.continued("auto", {50});  // 5
    CHECK(line(run) == Names{"50@5", "40@1", "30@1", "20@1", "10@1"});
    rollback(run, "25");  // 6
    CHECK(line(run) == Names{"25@3", "20@1", "10@1"});
    run.continued("auto", {26});  // 7
    CHECK(line(run) == Names{"26@7", "25@3", "20@1", "10@1"});
    // A step below the current one, on the line itself.
    rollback(run, "10");  // 8
    CHECK(line(run) == Names{"10@1"});
    run.continued("auto", {20, 30});  // 9
    CHECK(line(run) == Names{"30@9", "20@9", "10@1"});
    CHECK(rollback(run, "30").out.find("is the current checkpoint already") != std::string::npos);
    CHECK(run.scan().complete.size() == 10);  // nothing was deleted
}

TEST_CASE("several checkpoints of one step: the present line is meant, else the name is asked for") {
    ToyRun run;
    run.attempt({10, 20, 30});
    rollback(run, "10");
    run.continued("auto", {20, 30, 40});
    rollback(run, "20");
    CHECK(line(run) == Names{"20@3", "10@1"});
    const auto error = error_of([&] { rollback(run, "30"); });
    REQUIRE(error.has_value());
    CHECK(error->code() == Exit::Usage);
    CHECK(mentions(error->what(), "--to s000000030-a0001"));
    CHECK(mentions(error->what(), "--to s000000030-a0003"));
    for (const CompleteCheckpoint& found : run.scan().complete)
        if (short_name(found.name) == "30@1") rollback(run, found.manifest.directory);
    CHECK(line(run) == Names{"30@1", "20@1", "10@1"});
    CHECK(error_of([&] { rollback(run, "50"); })->code() == Exit::BadInput);
}

TEST_CASE("a damaged target is refused and marked, and nothing changes; so it is beside a living run") {
    ToyRun run;
    run.attempt({10, 20, 30});
    run.files.flip_bit(run.path(20) + "/r00000.st", 8 * 4200);
    const auto error = error_of([&] { rollback(run, "20"); });
    REQUIRE(error.has_value());
    CHECK(error->code() == Exit::BadInput);
    CHECK(mentions(error->what(), "chunk"));
    CHECK(read_suspicion(run.files, run.path(20)).has_value());
    CHECK(line(run) == Names{"30@1", "20@1", "10@1"});
    const std::uint64_t before = run.files.mutations();
    CHECK(mentions(rollback(run, "10", Execution::DryRun).out, "would become"));
    CHECK(error_of([&] { rollback(run, "20", Execution::DryRun); })->code() == Exit::BadInput);
    CHECK(run.files.mutations() == before);
    run.processes.me.pid = 7;
    run.begin();
    run.processes.me.pid = 8;
    run.processes.liveness[7] = Liveness::Alive;
    CHECK(error_of([&] { rollback(run, "10"); })->code() == Exit::Fenced);
    run.end();
    CHECK(line(run) == Names{"30@1", "20@1", "10@1"});
}

TEST_CASE("retention does not touch what was set aside until a newer one is healthy; then it goes") {
    ToyRun run;
    run.attempt({10, 20, 30, 40});
    rollback(run, "20");
    run.begin({2, 0});
    REQUIRE(run.resume("auto").manifest.step == 20);
    run.save(30);
    CHECK(run.steps() == std::vector<std::int64_t>{40, 30, 30, 20});  // 10 is older than two of the line
    run.save(40);
    CHECK(run.steps() == std::vector<std::int64_t>{40, 40, 30, 30, 20});  // 20 was read back in full
    pin_checkpoint(run.files, [&] {
        for (const CompleteCheckpoint& found : run.scan().complete)
            if (short_name(found.name) == "30@1") return found.path;
        return std::string();
    }());
    run.store->mark_healthy(run.scan().complete[0].manifest.directory);
    REQUIRE(short_name(run.scan().complete[0].name) == "40@3");
    run.save(50);
    Names left;
    for (const CompleteCheckpoint& found : run.scan().complete) left.push_back(short_name(found.name));
    CHECK(left == Names{"50@3", "40@3", "30@1", "20@1"});
    run.end();
}

TEST_CASE("a rollback is there or not after a crash at any operation, and never costs a checkpoint") {
    ToyRun clean;
    clean.attempt({10, 20, 30});
    const std::uint64_t before = clean.files.mutations();
    rollback(clean, "10");
    const std::uint64_t after = clean.files.mutations();
    std::set<std::string> seen;
    for (std::uint64_t k = before; k < after; ++k) {
        ToyRun run;
        run.attempt({10, 20, 30});
        run.files.crash_at(k);
        try {
            rollback(run, "10");
        } catch (const Crash&) {  // NOLINT(bugprone-empty-catch): giving the lease back may meet it as well
        }
        for_each_crash_state(run.files, 12, [&](MemoryFileSystem& disk, const std::string& what) {
            INFO("stopped at operation " << k << ", " << what);
            ToyRun found(&disk);
            REQUIRE(found.scan().complete.size() == 3);
            const std::string newest = line(found).front();
            REQUIRE((newest == "30@1" || newest == "10@1"));
            seen.insert(newest);
            rollback(found, "10");
            REQUIRE(found.continued("auto", {11}).manifest.step == 10);
            REQUIRE(line(found).front().rfind("11@", 0) == 0);
        });
    }
    CHECK(seen.size() == 2);
}
