#include "parallel/synthetic_model.h"

#include <limits>

#include "trainctl/base/hash.h"
#include "trainctl/base/philox.h"
#include "trainctl/device/host_stream.h"

namespace trainctl::test {

float SyntheticGradient::at(const ParamSpec& param, std::int64_t element, std::int64_t sample) const {
    if (element >= param.global.elements()) return 0.0F;
    if (sample == poisoned_sample && element == 0) return std::numeric_limits<float>::quiet_NaN();
    const PhiloxBlock words = philox4x32(
        philox_key(seed), PhiloxBlock{static_cast<std::uint32_t>(element), static_cast<std::uint32_t>(sample),
                                      static_cast<std::uint32_t>(name_hash(param.name)), 0});
    if (kind == GradientKind::Whole) return static_cast<float>(words[0] % 17U) - 8.0F;
    return (philox_uniform(words[0]) - 0.5F) * (words[1] % 8U == 0 ? 1000.0F : 1.0F);
}

namespace {

// Adds `share` of a sample's gradient to the places of one unit, or overwrites with it.
void write_unit(Stream& stream, const std::vector<ParamSpec>& params, const UnitLayout& unit,
                const UnitView& grads, TensorView weights, Into into, SyntheticGradient gradient,
                std::int64_t sample, float share) {
    for (std::size_t place = 0; place < unit.places.size(); ++place) {
        const TensorView to = grads.tensor(static_cast<int>(place));
        const ParamSpec* param = &params[static_cast<std::size_t>(unit.places[place].param)];
        const std::int64_t offset = unit.places[place].offset;
        host_stream(stream).run([=] {
            const bool real = gradient.kind == GradientKind::Real;
            for (std::int64_t e = 0; e < to.elements(); ++e) {
                float value = gradient.at(*param, e, sample);
                if (real && weights.dtype == DType::F32) value += weights.as<float>()[offset + e];
                if (real && weights.dtype == DType::BF16)
                    value += to_float(weights.as<BFloat16>()[offset + e]);
                if (real && weights.dtype == DType::F16) value += to_float(weights.as<Float16>()[offset + e]);
                float& element = to.as<float>()[e];
                element = into == Into::Overwrite ? share * value : element + share * value;
            }
        });
    }
}

}  // namespace

void synthetic_backward(const std::vector<ParamSpec>& params, const std::vector<UnitLayout>& units,
                        ParamSource& source, GradSink& sink, const std::vector<Stream*>& streams,
                        SyntheticGradient gradient, std::int64_t sample, FirstUse first, Announce announce) {
    const auto stream_of = [&](std::size_t unit) -> Stream& {
        return *streams[(unit + static_cast<std::size_t>(sample)) % streams.size()];
    };
    const auto write = [&](std::size_t index, Stream& stream, const GradView& view, Into into, float share) {
        const UnitLayout& unit = units[index];
        if (gradient.kind ==
            GradientKind::Whole) {  // reads no weights, so is not ordered by waiting for them
            write_unit(stream, params, unit, view.grads, {}, into, gradient, sample, share);
            return;
        }
        const Weights weights = source.acquire(unit.unit, stream);
        write_unit(stream, params, unit, view.grads, weights.flat(), into, gradient, sample, share);
        source.release(unit.unit, stream);
    };
    const bool early = first == FirstUse::Early;
    // Halves of whole numbers are exact in F32 and in BF16 as well.
    constexpr float half = 0.5F;
    if (early) {
        // The head's share, on the head's stream.
        Stream& head = stream_of(units.size() - 1);
        const GradView view = sink.grads(units[0].unit, head);
        write(0, head, view, view.into, half);
    }
    for (std::size_t index = units.size(); index-- > 0;) {
        Stream& stream = stream_of(index);
        Stream& told = announce == Announce::Producers ? stream : stream_of(index + 1);
        const GradView view = sink.grads(units[index].unit, told);
        if (index == 0 && early)
            write(0, stream, view, Into::Accumulate, half);
        else
            write(index, stream, view, view.into, 1.0F);
        sink.ready(units[index].unit, told);
    }
}

}  // namespace trainctl::test
