// The data of a job in numbers, checked before anything expensive starts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainctl/config/job_spec.h"
#include "trainctl/data/corpus.h"

namespace trainctl {

struct SourceReport {
    std::string path;
    std::int64_t files = 0;
    std::int64_t tokens = 0;
    std::int64_t train_windows = 0;
    std::int64_t validation_windows = 0;
    std::int64_t per_1024 = 0;  // samples of each 1024 that come from here
    double epochs = 0.0;        // passes over train_windows in the whole job
};

struct DataReport {
    std::vector<SourceReport> train;
    std::vector<SourceReport> validation;  // given by files; empty with validation_split
    std::int64_t train_windows = 0;
    std::int64_t validation_windows = 0;
    std::int64_t samples = 0;  // steps x global batch
    std::vector<std::string> warnings;
};

// Checks the job against its data for `ranks` data-parallel ranks. More ranks than samples (of a global batch
// or of the data), a global batch that ranks x micro-batch does not divide, or evaluation without validation
// data is Exit::Usage with the numbers. Opening the corpus has already refused files without a window.
DataReport check_data(const Corpus& corpus, const JobSpec& job, std::int64_t ranks);

// For people, a few lines.
std::string describe(const DataReport& report);

}  // namespace trainctl
