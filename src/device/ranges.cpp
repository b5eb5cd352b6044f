#include "trainctl/device/ranges.h"

#include <fmt/core.h>

namespace trainctl {

const char* range_kind_name(RangeKind kind) {
    switch (kind) {
        case RangeKind::Step:
            return "step";
        case RangeKind::Data:
            return "data";
        case RangeKind::Forward:
            return "forward";
        case RangeKind::Backward:
            return "backward";
        case RangeKind::Optimizer:
            return "optimizer";
        case RangeKind::Evaluation:
            return "evaluation";
        case RangeKind::Checkpoint:
            return "checkpoint";
        case RangeKind::Embedding:
            return "embedding";
        case RangeKind::Block:
            return "block";
        case RangeKind::Head:
            return "head";
        case RangeKind::CommunicationWait:
            return "communication wait";
    }
    return "?";
}

std::string range_name(const RangeLabel& label) {
    const char* name = range_kind_name(label.kind);
    return label.number == 0 ? name : fmt::format("{} {}", name, label.number);
}

}  // namespace trainctl
