// A training whose gradients somebody meddles with.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "trainctl/parallel/zero.h"

namespace trainctl::test {

// Shows the gradients of one unit to `meddle` right before they are handed over: its flat F32 block and the
// number of updates so far. Everything else passes through.
class MeddledState final : public ZeroState, private GradSink {
  public:
    using Meddle = std::function<void(TensorView grads, std::int64_t update)>;

    MeddledState(std::unique_ptr<ZeroState> real, UnitId unit, Meddle meddle)
        : real_(std::move(real)), unit_(unit), meddle_(std::move(meddle)) {}
    ParamSource& params() override { return real_->params(); }
    GradSink& grads() override { return *this; }
    void initialise(std::uint64_t seed) override { real_->initialise(seed); }
    void update(TensorView scalars, const UpdateSettings& settings) override {
        real_->update(scalars, settings);
        ++update_;
    }
    std::vector<NamedSlice> state_slices() override { return real_->state_slices(); }
    std::vector<NamedSlice> load_slices() override { return real_->load_slices(); }
    void loaded() override { real_->loaded(); }
    [[nodiscard]] std::vector<MemoryRow> memory_table() const override { return real_->memory_table(); }
    [[nodiscard]] int buckets() const override { return real_->buckets(); }

  private:
    void begin_micro(int part, int index, MicroKind kind) override {
        real_->grads().begin_micro(part, index, kind);
    }
    GradView grads(UnitId unit, Stream& stream) override {
        const GradView view = real_->grads().grads(unit, stream);
        if (unit == unit_) block_ = view.grads.flat();
        return view;
    }
    void ready(UnitId unit, Stream& stream) override {
        if (unit == unit_) meddle_(block_, update_);
        real_->grads().ready(unit, stream);
    }

    std::unique_ptr<ZeroState> real_;
    UnitId unit_;
    Meddle meddle_;
    std::int64_t update_ = 0;
    TensorView block_;
};

}  // namespace trainctl::test
