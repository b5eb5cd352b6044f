// What a profiler that listens would have seen.
#pragma once

#include <string>
#include <vector>

namespace trainctl::cuda_double {

struct ProfilerSeen {
    std::vector<std::string> ranges;    // with the names of those around them: "step 1/forward/block 2"
    std::vector<std::string> captured;  // those pushed between cudaProfilerStart and cudaProfilerStop
    int open = 0;                       // ranges pushed and not popped
    int stray_pops = 0;
    int captures = 0;
};

// Of the calling thread, since it listened last; it listens anew.
ProfilerSeen listen_as_profiler();

}  // namespace trainctl::cuda_double
