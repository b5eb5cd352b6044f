// Profiles: exactly the steps that were asked for, whole and nested, and never the end of a training.
#include "trainctl/train/profile.h"

#include <cerrno>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/manual_clock.h"
#include "support/memory_file_system.h"
#include "train/train_harness.h"

namespace trainctl::test {
namespace {

using nlohmann::json;

class Lines final : public Log {
  public:
    void write(LogLevel level, std::string_view text) override {
        (level == LogLevel::Warning ? warnings : others).emplace_back(text);
    }
    std::vector<std::string> warnings;
    std::vector<std::string> others;
};

// Writes down what it is told.
class Written final : public Ranges {
  public:
    void push(const RangeLabel& label) override { text += range_name(label) + "{"; }
    void pop() noexcept override { text += "}"; }
    void begin_capture() override { text += "<"; }
    void end_capture() override { text += ">"; }
    std::string text;
};

// The ranges of a trace with the names of those around them, in order of their beginnings: "step 2/forward".
// Checks that they are nested.
std::vector<std::string> paths(const json& trace) {
    struct Open {
        std::string path;
        double end;
    };
    constexpr double rounding = 0.001;  // microseconds
    std::vector<std::string> found;
    std::vector<Open> open;
    for (const json& event : trace.at("traceEvents")) {
        if (event.at("ph") != "X") continue;
        const double begin = event.at("ts");
        const double end = begin + event.at("dur").get<double>();
        CHECK(end >= begin);
        while (!open.empty() && begin >= open.back().end - rounding / 2) open.pop_back();
        if (!open.empty()) CHECK(end <= open.back().end + rounding);
        const std::string name = event.at("name");
        found.push_back(open.empty() ? name : open.back().path + "/" + name);
        open.push_back({found.back(), end});
    }
    return found;
}

struct Setup {
    MemoryFileSystem files;
    ManualClock clock;
    Lines log;
    Written next;

    ProfileFile file() { return {files, "run/profile/a0001", "rank-3.trace.json", 3, "node \"7\""}; }
    json trace() { return json::parse(read_text(files, "run/profile/a0001/rank-3.trace.json")); }
    // One step of a second: 0.1 s of data, 0.5 s of forward with a block of 0.25 s in it.
    void step(Ranges& ranges, std::int64_t number) {
        const RangeScope whole(&ranges, RangeKind::Step, number);
        {
            const RangeScope data(&ranges, RangeKind::Data);
            clock.advance(0.125);
        }
        const RangeScope forward(&ranges, RangeKind::Forward);
        const RangeScope block(&ranges, RangeKind::Block, 2);
        clock.advance(0.25);
    }
};

}  // namespace

TEST_CASE("a profile holds exactly its steps, with their times, and all ranges go on", "[train]") {
    Setup setup;
    ProfileRecorder recorder({2, 3}, setup.file(), setup.clock, setup.log, &setup.next);
    for (int step = 1; step <= 3; ++step) setup.step(recorder, step);
    const json trace = setup.trace();  // written before the run ends
    setup.step(recorder, 4);
    CHECK(paths(trace) == std::vector<std::string>{"step 2", "step 2/data", "step 2/forward",
                                                   "step 2/forward/block 2", "step 3", "step 3/data",
                                                   "step 3/forward", "step 3/forward/block 2"});
    const json& events = trace.at("traceEvents");
    CHECK(events[0].at("args").at("name") == "rank 3 (node \"7\")");
    CHECK(events[1].at("pid") == 3);
    const double origin = trace.at("otherData").at("origin_unix_s");
    CHECK(std::abs(origin * 1e6 + events[1].at("ts").get<double>() - (1.7e9 + 1000.375) * 1e6) < 1.0);
    CHECK(events[1].at("ts").get<double>() < 1e9);  // nanoseconds are exact
    CHECK(events[1].at("dur").get<double>() == 375e3);
    CHECK(events[2].at("dur").get<double>() == 125e3);
    CHECK(trace.at("otherData").at("ranges_left_out") == 0);
    const std::string step = "{data{}forward{block 2{}}}";
    CHECK(setup.next.text == "step 1" + step + "<step 2" + step + "step 3" + step + ">step 4" + step);
    CHECK(setup.log.warnings.empty());
}

TEST_CASE("a profile of a run that ends early holds what there was, and none what never began", "[train]") {
    Setup setup;
    {
        ProfileRecorder recorder({2, 9}, setup.file(), setup.clock, setup.log, nullptr);
        for (int step = 1; step <= 2; ++step) setup.step(recorder, step);
    }
    CHECK(paths(setup.trace()).size() == 4);
    Setup never;
    {
        ProfileRecorder recorder({7, 9}, never.file(), never.clock, never.log, nullptr);
        never.step(recorder, 1);
    }
    CHECK_FALSE(never.files.status("run/profile"));
}

TEST_CASE("a profile keeps a bounded number of ranges and says what it left out", "[train]") {
    Setup setup;
    ProfileRecorder recorder({1, 2}, setup.file(), setup.clock, setup.log, nullptr, 6);
    for (int step = 1; step <= 2; ++step) setup.step(recorder, step);
    CHECK(paths(setup.trace()).size() == 6);
    CHECK(setup.trace().at("otherData").at("ranges_left_out") == 2);
    REQUIRE(setup.log.warnings.size() == 1);
    CHECK_THAT(setup.log.warnings[0], Catch::Contains("first 6 ranges") && Catch::Contains("2 more"));
}

TEST_CASE("a profile that cannot be written is a warning", "[train]") {
    for (const FileOp op : {FileOp::MakeDirectory, FileOp::Write, FileOp::Sync}) {
        Setup setup;
        Fault fault;
        fault.error_number = ENOSPC;
        fault.op = op;
        fault.times = UINT64_MAX;
        setup.files.add_fault(fault);
        ProfileRecorder recorder({1, 1}, setup.file(), setup.clock, setup.log, &setup.next);
        for (int step = 1; step <= 2; ++step) setup.step(recorder, step);
        REQUIRE(setup.log.warnings.size() == 1);
        CHECK_THAT(setup.log.warnings[0], Catch::Contains("not written") && Catch::Contains("goes on"));
        CHECK_THAT(setup.next.text, Catch::EndsWith(">step 2{data{}forward{block 2{}}}"));
    }
}

TEST_CASE("a training tells its ranges: phases of a step, and the units in them", "[train]") {
    TrainSetup setup;
    setup.job = tiny_job(Architecture::Gpt2);
    setup.job.steps = 3;
    setup.job.schedule.warmup_steps = 1;
    setup.job.training.global_batch_size = 4;  // two micro-batches on one rank
    MemoryFileSystem files;
    SystemClock clock;
    Lines log;
    std::unique_ptr<ProfileRecorder> recorder;
    setup.make_rank = [&](World& world, CpuDevice& host, MeshShape shape) {
        auto rank = std::make_shared<Rank>(host, world, shape);
        recorder = std::make_unique<ProfileRecorder>(
            ProfileSteps{2, 2}, ProfileFile{files, "p", "t", 0, "here"}, clock, log, rank->ranges);
        rank->ranges = recorder.get();
        return rank;
    };
    train(setup);
    const json trace = json::parse(read_text(files, "p/t"));
    std::vector<std::string> found;
    for (const std::string& path : paths(trace))
        if (path.find("communication wait") == std::string::npos) found.push_back(path);
    const std::vector<std::string> micro{"step 2/forward",          "step 2/forward/embedding",
                                         "step 2/forward/block 1",  "step 2/forward/block 2",
                                         "step 2/forward",          "step 2/forward/head",
                                         "step 2/backward",         "step 2/backward/block 2",
                                         "step 2/backward/block 1", "step 2/backward/embedding"};
    std::vector<std::string> wanted{"step 2", "step 2/data"};
    wanted.insert(wanted.end(), micro.begin(), micro.end());
    wanted.emplace_back("step 2/data");
    wanted.insert(wanted.end(), micro.begin(), micro.end());
    wanted.emplace_back("step 2/optimizer");
    CHECK(found == wanted);
}

}  // namespace trainctl::test
