// One algorithm for every matrix product of a job on each kind of device, found out once and the same on all
// ranks: else two of them could round differently, and a resumed run as well.
#pragma once

#include <string>
#include <vector>

#include "trainctl/base/log.h"
#include "trainctl/comm/rank_link.h"
#include "trainctl/ops/product_plans.h"
#include "trainctl/rundir/product_choices.h"

namespace trainctl {

// The same on all ranks.
struct TunedProducts {
    std::vector<ProductChoice> choices;  // of all kinds of devices: what every product runs by now
    int known = 0;                       // of them, those that were not timed here
    TuningReport report;                 // of all devices together; seconds: the longest
};

// What a rank may take while others wait for its choices for `timeout_s` at most
// (communication.timeout_s): half of that, since operands are made and the last product is finished besides.
TuningLimits tuning_limits(double timeout_s);

// Collective. `mine`: the products of this rank's part of the model. `known`, at rank 0: choices of an
// earlier start. What is not known for a kind of device (ProductPlans::identity), or is refused by its
// library, is tuned by the lowest rank that has one. Every rank's plans are ready afterwards.
TunedProducts tune_products(RankLink& link, ProductPlans& plans, const std::vector<Product>& mine,
                            const std::vector<ProductChoice>& known, Stream& stream, Clock& clock,
                            TuningLimits limits = {});

// The same for a run: rank 0, which holds its lease, takes the known choices from its directory and keeps all
// choices there. A damaged file is a warning; what it lacks is tuned again.
TunedProducts tune_products_of_run(RankLink& link, ProductPlans& plans, const std::vector<Product>& mine,
                                   FileSystem& files, const RunLayout& layout, Stream& stream, Clock& clock,
                                   Log& log, TuningLimits limits = {});

// "14 matrix products tuned in 3.2 s (9 other than the library's first, best gain 12 %)"
std::string describe(const TunedProducts& tuned);

// What came of it: a line, and warnings for algorithms that may not be used. `place`: where choices are kept,
// may be empty.
void log_tuning(Log& log, const TunedProducts& tuned, const std::string& place);

}  // namespace trainctl
