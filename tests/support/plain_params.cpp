#include "support/plain_params.h"

#include <cstring>
#include <utility>

#include "support/reference/elements.h"

namespace trainctl {

PlainParams::PlainParams(Device& device, std::vector<ParamSpec> params, DType weights, DType gradients)
    : params_(std::move(params)),
      layouts_(unit_layouts(params_, 1)),
      weight_dtype_(weights),
      gradient_dtype_(gradients),
      held_(layouts_.size(), false),
      ready_(layouts_.size(), false) {
    std::int64_t total = 0;
    for (const UnitLayout& layout : layouts_) {
        starts_.push_back(total);
        total += layout.padded;
    }
    const auto elements = static_cast<std::size_t>(total);
    weights_ = device.allocate(elements * dtype_size(weights), Memory::Device, "plain weights");
    gradients_ = device.allocate(elements * dtype_size(gradients), Memory::Device, "plain gradients");
}

void PlainParams::initialise(std::uint64_t seed) {
    for (std::size_t i = 0; i < params_.size(); ++i) {
        const TensorView to = weight(static_cast<int>(i));
        std::vector<float> values(static_cast<std::size_t>(to.elements()));
        initial_values(params_[i], seed, 0, values);
        for (std::size_t e = 0; e < values.size(); ++e) {
            set_element(to, static_cast<std::int64_t>(e), static_cast<double>(values[e]));
        }
    }
}

void PlainParams::poison_gradients() { std::memset(gradients_.data(), 0xFF, gradients_.bytes()); }

int PlainParams::place(int param) const {
    const UnitLayout& layout = layouts_[at(params_[static_cast<std::size_t>(param)].unit)];
    for (std::size_t i = 0; i < layout.places.size(); ++i) {
        if (layout.places[i].param == param) return static_cast<int>(i);
    }
    fail(Exit::Internal, "plain params: parameter without a place");
}

UnitView PlainParams::view(UnitId unit, const Buffer& buffer, DType dtype) const {
    const UnitLayout& layout = layouts_[at(unit)];
    const std::size_t offset = storage_bytes(starts_[at(unit)], dtype);
    return {layout, params_, buffer.view(Shape{layout.padded}, dtype, offset)};
}

TensorView PlainParams::weight(int param) const {
    return view(params_[static_cast<std::size_t>(param)].unit, weights_, weight_dtype_).tensor(place(param));
}

TensorView PlainParams::gradient(int param) const {
    return view(params_[static_cast<std::size_t>(param)].unit, gradients_, gradient_dtype_)
        .tensor(place(param));
}

int PlainParams::index(const std::string& name) const {
    for (std::size_t i = 0; i < params_.size(); ++i) {
        if (params_[i].name == name) return static_cast<int>(i);
    }
    fail(Exit::Internal, "plain params: no parameter " + name);
}

TensorView PlainParams::unit_weights(UnitId unit) const { return view(unit, weights_, weight_dtype_).flat(); }
TensorView PlainParams::unit_gradients(UnitId unit) const {
    return view(unit, gradients_, gradient_dtype_).flat();
}

Weights PlainParams::acquire(UnitId unit, Stream& /*stream*/) {
    invariant(!held_[at(unit)], "plain params: a unit acquired twice");
    invariant(hinted_ < 0 || hinted_ == unit, "plain params: another unit acquired than was hinted");
    hinted_ = -1;
    held_[at(unit)] = true;
    return view(unit, weights_, weight_dtype_);
}

void PlainParams::hint(UnitId next) {
    invariant(next >= 0 && at(next) < layouts_.size(), "plain params: hint of a unit that does not exist");
    hinted_ = next;
}

void PlainParams::release(UnitId unit, Stream& /*stream*/) {
    invariant(held_[at(unit)], "plain params: a unit released that was not acquired");
    held_[at(unit)] = false;
}

void PlainParams::begin_micro(int /*part*/, int index, MicroKind /*kind*/) {
    micro_ = index;
    ready_.assign(ready_.size(), false);
}

GradView PlainParams::grads(UnitId unit, Stream& /*stream*/) {
    invariant(!ready_[at(unit)], "plain params: gradients asked for after the unit was ready");
    return {view(unit, gradients_, gradient_dtype_), micro_ == 0 ? Into::Overwrite : Into::Accumulate};
}

void PlainParams::ready(UnitId unit, Stream& /*stream*/) {
    invariant(!ready_[at(unit)], "plain params: a unit became ready twice in one micro-batch");
    ready_[at(unit)] = true;
}

void PlainParams::check_idle(bool no_gradients) const {
    for (const bool held : held_) invariant(!held, "plain params: a unit was not released");
    for (const bool done : ready_) {
        invariant(done != no_gradients, "plain params: a unit is not ready, or ready without gradients");
    }
    invariant(hinted_ < 0, "plain params: a hinted unit was never acquired");
}

}  // namespace trainctl
