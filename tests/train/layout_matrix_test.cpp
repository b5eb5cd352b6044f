// Every combination of parallel sizes, ZeRO stages and recomputation trains as one rank does, and takes over
// from any other.
#include <array>
#include <map>
#include <set>
#include <sstream>

#include "support/catch.h"
#include "support/memory_file_system.h"
#include "train/check_outcomes.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

struct Layout {
    Architecture architecture = Architecture::Gpt2;
    int data = 1;
    int tensor = 1;
    int pipeline = 1;
    int zero_stage = 1;
    GradientCheckpointing checkpointing = GradientCheckpointing::None;

    [[nodiscard]] int ranks() const { return data * tensor * pipeline; }
    // One number per factor.
    [[nodiscard]] std::array<int, 6> factors() const {
        return {static_cast<int>(architecture), data, tensor, pipeline, zero_stage,
                static_cast<int>(checkpointing)};
    }
};

std::string text(const Layout& layout) {
    std::ostringstream out;
    out << (layout.architecture == Architecture::Gpt2 ? "gpt2" : "llama") << " data " << layout.data
        << " tensor " << layout.tensor << " pipeline " << layout.pipeline << " stage " << layout.zero_stage
        << " checkpointing " << static_cast<int>(layout.checkpointing);
    return out.str();
}

constexpr int most_ranks = 8;

std::vector<Layout> all_layouts() {
    std::vector<Layout> layouts;
    for (const Architecture architecture : {Architecture::Gpt2, Architecture::Llama})
        for (const int data : {1, 2})
            for (const int tensor : {1, 2, 4})
                for (const int pipeline : {1, 2, 4})
                    for (const int stage : {0, 1, 2, 3})
                        for (const auto checkpointing :
                             {GradientCheckpointing::None, GradientCheckpointing::Selective,
                              GradientCheckpointing::Full}) {
                            const Layout layout{architecture, data, tensor, pipeline, stage, checkpointing};
                            if (layout.ranks() <= most_ranks) layouts.push_back(layout);
                        }
    return layouts;
}

// Two factors and a value of each.
using Pair = std::array<int, 4>;

std::set<Pair> pairs_of(const Layout& layout) {
    std::set<Pair> pairs;
    const auto factors = layout.factors();
    for (int a = 0; a < static_cast<int>(factors.size()); ++a)
        for (int b = a + 1; b < static_cast<int>(factors.size()); ++b)
            pairs.insert({a, factors[static_cast<std::size_t>(a)], b, factors[static_cast<std::size_t>(b)]});
    return pairs;
}

// So few of them that every possible pair of values still occurs: greedy, of equals the one with the most
// ranks.
std::vector<Layout> covering_layouts() {
    const std::vector<Layout> all = all_layouts();
    std::set<Pair> missing;
    for (const Layout& layout : all) missing.merge(pairs_of(layout));
    std::vector<Layout> chosen;
    while (!missing.empty()) {
        const Layout* best = nullptr;
        std::size_t most = 0;
        for (const Layout& layout : all) {
            const auto pairs = pairs_of(layout);
            const auto news = static_cast<std::size_t>(std::count_if(
                pairs.begin(), pairs.end(), [&](const Pair& pair) { return missing.count(pair) > 0; }));
            if (news > most || (news == most && best != nullptr && layout.ranks() > best->ranks())) {
                best = &layout;
                most = news;
            }
        }
        for (const Pair& pair : pairs_of(*best)) missing.erase(pair);
        chosen.push_back(*best);
    }
    return chosen;
}

// 5 layers, 38 rows per micro-batch, vocabulary 97, llama with 2 key/value heads: no size divides all of it.
JobSpec job_of(const Layout& layout) {
    JobSpec job = calm_job(layout.architecture);
    job.model.layers = 5;
    job.model.max_sequence_length = 19;
    job.training.sequence_length = 19;
    // Position 9 has a gradient of 1e-9 in step 1, of which rounding is a good part: see calm_job().
    job.optimizer.epsilon = 1e-5;
    job.parallel.tensor_parallel_size = layout.tensor;
    job.parallel.pipeline_parallel_size = layout.pipeline;
    job.memory.zero_stage = layout.zero_stage;
    job.memory.gradient_checkpointing = layout.checkpointing;
    return job;
}

TrainOutcome run(const Layout& layout, std::int64_t steps) {
    TrainSetup setup;
    setup.job = job_of(layout);
    setup.job.steps = steps;
    setup.ranks = layout.ranks();
    return train(setup);
}

void check_against_one_rank(const std::vector<Layout>& layouts, std::int64_t steps) {
    std::map<Architecture, TrainOutcome> one;
    for (const Architecture architecture : {Architecture::Gpt2, Architecture::Llama}) {
        one[architecture] = run({architecture}, steps);
        CHECK(one[architecture].steps.back().loss < one[architecture].steps.front().loss);
    }
    for (const Layout& layout : layouts) {
        INFO(text(layout));
        const TrainOutcome outcome = run(layout, steps);
        check_rounding(one.at(layout.architecture), outcome);
        CHECK(outcome.drifted == std::vector<std::string>{});
        CHECK(outcome.off_plan == std::vector<std::string>{});
    }
}

// Trains on `layout` until `steps` are done, from the newest checkpoint if there is one, and saves.
TrainOutcome continue_on(const Layout& layout, std::int64_t steps, FileSystem& files, int attempt) {
    TrainSetup setup;
    setup.job = job_of(layout);
    setup.ranks = layout.ranks();
    setup.files = &files;
    setup.root = "checkpoints";
    setup.steps = steps;
    setup.attempt = attempt;
    if (attempt > 1) setup.resume = ResumeMode::Auto;
    return train(setup);
}

void check_steps(const TrainOutcome& straight, const TrainOutcome& part, std::int64_t first) {
    for (std::size_t index = 0; index < part.steps.size(); ++index) {
        const TracedStep& a = straight.steps[static_cast<std::size_t>(first) + index];
        const TracedStep& b = part.steps[index];
        CHECK(b.lr == a.lr);
        CHECK(b.loss == Approx(a.loss).epsilon(2e-6));
        CHECK(b.grad_norm == Approx(a.grad_norm).epsilon(1e-5));
    }
}

}  // namespace

TEST_CASE("layouts that show every pair of sizes, stages and modes train as one rank does") {
    const std::vector<Layout> layouts = covering_layouts();
    CHECK(layouts.size() <= 24);
    check_against_one_rank(layouts, 6);
}

TEST_CASE("all layouts train as one rank does", "[campaign]") { check_against_one_rank(all_layouts(), 20); }

TEST_CASE("a run that moves to another layout at every checkpoint trains as one that stays") {
    for (const Architecture architecture : {Architecture::Gpt2, Architecture::Llama}) {
        const std::vector<Layout> journey{{architecture, 1, 1, 1, 0}, {architecture, 2, 2, 2, 3},
                                          {architecture, 1, 4, 1, 1}, {architecture, 2, 1, 4, 2},
                                          {architecture, 1, 2, 4, 0}, {architecture, 2, 4, 1, 2},
                                          {architecture, 1, 1, 2, 3}, {architecture, 2, 1, 1, 1},
                                          {architecture, 1, 4, 2, 3}, {architecture, 2, 2, 1, 0}};
        const TrainOutcome straight = run({architecture}, 20);
        MemoryFileSystem files;
        for (std::size_t stop = 0; stop < journey.size(); ++stop) {
            const auto first = static_cast<std::int64_t>(2 * stop);
            INFO(text(journey[stop]) << ", from step " << first);
            const TrainOutcome part =
                continue_on(journey[stop], first + 2, files, static_cast<int>(stop) + 1);
            REQUIRE(part.steps.size() == 2);
            check_steps(straight, part, first);
        }
    }
}

TEST_CASE("every layout continues what any other has saved", "[campaign]") {
    for (const Architecture architecture : {Architecture::Gpt2, Architecture::Llama}) {
        std::vector<Layout> layouts;
        for (const Layout& layout : all_layouts())
            if (layout.architecture == architecture && layout.checkpointing == GradientCheckpointing::None &&
                layout.zero_stage % 2 == 1)
                layouts.push_back(layout);
        const TrainOutcome straight = run({architecture}, 20);
        for (const Layout& from : layouts) {
            for (const Layout& to : layouts) {
                INFO("from " << text(from) << " to " << text(to));
                MemoryFileSystem files;
                continue_on(from, 4, files, 1);
                check_steps(straight, continue_on(to, 8, files, 2), 4);
            }
        }
    }
}
