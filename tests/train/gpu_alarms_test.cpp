#include "trainctl/train/gpu_alarms.h"

#include <atomic>
#include <future>

#include "support/catch.h"
#include "train/train_harness.h"
#include "trainctl/train/gpu_sampler.h"

using namespace trainctl;

namespace {

GpuSample healthy() {
    GpuSample sample;
    sample.temperature_c = 60;
    sample.slowdown_temperature_c = 87;
    sample.throttle = GpuThrottle{};
    sample.ecc_uncorrected = 0;
    sample.row_remap_pending = false;
    sample.row_remap_failed = false;
    return sample;
}

template <class Change>
GpuSample with(const Change& change) {
    GpuSample sample = healthy();
    change(sample);
    return sample;
}

struct Sick {
    GpuSample sample;
    LogLevel level;
    std::string text;
};

const std::vector<Sick>& sick() {
    static const std::vector<Sick> all = {
        {with([](GpuSample& s) { s.temperature_c = 87; }), LogLevel::Warning, "87 C"},
        {with([](GpuSample& s) { s.throttle->thermal = true; }), LogLevel::Warning, "by heat at 60 C"},
        {with([](GpuSample& s) { s.throttle->power_brake = true; }), LogLevel::Warning, "power brake"},
        {with([](GpuSample& s) { s.throttle->hardware = true; }), LogLevel::Warning, "halves its clocks"},
        {with([](GpuSample& s) { s.row_remap_pending = true; }), LogLevel::Warning, "wait to be replaced"},
        {with([](GpuSample& s) { s.row_remap_failed = true; }), LogLevel::Error, "no spare is left"},
    };
    return all;
}

// A GPU whose samples a test gives one by one; the next one is asked for only when there is one.
class ScriptedTelemetry final : public GpuTelemetry {
  public:
    explicit ScriptedTelemetry(std::vector<GpuSample> samples) : samples_(std::move(samples)) {}
    GpuSample sample() override {
        const std::size_t last = samples_.size() - 1;
        return samples_[std::min(next_++, last)];
    }

  private:
    std::vector<GpuSample> samples_;
    std::size_t next_ = 0;
};

}  // namespace

TEST_CASE("a healthy GPU, or one that tells nothing, raises no alarm", "[train]") {
    GpuAlarms alarms;
    CHECK(alarms.judge(healthy()).empty());
    CHECK(alarms.judge(GpuSample{}).empty());
    CHECK(alarms.judge(with([](GpuSample& s) { s.throttle->power_cap = true; })).empty());
}

TEST_CASE("what is wrong with a GPU is said when it begins, and again when it comes back later", "[train]") {
    for (const Sick& state : sick()) {
        CAPTURE(state.text);
        GpuAlarms alarms;
        const auto begins = [&](const std::vector<GpuAlarm>& found) {
            REQUIRE(found.size() == 1);
            CHECK(found[0].level == state.level);
            CHECK_THAT(found[0].text, Catch::Contains(state.text));
        };
        begins(alarms.judge(state.sample));
        CHECK(alarms.judge(state.sample).empty());
        CHECK(alarms.judge(GpuSample{}).empty());
        CHECK(alarms.judge(state.sample).empty());
        // It flickers: still the same trouble.
        for (int sample = 1; sample < quiet_samples_before_alarm; ++sample) alarms.judge(healthy());
        CHECK(alarms.judge(state.sample).empty());
        for (int sample = 0; sample < quiet_samples_before_alarm; ++sample) alarms.judge(healthy());
        begins(alarms.judge(state.sample));
    }
}

TEST_CASE("alarms of one sample do not hide each other", "[train]") {
    GpuAlarms alarms;
    GpuSample sample = with([](GpuSample& s) { s.temperature_c = 90; });
    sample.throttle->thermal = true;
    sample.ecc_uncorrected = 2;
    sample.xids = {48, 95};
    CHECK(alarms.judge(sample).size() == 5);
    sample.xids = {95};
    CHECK(alarms.judge(sample).size() == 1);  // an Xid is an event, not a state
}

TEST_CASE("uncorrected memory errors are said whenever there are more", "[train]") {
    GpuAlarms alarms;
    const auto count = [&](std::uint64_t errors) {
        return alarms.judge(with([&](GpuSample& s) { s.ecc_uncorrected = errors; }));
    };
    const auto first = count(2);  // from before this run: in doubt as well
    REQUIRE(first.size() == 1);
    CHECK(first[0].level == LogLevel::Error);
    CHECK_THAT(first[0].text, Catch::Contains("2 uncorrected ECC errors"));
    CHECK(count(2).empty());
    CHECK(count(3).size() == 1);
    CHECK(count(0).empty());  // a reset
    CHECK(count(1).size() == 1);
}

TEST_CASE("an Xid is told with its meaning, and as an error if the GPU is in doubt", "[train]") {
    for (const std::int64_t xid : {48, 62, 64, 74, 79, 94, 95, 119, 120})
        CHECK(describe_xid(xid).level == LogLevel::Error);
    for (const std::int64_t xid : {13, 31, 43, 45, 61, 63, 7, 999})
        CHECK(describe_xid(xid).level == LogLevel::Warning);
    CHECK_THAT(describe_xid(79).text, Catch::StartsWith("Xid 79: the GPU has fallen off the bus"));
    CHECK_THAT(describe_xid(7).text, Catch::StartsWith("Xid 7"));
}

TEST_CASE("a sampler reports from its thread and holds the newest sample", "[train]") {
    std::atomic<int> reports{0};
    std::promise<void> lost;
    GpuSample gone;
    gone.lost = true;
    gone.xids = {79};
    const auto report = [&](const GpuAlarm& alarm) {
        ++reports;
        if (alarm.text.find("does not reach") != std::string::npos) lost.set_value();
    };
    {
        const GpuSampler sampler(
            std::make_unique<ScriptedTelemetry>(std::vector<GpuSample>{
                healthy(), with([](GpuSample& s) { s.throttle->thermal = true; }), gone}),
            1e-6, report);
        lost.get_future().wait();
        std::optional<GpuSample> newest = sampler.newest();
        while (!newest || !newest->lost) newest = sampler.newest();
        CHECK(sampler.last_xid() == 79);
    }
    CHECK(reports == 3);  // heat, Xid, lost
}

TEST_CASE("a sampler that waits for its next sample ends at once", "[train]") {
    for (int round = 0; round < 20; ++round) {
        GpuSampler sampler(std::make_unique<ScriptedTelemetry>(std::vector<GpuSample>{healthy()}), 1e6,
                           [](const GpuAlarm&) {});
        while (round % 2 == 0 && !sampler.newest()) {
        }
    }
}

TEST_CASE("step records tell the extremes of all ranks' GPUs and rank 0's own", "[train]") {
    test::TrainSetup setup;
    setup.job = test::tiny_job(Architecture::Gpt2);
    setup.job.steps = 2;
    setup.ranks = 4;
    setup.gpu = [](int rank) {
        GpuRecord gpu;
        if (rank == 3) return gpu;  // does not tell
        gpu.temperature_c = 60 + rank;
        gpu.sm_clock_mhz = 1900 - 100 * rank;
        gpu.slowed = rank == 1;
        return gpu;
    };
    test::TrainOutcome outcome = test::train(setup);
    CHECK(outcome.last_record.gpu.temperature_c == 60);
    CHECK(outcome.last_record.gpus.temperature_max_c == 62);
    CHECK(outcome.last_record.gpus.sm_clock_min_mhz == 1700);
    CHECK(outcome.last_record.gpus.any_slowed == true);
    setup.gpu = [](int /*rank*/) { return GpuRecord{}; };
    outcome = test::train(setup);
    CHECK_FALSE(outcome.last_record.gpus.temperature_max_c);
    CHECK_FALSE(outcome.last_record.gpus.sm_clock_min_mhz);
    CHECK_FALSE(outcome.last_record.gpus.any_slowed);
}
