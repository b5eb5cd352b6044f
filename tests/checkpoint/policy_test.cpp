// Which checkpoint is resumed, which ones are kept, whether there is room; and what the commands print.
#include <nlohmann/json.hpp>

#include "checkpoint/toy_state.h"
#include "support/catch.h"
#include "support/memory_file_system.h"
#include "support/rank_links.h"
#include "support/temporary_directory.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/agree.h"
#include "trainctl/checkpoint/commands.h"
#include "trainctl/checkpoint/space.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

const RunLayout layout("run");

Exit code_of(const std::function<void()>& action, std::string* text = nullptr) {
    try {
        action();
    } catch (const Error& error) {
        if (text != nullptr) *text = error.what();
        return error.code();
    }
    return Exit::Ok;
}

// A run on one rank with a journal.
struct Run {
    MemoryFileSystem files;
    ManualClock clock;
    SoloLink solo;
    SliceSet state = std::move(flat_layout(small_tensors(), 1)[0]);
    int attempt = 0;
    std::unique_ptr<JournalWriter> journal;
    std::unique_ptr<CheckpointStore> store;

    explicit Run(std::int64_t keep = 3, std::int64_t every = 0) { restart(keep, every); }
    void restart(std::int64_t keep = 3, std::int64_t every = 0, const std::string& run_id = "run-1") {
        files.make_directories("run");
        Journal history = read_journal(files, layout);
        store.reset();
        journal = std::make_unique<JournalWriter>(files, clock, layout, ++attempt);
        StoreSettings settings = toy_settings(layout.checkpoints(), attempt);
        settings.retention = {keep, every};
        settings.run_id = run_id;
        store = std::make_unique<CheckpointStore>(files, clock, settings, journal.get(), std::move(history));
    }
    SaveReport save(std::int64_t step, Health health = Health::Probation) {
        state.fill(static_cast<std::uint64_t>(step));
        Snapshot snapshot = toy_snapshot(step, state);
        snapshot.health = health;
        return store->save(snapshot, solo).value();
    }
    LoadReport resume(const std::string& how, RunState run = RunState::Existing) {
        state.clear();
        return store->resume(parse_resume(how), run, {state.slices(), {}}, solo);
    }
    std::vector<std::int64_t> steps() {
        std::vector<std::int64_t> found;
        for (const CompleteCheckpoint& checkpoint :
             scan_checkpoints(files, layout.checkpoints(), "run-1").complete) {
            found.push_back(checkpoint.name.step);
        }
        return found;
    }
};

using Steps = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("retention goes by number: of 9, 10 and 100 the first goes") {
    Run run(2);
    run.save(9);
    run.save(10);
    CHECK(run.steps() == Steps{10, 9});
    const SaveReport report = run.save(100);
    CHECK(run.steps() == Steps{100, 10});
    REQUIRE(report.removed.size() == 1);
    CHECK(report.removed[0].rfind("s000000009-", 0) == 0);
    CHECK(run.save(9900).removed.size() == 1);
    run.save(10000);
    CHECK(run.steps() == Steps{10000, 9900});
}

TEST_CASE("keep 1 keeps one; milestones, the newest verified and the newest healthy stay") {
    Run one(1);
    one.save(1);
    one.save(2);
    CHECK(one.steps() == Steps{2});

    Run every(2, 100);
    for (const std::int64_t step : {50, 100, 150, 200, 250, 300}) every.save(step);
    CHECK(every.steps() == Steps{300, 250, 200, 100});

    Run resumed(1);
    resumed.save(10);
    resumed.restart(1);
    CHECK(resumed.resume("auto").manifest.step == 10);
    CHECK(resumed.state.holds(10));
    resumed.save(20);
    resumed.save(30);
    CHECK(resumed.steps() == Steps{30, 10});  // 10 is the newest that is known to load
    resumed.restart(1);
    CHECK(resumed.resume("auto").manifest.step == 30);
    resumed.save(40);
    CHECK(resumed.steps() == Steps{40, 30});

    Run healthy(2);
    healthy.save(1, Health::Good);
    for (const std::int64_t step : {2, 3, 4}) healthy.save(step);
    CHECK(healthy.steps() == Steps{4, 3, 1});
    healthy.store->mark_healthy(
        scan_checkpoints(healthy.files, layout.checkpoints(), "").complete[1].manifest.directory);
    healthy.save(5);
    healthy.save(6);
    CHECK(healthy.steps() == Steps{6, 5, 3});
}

TEST_CASE(
    "plan_retention never takes the newest, the newest verified or the newest healthy good one, nor a "
    "suspect, a pinned or the last resumed one, for any list") {
    std::mt19937_64 random(11);
    for (int round = 0; round < 500; ++round) {
        std::vector<RetentionItem> items(random() % 9);
        for (RetentionItem& item : items) {
            item = {{static_cast<std::int64_t>(random() % 1000), 1 + static_cast<int>(random() % 3),
                     static_cast<std::uint32_t>(random())},
                    random() % 3 == 0,
                    random() % 3 == 0,
                    random() % 4 == 0,
                    random() % 4 == 0,
                    random() % 8 == 0};
        }
        const RetentionPolicy policy{static_cast<std::int64_t>(random() % 4),
                                     static_cast<std::int64_t>(random() % 3) * 10};
        std::vector<bool> removed(items.size());
        for (const std::size_t index : plan_retention(items, policy)) removed.at(index) = true;
        const auto newest =
            [&](const std::function<bool(const RetentionItem&)>& which) -> const RetentionItem* {
            const RetentionItem* best = nullptr;
            for (const RetentionItem& item : items) {
                if (item.suspect || item.pinned || !which(item)) continue;
                if (best == nullptr || std::tuple(item.name.step, item.name.attempt, item.name.nonce) >
                                           std::tuple(best->name.step, best->name.attempt, best->name.nonce))
                    best = &item;
            }
            return best;
        };
        for (const RetentionItem* kept : {newest([](const RetentionItem&) { return true; }),
                                          newest([](const RetentionItem& item) { return item.verified; }),
                                          newest([](const RetentionItem& item) { return item.healthy; })}) {
            if (kept != nullptr) CHECK_FALSE(removed[static_cast<std::size_t>(kept - items.data())]);
        }
        std::int64_t good = 0;
        std::int64_t left = 0;  // of the good ones
        for (std::size_t index = 0; index < items.size(); ++index) {
            const RetentionItem& item = items[index];
            if (item.suspect || item.pinned || item.origin) CHECK_FALSE(removed[index]);
            if (item.suspect || item.pinned) continue;
            ++good;
            if (!removed[index]) ++left;
        }
        CHECK(left >= std::min<std::int64_t>(good, std::max<std::int64_t>(1, policy.keep_latest)));
    }
}

TEST_CASE("damage that was found is remembered: no good checkpoint goes in favour of a damaged one") {
    // Found by `ckpt verify`, or by a resume that falls back.
    for (const bool by_resume : {false, true}) {
        CAPTURE(by_resume);
        Run run(2);
        for (const std::int64_t step : {10, 20, 30}) run.save(step);
        const std::string path = scan_checkpoints(run.files, layout.checkpoints(), "").complete[0].path;
        const auto flip = [&] { run.files.flip_bit(path + "/r00000.st", 4096 * 8); };
        const auto status = [&](std::int64_t step) -> std::string {
            const auto list =
                nlohmann::json::parse(checkpoint_list(run.files, "run", OutputFormat::Json).out);
            for (const auto& found : list["checkpoints"]) {
                if (found["step"] == step) return found["status"];
            }
            return "not listed";
        };
        flip();
        run.restart(2);
        if (by_resume) {
            CHECK(run.resume("auto").manifest.step == 20);
        } else {
            CHECK(checkpoint_verify(run.files, path, OutputFormat::Text).exit == Exit::BadInput);
        }
        CHECK(status(30) == "suspect");
        CHECK(mentions(checkpoint_list(run.files, "run", OutputFormat::Text).out, "chunk 8"));
        run.restart(2);
        run.save(40);
        CHECK(run.steps() == Steps{40, 30, 20});
        run.save(50);
        CHECK(run.steps() ==
              (by_resume ? Steps{50, 40, 30, 20} : Steps{50, 40, 30}));  // 20 is verified there
        // The bytes come back: whoever reads them all takes the mark away, and it counts again.
        flip();
        run.restart(2);
        if (by_resume) {
            CHECK(run.resume("30").manifest.step == 30);
        } else {
            CHECK(checkpoint_verify(run.files, path, OutputFormat::Text).exit == Exit::Ok);
        }
        CHECK(status(30) == "complete");
        run.save(60);
        CHECK(run.steps() == (by_resume ? Steps{60, 50, 30} : Steps{60, 50}));
    }
}

TEST_CASE(
    "damage on a medium that takes no mark is still reported, and the checkpoint still loads when it is "
    "right") {
    Run run;
    run.save(10);
    const std::string path = scan_checkpoints(run.files, layout.checkpoints(), "").complete[0].path;
    run.files.flip_bit(path + "/r00000.st", 4096 * 8);
    run.files.set_mount(Mount::ReadOnly);
    const CommandResult verified = checkpoint_verify(run.files, path, OutputFormat::Text);
    CHECK(verified.exit == Exit::BadInput);
    CHECK(mentions(verified.out, "chunk 8"));
    CHECK(mentions(verified.err, "not remembered"));
}

TEST_CASE("checkpoints of another run in the same directory are neither loaded nor removed nor swept") {
    Run run(1);
    run.save(10);
    run.restart(1, 0, "run-2");
    // An unfinished save of somebody else.
    run.files.put("run/checkpoints/s000000011-a0009-00000001/r00000.st", "partial");
    CHECK(run.store->newest_complete() == std::nullopt);
    std::string text;
    CHECK(code_of([&] { run.resume("10"); }, &text) == Exit::BadInput);
    CHECK(mentions(text, "belongs to run run-1"));
    run.save(20);
    run.save(30);
    CHECK(run.steps() == Steps{10});
    CHECK(run.files.contents("run/checkpoints/s000000011-a0009-00000001/r00000.st"));
}

TEST_CASE(
    "leftovers of this run's interrupted saves are swept, and a stale attempt's files are never mixed in") {
    Run run(2);
    run.save(10);
    JournalRecord begin;
    begin.event = JournalEvent::Begin;
    begin.step = 20;
    begin.directory = "s000000020-a0001-0badcafe";
    run.journal->append(begin);
    const std::string left = "run/checkpoints/" + begin.directory;
    const auto leave = [&] {
        run.files.put(left + "/r00000.st", "stale");
        run.files.put(left + "/.r00001.st.part", "stale");
    };
    leave();
    run.restart(2);
    CHECK(run.store->sweep_leftovers() == std::vector<std::string>{begin.directory});  // by a start
    CHECK_FALSE(run.files.status(left));
    CHECK(run.store->sweep_leftovers().empty());
    leave();
    CHECK(run.resume("auto").manifest.step == 10);
    run.save(20);  // by a save
    CHECK_FALSE(run.files.status(left));
    CHECK(run.steps() == Steps{20, 10});
    run.state.clear();
    run.store->load_step(20, {run.state.slices(), {}}, run.solo);
    CHECK(run.state.holds(20));
}

TEST_CASE("--resume: never, auto and a step") {
    std::string text;
    Run run;
    CHECK(run.resume("never", RunState::New).outcome == LoadOutcome::StartFresh);
    const LoadReport fresh = run.resume("auto");
    CHECK(fresh.outcome == LoadOutcome::StartFresh);
    CHECK(mentions(fresh.text, "no checkpoint was ever committed, starting at step 0"));
    CHECK(code_of([&] { run.resume("never"); }, &text) == Exit::Usage);
    CHECK(mentions(text, "--resume auto"));

    for (const std::int64_t step : {10, 20, 30}) run.save(step);
    run.restart();
    CHECK(code_of([&] { run.resume("never", RunState::New); }) == Exit::Usage);
    CHECK(run.resume("auto").manifest.step == 30);
    const LoadReport twenty = run.resume("20");
    CHECK(twenty.manifest.step == 20);
    CHECK(run.state.holds(20));
    CHECK(twenty.state_hash == twenty.manifest.state_hash);
    CHECK(code_of([&] { run.resume("25"); }, &text) == Exit::BadInput);
    CHECK(mentions(text, "30, 20, 10"));
    // What a start asks before anything long says the same.
    const auto checked = [&](const std::string& how, std::int64_t refused_step) {
        return code_of(
            [&] {
                check_resume(parse_resume(how), scan_checkpoints(run.files, layout.checkpoints(), "run-1"),
                             {}, [&](const Manifest& found) {
                                 if (found.step == refused_step) fail(Exit::Usage, "not this one");
                             });
            },
            &text);
    };
    CHECK(checked("25", 0) == Exit::BadInput);
    CHECK(mentions(text, "30, 20, 10"));
    CHECK(checked("auto", 30) == Exit::Usage);
    CHECK(checked("auto", 20) == Exit::Ok);
    CHECK(checked("20", 20) == Exit::Usage);
    for (const char* bad : {"", "Auto", "-1", "1.5", "10x"})
        CHECK(code_of([&] { parse_resume(bad); }) == Exit::Usage);

    // A step asked for and damaged is not replaced by another.
    const std::string path = scan_checkpoints(run.files, layout.checkpoints(), "").complete[1].path;
    run.files.flip_bit(path + "/r00000.st", 4096 * 8);
    CHECK(code_of([&] { run.resume("20"); }, &text) == Exit::BadInput);
    CHECK(mentions(text, "chunk 8"));
}

TEST_CASE("progress without a loadable checkpoint is never a start at step 0") {
    std::string text;
    Run run;
    run.save(10);
    run.files.erase("run/checkpoints");  // all gone: only the journal knows
    run.restart();
    CHECK(code_of([&] { run.resume("auto"); }, &text) == Exit::BadInput);
    CHECK(mentions(text, "made progress"));
    CHECK(code_of([&] { run.resume("never", RunState::New); }) == Exit::Usage);

    Run other;
    other.save(10);
    other.files.erase("run/journal");  // only a damaged checkpoint knows
    other.files.truncate(
        scan_checkpoints(other.files, layout.checkpoints(), "").complete[0].path + "/r00000.st", 100);
    CHECK(code_of(
              [&] {
                  CheckpointStore(other.files, other.clock, toy_settings(layout.checkpoints()), nullptr, {})
                      .resume({ResumeMode::Auto, -1}, RunState::Existing, {other.state.slices(), {}},
                              other.solo);
              },
              &text) == Exit::BadInput);
    CHECK(mentions(text, "truncated"));

    Run third;
    third.save(10);
    third.files.erase("run/checkpoints");
    third.files.put("run/journal/a0001.log", "garbage\nmore garbage\n");  // may have said anything
    third.restart();
    CHECK(code_of([&] { third.resume("auto"); }) == Exit::BadInput);
}

TEST_CASE("space: a disk that is too small is refused before the first step, in numbers") {
    MemoryFileSystem files;
    files.set_capacity(1U << 20U);
    files.make_directories("run");
    const SpaceNeed small{100U << 10U, 2, 2, 0};
    const SpaceNeed large{400U << 10U, 2, 2, 0};
    CHECK_FALSE(lack_of_space(files, "run/not/yet/there", small));
    const auto problem = lack_of_space(files, "run/not/yet/there", large);
    REQUIRE(problem);
    // The arithmetic: two are kept, two may be protected, and another is complete before the first goes.
    CHECK(mentions(*problem, "2.05 MiB"));
    CHECK(mentions(*problem, "5 x 400.00 KiB and 5 % spare"));
    CHECK(mentions(*problem, "checkpoint.keep_latest 2, 2 older ones"));
    // What is there already need not come again; but the next one always.
    CHECK_FALSE(lack_of_space(files, "run", {400U << 10U, 2, 2, 3}));
    CHECK(SpaceNeed{1, 1, 2, 4}.still_to_come() == 1);
    // Beyond 64 bits is never enough.
    CHECK(lack_of_space(files, "run", {std::uint64_t{1} << 62U, 2, 2, 0}));
    CHECK(SpaceNeed{1, 1, 2, 9}.still_to_come() == 1);
    CHECK_FALSE(files.status("run/not"));  // it only looked
    std::string text;
    CHECK(code_of([&] { require_space(files, "run/ck", large); }, &text) == Exit::Resource);
    CHECK(text == lack_of_space(files, "run/ck", large));
    CHECK(files.list("run/ck").empty());

    MemoryFileSystem roomy;
    CHECK_NOTHROW(require_space(roomy, "ck", small));
    CHECK(roomy.list("ck").empty());
    roomy.add_fault({122 /* EDQUOT */, FileOp::Write, ".probe", 0, 1, FaultEffect::None});
    CHECK(code_of([&] { require_space(roomy, "ck", small); }, &text) == Exit::Resource);
    CHECK(mentions(text, "EDQUOT"));
    roomy.set_mount(Mount::ReadOnly);
    CHECK(code_of([&] { require_space(roomy, "ck", small); }) == Exit::Resource);

    SliceSet set = std::move(flat_layout(small_tensors(), 1)[0]);
    SoloLink solo;
    ManualClock clock;
    const std::uint64_t predicted = predicted_bytes(set.slices());
    const std::uint64_t actual = CheckpointStore(files, clock, toy_settings("ck"), nullptr, {})
                                     .save(toy_snapshot(1, set), solo)
                                     .value()
                                     .bytes;
    CHECK(predicted >= actual);
    CHECK(predicted_bytes(124439808, 2) > 124439808ULL * 12);
}

TEST_CASE("space: milestones, suspect ones and those of other runs are not replaced by newer ones") {
    Run run(2, 100);
    for (const std::int64_t step : {100, 110, 120}) run.save(step);
    CHECK(run.steps() == Steps{120, 110, 100});
    const auto present = [&](const std::string& run_id) {
        return replaceable_checkpoints(run.files, layout.checkpoints(), run_id, {2, 100});
    };
    CHECK(present("run-1") == 2);
    CHECK(present("run-2") == 0);
    run.files.put(scan_checkpoints(run.files, layout.checkpoints(), "").complete[0].path + "/SUSPECT", "why");
    CHECK(present("run-1") == 1);
}

TEST_CASE("ranks that do not share the checkpoint directory are named") {
    MemoryFileSystem shared;
    MemoryFileSystem local;
    std::vector<int> without;
    run_linked_ranks(3, RankOrder::Concurrent, [&](RankLink& link) {
        const auto found = ranks_without_directory(link.rank() == 2 ? local : shared, "ck", link);
        if (link.rank() == 0) without = found;
    });
    CHECK(without == std::vector<int>{2});
    CHECK(shared.list("ck").empty());
    // A save there fails on all ranks with a hint rather than hang or half succeed.
    std::vector<std::string> texts(2);
    ManualClock clock;
    run_linked_ranks(2, RankOrder::Concurrent, [&](RankLink& link) {
        const auto rank = static_cast<std::size_t>(link.rank());
        CheckpointStore store(rank == 1 ? local : shared, clock, toy_settings("ck"), nullptr, {});
        SliceSet mine = std::move(flat_layout(small_tensors(), 2)[rank]);
        const auto result = store.save(toy_snapshot(1, mine), link);
        texts[rank] = result.ok() ? "saved" : result.error().what();
    });
    CHECK(texts[0] == texts[1]);
    CHECK(mentions(texts[0], "shared by all nodes"));
}

TEST_CASE("an exception on one rank is thrown by all, with the rank in front; a lost rank is Exit::Peer") {
    std::vector<std::string> texts(3);
    std::vector<Exit> codes(3);
    const auto run = [&](const std::function<std::string(RankLink&)>& body) {
        run_linked_ranks(3, RankOrder::Concurrent, [&](RankLink& link) {
            const auto rank = static_cast<std::size_t>(link.rank());
            codes[rank] = code_of([&] { texts[rank] = body(link); }, &texts[rank]);
        });
    };
    const auto all_are = [&](Exit code, const std::string& text) {
        for (std::size_t rank = 0; rank < 3; ++rank) {
            CHECK(codes[rank] == code);
            CHECK(texts[rank] == text);
        }
    };
    const auto join = [](const std::vector<std::string>& answers) {
        return answers[0] + answers[1] + answers[2];
    };
    run([&](RankLink& link) {
        return agree(
            link, [&] { return std::to_string(link.rank()); }, join);
    });
    all_are(Exit::Ok, "012");
    run([&](RankLink& link) {
        return agree(
            link,
            [&]() -> std::string {
                if (link.rank() > 0) fail(Exit::BadInput, "bad file");
                return "";
            },
            join);
    });
    all_are(Exit::BadInput, "[rank 1] bad file (1 other ranks failed as well)");
    run([&](RankLink& link) {
        return agree(
            link, [&]() -> std::string { fail(link.rank() == 2 ? Exit::Fenced : Exit::Resource, "x"); },
            join);
    });
    all_are(Exit::Fenced, "[rank 2] x (2 other ranks failed as well)");
    run([&](RankLink& link) {
        return agree(
            link, [] { return std::string(); },
            [](const std::vector<std::string>&) -> std::string { throw std::bad_alloc(); });
    });
    all_are(Exit::Resource, "out of memory");
    run([&](RankLink& link) {
        if (link.rank() == 1) return std::string("left");
        return agree(
            link, [] { return std::string(); }, join);
    });
    CHECK(codes[0] == Exit::Peer);
    CHECK(codes[2] == Exit::Peer);
}

TEST_CASE("ckpt list, inspect and verify: text and JSON") {
    Run run;
    run.save(10);
    run.save(20, Health::Good);
    run.files.put("run/checkpoints/s000000030-a0001-00000001/r00000.st", "partial");
    const std::string older = scan_checkpoints(run.files, layout.checkpoints(), "").complete[1].path;
    run.files.truncate(older + "/r00000.st", 4000);

    const CommandResult list = checkpoint_list(run.files, "run", OutputFormat::Json);
    const auto parsed = nlohmann::json::parse(list.out);
    REQUIRE(parsed["checkpoints"].size() == 3);
    // By step, whatever their state.
    CHECK(parsed["checkpoints"][0]["step"] == 30);
    CHECK(parsed["checkpoints"][0]["status"] == "incomplete");
    CHECK(parsed["checkpoints"][1]["step"] == 20);
    CHECK(parsed["checkpoints"][1]["status"] == "complete");
    CHECK(parsed["checkpoints"][1]["health"] == "good");
    CHECK(parsed["checkpoints"][2]["status"] == "damaged");
    const std::string text = checkpoint_list(run.files, "run/checkpoints/", OutputFormat::Text).out;
    CHECK(mentions(text, "truncated"));
    CHECK(mentions(text, "complete"));
    // Words that occur are explained, others are not.
    CHECK(mentions(text, "\nincomplete: an interrupted save"));
    CHECK(mentions(text, "may be deleted"));
    CHECK(mentions(text, "\ndamaged: "));
    CHECK_FALSE(mentions(text, "suspect: "));
    CHECK_FALSE(mentions(text, "probation"));
    CHECK(checkpoint_list(run.files, older, OutputFormat::Text).out == text);

    const auto inspected =
        nlohmann::json::parse(checkpoint_inspect(run.files, "run", OutputFormat::Json).out);
    CHECK(inspected["counters"]["consumed_samples"] == 640);
    CHECK(inspected["path"].get<std::string>().rfind("run/checkpoints/s000000020-", 0) == 0);
    const std::string shown =
        checkpoint_inspect(run.files, inspected["path"].get<std::string>() + "/", OutputFormat::Text).out;
    for (const char* part : {"block.weight.m", "[12, 7]", "loss_scale = 65536", "consumed_samples = 640",
                             "name = \"toy\"", "run-1"}) {
        CHECK(mentions(shown, part));
    }
    const auto verified = checkpoint_verify(run.files, "run", OutputFormat::Json);
    CHECK(verified.exit == Exit::Ok);
    CHECK(nlohmann::json::parse(verified.out)["ok"] == true);
    const std::string newest = inspected["path"].get<std::string>();
    run.files.flip_bit(newest + "/r00000.st", 9);
    const auto damaged = checkpoint_verify(run.files, newest, OutputFormat::Json);
    CHECK(damaged.exit == Exit::BadInput);
    CHECK(nlohmann::json::parse(damaged.out)["problems"].size() == 1);
    CHECK(mentions(checkpoint_verify(run.files, newest, OutputFormat::Text).out, "chunk 0"));

    // A run that keeps its checkpoints elsewhere: its newest record says where.
    run.files.put("kept/run.json", "{}");
    run.files.put("kept/record/a0001/spec.toml", "[checkpoint]\ndirectory = \"nowhere\"\n");
    std::string why;
    CHECK(code_of([&] { checkpoint_list(run.files, "kept", OutputFormat::Text); }, &why) == Exit::BadInput);
    CHECK(mentions(why, "checkpoint.directory = \"nowhere\""));
    run.files.put("kept/record/a0002/spec.toml", "[checkpoint]\ndirectory = \"run/checkpoints\"\n");
    for (const char* empty : {"kept/record", "kept/checkpoints"}) {
        run.files.make_directories(empty);
        CHECK(checkpoint_list(run.files, "kept", OutputFormat::Text).out ==
              checkpoint_list(run.files, "run", OutputFormat::Text).out);
    }

    const auto refused = [&](CommandResult (*command)(FileSystem&, const std::string&, OutputFormat),
                             const std::string& path) {
        return code_of([&] { command(run.files, path, OutputFormat::Text); }, &why) == Exit::BadInput &&
               mentions(why, "a run directory (job.run_dir)");
    };
    run.files.put("elsewhere/notes.txt", "nothing of ours");
    for (const auto command : {checkpoint_list, checkpoint_inspect, checkpoint_verify}) {
        CHECK(refused(command, "nowhere"));
        CHECK(mentions(why, "nowhere does not exist"));
        CHECK(refused(command, "elsewhere"));
        CHECK(mentions(why, "elsewhere holds neither a run"));
        CHECK(refused(command, "elsewhere/notes.txt"));
        CHECK(mentions(why, "is a file"));
    }
    CHECK(code_of([&] { checkpoint_inspect(run.files, older, OutputFormat::Text); }) == Exit::BadInput);
    run.files.make_directories("empty");
    CHECK(refused(checkpoint_verify, "empty"));
    CHECK(mentions(why, "checkpoint.interval_steps"));
    CHECK(mentions(checkpoint_list(run.files, "empty", OutputFormat::Text).out, "no checkpoints"));
}

TEST_CASE("the protocol on a real file system, with real chunk sizes") {
    const auto files = make_posix_file_system();
    const TemporaryDirectory directory;
    SystemClock clock;
    const ToyTensor tensor{"w", Shape{1500, 1000}, DType::F32};  // 6 MB: two chunks
    std::vector<bool> right(2);
    run_linked_ranks(2, RankOrder::Concurrent, [&](RankLink& link) {
        const auto rank = static_cast<std::size_t>(link.rank());
        StoreSettings settings;
        settings.root = directory / "ck";
        settings.run_id = "run-1";
        CheckpointStore store(*files, clock, settings, nullptr, {});
        SliceSet mine = std::move(flat_layout({tensor}, 2)[rank]);
        mine.fill(1);
        const std::uint64_t saved = store.save(toy_snapshot(1, mine), link).value().state_hash;
        mine.clear();
        const LoadReport report = store.load_newest({mine.slices(), {}}, link);
        right[rank] = mine.holds(1) && report.state_hash == saved;
    });
    CHECK(right[0]);
    CHECK(right[1]);
    CHECK(checkpoint_verify(*files, directory / "ck", OutputFormat::Text).exit == Exit::Ok);
}

TEST_CASE("checkpoints that somebody removes or damages under a run are named once, and saving goes on") {
    for (const bool resumed : {false, true}) {
        for (const int harm : {0, 1, 2, 3, 4}) {
            INFO(harm);
            Run run(3);
            run.save(1);
            const std::string directory = run.save(2).directory;
            if (resumed) {
                run.restart(3);
                run.resume("auto");
            }
            const std::string path = join_path(layout.checkpoints(), directory);
            const auto payload = [&] { return run.files.list(path).back(); };
            if (harm == 0) run.files.erase(path);
            if (harm == 1) run.files.erase(layout.checkpoints());
            if (harm == 2) run.files.erase(join_path(path, "COMMIT"));
            if (harm == 3) run.files.erase(join_path(path, "MANIFEST"));
            if (harm == 4) run.files.erase(join_path(path, payload()));
            const SaveReport report = run.save(3);
            CHECK(report.warnings.size() == (harm == 1 ? 2 : 1));
            CHECK(mentions(report.warnings.back(), directory));
            CHECK(mentions(report.warnings.back(), harm < 2 ? "removed by somebody else" : "not any more"));
            CHECK(run.save(4).warnings.empty());
            CHECK(run.steps() == (harm == 1 ? Steps{4, 3} : Steps{4, 3, 1}));
            CHECK(checkpoint_list(run.files, "run", OutputFormat::Text).exit == Exit::Ok);
            run.save(5);
            run.save(6);
            CHECK(run.steps() == Steps{6, 5, 4});
            CHECK(run.resume("auto").manifest.step == 6);
        }
    }
}
