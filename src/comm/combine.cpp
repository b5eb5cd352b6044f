#include "comm/combine.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <type_traits>

namespace trainctl {
namespace {

constexpr std::int64_t block = 1024;  // elements; accumulators stay in the first-level cache

template <class T>
struct Accumulator {
    using Type = T;
};
template <>
struct Accumulator<BFloat16> {
    using Type = float;
};
template <>
struct Accumulator<Float16> {
    using Type = float;
};

template <class T>
typename Accumulator<T>::Type load(T value) {
    if constexpr (std::is_arithmetic_v<T>) {
        return value;
    } else {
        return to_float(value);
    }
}

template <class T, class A>
T store(A value) {
    if constexpr (std::is_same_v<T, BFloat16>) {
        return to_bfloat16(value);
    } else if constexpr (std::is_same_v<T, Float16>) {
        return to_float16(value);
    } else {
        return value;
    }
}

template <class A>
A add(A a, A b) {
    if constexpr (std::is_integral_v<A>) {
        using U = std::make_unsigned_t<A>;  // signed overflow would be undefined
        return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
    } else {
        return a + b;
    }
}

template <class A>
bool is_nan(A value) {
    if constexpr (std::is_floating_point_v<A>) return std::isnan(value);
    return false;
}

// NaN wins, on whichever rank it is; a NaN in `a` stays because every comparison with it is false.
template <class A>
A maximum(A a, A b) {
    return b > a || is_nan(b) ? b : a;
}
template <class A>
A minimum(A a, A b) {
    return b < a || is_nan(b) ? b : a;
}

template <class In, class Out, class Combine>
void run(std::byte* out_bytes, Into into, std::span<const std::byte* const> sources, std::int64_t count,
         Combine combine_two) {
    using A = typename Accumulator<In>::Type;
    auto* out = reinterpret_cast<Out*>(out_bytes);
    std::array<A, block> sum;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled below, and large
    for (std::int64_t begin = 0; begin < count; begin += block) {
        const std::int64_t length = std::min(block, count - begin);
        const auto* first = reinterpret_cast<const In*>(sources[0]) + begin;
        for (std::int64_t i = 0; i < length; ++i) sum[static_cast<std::size_t>(i)] = load(first[i]);
        for (const std::byte* source_bytes : sources.subspan(1)) {
            const auto* source = reinterpret_cast<const In*>(source_bytes) + begin;
            for (std::int64_t i = 0; i < length; ++i) {
                A& a = sum[static_cast<std::size_t>(i)];
                a = combine_two(a, load(source[i]));
            }
        }
        Out* target = out + begin;
        if (into == Into::Overwrite) {
            for (std::int64_t i = 0; i < length; ++i)
                target[i] = store<Out>(sum[static_cast<std::size_t>(i)]);
        } else {
            for (std::int64_t i = 0; i < length; ++i) {
                target[i] = store<Out>(add<A>(load(target[i]), sum[static_cast<std::size_t>(i)]));
            }
        }
    }
}

template <class In, class Out>
void run(std::byte* out, Into into, std::span<const std::byte* const> sources, Reduce reduce,
         std::int64_t count) {
    using A = typename Accumulator<In>::Type;
    switch (reduce) {
        case Reduce::Sum:
            return run<In, Out>(out, into, sources, count, [](A a, A b) { return add(a, b); });
        case Reduce::Max:
            return run<In, Out>(out, into, sources, count, [](A a, A b) { return maximum(a, b); });
        case Reduce::Min:
            return run<In, Out>(out, into, sources, count, [](A a, A b) { return minimum(a, b); });
    }
}

}  // namespace

void check_combinable(DType in, DType out) {
    const bool same = in == out && (in == DType::F64 || in == DType::F32 || in == DType::BF16 ||
                                    in == DType::F16 || in == DType::I64 || in == DType::I32);
    const bool widening = out == DType::F32 && (in == DType::BF16 || in == DType::F16);
    if (same || widening) return;
    fail(Exit::Internal, fmt::format("no reduction of {} into {}", dtype_name(in), dtype_name(out)));
}

void combine(std::byte* out, DType out_dtype, Into into, std::span<const std::byte* const> sources, DType in,
             Reduce reduce, std::int64_t count) {
    check_combinable(in, out_dtype);
    switch (in) {
        case DType::F64:
            return run<double, double>(out, into, sources, reduce, count);
        case DType::F32:
            return run<float, float>(out, into, sources, reduce, count);
        case DType::BF16:
            if (out_dtype == DType::F32) return run<BFloat16, float>(out, into, sources, reduce, count);
            return run<BFloat16, BFloat16>(out, into, sources, reduce, count);
        case DType::F16:
            if (out_dtype == DType::F32) return run<Float16, float>(out, into, sources, reduce, count);
            return run<Float16, Float16>(out, into, sources, reduce, count);
        case DType::I64:
            return run<std::int64_t, std::int64_t>(out, into, sources, reduce, count);
        case DType::I32:
            return run<std::int32_t, std::int32_t>(out, into, sources, reduce, count);
        default:
            break;
    }
}

}  // namespace trainctl
