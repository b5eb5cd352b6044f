// Allocation and filling of case tensors.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "support/op_cases.h"
#include "trainctl/device/host_stream.h"

namespace trainctl {
namespace {

DType wide(DType dtype) { return dtype == DType::F64 ? DType::F64 : DType::F32; }

DType dtype_of(CaseRole role, DType compute) {
    switch (role) {
        case CaseRole::Activation:
        case CaseRole::Parameter:
        case CaseRole::Output:
            return compute;
        case CaseRole::Table:
        case CaseRole::WideOutput:
        case CaseRole::Saved:
            return wide(compute);
        case CaseRole::Indices:
            return DType::I32;
    }
    fail(Exit::Internal, "unknown CaseRole");
}

double rounded(double value, DType dtype) {
    const auto narrow = static_cast<float>(value);
    if (dtype == DType::BF16) return static_cast<double>(to_float(to_bfloat16(narrow)));
    if (dtype == DType::F16) return static_cast<double>(to_float(to_float16(narrow)));
    return dtype == DType::F32 ? static_cast<double>(narrow) : value;
}

// Normal numbers that depend on (seed, tensor number, index) alone.
double normal(std::uint64_t seed, std::uint64_t stream, std::int64_t index) {
    const PhiloxBlock block = philox4x32(philox_key(seed), static_cast<std::uint64_t>(index), stream);
    const double u = (static_cast<double>(block[0]) + 1.0) * 0x1.0p-32;
    const double v = static_cast<double>(block[1]) * 0x1.0p-32;
    return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

void fill_normal(const TensorView& view, double centre, double spread, DType rounding, std::uint64_t seed,
                 std::uint64_t stream) {
    for (std::int64_t i = 0; i < view.elements(); ++i) {
        set_element(view, i, rounded(centre + spread * normal(seed, stream, i), rounding));
    }
}

void fill_indices(const TensorView& view, const CaseTensor& spec, std::uint64_t seed, std::uint64_t stream) {
    for (std::int64_t i = 0; i < view.elements(); ++i) {
        const PhiloxBlock block = philox4x32(philox_key(seed), static_cast<std::uint64_t>(i), stream);
        const bool ignored = static_cast<double>(block[1]) * 0x1.0p-32 < spec.ignored;
        view.as<std::int32_t>()[i] =
            ignored ? -1 : static_cast<std::int32_t>(block[0] % static_cast<std::uint32_t>(spec.range));
    }
}

// Nothing on the sim device, where nothing has a value.
void combine_in_host_memory(Stream& stream, const std::vector<TensorView>& parts, CaseCombine how) {
    if (dynamic_cast<HostStream*>(&stream) == nullptr) return;
    host_stream(stream).run([parts, how] {
        for (std::int64_t i = 0; i < parts[0].elements(); ++i) {
            double value = element(parts[0], i);
            for (std::size_t rank = 1; rank < parts.size(); ++rank) {
                const double other = element(parts[rank], i);
                value = how == CaseCombine::Maximum ? std::max(value, other) : value + other;
            }
            for (const TensorView& part : parts) set_element(part, i, value);
        }
    });
}

}  // namespace

TensorView& CaseTensors::operator[](const std::string& name) {
    const auto found = views_.find(name);
    invariant(found != views_.end(), "this op case has no tensor of that name");
    return found->second;
}

TensorView CaseTensors::optional(const std::string& name) const {
    const auto found = views_.find(name);
    return found == views_.end() ? TensorView{} : found->second;
}

CaseTensors OpCase::allocate(Device& device, Ops ops, DType dtype, DType rounded_to,
                             std::uint64_t seed) const {
    CaseTensors result;
    const auto make = [&](const std::string& tensor_name, const Shape& shape, DType tensor_dtype) {
        TensorView view{nullptr, shape, tensor_dtype};
        Buffer buffer = device.allocate(view.bytes(), Memory::Device, tensor_name);
        view.data = buffer.data();
        result.buffers_.push_back(std::move(buffer));
        result.views_[tensor_name] = view;
        return view;
    };
    std::uint64_t stream = 0;
    for (const CaseTensor& spec : tensors) {
        stream += 2;
        const TensorView view = make(spec.name, spec.shape, dtype_of(spec.role, dtype));
        switch (spec.role) {
            case CaseRole::Activation:
                fill_normal(view, spec.centre, spec.spread, rounded_to, seed, stream);
                fill_normal(make("d" + spec.name, spec.shape, dtype), 0.0, 9.0, rounded_to, seed, stream + 1);
                break;
            case CaseRole::Parameter:
                fill_normal(view, spec.centre, spec.spread, rounded_to, seed, stream);
                fill_normal(make("d" + spec.name, spec.shape, wide(dtype)), 0.0,
                            into == Into::Accumulate ? 1.0 : 9.0, wide(rounded_to), seed, stream + 1);
                break;
            case CaseRole::Table:
                for (std::int64_t i = 0; i < view.elements(); i += 2) {  // unit vectors
                    const double angle = 3.0 * normal(seed, stream, i);
                    set_element(view, i, rounded(std::cos(angle), DType::F32));
                    set_element(view, i + 1, rounded(std::sin(angle), DType::F32));
                }
                break;
            case CaseRole::Indices:
                fill_indices(view, spec, seed, stream);
                break;
            case CaseRole::Output:
                std::memset(view.data, 0x55, view.bytes());
                fill_normal(make("d" + spec.name, spec.shape, dtype), 0.0, spec.spread, rounded_to, seed,
                            stream);
                break;
            case CaseRole::WideOutput:
                std::memset(view.data, 0x55, view.bytes());
                fill_normal(make("d" + spec.name, spec.shape, wide(dtype)),
                            spec.constant_gradient ? 1.0 : 0.0, spec.constant_gradient ? 0.0 : spec.spread,
                            wide(rounded_to), seed, stream);
                break;
            case CaseRole::Saved:
                std::memset(view.data, 0x55, view.bytes());
                break;
        }
    }
    add_scratch(result, device, ops, dtype);
    if (!result.scratch.empty())
        std::memset(result.scratch.data, 0xFF, result.scratch.bytes());  // NaN: scratch must not be trusted
    result.combine = combine_in_host_memory;
    return result;
}

CaseTensors OpCase::allocate_like(const CaseTensors& other, Device& device, Ops ops, DType dtype) const {
    CaseTensors result;
    for (const auto& [tensor_name, theirs] : other.views_) {
        TensorView view = theirs;
        result.buffers_.push_back(device.allocate(view.bytes(), Memory::Device, tensor_name));
        view.data = result.buffers_.back().data();
        result.views_[tensor_name] = view;
    }
    add_scratch(result, device, ops, dtype);
    return result;
}

void OpCase::add_scratch(CaseTensors& tensors_of_case, Device& device, Ops ops, DType dtype) const {
    const std::size_t bytes = scratch_bytes(ops, dtype);
    if (bytes == 0) return;
    tensors_of_case.buffers_.push_back(device.allocate(bytes, Memory::Device, "scratch"));
    tensors_of_case.scratch =
        tensors_of_case.buffers_.back().view(Shape{static_cast<std::int64_t>(bytes)}, DType::U8);
}

}  // namespace trainctl
