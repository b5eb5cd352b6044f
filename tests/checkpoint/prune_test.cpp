// Pins, and `ckpt prune`: exactly what retention says, never beside a living run, never half a checkpoint.
#include <nlohmann/json.hpp>

#include "checkpoint/toy_run.h"
#include "support/catch.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/commands.h"
#include "trainctl/checkpoint/suspicion.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

using Steps = std::vector<std::int64_t>;

CommandResult prune(ToyRun& run, std::optional<std::int64_t> keep, Execution execution = Execution::Real,
                    OutputFormat form = OutputFormat::Text) {
    return checkpoint_prune(run.services(), {"run", keep, {}, execution, form});
}

}  // namespace

TEST_CASE("a pinned checkpoint is neither removed nor counted, by a save or by prune, until it is unpinned") {
    ToyRun run;
    run.begin({2, 0});
    for (const std::int64_t step : {10, 20}) run.save(step);
    const auto pin = [&](std::int64_t step, PinAction action) {
        return checkpoint_pin(run.files, "run", step, action, OutputFormat::Text);
    };
    CHECK(mentions(pin(10, PinAction::Pin).out, "is now pinned"));
    CHECK(mentions(pin(10, PinAction::Pin).out, "was already pinned"));
    for (const std::int64_t step : {30, 40}) run.save(step);
    CHECK(run.steps() == Steps{40, 30, 10});
    run.end();
    CHECK(mentions(checkpoint_list(run.files, "run", OutputFormat::Text).out, "pinned"));
    CHECK(mentions(checkpoint_inspect(run.files, run.path(10), OutputFormat::Text).out, "pinned"));
    const auto listed = nlohmann::json::parse(checkpoint_list(run.files, "run", OutputFormat::Json).out);
    CHECK(listed["checkpoints"][2]["pinned"] == true);
    CHECK(listed["checkpoints"][0]["pinned"] == false);
    prune(run, 1);
    CHECK(run.steps() == Steps{40, 10});
    CHECK(is_pinned(*run.files.crash_state(0), run.path(10)));
    pin(10, PinAction::Unpin);
    prune(run, 1);
    CHECK(run.steps() == Steps{40});
    CHECK(error_of([&] { pin(10, PinAction::Pin); })->code() == Exit::BadInput);
}

TEST_CASE("prune goes by number, tells why each stays, and a dry run changes nothing") {
    ToyRun run;
    run.attempt({9, 10, 100, 1000, 9900});
    const std::uint64_t before = run.files.mutations();
    const CommandResult dry = prune(run, 2, Execution::DryRun);
    CHECK(run.files.mutations() == before);
    CHECK(run.steps() == Steps{9900, 1000, 100, 10, 9});
    CHECK(mentions(dry.out, "3 checkpoints would be removed of 5"));
    CHECK(mentions(dry.out, "keep    s000001000"));
    CHECK(mentions(dry.out, "remove  s000000100"));
    const auto json = nlohmann::json::parse(prune(run, 2, Execution::DryRun, OutputFormat::Json).out);
    CHECK(json["dry_run"] == true);
    CHECK(json["checkpoints"][4]["keep"] == false);
    CHECK(mentions(prune(run, 2).out, "3 checkpoints removed of 5"));
    CHECK(run.steps() == Steps{9900, 1000});
    std::vector<std::int64_t> deleted;
    for (const JournalRecord& record : run.journal().records) {
        if (record.event == JournalEvent::Delete) deleted.push_back(record.step);
    }
    CHECK(deleted == std::vector<std::int64_t>{9, 10, 100});
    CHECK(run.journal().records.back().text == ended_in_order);
    CHECK_FALSE(owner_may_live(run.files, run.processes, run.layout));
    run.continued("auto", {9910});  // a start does not mind
    CHECK(run.steps() == Steps{9910, 9900, 1000});
}

TEST_CASE("prune uses the recorded policy, and asks for one where there is none") {
    ToyRun run;
    run.attempt({10, 20, 30, 40});
    CHECK(mentions(error_of([&] { prune(run, {}); })->what(), "--keep-latest"));
    run.files.put("run/record/a0001/spec.toml",
                  "[checkpoint]\nkeep_latest = 2\nkeep_every = 20\n[job]\nsteps = 100\n");
    prune(run, {});
    CHECK(run.steps() == Steps{40, 30, 20});
}

TEST_CASE("prune is refused beside a living run, at once where it can be seen") {
    ToyRun run;
    run.attempt({10, 20, 30});
    run.processes.me.pid = 7;
    run.begin();
    run.processes.me.pid = 8;
    run.processes.liveness[7] = Liveness::Alive;
    const double before = run.clock.monotonic_s();
    const auto error = error_of([&] { prune(run, 1); });
    REQUIRE(error.has_value());
    CHECK(error->code() == Exit::Fenced);
    CHECK(mentions(error->what(), "7"));
    CHECK(run.clock.monotonic_s() == before);
    // On another host only signs of life tell.
    run.processes.liveness[7] = Liveness::Unknown;
    run.clock.on_sleep = [&] { run.lease->renew(); };
    CHECK(error_of([&] { prune(run, 1); })->code() == Exit::Fenced);
    CHECK(run.steps() == Steps{30, 20, 10});
    run.clock.on_sleep = {};
    CHECK(prune(run, 1).exit == Exit::Ok);  // silent for long enough
    CHECK(run.steps() == Steps{30});
}

TEST_CASE("prune touches no other run's, no suspect one, and nothing where the newest is not listed") {
    ToyRun run;
    run.attempt({10, 20, 30});
    ManualClock clock;
    StoreSettings other = toy_settings(run.layout.checkpoints(), 9);
    other.run_id = "run-2";
    run.state.fill(1);
    CheckpointStore(run.files, clock, other, nullptr, {}).save(toy_snapshot(1, run.state), run.solo).value();
    remember_suspicion(run.files, run.path(10), "wrong bytes");
    prune(run, 1);
    CHECK(run.steps() == Steps{30, 10});
    CHECK(scan_checkpoints(run.files, run.layout.checkpoints(), "").complete.size() == 3);
    run.attempt({40, 50});
    run.files.erase(run.path(50));
    const auto error = error_of([&] { prune(run, 1); });
    REQUIRE(error.has_value());
    CHECK(error->code() == Exit::BadInput);
    CHECK(mentions(error->what(), "s000000050"));
    CHECK(run.steps() == Steps{40, 30, 10});
    CHECK(error_of([&] {
              checkpoint_prune(run.services(), {"nowhere", 1, {}, {}, {}});
          })->code() == Exit::BadInput);
}

TEST_CASE("the checkpoint a run goes on from stays until a newer one is known to be good") {
    for (const bool healthy : {false, true}) {
        CAPTURE(healthy);
        ToyRun run;
        run.attempt({10, 20, 30});
        run.begin({1, 0});
        REQUIRE(run.resume("10").manifest.step == 10);
        run.save(40);
        run.save(50);
        CHECK(run.steps() == Steps{50, 10});
        if (healthy) {
            run.store->mark_healthy(run.scan().complete[0].manifest.directory);
            run.save(60);
            // Still the newest that was read back in full.
            CHECK(run.steps() == Steps{60, 50, 10});
            run.end();
            continue;
        }
        run.end();
        run.begin({1, 0});
        REQUIRE(run.resume("auto").manifest.step == 50);
        run.save(60);
        CHECK(run.steps() == Steps{60, 50});
        run.end();
    }
    // Behind a newer one of an attempt that was left: that one is verified as well, and is not what counts.
    ToyRun run;
    run.attempt({10, 20});
    run.continued("auto", {});
    run.begin({1, 0});
    REQUIRE(run.resume("10").manifest.step == 10);
    run.save(15);
    CHECK(run.steps() == Steps{20, 15, 10});
    run.store->mark_healthy(run.scan().complete[1].manifest.directory);
    run.save(16);
    CHECK(run.steps() == Steps{20, 16, 15});
    run.end();
}

TEST_CASE("a crash at any operation of prune leaves every checkpoint whole or gone, and what stays stays") {
    ToyRun clean;
    clean.attempt({10, 20, 30, 40});
    const std::uint64_t before = clean.files.mutations();
    prune(clean, 2);
    const std::uint64_t after = clean.files.mutations();
    for (std::uint64_t k = before; k < after; ++k) {
        ToyRun run;
        run.attempt({10, 20, 30, 40});
        run.files.crash_at(k);
        try {
            prune(run, 2);
        } catch (const Crash&) {  // NOLINT(bugprone-empty-catch): giving the lease back may meet it as well
        }
        REQUIRE(run.files.crashed());
        for_each_crash_state(run.files, 12, [&](MemoryFileSystem& disk, const std::string& what) {
            INFO("stopped at operation " << k << ", " << what);
            ToyRun found(&disk);
            for (const RejectedCheckpoint& rejected : found.scan().rejected)
                REQUIRE(rejected.reason == RejectReason::Uncommitted);
            const Steps steps = found.steps();
            REQUIRE(steps.size() >= 2);
            REQUIRE(steps[0] == 40);
            REQUIRE(steps[1] == 30);
            prune(found, 2);
            REQUIRE(found.steps() == Steps{40, 30});
            found.continued("auto", {50});
            REQUIRE(found.scan().rejected.empty());  // swept
        });
    }
}
