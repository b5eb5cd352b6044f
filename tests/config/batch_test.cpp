#include "trainctl/config/batch.h"

#include "job_text.h"
#include "support/catch.h"

using namespace trainctl;
using namespace trainctl::test;

TEST_CASE("Whatever term is left out, it is derived", "[config][batch]") {
    for (const std::int64_t micro : {1, 3, 8})
        for (const std::int64_t ranks : {1, 2, 5})
            for (const std::int64_t accumulation : {1, 4, 7}) {
                const BatchPlan full{micro, ranks, accumulation, micro * ranks * accumulation};
                INFO(micro << " x " << ranks << " x " << accumulation);
                CHECK(solve_batch(full).value() == full);
                CHECK(solve_batch({0, ranks, accumulation, full.global_batch_size}).value() == full);
                CHECK(solve_batch({micro, 0, accumulation, full.global_batch_size}).value() == full);
                CHECK(solve_batch({micro, ranks, 0, full.global_batch_size}).value() == full);
                CHECK(solve_batch({micro, ranks, accumulation, 0}).value() == full);
                // Two free terms: accumulation is 1.
                CHECK(solve_batch({micro, ranks, 0, 0}).value() == BatchPlan{micro, ranks, 1, micro * ranks});
                CHECK(solve_batch({0, ranks, 0, micro * ranks}).value() ==
                      BatchPlan{micro, ranks, 1, micro * ranks});
                // Without the ranks nothing is invented.
                CHECK(solve_batch({micro, 0, 0, full.global_batch_size}).value() ==
                      BatchPlan{micro, 0, 0, full.global_batch_size});
                CHECK(solve_batch({micro, 0, accumulation, 0}).value() ==
                      BatchPlan{micro, 0, accumulation, 0});
                CHECK(solve_batch({0, 0, 0, full.global_batch_size}).value() ==
                      BatchPlan{0, 0, 0, full.global_batch_size});
            }
}

TEST_CASE("Terms that do not fit are refused with all the numbers", "[config][batch]") {
    const auto text = [](const BatchPlan& plan) {
        const Result<BatchPlan> result = solve_batch(plan);
        REQUIRE(!result.ok());
        CHECK(result.error().code() == Exit::Usage);
        return std::string{result.error().what()};
    };
    CHECK(text({3, 4, 0, 64}) ==
          "global_batch_size 64 is not a multiple of micro_batch_size 3 x data-parallel ranks 4 = 12; the "
          "nearest that "
          "fit are 60 and 72");
    CHECK_THAT(text({4, 2, 2, 32}), Catch::Contains("micro_batch_size 4 x data-parallel ranks 2 x "
                                                    "gradient_accumulation_steps 2 = 16") &&
                                        Catch::Contains("is 32"));
    CHECK_THAT(text({0, 8, 0, 6}), Catch::Contains("global_batch_size 6") &&
                                       Catch::Contains("8 data-parallel ranks") &&
                                       Catch::Contains("at most 6 ranks"));
    CHECK_THAT(text({8, 2, 0, 8}), Catch::Contains("the smallest that fits is 16"));
    CHECK_THAT(text({0, 4, 0, 0}), Catch::Contains("neither"));
    CHECK_THAT(text({1 << 20, 1 << 20, 1 << 20, 0}), Catch::Contains("more samples than the 1073741824"));
    CHECK(solve_batch({1 << 10, 1 << 10, 1 << 10, 0}).ok());
    CHECK_THAT(text({0, 0, 3, 0}), Catch::Contains("neither"));
    CHECK_THAT(text({3, 0, 0, 64}),
               Catch::Contains("not a multiple of micro_batch_size 3; ") && Catch::Contains("63 and 66"));
}

TEST_CASE("Ranks are split by the layout", "[config][batch]") {
    ParallelSpec parallel;
    CHECK(data_parallel_ranks(parallel, 6).value() == 6);
    parallel.tensor_parallel_size = 2;
    parallel.pipeline_parallel_size = 3;
    CHECK(data_parallel_ranks(parallel, 12).value() == 2);
    CHECK(!data_parallel_ranks(parallel, 8).ok());
    CHECK(!data_parallel_ranks(parallel, 0).ok());
    parallel.data_parallel_size = 2;
    CHECK(data_parallel_ranks(parallel, 12).value() == 2);
    const auto wrong = data_parallel_ranks(parallel, 18);
    REQUIRE(!wrong.ok());
    CHECK_THAT(wrong.error().what(), Catch::Contains("= 12 ranks, but 18 were started"));
}

TEST_CASE("The loader derives the batch from the ranks it is told", "[config][batch]") {
    const std::string job = valid_job.substr(0, valid_job.find("micro_batch_size"));
    const auto with = [&](const std::string& keys, std::optional<std::int64_t> world) {
        return load(job + keys, {.set = {}, .world_size = world});
    };
    const LoadedJob micro = with("micro_batch_size = 4\ngradient_accumulation_steps = 3\n", 2);
    REQUIRE(micro.ok());
    CHECK(micro.spec.training.global_batch_size == 24);
    CHECK(plan_batch(micro.spec, 2) == BatchPlan{4, 2, 3, 24});

    const LoadedJob global = with("global_batch_size = 12\n", 3);
    REQUIRE(global.ok());
    CHECK(global.spec.training.micro_batch_size == 4);
    CHECK(to_string(global.origins.at("training.micro_batch_size")) == "derived");

    const LoadedJob unknown = with("micro_batch_size = 4\n", {});
    REQUIRE(unknown.ok());
    CHECK(unknown.spec.training.global_batch_size == 0);

    const LoadedJob wrong = with("micro_batch_size = 5\nglobal_batch_size = 12\n", 2);
    CHECK(to_string(problem(wrong, "batch").at) == "job.toml:14:21");  // the global batch, in the file
    CHECK(!with("global_batch_size = 2\n", 3).ok());

    const LoadedJob layout = load_set({"parallel.data_parallel_size=4"}, 2);
    CHECK_THAT(problem(layout, "layout").what, Catch::Contains("= 4 ranks, but 2 were started"));
    CHECK_THROWS_AS(plan_batch(layout.spec, 2), Error);
    CHECK(load_set({"parallel.data_parallel_size=4"}, 4).ok());
    // Also without ranks the wish is checked.
    CHECK(!load_set({"parallel.data_parallel_size=3"}).ok());
}
