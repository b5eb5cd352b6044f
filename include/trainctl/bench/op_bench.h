// `trainctl bench op`: single ops at the shapes of a model, every result recomputed at sampled places in
// double precision.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainctl/base/clock.h"
#include "trainctl/config/job_spec.h"
#include "trainctl/train/training.h"

namespace trainctl {

struct OpBenchOptions {
    ModelSpec model;
    DType compute = DType::BF16;
    std::int64_t batch = 4;
    std::int64_t length = 256;
    int repetitions = 9;
    std::string only;                                         // part of a name; empty: all
    std::int64_t updated_elements = std::int64_t{1} << 22U;   // by the optimizer; a multiple of norm_block
    std::int64_t smallest_product = 1024;                     // measure_peak_flops()
    std::int64_t streamed_elements = std::int64_t{1} << 24U;  // of the addition that shows the memory's rate
};

struct OpBenchRow {
    std::string name;
    double seconds = 0.0;      // median
    double flops = 0.0;        // of one call; 0: memory-bound
    double bytes = 0.0;        // read and written once each
    double worst_error = 0.0;  // at the sampled places, relative to the tolerance's scale
    double tolerance = 0.0;
    // Against the ceiling measured in the same run, before and after the ops (the better counts): a large
    // product for FLOPs, streaming memory for bytes. Above 1 for what stays in caches, or when both were
    // disturbed.
    double share_of_ceiling = 0.0;
};

// The matrix products that bench_ops times.
std::vector<Product> benched_products(const OpBenchOptions& options);

// Not collective: one rank. A result outside its tolerance is Exit::Internal naming the op.
std::vector<OpBenchRow> bench_ops(Rank& rank, Clock& clock, const OpBenchOptions& options);

std::string describe(const std::vector<OpBenchRow>& rows);
std::string to_json(const std::vector<OpBenchRow>& rows);

}  // namespace trainctl
