// `trainctl bench comm`: collectives between the ranks of this world, checked, and judged against copying the
// same bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainctl/base/clock.h"
#include "trainctl/train/training.h"

namespace trainctl {

struct CommBenchOptions {
    std::vector<std::int64_t> elements = {1 << 10, 1 << 16, 1 << 20, 1 << 24};  // f32, of the whole tensor
    int repetitions = 7;
};

struct CommBenchRow {
    std::string operation;          // "all_reduce", "reduce_scatter", "all_gather", "broadcast"
    std::int64_t bytes = 0;         // of the whole tensor
    double seconds = 0.0;           // median
    double bytes_per_s = 0.0;       // bytes / seconds
    double copy_bytes_per_s = 0.0;  // the same bytes copied in memory, same run
};

// Collective. Every result is compared with the exact sum; a wrong one is Exit::Internal.
std::vector<CommBenchRow> bench_comm(Rank& rank, Clock& clock, const CommBenchOptions& options);

std::string describe(const std::vector<CommBenchRow>& rows, int ranks);
std::string to_json(const std::vector<CommBenchRow>& rows, int ranks);

}  // namespace trainctl
