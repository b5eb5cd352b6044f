// The simplest ParamSource and GradSink: whole weights and whole gradients of every unit in one buffer each,
// no ranks, no sharding. For tests of the model against oracles; it also checks that the model keeps the
// protocol (acquire before use, one release each, hints that come true, every unit ready exactly once per
// micro-batch). Needs only the agreement that reading and writing buffers from the host is allowed (cpu
// device).
#pragma once

#include <string>
#include <vector>

#include "trainctl/device/device.h"
#include "trainctl/model/param_source.h"

namespace trainctl {

class PlainParams final : public ParamSource, public GradSink {
  public:
    // Zero-filled; touches no memory itself, so that it also works over the sim device.
    PlainParams(Device& device, std::vector<ParamSpec> params, DType weights, DType gradients);

    // initial_values() of every parameter, rounded to the dtype of the weights.
    void initialise(std::uint64_t seed);
    // NaN in every gradient element: whatever the model does not overwrite shows.
    void poison_gradients();

    // Under the padded shape; `param` is the index into params().
    [[nodiscard]] TensorView weight(int param) const;
    [[nodiscard]] TensorView gradient(int param) const;
    [[nodiscard]] int index(const std::string& name) const;
    [[nodiscard]] const std::vector<ParamSpec>& params() const { return params_; }
    [[nodiscard]] const std::vector<UnitLayout>& layouts() const { return layouts_; }
    // Flat weights and gradients of a unit.
    [[nodiscard]] TensorView unit_weights(UnitId unit) const;
    [[nodiscard]] TensorView unit_gradients(UnitId unit) const;

    // ParamSource
    Weights acquire(UnitId unit, Stream& stream) override;
    void hint(UnitId next) override;
    void release(UnitId unit, Stream& stream) override;

    // GradSink. Micro-batch 0 overwrites, later ones accumulate.
    void begin_micro(int part, int index, MicroKind kind) override;
    GradView grads(UnitId unit, Stream& stream) override;
    void ready(UnitId unit, Stream& stream) override;

    // Every unit has been released, and all or (no_gradients) none became ready since begin_micro.
    void check_idle(bool no_gradients = false) const;

  private:
    [[nodiscard]] std::size_t at(UnitId unit) const { return static_cast<std::size_t>(unit); }
    [[nodiscard]] UnitView view(UnitId unit, const Buffer& buffer, DType dtype) const;
    [[nodiscard]] int place(int param) const;  // within its unit

    std::vector<ParamSpec> params_;
    std::vector<UnitLayout> layouts_;
    std::vector<std::int64_t> starts_;  // of each unit, elements
    DType weight_dtype_;
    DType gradient_dtype_;
    Buffer weights_;
    Buffer gradients_;
    std::vector<bool> held_;
    std::vector<bool> ready_;
    UnitId hinted_ = -1;
    int micro_ = 0;
};

}  // namespace trainctl
