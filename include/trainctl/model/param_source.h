// How layers get weights and where they put gradients. Layers never learn how either travels.
#pragma once

#include <cstdint>

#include "trainctl/device/device.h"
#include "trainctl/model/unit_layout.h"
#include "trainctl/ops/ops.h"

namespace trainctl {

// A unit's parameters (or gradients) in memory: its flat buffer seen through its layout.
class UnitView {
  public:
    UnitView() = default;
    UnitView(const UnitLayout& layout, const std::vector<ParamSpec>& params, TensorView flat)
        : layout_(&layout), params_(&params), flat_(flat) {}

    // Place number `place` of the unit under the parameter's padded shape.
    [[nodiscard]] TensorView tensor(int place) const;
    // Places [first, first + count) of one fused group as a single tensor stacked along dimension 0.
    [[nodiscard]] TensorView fused(int first, int count) const;
    [[nodiscard]] TensorView flat() const { return flat_; }

  private:
    const UnitLayout* layout_ = nullptr;
    const std::vector<ParamSpec>* params_ = nullptr;
    TensorView flat_;
};

using Weights = UnitView;

class ParamSource {
  public:
    virtual ~ParamSource() = default;
    // Weights of a unit, usable by work issued to `stream` from now on until release. Also waits (on the
    // stream) for whatever still fills them, such as the last step's weight gather.
    virtual Weights acquire(UnitId unit, Stream& stream) = 0;
    // The unit that will be acquired next: a gather may start now.
    virtual void hint(UnitId next) = 0;
    // No work issued after this call reads them.
    virtual void release(UnitId unit, Stream& stream) = 0;
};

enum class MicroKind { Inner, Last };

struct GradView {
    UnitView grads;               // F32
    Into into = Into::Overwrite;  // for the first writer of each tensor in this micro-batch; a second writer
                                  // accumulates
};

class GradSink {
  public:
    virtual ~GradSink() = default;
    // Backward of micro-batch `index` of the step begins in the rank's model part `part` (ParamSpec::part);
    // Last is the final one (the part's gradients are complete after it).
    virtual void begin_micro(int part, int index, MicroKind kind) = 0;
    // Where to write the unit's gradients, usable by work issued to `stream` from now on until ready.
    virtual GradView grads(UnitId unit, Stream& stream) = 0;
    // All gradients of the unit for this micro-batch have been issued to `stream`. Once per unit and
    // micro-batch; a tied matrix is written twice (head, then embedding) but its unit is ready once.
    virtual void ready(UnitId unit, Stream& stream) = 0;
};

}  // namespace trainctl
