// A whole attempt of a run without the training: lease, journal, saves with retention, copies to a further
// place, by two ranks one after the other, so that the same attempt does the same operations, always.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/toy_state.h"
#include "support/memory_file_system.h"
#include "trainctl/checkpoint/scan.h"
#include "trainctl/rundir/layout.h"

namespace trainctl::test {

inline constexpr const char* toy_attempt_dir = "run";
inline constexpr const char* toy_copy_root = "second/ck";

enum class Copying { None, EverySave };

struct AttemptPlan {
    std::vector<std::int64_t> steps;  // to be saved; version of the state = step
    std::int64_t keep = 2;            // latest
    Copying copying = Copying::None;
};

// What was promised to whoever called, on any rank.
struct Progress {
    int attempt = 0;
    std::int64_t returned = 0;                      // newest step whose save returned
    std::int64_t copied = 0;                        // newest step whose copy returned
    std::map<std::string, std::uint64_t> reported;  // state hash by directory, of saves that returned
};

// Takes the lease, as after the death of all earlier owners, and carries out the plan. Throws Crash, or the
// Error of the first save or copy that failed. `progress` may be of earlier attempts on the same files.
void run_attempt(MemoryFileSystem& files, const AttemptPlan& plan, Progress& progress);

// What a start with --resume auto finds: "step 20", "fresh", "wrong contents", or what the error says.
std::string resume_toy_attempt(MemoryFileSystem& disk, LoadReport& report);

}  // namespace trainctl::test
