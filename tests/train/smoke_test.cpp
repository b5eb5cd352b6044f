// The smoke run's verdict is honest: healthy learners pass, broken ones fail.
#include "trainctl/train/smoke.h"

#include "support/catch.h"
#include "support/run_ranks.h"
#include "support/temporary_directory.h"
#include "train/meddled_state.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

class QuietLog final : public Log {
  public:
    void write(LogLevel /*level*/, std::string_view /*text*/) override {}
};

// Targets one token too far ahead.
class ShiftedLabels final : public SampleStream {
  public:
    explicit ShiftedLabels(const SampleStream& honest) : honest_(honest) {}
    [[nodiscard]] std::int64_t sequence_length() const override { return honest_.sequence_length(); }
    [[nodiscard]] std::optional<std::int64_t> samples() const override { return honest_.samples(); }
    void read(std::int64_t sample, std::span<std::int32_t> window) const override {
        // The loader takes inputs and targets from one window, so a learner whose labels are off by one is
        // one that is shown every second token of a longer text: what follows is two steps away.
        std::vector<std::int32_t> longer(2 * window.size());
        honest_.read(sample, longer);
        for (std::size_t t = 0; t < window.size(); ++t) window[t] = longer[2 * t];
    }

  private:
    const SampleStream& honest_;
};

// Zeroes all gradients of one block.
std::unique_ptr<ZeroState> deafen(std::unique_ptr<ZeroState> real) {
    return std::make_unique<MeddledState>(std::move(real), 2, [](TensorView grads, std::int64_t) {
        std::fill(grads.data, grads.data + grads.bytes(), std::byte{0});
    });
}

SmokeReport smoke(const SmokeOptions& options, int ranks) {
    const auto files = make_posix_file_system();
    SmokeReport report;
    RankOptions rank_options;
    rank_options.isa = detect_cpu_isa();
    const auto as_rank = [&](World& world, CpuDevice& device) {
        SystemClock clock;
        QuietLog log;
        Rank rank(device, world, mesh_shape(ParallelSpec{}, world.size()));
        const SmokeReport mine = run_smoke(rank, *files, clock, log, options);
        if (world.rank() == 0) report = mine;
        world.control().barrier();
    };
    run_ranks(ranks, as_rank, rank_options);
    return report;
}

}  // namespace

TEST_CASE("a healthy smoke run passes every check, on one rank and on two") {
    for (const int ranks : {1, 2}) {
        TemporaryDirectory directory;
        SmokeOptions options;
        options.directory = directory.path();
        const SmokeReport report = smoke(options, ranks);
        INFO(describe(report));
        CHECK(report.passed());
        CHECK(report.checks.size() == 6);
    }
}

TEST_CASE("healthy learners pass for every seed") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        SmokeOptions options;
        options.seed = seed;
        const SmokeReport report = smoke(options, 1);
        INFO("seed " << seed << "\n" << describe(report));
        CHECK(report.passed());
    }
}

TEST_CASE("learners with shifted labels or a block without gradients fail for every seed") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        SmokeOptions options;
        options.seed = seed;
        if (seed % 2 == 0) {
            options.wrap_data = [](const SampleStream& honest) {
                return std::make_unique<ShiftedLabels>(honest);
            };
        } else {
            options.hooks.wrap_state = deafen;
        }
        const SmokeReport report = smoke(options, 1);
        INFO("seed " << seed << "\n" << describe(report));
        CHECK_FALSE(report.passed());
    }
}

TEST_CASE("a smoke run that is asked to stop ends before the next step on all ranks, without a verdict") {
    StopFlag stop;
    std::int64_t last = 0;
    SmokeOptions options;
    options.stop = &stop;
    options.progress = [&](const StepRecord& record) {
        last = record.step;
        if (record.step == 5) stop.request_stop();
    };
    try {
        smoke(options, 2);
        FAIL("went on");
    } catch (const Error& error) {
        CHECK(error.code() == Exit::Interrupted);
        CHECK(std::string_view(error.what()).find("no verdict") != std::string_view::npos);
    }
    CHECK(last <= 6);  // the other rank may have looked before the request
}
