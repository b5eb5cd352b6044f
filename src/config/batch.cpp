#include "trainctl/config/batch.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainctl/base/text.h"

namespace trainctl {

namespace {

constexpr std::int64_t most_samples = std::int64_t{1} << 30U;  // as training.global_batch_size

Error usage(const std::string& what) { return {Exit::Usage, what, Where::here()}; }

// "the nearest that fit are 60 and 72"
std::string nearest_multiples(std::int64_t value, std::int64_t factor) {
    const std::int64_t below = value / factor * factor;
    if (below == 0) return fmt::format("the smallest that fits is {}", factor);
    return fmt::format("the nearest that fit are {} and {}", below, below + factor);
}

// Terms that are known among micro, ranks and accumulation, multiplied.
struct Factor {
    std::int64_t product = 1;
    int terms = 0;
    std::string text;  // "micro_batch_size 4 x data-parallel ranks 2"

    void times(std::int64_t term, const std::string& name) {
        if (term == 0) return;
        product *= term;
        text += fmt::format("{}{} {}", terms++ == 0 ? "" : " x ", name, term);
    }
    // "... = 8" where there is something to multiply.
    [[nodiscard]] std::string value_text() const {
        return terms > 1 ? fmt::format("{} = {}", text, product) : text;
    }
};

Error not_a_multiple(const BatchPlan& plan, const Factor& factor) {
    if (plan.data_parallel_size > plan.global_batch_size)
        return usage(fmt::format(
            "global_batch_size {} gives {} data-parallel ranks less than one sample each; "
            "use at most {} or a larger global batch",
            plan.global_batch_size, plan.data_parallel_size, counted(plan.global_batch_size, "rank")));
    return usage(fmt::format("global_batch_size {} is not a multiple of {}; {}", plan.global_batch_size,
                             factor.value_text(), nearest_multiples(plan.global_batch_size, factor.product)));
}

Factor known_factor(const BatchPlan& plan) {
    Factor factor;
    factor.times(plan.micro_batch_size, "micro_batch_size");
    factor.times(plan.data_parallel_size, "data-parallel ranks");
    factor.times(plan.accumulation_steps, "gradient_accumulation_steps");
    return factor;
}

}  // namespace

Result<BatchPlan> solve_batch(const BatchPlan& known) {
    BatchPlan plan = known;
    const bool ranks_known = plan.data_parallel_size != 0;
    if (plan.global_batch_size == 0) {
        if (plan.micro_batch_size == 0)
            return usage(
                "neither training.micro_batch_size nor training.global_batch_size is given; give at least "
                "one");
        if (!ranks_known) return plan;
        plan.accumulation_steps = std::max<std::int64_t>(plan.accumulation_steps, 1);
        plan.global_batch_size = plan.micro_batch_size * plan.data_parallel_size * plan.accumulation_steps;
        if (plan.global_batch_size > most_samples)
            return usage(
                fmt::format("{} are more samples than the {} that a step may have; lower one of them",
                            known_factor(plan).value_text(), most_samples));
        return plan;
    }
    // One term at most is left unknown: accumulation if both it and micro are.
    if (plan.micro_batch_size == 0 && plan.accumulation_steps == 0 && ranks_known)
        plan.accumulation_steps = 1;
    const Factor factor = known_factor(known);  // an accumulation of 1 that nobody gave changes nothing
    if (plan.global_batch_size % factor.product != 0) return not_a_multiple(plan, factor);
    const std::int64_t rest = plan.global_batch_size / factor.product;
    const int unknown =
        (plan.micro_batch_size == 0 ? 1 : 0) + (plan.accumulation_steps == 0 ? 1 : 0) + (ranks_known ? 0 : 1);
    if (unknown == 0 && rest != 1)
        return usage(fmt::format("{}, but global_batch_size is {}; leave one of them out to have it derived",
                                 factor.value_text(), plan.global_batch_size));
    if (unknown == 1) {
        if (plan.micro_batch_size == 0) plan.micro_batch_size = rest;
        if (plan.accumulation_steps == 0) plan.accumulation_steps = rest;
        if (!ranks_known) plan.data_parallel_size = rest;
    }
    return plan;
}

Result<std::int64_t> data_parallel_ranks(const ParallelSpec& parallel, std::int64_t world_size) {
    const std::int64_t model = parallel.tensor_parallel_size * parallel.pipeline_parallel_size;
    if (world_size < 1 || world_size % model != 0)
        return usage(
            fmt::format("{} cannot be split into groups of tensor_parallel_size {} x "
                        "pipeline_parallel_size {} = {}; start a multiple of {} ranks",
                        counted(world_size, "rank"), parallel.tensor_parallel_size,
                        parallel.pipeline_parallel_size, model, model));
    const std::int64_t data = world_size / model;
    if (parallel.data_parallel_size != 0 && parallel.data_parallel_size != data)
        return usage(
            fmt::format("tensor_parallel_size {} x pipeline_parallel_size {} x data_parallel_size {} = {}, "
                        "but {} started; start {} or set parallel.data_parallel_size = {}",
                        parallel.tensor_parallel_size, parallel.pipeline_parallel_size,
                        parallel.data_parallel_size, counted(model * parallel.data_parallel_size, "rank"),
                        world_size == 1 ? "1 was" : fmt::format("{} were", world_size),
                        model * parallel.data_parallel_size, data));
    return data;
}

BatchPlan plan_batch(const JobSpec& job, std::int64_t world_size) {
    const std::int64_t ranks = data_parallel_ranks(job.parallel, world_size).value();
    return solve_batch({.micro_batch_size = job.training.micro_batch_size,
                        .data_parallel_size = ranks,
                        .accumulation_steps = job.training.gradient_accumulation_steps,
                        .global_batch_size = job.training.global_batch_size})
        .value();
}

}  // namespace trainctl
