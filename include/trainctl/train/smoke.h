// The smoke run: 100 steps of a small Llama-shape model on a language of known entropy, then judged.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainctl/base/file_system.h"
#include "trainctl/base/log.h"
#include "trainctl/train/stop_flag.h"
#include "trainctl/train/training.h"

namespace trainctl {

struct SmokeOptions {
    std::uint64_t seed = 1234;
    std::string
        directory;  // for the checkpoint, shared by all ranks; empty: the checkpoint check is left out
    std::function<void(const StepRecord&)> progress;  // rank 0 only; may be empty
    StopFlag* stop = nullptr;                         // asked before every step, on any rank; nullptr: never
    // Tests break the learner here, to prove that a broken one is noticed.
    std::function<std::unique_ptr<SampleStream>(const SampleStream&)> wrap_data;
    TrainingHooks hooks;
};

struct SmokeCheck {
    std::string name;
    bool passed = false;
    std::string expected;
    std::string found;
};

struct SmokeReport {
    std::vector<SmokeCheck> checks;
    double seconds = 0.0;
    int ranks = 1;
    [[nodiscard]] bool passed() const;
};

// The job that the smoke run trains on `ranks` ranks.
JobSpec smoke_job(std::uint64_t seed, int ranks);

// Collective; every rank gets the same verdicts. Exit::Interrupted on all ranks when options.stop was set.
SmokeReport run_smoke(Rank& rank, FileSystem& files, Clock& clock, Log& log, const SmokeOptions& options);

// A short verdict table, and the same as one JSON document.
std::string describe(const SmokeReport& report);
std::string to_json(const SmokeReport& report);

}  // namespace trainctl
