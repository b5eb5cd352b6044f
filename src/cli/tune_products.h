// Tuning of matrix products as the commands do it.
#pragma once

#include <vector>

#include "cli/rank_main.h"
#include "trainctl/ops/product_plans.h"
#include "trainctl/rundir/layout.h"

namespace trainctl {

// Collective, on devices that have plans of products (GPUs), unless device.tune_products is off; rank 0 says
// in a line what came of it. Belongs before what the job allocates: operands of real size need memory.
// `products` are those of this rank's part of the job; choices are taken from the run directory and kept
// there (by rank 0, which holds its lease).
void tune_products(RankContext& context, Rank& rank, const JobSpec& job, const std::vector<Product>& products,
                   const RunLayout& run);

// The same without a run, for this process only.
void tune_products(RankContext& context, Rank& rank, const JobSpec& job);

// And for products without a job.
void tune_products(RankContext& context, Rank& rank, const std::vector<Product>& products);

}  // namespace trainctl
