// Checkpoints on the disks of nodes, and copies of them elsewhere: what a load makes of what is left.
#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <memory>
#include <mutex>

#include "checkpoint/toy_state.h"
#include "support/catch.h"
#include "support/memory_file_system.h"
#include "support/node_file_system.h"
#include "support/rank_links.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/commands.h"
#include "trainctl/checkpoint/scan.h"
#include "trainctl/checkpoint/tier_copy.h"

using namespace trainctl;
using namespace trainctl::test;
using Catch::Matchers::Contains;

namespace {

const RunLayout layout("run");
constexpr const char* local_root = "nvme/ck";
constexpr const char* shared_root = "shared/ck";
constexpr std::uint64_t data_bit = 4200 * 8;  // of a payload file, behind its header

// Four ranks on two nodes, with a disk each.
struct Cluster {
    MemoryFileSystem shared;
    std::array<MemoryFileSystem, 2> disks;
    std::vector<int> node_of_rank{0, 0, 1, 1};
    int attempt = 1;
    ManualClock clock;

    [[nodiscard]] int ranks() const { return static_cast<int>(node_of_rank.size()); }

    void run(const std::function<void(int, FileSystem&, RankLink&)>& body) {
        run_linked_ranks(ranks(), RankOrder::Concurrent, [&](RankLink& link) {
            const auto node = static_cast<std::size_t>(node_of_rank[static_cast<std::size_t>(link.rank())]);
            NodeFileSystem files(shared, disks.at(node), "nvme");
            body(link.rank(), files, link);
        });
    }

    [[nodiscard]] StoreSettings settings() const {
        StoreSettings settings = toy_settings(local_root, attempt);
        settings.reach = Reach::Node;
        settings.nodes = Nodes(node_of_rank);
        settings.copies = {{"shared", shared_root, Reach::Everybody}};
        return settings;
    }

    // The outcome of every save, at rank 0.
    std::vector<Result<SaveReport>> save(const std::vector<std::int64_t>& steps) {
        std::vector<Result<SaveReport>> reports;
        shared.make_directories("run");
        run([&](int rank, FileSystem& files, RankLink& link) {
            std::unique_ptr<JournalWriter> journal;
            Journal history;
            if (rank == 0) {
                history = read_journal(files, layout);
                journal = std::make_unique<JournalWriter>(files, clock, layout, attempt);
            }
            StoreSettings mine = settings();
            mine.retention.keep_latest = 2;
            CheckpointStore store(files, clock, mine, journal.get(), history);
            if (rank == 0) store.sweep_leftovers();
            store.sweep_nodes(link);
            SliceSet set = std::move(flat_layout(small_tensors(), ranks())[static_cast<std::size_t>(rank)]);
            for (const std::int64_t step : steps) {
                set.fill(static_cast<std::uint64_t>(step));
                auto report = store.save(toy_snapshot(step, set), link);
                if (rank == 0) reports.push_back(std::move(report));
            }
        });
        ++attempt;
        return reports;
    }

    struct Loaded {
        std::string text;  // "step 20", or what the error says
        std::vector<std::string> passed_over;
    };
    // `whole`: every rank wants all of the state; otherwise each what it saved.
    Loaded load(bool whole = false) {
        Loaded loaded;
        std::deque<std::string> problems;
        std::mutex mutex;
        run([&](int rank, FileSystem& files, RankLink& link) {
            CheckpointStore store(files, clock, settings(), nullptr,
                                  rank == 0 ? read_journal(files, layout) : Journal{});
            const int parts = whole ? 1 : ranks();
            SliceSet set =
                std::move(flat_layout(small_tensors(), parts)[static_cast<std::size_t>(whole ? 0 : rank)]);
            set.clear();
            std::string text;
            std::vector<std::string> passed_over;
            try {
                const LoadReport report =
                    store.resume({ResumeMode::Auto, -1}, RunState::Existing, {set.slices(), {}}, link);
                text = report.outcome == LoadOutcome::StartFresh
                           ? "fresh"
                           : "step " + std::to_string(report.manifest.step);
                if (report.outcome == LoadOutcome::Loaded &&
                    !set.holds(static_cast<std::uint64_t>(report.manifest.step)))
                    text = "wrong contents at rank " + std::to_string(rank);
                passed_over = report.passed_over;
            } catch (const Error& error) {
                text = error.what();
            }
            const std::lock_guard lock(mutex);
            if (rank == 0) loaded = {text, passed_over};
            problems.push_back(text);
        });
        for (const std::string& text : problems) {
            if (text != loaded.text) loaded.text = "ranks disagree: " + loaded.text + " / " + text;
        }
        return loaded;
    }

    // Of every rank alike: empty if it was copied, else why not.
    std::string copy(std::int64_t step, const std::set<std::string>& unwanted = {},
                     CopyReport* report = nullptr) {
        const std::string from = path(step);
        return each_rank([&](int rank, FileSystem& files, RankLink& link) {
            TierCopier copier = make_copier(files, unwanted);
            const auto result = copier.copy(from.substr(from.rfind('/') + 1),
                                            {"shared", shared_root, Reach::Everybody}, link);
            if (rank == 0 && report != nullptr && result.ok()) *report = result.value();
            return result.ok() ? std::string() : std::string(result.error().what());
        });
    }
    std::string copy_to_peers(std::int64_t step) {
        const std::string from = path(step);
        return each_rank([&](int /*rank*/, FileSystem& files, RankLink& link) {
            TierCopier copier = make_copier(files, {});
            const auto result = copier.copy_to_peers(from.substr(from.rfind('/') + 1), link);
            return result.ok() ? std::string() : std::string(result.error().what());
        });
    }
    [[nodiscard]] TierCopier make_copier(FileSystem& files, const std::set<std::string>& unwanted) {
        CopySettings how;
        how.from = {"local", local_root, Reach::Node};
        how.nodes = Nodes(node_of_rank);
        how.run_id = "run-1";
        how.unwanted = [unwanted] { return unwanted; };
        return {files, clock, std::move(how)};
    }
    std::string each_rank(const std::function<std::string(int, FileSystem&, RankLink&)>& body) {
        std::vector<std::string> texts(node_of_rank.size());
        run([&](int rank, FileSystem& files, RankLink& link) {
            texts[static_cast<std::size_t>(rank)] = body(rank, files, link);
        });
        for (const std::string& text : texts)
            if (text != texts[0]) return "ranks disagree: " + texts[0] + " / " + text;
        return texts[0];
    }

    // Path of one checkpoint of this step on a node's disk.
    std::string path(std::int64_t step, std::size_t node = 0) {
        for (const CompleteCheckpoint& found :
             scan_checkpoints(disks.at(node), local_root, "run-1", Require::Markers).complete) {
            if (found.name.step == step) return found.path;
        }
        return {};
    }
    // The disk of this node is a new one.
    void replace_disk(std::size_t node) { disks.at(node).erase("nvme"); }
};

bool mentions(const std::vector<std::string>& lines, const std::string& what) {
    return std::any_of(lines.begin(), lines.end(),
                       [&](const std::string& line) { return line.find(what) != std::string::npos; });
}

}  // namespace

TEST_CASE("every node keeps its part of a checkpoint, with MANIFEST and COMMIT") {
    Cluster cluster;
    const auto reports = cluster.save({10, 20, 30});
    REQUIRE(reports.size() == 3);
    for (const auto& report : reports) REQUIRE(report.ok());
    CHECK(reports.back().value().warnings.empty());
    for (std::size_t node = 0; node < 2; ++node) {
        INFO("node " << node);
        const std::string path = cluster.path(30, node);
        REQUIRE_FALSE(path.empty());
        std::vector<std::string> names = cluster.disks.at(node).list(path);
        const std::vector<std::string> files =
            node == 0 ? std::vector<std::string>{"COMMIT", "MANIFEST", "r00000.st", "r00001.st"}
                      : std::vector<std::string>{"COMMIT", "MANIFEST", "r00002.st", "r00003.st"};
        CHECK(names == files);
        // Retention works on all nodes.
        CHECK(cluster.path(10, node).empty());
        CHECK(cluster.disks.at(node).list(local_root).size() == 2);
    }
    CHECK(cluster.load().text == "step 30");
}

TEST_CASE("a load in another layout brings what it needs from node to node") {
    Cluster cluster;
    cluster.save({10, 20});
    const Cluster::Loaded loaded = cluster.load(true);
    CHECK(loaded.text == "step 20");
    CHECK(mentions(loaded.passed_over, "brought from other nodes"));
    // What was brought stays, complete with its markers: the next load needs no message.
    CHECK(cluster.load(true).passed_over.empty());
}

TEST_CASE("ranks that come back in another order find their parts") {
    Cluster cluster;
    cluster.save({10, 20});
    cluster.node_of_rank = {1, 1, 0, 0};
    CHECK(cluster.load().text == "step 20");
    cluster.node_of_rank = {0, 1};
    CHECK(cluster.load().text == "step 20");
}

TEST_CASE("a node that was lost takes the checkpoints with it, unless there is a copy elsewhere") {
    for (const std::size_t lost : {std::size_t{0}, std::size_t{1}}) {
        INFO("node " << lost);
        Cluster alone;
        alone.save({10, 20});
        alone.replace_disk(lost);
        const std::string text = alone.load().text;
        CHECK_THAT(text, Contains("the run made progress but no checkpoint can be loaded"));
        CHECK_THAT(text, Contains("checkpoint.peer_copies"));

        Cluster copied;
        copied.save({10, 20});
        REQUIRE(copied.copy(10).empty());
        copied.replace_disk(lost);
        CHECK(copied.load().text == "step 10");
        CHECK(copied.load(true).text == "step 10");
    }
}

TEST_CASE("a bad chunk is read from another replica of the same checkpoint, which is said") {
    for (const bool missing : {false, true}) {
        Cluster cluster;
        cluster.save({10, 20});
        REQUIRE(cluster.copy(20).empty());
        const std::string file = cluster.path(20, 1) + "/r00002.st";
        if (missing) {
            cluster.disks[1].erase(file);
        } else {
            cluster.disks[1].flip_bit(file, data_bit);
        }
        const Cluster::Loaded loaded = cluster.load();
        CHECK(loaded.text == "step 20");
        if (!missing) {
            CHECK(mentions(loaded.passed_over, "chunk 8 (bytes 4096 to "));
            CHECK(mentions(loaded.passed_over, "read from another replica"));
        }
    }
    // Both replicas: the older checkpoint.
    Cluster cluster;
    cluster.save({10, 20});
    REQUIRE(cluster.copy(20).empty());
    cluster.disks[1].flip_bit(cluster.path(20, 1) + "/r00002.st", data_bit);
    const std::string shared_file =
        join_path(join_path(shared_root, cluster.shared.list(shared_root).at(0)), "r00002.st");
    cluster.shared.flip_bit(shared_file, data_bit);
    const Cluster::Loaded loaded = cluster.load();
    CHECK(loaded.text == "step 10");
    CHECK(mentions(loaded.passed_over, "r00002.st is damaged"));
}

TEST_CASE("a file that is bad on its own node comes from a node that has a copy") {
    Cluster cluster;
    cluster.save({10, 20});
    const std::string file = cluster.path(20, 1) + "/r00002.st";
    cluster.disks[0].put(file, cluster.disks[1].contents(file).value());
    SECTION("damaged") { cluster.disks[1].flip_bit(file, data_bit); }
    SECTION("gone") { cluster.disks[1].erase(file); }
    SECTION("with the whole disk") {
        const std::string other = cluster.path(20, 1) + "/r00003.st";
        cluster.disks[0].put(other, cluster.disks[1].contents(other).value());
        cluster.replace_disk(1);
    }
    CHECK(cluster.load().text == "step 20");
    CHECK(cluster.disks[1].contents(file) == cluster.disks[0].contents(file));
    CHECK_FALSE(mentions(cluster.load().passed_over, "brought"));
    // Damaged on both: the older one.
    cluster.disks[0].flip_bit(file, data_bit);
    cluster.disks[1].flip_bit(file, data_bit);
    CHECK(cluster.load().text != "step 20");
}

TEST_CASE("a save that fails on any node is no checkpoint on any") {
    for (const std::string name : {"r00003", "MANIFEST"}) {
        INFO(name);
        Cluster cluster;
        cluster.save({10});
        cluster.disks[1].add_fault({ENOSPC, FileOp::Write, name, 0, 100});
        const auto failed = cluster.save({20});
        REQUIRE(failed.size() == 1);
        REQUIRE_FALSE(failed[0].ok());
        CHECK(failed[0].error().code() == Exit::Resource);
        cluster.disks[1].clear_faults();
        CHECK(cluster.disks[0].list(local_root).size() == 1);
        CHECK(cluster.disks[1].list(local_root).size() == 1);
        CHECK(cluster.load().text == "step 10");
        CHECK(cluster.save({20}).back().ok());
        CHECK(cluster.load().text == "step 20");
    }
}

TEST_CASE("a node without its COMMIT is a warning of the save, and no loss") {
    Cluster cluster;
    cluster.disks[1].add_fault({ENOSPC, FileOp::Write, "COMMIT", 0, 100});
    const auto reports = cluster.save({10});
    REQUIRE(reports.at(0).ok());
    CHECK(mentions(reports[0].value().warnings, "[rank 2]"));
    cluster.disks[1].clear_faults();
    CHECK(cluster.load().text == "step 10");
    // Whoever loads completes it.
    CHECK_FALSE(cluster.path(10, 1).empty());
}

TEST_CASE("what an interrupted save left on the nodes is swept by the next start") {
    Cluster cluster;
    cluster.save({10});
    // Everything but COMMIT, as after a crash just before it.
    const std::string path = cluster.path(10);
    cluster.disks[0].erase(path + "/COMMIT");
    cluster.disks[1].erase(path + "/COMMIT");
    cluster.shared.erase("run/journal");
    cluster.shared.put("run/journal/none", "");
    const std::string other = "nvme/ck/s000000077-a0009-00000001";
    cluster.disks[1].put(other + "/r00000.st", "of a run that nobody here knows");
    cluster.save({20});
    CHECK(cluster.disks[1].status(other));
    CHECK(cluster.load().text == "step 20");
}

TEST_CASE("a copy is complete, is made once, and is completed where it was interrupted") {
    Cluster cluster;
    cluster.save({10, 20});
    CopyReport report;
    cluster.shared.add_fault({ENOSPC, FileOp::Write, "r00002", 0, 100});
    CHECK_THAT(cluster.copy(20), Contains("No space left"));
    CHECK(scan_checkpoints(cluster.shared, shared_root, "").complete.empty());
    cluster.shared.clear_faults();
    CHECK(cluster.copy(20, {}, &report).empty());
    CHECK(report.bytes > 0);
    const auto copies = scan_checkpoints(cluster.shared, shared_root, "run-1").complete;
    REQUIRE(copies.size() == 1);
    CHECK(checkpoint_verify(cluster.shared, copies[0].path, OutputFormat::Text).exit == Exit::Ok);
    CHECK(cluster.copy(20, {}, &report).empty());
    CHECK(report.bytes == 0);
    cluster.replace_disk(0);
    cluster.replace_disk(1);
    CHECK(cluster.load().text == "step 20");
}

TEST_CASE("a damaged file is not copied, and the chunk is named") {
    Cluster cluster;
    cluster.save({10, 20});
    cluster.disks[1].flip_bit(cluster.path(20, 1) + "/r00003.st", data_bit);
    const std::string problem = cluster.copy(20);
    CHECK_THAT(problem, Contains("[rank 2]") || Contains("[rank 3]"));
    CHECK_THAT(problem, Contains("r00003.st is damaged: chunk 8"));
    CHECK(scan_checkpoints(cluster.shared, shared_root, "").complete.empty());
}

TEST_CASE("what retention removed where saves go goes from the copies as well") {
    Cluster cluster;
    cluster.save({10});
    const std::string first = cluster.path(10).substr(std::string(local_root).size() + 1);
    CHECK(cluster.copy(10).empty());
    cluster.save({20, 30});
    CHECK(cluster.path(10).empty());
    CopyReport report;
    CHECK(cluster.copy(30, {first}, &report).empty());
    CHECK(report.removed == std::vector<std::string>{first});
    CHECK(scan_checkpoints(cluster.shared, shared_root, "").complete.size() == 1);
}

TEST_CASE("the newest copy in a place stays, whatever was removed where saves go") {
    Cluster cluster;
    cluster.save({20});
    const std::string first = cluster.path(20).substr(std::string(local_root).size() + 1);
    CHECK(cluster.copy(20).empty());
    cluster.save({10});  // passed again after a fallback, say
    CHECK(cluster.copy(10, {first}).empty());
    CHECK(scan_checkpoints(cluster.shared, shared_root, "").complete.front().name.step == 20);
    cluster.save({30});
    CHECK(cluster.copy(30, {first}).empty());
    CHECK_FALSE(cluster.shared.status(join_path(shared_root, first)));
}

TEST_CASE("with copies on the next node, any one node may be lost") {
    for (const std::size_t lost : {std::size_t{0}, std::size_t{1}}) {
        for (const std::vector<int>& nodes :
             {std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 1}, std::vector<int>{0, 0, 0, 1}}) {
            Cluster cluster;
            cluster.node_of_rank = nodes;
            cluster.save({10, 20});
            CHECK(cluster.copy_to_peers(20).empty());
            cluster.replace_disk(lost);
            CHECK(cluster.load().text == "step 20");
        }
    }
}

TEST_CASE("a peer that cannot take its copy is told of, and nothing is lost") {
    Cluster cluster;
    cluster.save({10, 20});
    cluster.disks[0].add_fault({ENOSPC, FileOp::Write, "r00003", 0, 100});
    CHECK_THAT(cluster.copy_to_peers(20), Contains("r00003.st is missing"));
    cluster.disks[0].clear_faults();
    CHECK(cluster.load().text == "step 20");
    CHECK(cluster.copy_to_peers(20).empty());
}

TEST_CASE("a copy that stops anywhere is whole or is not there") {
    MemoryFileSystem saved;
    std::string directory;
    {
        saved.make_directories("run");
        ManualClock clock;
        SoloLink link;
        CheckpointStore store(saved, clock, toy_settings(local_root), nullptr, Journal{});
        SliceSet set = std::move(flat_layout(small_tensors(), 1)[0]);
        set.fill(10);
        directory = store.save(toy_snapshot(10, set), link).value().directory;
    }
    const auto copy = [&](MemoryFileSystem& files) {
        ManualClock clock;
        SoloLink link;
        CopySettings how;
        how.from = {"first", local_root, Reach::Everybody};
        TierCopier copier(files, clock, how);
        return copier.copy(directory, {"shared", shared_root, Reach::Everybody}, link).ok();
    };
    const auto fresh = [&] { return saved.all_kept(); };
    const auto clean = fresh();
    REQUIRE(copy(*clean));
    for (std::uint64_t k = 0; k < clean->mutations(); ++k) {
        const auto files = fresh();
        files->crash_at(k);
        CHECK_FALSE(copy(*files));
        REQUIRE(files->crashed());
        for_each_crash_state(*files, 20, [&](MemoryFileSystem& disk, const std::string& what) {
            INFO("stopped at operation " << k << ", " << what);
            for (const CompleteCheckpoint& found : scan_checkpoints(disk, shared_root, "").complete)
                CHECK(checkpoint_verify(disk, found.path, OutputFormat::Text).exit == Exit::Ok);
            CHECK(copy(disk));
            CHECK(scan_checkpoints(disk, shared_root, "").complete.size() == 1);
        });
    }
}
