#include "parallel/model_state.h"

#include <algorithm>
#include <string>

#include "trainctl/model/param.h"
#include "trainctl/parallel/zero.h"

namespace trainctl {
namespace {

constexpr std::int64_t upload_elements = std::int64_t{1} << 20;  // 4 MiB of host memory

// Elements [begin, end) of the unit, all of one parameter, at `to` on the device.
void upload_initial(Device& device, Stream& stream, const ParamSpec& param, std::int64_t begin,
                    std::int64_t end, std::uint64_t seed, TensorView to) {
    std::vector<float> values;
    for (std::int64_t done = 0; done < end - begin; done += upload_elements) {
        const std::int64_t count = std::min(upload_elements, end - begin - done);
        values.resize(static_cast<std::size_t>(count));
        initial_values(param, seed, begin + done, values);
        upload(device, stream, to.flat(done, count), std::as_bytes(std::span(values)));
    }
}

std::string state_name(const std::string& param, State state) {
    switch (state) {
        case State::Master:
            return param;
        case State::FirstMoment:
            return param + ".m";
        case State::SecondMoment:
            return param + ".v";
    }
    return {};
}

bool is_moment(const std::string& name) { return name.ends_with(".m") || name.ends_with(".v"); }

}  // namespace

std::vector<NamedSlice> weights_of(std::vector<NamedSlice> slices) {
    std::erase_if(slices, [](const NamedSlice& slice) { return is_moment(slice.name); });
    return slices;
}

void set_initial_state(const ShardPlan& plan, const ModelMemory& memory, Device& device, Ops ops,
                       Stream& stream, std::uint64_t seed) {
    for (std::size_t i = 0; i < plan.units().size(); ++i) {
        for (const State state : all_states) ops.elementwise.fill_zero(stream, memory.state(state, i));
        const Range held = plan.held(i);
        const TensorView master = memory.state(State::Master, i);
        for (const ParamPlace& place : plan.unit(i).places) {
            const std::int64_t begin = std::max(held.begin, place.offset);
            const std::int64_t end = std::min(held.end, place.offset + place.elements);
            if (begin >= end) continue;
            upload_initial(device, stream, plan.params()[static_cast<std::size_t>(place.param)],
                           begin - place.offset, end - place.offset, seed,
                           master.flat(begin - held.begin, end - begin));
        }
    }
}

std::vector<NamedSlice> named_slices(const ShardPlan& plan, const ModelMemory& memory, Share share) {
    std::vector<NamedSlice> slices;
    for (std::size_t i = 0; i < plan.units().size(); ++i) {
        const Range held = plan.held(i);
        const Range shared = share == Share::Owned ? plan.owned(i) : held;
        for (const TensorRange& range : tensor_ranges(plan.unit(i), plan.params(), shared)) {
            const ParamSpec& param = plan.params()[static_cast<std::size_t>(range.param)];
            if (share == Share::Owned && !param.primary) continue;
            for (const State state : all_states) {
                slices.push_back(
                    {state_name(param.name, state), param.global, local_box(param), range.flat,
                     memory.state(state, i).flat(range.unit_offset - held.begin, range.flat.size())});
            }
        }
    }
    return slices;
}

}  // namespace trainctl
