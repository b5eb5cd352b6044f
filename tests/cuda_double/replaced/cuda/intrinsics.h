// The test double's bodies of cuda/intrinsics.h: the same functions, computed on a processor.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "cuda_double/block_engine.h"
#include "trainctl/tensor/dtype.h"

namespace trainctl::cuda {

inline constexpr int warp_size = 32;

template <class T>
T* shared_memory(std::size_t offset = 0) {
    return reinterpret_cast<T*>(cuda_double::shared_bytes() + offset);
}

inline void sync_block() { cuda_double::meet_block(); }
inline void sync_warp() {
    cuda_double::meet_warp("sync_warp", nullptr, [](const cuda_double::Payloads&) {});
}

// Every lane gets what the lane source(own lane) gave.
template <class T, class Source>
T exchange(const char* what, T value, Source source) {
    struct Message {
        T given;
        T got;
        int from;
    };
    Message mine{value, {}, source(cuda_double::lane_index())};
    cuda_double::meet_warp(what, &mine, [](const cuda_double::Payloads& lanes) {
        for (void* lane : lanes) {
            auto* message = static_cast<Message*>(lane);
            message->got = static_cast<Message*>(lanes[static_cast<std::size_t>(message->from)])->given;
        }
    });
    return mine.got;
}
template <class T>
T shuffle_xor(T value, int mask) {
    return exchange("shuffle_xor", value, [mask](int lane) { return (lane ^ mask) & 31; });
}
template <class T>
T shuffle(T value, int source) {
    return exchange("shuffle", value, [source](int) { return source & 31; });
}
template <class T>
T shuffle_down(T value, int delta) {
    return exchange("shuffle_down", value,
                    [delta](int lane) { return lane + delta < 32 ? lane + delta : lane; });
}

inline int computed_here(int x) { return x; }

// One thread runs at a time on one device; several devices share no memory.
inline void atomic_add(std::int64_t* to, std::int64_t value) { *to += value; }
inline std::int32_t atomic_add(std::int32_t* to, std::int32_t value) {
    const std::int32_t before = *to;
    *to += value;
    return before;
}

inline float widen(float x) { return x; }
inline float widen(BFloat16 x) { return to_float(x); }
inline float widen(Float16 x) { return to_float(x); }
template <class T>
T narrow(float x);
template <>
inline float narrow<float>(float x) {
    return x;
}
template <>
inline BFloat16 narrow<BFloat16>(float x) {
    return to_bfloat16(x);
}
template <>
inline Float16 narrow<Float16>(float x) {
    return to_float16(x);
}
template <class T>
std::uint32_t narrow_pair(float low, float high) {
    return narrow<T>(low).bits | static_cast<std::uint32_t>(narrow<T>(high).bits) << 16U;
}

inline float flush_subnormal(float x) { return std::fabs(x) < 0x1.0p-126F ? std::copysign(0.0F, x) : x; }
inline float exp2_approximate(float x) { return flush_subnormal(std::exp2(flush_subnormal(x))); }
inline float reciprocal_approximate(float x) { return flush_subnormal(1.0F / flush_subnormal(x)); }
inline float exp_accurate(float x) { return std::exp(x); }
inline float log_accurate(float x) { return std::log(x); }
inline float tanh_accurate(float x) { return std::tanh(x); }
inline float reciprocal_root(float x) { return 1.0F / std::sqrt(x); }
inline float fused_multiply_add(float a, float b, float c) { return std::fma(a, b, c); }
inline float divide(float a, float b) { return a / b; }
inline float square_root(float x) { return std::sqrt(x); }

template <class T>
float half_of(std::uint32_t pair, int half) {
    return widen(T{static_cast<std::uint16_t>(pair >> (16 * half))});
}

template <class T>
void multiply_accumulate(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    struct Fragments {
        float* d;
        const std::uint32_t* a;
        const std::uint32_t* b;
    };
    Fragments mine{d, a, b};
    cuda_double::meet_warp("multiply_accumulate", &mine, [](const cuda_double::Payloads& lanes) {
        float left[16][16];  // row, inner
        float right[8][16];  // column, inner
        for (int lane = 0; lane < 32; ++lane) {
            const auto* fragments = static_cast<const Fragments*>(lanes[static_cast<std::size_t>(lane)]);
            const int g = lane / 4;
            const int t = lane % 4;
            for (int half = 0; half < 2; ++half) {
                for (int i = 0; i < 4; ++i)
                    left[g + i % 2 * 8][2 * t + half + i / 2 * 8] = half_of<T>(fragments->a[i], half);
                for (int i = 0; i < 2; ++i)
                    right[g][2 * t + half + i * 8] = half_of<T>(fragments->b[i], half);
            }
        }
        for (int lane = 0; lane < 32; ++lane) {
            auto* fragments = static_cast<Fragments*>(lanes[static_cast<std::size_t>(lane)]);
            for (int i = 0; i < 4; ++i) {
                const float* row = left[lane / 4 + i / 2 * 8];
                const float* column = right[lane % 4 * 2 + i % 2];
                float sum = 0.0F;
                for (int inner = 0; inner < 16; ++inner) sum += row[inner] * column[inner];
                fragments->d[i] += sum;
            }
        }
    });
}

enum class MatrixOrder : std::uint8_t { Straight, Transposed };
inline void exchange_matrices(const char* what, std::uint32_t (&r)[4], const void* row, MatrixOrder order) {
    struct Request {
        std::uint32_t* r;
        const std::byte* row;
    };
    Request mine{r, static_cast<const std::byte*>(row)};
    cuda_double::meet_warp(what, &mine, [order](const cuda_double::Payloads& lanes) {
        const auto request = [&lanes](int lane) {
            return static_cast<Request*>(lanes[static_cast<std::size_t>(lane)]);
        };
        for (int matrix = 0; matrix < 4; ++matrix) {
            std::array<std::array<std::uint16_t, 8>, 8> cells;
            for (int i = 0; i < 8; ++i)
                std::memcpy(cells[static_cast<std::size_t>(i)].data(), request(matrix * 8 + i)->row, 16);
            for (int lane = 0; lane < 32; ++lane) {
                std::uint32_t pair = 0;
                for (int half = 0; half < 2; ++half) {
                    const auto i = static_cast<std::size_t>(lane / 4);
                    const auto j = static_cast<std::size_t>(lane % 4 * 2 + half);
                    const std::uint16_t cell = order == MatrixOrder::Straight ? cells[i][j] : cells[j][i];
                    pair |= static_cast<std::uint32_t>(cell) << (16 * half);
                }
                request(lane)->r[matrix] = pair;
            }
        }
    });
}
inline void load_matrices(std::uint32_t (&r)[4], const void* row) {
    exchange_matrices("load_matrices", r, row, MatrixOrder::Straight);
}
inline void load_matrices_transposed(std::uint32_t (&r)[4], const void* row) {
    exchange_matrices("load_matrices_transposed", r, row, MatrixOrder::Transposed);
}

enum class Fetch { Data, Zeros };
inline void fetch_16(void* shared, const void* global, Fetch fetch) {
    cuda_double::fetch_later(shared, fetch == Fetch::Data ? global : nullptr, 16);
}
inline void fetch_8(void* shared, const void* global, Fetch fetch) {
    cuda_double::fetch_later(shared, fetch == Fetch::Data ? global : nullptr, 8);
}
inline void fetch_4(void* shared, const void* global, Fetch fetch) {
    cuda_double::fetch_later(shared, fetch == Fetch::Data ? global : nullptr, 4);
}
inline void commit_group() { cuda_double::commit_fetches(); }
template <int newest>
void wait_groups() {
    cuda_double::wait_for_fetches(newest);
}

}  // namespace trainctl::cuda
