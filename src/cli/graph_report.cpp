#include "cli/graph_report.h"

#include <fmt/format.h>

#include "trainctl/base/text.h"

namespace trainctl {
namespace {

// Seen in the first step, captured in the second; with one micro-batch in a step its two batch slots take
// turns.
constexpr std::int64_t settled_step = 4;

}  // namespace

GraphReport::GraphReport(const CudaDevice* device, GraphNews news, Log& log)
    : device_(device != nullptr && device->graphs() == CudaGraphs::On ? device : nullptr),
      news_(news),
      log_(log) {}

void GraphReport::step_closed(std::int64_t done) {
    if (device_ == nullptr) return;
    const CudaGraphUse now = device_->graph_use();
    if (!now.refusal.empty() && !refusal_told_) {
        refusal_told_ = true;
        log_.warn(
            fmt::format("cuda graphs: no more are made beside {}, since CUDA refuses the next ({}): what "
                        "has none is issued call by call, with the same results; leave "
                        "device.cuda_graphs out, or lower training.micro_batch_size to make room",
                        now.captured, now.refusal));
    }
    if (news_ == GraphNews::Refusals || done > settled_step) return;
    if (done == settled_step) {
        log_.info(fmt::format("cuda graphs: {} of a step are replayed, {} are issued call by call; {} kept",
                              counted(static_cast<std::int64_t>(now.replayed - before_.replayed), "section"),
                              now.issued - before_.issued,
                              counted(static_cast<std::int64_t>(now.captured), "graph")));
    }
    before_ = now;
}

void GraphReport::finish() const {
    if (device_ == nullptr || news_ == GraphNews::Refusals) return;
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
