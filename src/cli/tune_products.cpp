#include "cli/tune_products.h"

#include "trainctl/train/product_tuning.h"

namespace trainctl {
namespace {

void tune(RankContext& context, Rank& rank, ProductPlans& plans, const std::vector<Product>& products,
          TuningLimits limits) {
    const TunedProducts tuned = tune_products(context.world.control(), plans, products, {}, *rank.compute,
                                              context.invocation.clock, limits);
    if (context.world.rank() == 0) log_tuning(context.log, tuned, {});
}

}  // namespace

void tune_products(RankContext& context, Rank& rank, const JobSpec& job, const std::vector<Product>& products,
                   const RunLayout& run) {
    ProductPlans* plans = rank.backend->product_plans();
    if (plans == nullptr || !job.device.tune_products) return;
    tune_products_of_run(context.world.control(), *plans, products, context.invocation.files, run,
                         *rank.compute, context.invocation.clock, context.log,
                         tuning_limits(job.communication.timeout_s));
}

void tune_products(RankContext& context, Rank& rank, const JobSpec& job) {
    ProductPlans* plans = rank.backend->product_plans();
    if (plans == nullptr || !job.device.tune_products) return;
    tune(context, rank, *plans, plan_rank(rank, job).products, tuning_limits(job.communication.timeout_s));
}

void tune_products(RankContext& context, Rank& rank, const std::vector<Product>& products) {
    if (ProductPlans* plans = rank.backend->product_plans()) tune(context, rank, *plans, products, {});
}

}  // namespace trainctl
