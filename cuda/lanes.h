// Runs of elements that one thread reads and writes in one access, seen as floats. n is a power of two of at
// most 16 bytes; n = 1 serves rows whose width or place is off that grid, so that a kernel is written once
// for both.
#pragma once

#include <bit>
#include <cstdint>

#include "cuda/vectors.h"

namespace trainctl::cuda {

// As they lie in memory. Narrow ones in pairs (the first in the low half), which is how registers hold them.
template <class T, int n>
struct alignas(n * sizeof(T)) Lanes {
    T lane[n];
};
template <class T, int n>
requires(sizeof(T) == 2 && n > 1) struct [[gnu::may_alias]] alignas(n * sizeof(T)) Lanes<T, n> {
    std::uint32_t pair[n / 2];
};

// The elements from p on, which is aligned to all of them.
template <int n, class T>
__device__ Lanes<T, n> load(const T* p) {
    return *reinterpret_cast<const Lanes<T, n>*>(p);
}

__device__ inline float low_half(std::uint32_t pair, BFloat16) { return std::bit_cast<float>(pair << 16U); }
__device__ inline float high_half(std::uint32_t pair, BFloat16) {
    return std::bit_cast<float>(pair & 0xFFFF0000U);
}
__device__ inline float low_half(std::uint32_t pair, Float16) {
    return widen(Float16{static_cast<std::uint16_t>(pair)});
}
__device__ inline float high_half(std::uint32_t pair, Float16) {
    return widen(Float16{static_cast<std::uint16_t>(pair >> 16U)});
}

template <class T, int n>
__device__ void widen(const Lanes<T, n>& from, float (&to)[n]) {
    if constexpr (sizeof(T) == 2 && n > 1) {
#pragma unroll
        for (int i = 0; i < n / 2; ++i) {
            to[2 * i] = low_half(from.pair[i], T{});
            to[2 * i + 1] = high_half(from.pair[i], T{});
        }
    } else {
#pragma unroll
        for (int i = 0; i < n; ++i) to[i] = widen(from.lane[i]);
    }
}
template <int n, class T>
__device__ void load(const T* p, float (&to)[n]) {
    widen(load<n>(p), to);
}

// To nearest even, in pairs where the instruction set has that.
template <class T, int n>
__device__ Lanes<T, n> narrow(const float (&from)[n]) {
    Lanes<T, n> result;
    if constexpr (sizeof(T) == 2 && n > 1) {
#pragma unroll
        for (int i = 0; i < n / 2; ++i) result.pair[i] = narrow_pair<T>(from[2 * i], from[2 * i + 1]);
    } else {
#pragma unroll
        for (int i = 0; i < n; ++i) result.lane[i] = narrow<T>(from[i]);
    }
    return result;
}

template <class T, int n>
__device__ void store(T* p, const Lanes<T, n>& from) {
    *reinterpret_cast<Lanes<T, n>*>(p) = from;
}
template <class T, int n>
__device__ void store(T* p, const float (&from)[n]) {
    store(p, narrow<T>(from));
}

}  // namespace trainctl::cuda
