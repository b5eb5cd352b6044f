// What tuning decides where it is known which algorithm is the fastest: the double's products have six, of
// which the library names the first; it takes 1 ms by the modelled clock. The fastest (0.2 ms) does not
// repeat, the fastest of the others takes 0.5 ms, one is not supported.
#include <map>
#include <mutex>
#include <set>

#include "cuda/cuda_bench.h"
#include "cuda/cuda_training.h"
#include "cuda_double/machine.h"
#include "support/catch.h"
#include "support/manual_clock.h"
#include "support/memory_file_system.h"
#include "support/run_ranks.h"
#include "train/finite_stream.h"
#include "trainctl/train/product_tuning.h"

namespace trainctl::cuda_test {

using cuda_double::EventClock;
using cuda_double::heuristic_queries;
using cuda_double::MachineOptions;
using cuda_double::products_run;
using cuda_double::start_machine;

namespace {

const std::vector<Product> products = {
    {MatmulKind::Forward, 8, 16, 24, DType::BF16, DType::BF16, true},
    {MatmulKind::BackwardInput, 8, 16, 24, DType::F32, DType::F32, false},
    {MatmulKind::BackwardWeight, 8, 16, 24, DType::BF16, DType::F32, false}};

MachineOptions modelled() {
    MachineOptions options;
    options.clock = EventClock::Modelled;
    return options;
}

std::string first_choice(CudaBench& bench, const Product& product) {
    bench.plans().prepare({product});
    return bench.plans().algorithm(product);
}

class QuietLog final : public Log {
  public:
    void write(LogLevel level, std::string_view text) override {
        const std::lock_guard lock(mutex_);
        (level == LogLevel::Warning ? warnings : lines).emplace_back(text);
    }
    std::vector<std::string> lines;
    std::vector<std::string> warnings;

  private:
    std::mutex mutex_;
};

// A start of a run on as many ranks as pipeline stages, up to the point where products are tuned.
struct Start {
    TunedProducts tuned;                           // as rank 0 has it
    std::vector<std::string> texts;                // choices by rank
    std::vector<std::vector<std::string>> in_use;  // "product algorithm" by rank
    std::vector<std::string> lines, warnings;
    std::uint64_t queries = 0;  // of the heuristic
    std::uint64_t runs = 0;     // products
};

Start start_run(const MachineOptions& options, FileSystem& files, int stages = 2) {
    start_machine(options);
    QuietLog log;
    struct Answer {
        TunedProducts tuned;
        std::vector<std::string> in_use;
    };
    const auto answers = test::collect_ranks<Answer>(stages, [&](World& world, CpuDevice& host) {
        JobSpec job = test::tiny_job(Architecture::Gpt2);
        job.precision.compute = DType::BF16;
        job.model.vocab_size = 300;  // else the head is as wide as a feed-forward layer
        job.parallel.pipeline_parallel_size = stages;
        test::ManualClock clock;
        const auto rank =
            make_cuda_rank(world, host, mesh_shape(job.parallel, world.size()), CudaTransport::Host);
        ProductPlans& plans = *rank->backend->product_plans();
        const auto mine = dry_pass(job, rank->mesh.shape, rank->mesh.place, batch_layout(job, rank->mesh),
                                   rank->backend->ops())
                              .products;
        Answer answer;
        answer.tuned = tune_products_of_run(world.control(), plans, mine, files, RunLayout("run"),
                                            *rank->compute, clock, log);
        for (const Product& product : mine)
            answer.in_use.push_back(to_string(product) + " " + plans.algorithm(product));
        return answer;
    });
    Start start;
    start.tuned = answers.front().tuned;
    for (const Answer& answer : answers) {
        start.texts.push_back(to_text(answer.tuned.choices));
        start.in_use.push_back(answer.in_use);
    }
    start.lines = log.lines;
    start.warnings = log.warnings;
    start.queries = heuristic_queries();
    start.runs = products_run();
    return start;
}

}  // namespace

TEST_CASE("tuning takes the fastest algorithm that repeats", "[cuda]") {
    start_machine(modelled());
    CudaBench bench(F32Products::Exact);
    std::vector<std::string> first;
    for (const Product& product : products) first.push_back(first_choice(bench, product));
    test::ManualClock clock;
    const TuningReport report = bench.plans().tune(products, bench.stream(), clock, {});
    CHECK(report.compared == 3);
    CHECK(report.changed == 3);
    CHECK(report.best_gain ==
          Approx(0.5));  // 0.5 ms instead of 1 ms; 0.8 would be the one that does not repeat
    CHECK(report.discarded.size() == 3);
    CHECK_THAT(report.discarded.front(), Catch::Contains("does not give the same bits"));
    for (std::size_t i = 0; i < products.size(); ++i) CHECK(bench.plans().algorithm(products[i]) != first[i]);
    CHECK(bench.plans().unannounced() == 0);
}

TEST_CASE("a choice is taken over without a question and without a product", "[cuda]") {
    start_machine(modelled());
    CudaBench bench(F32Products::Exact);
    test::ManualClock clock;
    bench.plans().tune(products, bench.stream(), clock, {});
    const std::uint64_t queries = heuristic_queries();
    const std::uint64_t runs = products_run();
    CudaBench other(F32Products::Exact);
    for (const Product& product : products) {
        REQUIRE(other.plans().adopt(product, bench.plans().algorithm(product)));
        CHECK(other.plans().algorithm(product) == bench.plans().algorithm(product));
    }
    CHECK(heuristic_queries() == queries);
    CHECK(products_run() == runs);
    // Bytes that are no algorithm of this library.
    const std::string chosen = other.plans().algorithm(products[0]);
    for (const char digit : {'0', '7', 'f'}) {
        CHECK_FALSE(other.plans().adopt(products[0], std::string(chosen.size(), digit)));
        CHECK_FALSE(other.plans().adopt({MatmulKind::Forward, 5, 6, 7, DType::F32, DType::F32, false},
                                        std::string(chosen.size(), digit)));
    }
    CHECK(other.plans().algorithm(products[0]) == chosen);
}

TEST_CASE("tuning that has no time or no memory keeps the library's first", "[cuda]") {
    start_machine(modelled());
    {
        CudaBench bench(F32Products::Exact);
        test::ManualClock clock;
        const TuningReport report = bench.plans().tune(products, bench.stream(), clock, {0.0});
        CHECK(report.not_reached == 3);
        CHECK(report.compared == 0);
        CHECK(products_run() == 0);
        CudaBench other(F32Products::Exact);
        for (const Product& product : products)
            CHECK(bench.plans().algorithm(product) == first_choice(other, product));
    }
    MachineOptions small = modelled();
    small.memory_bytes = std::uint64_t{33} << 20U;  // the workspace takes 32
    start_machine(small);
    CudaBench bench(F32Products::Exact);
    test::ManualClock clock;
    const Product large{MatmulKind::Forward, 512, 512, 512, DType::F32, DType::F32, false};
    const TuningReport report = bench.plans().tune({large, products[0]}, bench.stream(), clock, {});
    CHECK(report.without_memory == 1);
    CHECK(report.compared == 1);
    CHECK(bench.device().memory_use().device_bytes == 0);
}

TEST_CASE("all stages of a pipeline run by one table, which a resumed run takes over", "[cuda]") {
    test::MemoryFileSystem files;
    const Start fresh = start_run(modelled(), files);
    CHECK(fresh.texts[0] == fresh.texts[1]);
    CHECK(fresh.in_use[0] != fresh.in_use[1]);  // stages have products of their own
    std::set<std::string> all;
    for (const auto& rank : fresh.in_use) all.insert(rank.begin(), rank.end());
    CHECK(fresh.tuned.choices.size() == all.size());  // and what both have goes by one algorithm
    CHECK(fresh.tuned.known == 0);
    CHECK(fresh.tuned.report.compared == static_cast<int>(all.size()));
    REQUIRE(fresh.lines.size() == 1);
    CHECK_THAT(fresh.lines[0], Catch::Contains("tuned in") && Catch::Contains("best gain 50 %") &&
                                   Catch::Contains("kept in run/tuning/products.txt"));
    CHECK(fresh.warnings.size() == 5);  // four of those that do not repeat, and how many more

    const std::string stored = read_text(files, "run/tuning/products.txt");
    const Start again = start_run(modelled(), files);
    CHECK(again.in_use == fresh.in_use);
    CHECK(again.tuned.known == static_cast<int>(all.size()));
    CHECK(again.queries == 0);
    CHECK(again.runs == 0);
    CHECK(again.warnings.empty());
    CHECK_THAT(again.lines.at(0), Catch::Contains("as chosen before"));
    CHECK(read_text(files, "run/tuning/products.txt") == stored);
}

TEST_CASE("a choice is good for its GPU and version of the library only", "[cuda]") {
    test::MemoryFileSystem files;
    const Start fresh = start_run(modelled(), files, 1);
    MachineOptions newer = modelled();
    newer.newer_blas = 1;
    const Start upgraded = start_run(newer, files, 1);
    CHECK(upgraded.tuned.known == 0);
    CHECK(upgraded.tuned.report.compared == static_cast<int>(fresh.tuned.choices.size()));
    MachineOptions renamed = modelled();
    renamed.names = {"another GPU"};
    CHECK(start_run(renamed, files, 1).tuned.known == 0);
    // Nothing of this was forgotten.
    CHECK(start_run(modelled(), files, 1).tuned.report.compared == 0);
    CHECK(start_run(newer, files, 1).tuned.report.compared == 0);
    // Two kinds of GPU in one job: each is tuned by its own lowest rank.
    MachineOptions mixed = modelled();
    mixed.names = {"GPU A", "GPU B"};
    test::MemoryFileSystem others;
    const Start both = start_run(mixed, others);
    std::set<std::string> devices;
    for (const ProductChoice& choice : both.tuned.choices) devices.insert(choice.device);
    CHECK(devices.size() == 2);
    CHECK(both.tuned.choices.size() == both.in_use[0].size() + both.in_use[1].size());
    CHECK(both.texts[0] == both.texts[1]);
}

TEST_CASE("damaged choices are a warning and are made again", "[cuda]") {
    test::MemoryFileSystem files;
    const Start fresh = start_run(modelled(), files, 1);
    const std::string whole = read_text(files, "run/tuning/products.txt");
    std::string damaged = whole;
    char& digit = damaged[damaged.size() - 2];
    digit = digit == '0' ? '1' : '0';
    for (const std::string& text : {damaged, std::string("something else\n"), std::string()}) {
        files.remove_file("run/tuning/products.txt");
        files.open("run/tuning/products.txt", Open::CreateNew)->write(std::as_bytes(std::span(text)));
        const Start repaired = start_run(modelled(), files, 1);
        INFO(text.substr(0, 40));
        CHECK(repaired.in_use == fresh.in_use);
        CHECK(repaired.tuned.report.compared > 0);
        CHECK(read_text(files, "run/tuning/products.txt") == whole);
        CHECK_THAT(repaired.warnings.at(0), Catch::Contains("run/tuning/products.txt"));
    }
}

TEST_CASE("no step asks the library which algorithm to take", "[cuda]") {
    struct Layout {
        Architecture architecture;
        int ranks;
        std::int64_t tensor, pipeline;
        bool tuned;
    };
    for (const Layout& layout :
         {Layout{Architecture::Gpt2, 1, 1, 1, true}, Layout{Architecture::Llama, 1, 1, 1, false},
          Layout{Architecture::Llama, 4, 2, 2, true}}) {
        test::TrainSetup setup = five_steps(layout.architecture, DType::BF16);
        setup.job.steps = 3;
        setup.job.training.eval_interval = 2;
        const test::ValidationSet validation(setup.job, 13);
        setup.validation = &validation.samples;
        const test::TrainOutcome wanted = test::train(setup);
        setup.ranks = layout.ranks;
        setup.job.parallel.tensor_parallel_size = layout.tensor;
        setup.job.parallel.pipeline_parallel_size = layout.pipeline;
        start_machine(modelled());
        std::mutex mutex;
        std::map<int, ProductPlans*> plans;
        setup.make_rank = [&](World& world, CpuDevice& host, MeshShape shape) {
            auto rank = make_cuda_rank(world, host, shape, CudaTransport::Nccl);
            {
                const std::lock_guard lock(mutex);
                plans[world.rank()] = rank->backend->product_plans();
            }
            if (!layout.tuned) return rank;
            test::ManualClock clock;
            const auto mine = dry_pass(setup.job, shape, rank->mesh.place,
                                       batch_layout(setup.job, rank->mesh), rank->backend->ops())
                                  .products;
            tune_products(world.control(), *rank->backend->product_plans(), mine, {}, *rank->compute, clock);
            return rank;
        };
        std::vector<std::uint64_t> queries;
        std::uint64_t unannounced = 0;
        setup.at_boundary = [&](int rank, StopFlag&, std::int64_t) {
            const std::lock_guard lock(mutex);
            queries.push_back(heuristic_queries());
            unannounced += plans.at(rank)->unannounced();
        };
        const test::TrainOutcome found = test::train(setup);
        CAPTURE(layout.ranks, layout.tuned);
        CHECK(trace_difference(found, wanted) < 2e-2);
        CHECK(!found.evaluations.empty());
        REQUIRE(queries.size() >= 3);
        CHECK(unannounced == 0);
        CHECK(heuristic_queries() == queries.front());
    }
}

}  // namespace trainctl::cuda_test
