// Tuning of matrix products as the commands do it.
#pragma once

#include <vector>

#include "cli/rank_main.h"
#include "trainctl/ops/product_plans.h"
#include "trainctl/rundir/layout.h"

namespace trainctl {

// Collective, on devices that have plans of products (GPUs), unless device.tune_products is off; rank 0 says
// in a line what came of it. Belongs before what the job allocates: operands of real size need memory. With a
// run directory, choices are taken from there and kept there (by rank 0, which holds its lease); nullptr: for
// this process only.
void tune_products(RankContext& context, Rank& rank, const JobSpec& job, const RunLayout* run);

// The same for products without a job, of this process only.
void tune_products(RankContext& context, Rank& rank, const std::vector<Product>& products);

}  // namespace trainctl
