#include "cuda/nvtx_ranges.h"

#include <cuda_profiler_api.h>
#include <fmt/core.h>
#include <nvtx3/nvToolsExt.h>

#include <array>

namespace trainctl::cuda {

void NvtxRanges::push(const RangeLabel& label) {
    const char* kind = range_kind_name(label.kind);
    if (label.number == 0) {
        nvtxRangePushA(kind);
        return;
    }
    std::array<char, 48> name{};  // the last character stays 0
    fmt::format_to_n(name.data(), name.size() - 1, "{} {}", kind, label.number);
    nvtxRangePushA(name.data());
}

void NvtxRanges::pop() noexcept { nvtxRangePop(); }

// A tool that does not answer is no reason to end a training.
void NvtxRanges::begin_capture() { static_cast<void>(cudaProfilerStart()); }
void NvtxRanges::end_capture() { static_cast<void>(cudaProfilerStop()); }

}  // namespace trainctl::cuda
