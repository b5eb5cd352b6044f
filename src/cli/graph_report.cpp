#include "cli/graph_report.h"

#include <fmt/format.h>

#include "trainctl/base/text.h"

namespace trainctl {
namespace {

// Seen in the first step, captured in the second; with one micro-batch in a step its two batch slots take
// turns.
constexpr std::int64_t settled_step = 4;

}  // namespace

GraphReport::GraphReport(const CudaDevice* device, Log& log)
    : device_(device != nullptr && device->graphs() == CudaGraphs::On ? device : nullptr), log_(log) {}

void GraphReport::step_closed(std::int64_t done) {
    if (device_ == nullptr || done > settled_step) return;
    const CudaGraphUse now = device_->graph_use();
    if (done == settled_step) {
        log_.info(fmt::format("cuda graphs: {} of a step are replayed, {} are issued call by call; {} kept",
                              counted(static_cast<std::int64_t>(now.replayed - before_.replayed), "section"),
                              now.issued - before_.issued,
                              counted(static_cast<std::int64_t>(now.captured), "graph")));
    }
    before_ = now;
}

void GraphReport::finish() const {
    if (device_ == nullptr) return;
    const CudaGraphUse use = device_->graph_use();
    const std::string text =
        fmt::format("cuda graphs: {} of {} were replayed by {}", use.replayed,
                    counted(static_cast<std::int64_t>(use.replayed + use.issued), "section"),
                    counted(static_cast<std::int64_t>(use.captured), "graph"));
    if (use.replayed > 0) {
        log_.info(text);
    } else {
        log_.warn(text + ": nothing repeated in a run of so few steps");
    }
}

}  // namespace trainctl
