// What kernels say to the hardware beyond C++: every PTX instruction and every intrinsic of this backend is
// here, as a named function, and nowhere else. The test double (tests/cuda_double) has another file of this
// name, with a body for each that computes the same on a processor.
//
// "Warp" functions are called by all 32 lanes of a warp together.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "trainctl/tensor/dtype.h"

namespace trainctl::cuda {

inline constexpr int warp_size = 32;

// The block's dynamic shared memory from byte `offset` on (a multiple of alignof(T)); uninitialised.
template <class T>
__device__ T* shared_memory(std::size_t offset = 0) {
    extern __shared__ uint4 dynamic_shared[];
    return reinterpret_cast<T*>(reinterpret_cast<char*>(dynamic_shared) + offset);
}

__device__ inline void sync_block() { __syncthreads(); }
__device__ inline void sync_warp() { __syncwarp(); }

// Warp: lane l's value of lane l ^ mask, of lane `source`, of lane l + delta (its own beyond the end).
template <class T>
__device__ T shuffle_xor(T value, int mask) {
    return __shfl_xor_sync(0xFFFFFFFFU, value, mask);
}
template <class T>
__device__ T shuffle(T value, int source) {
    return __shfl_sync(0xFFFFFFFFU, value, source);
}
template <class T>
__device__ T shuffle_down(T value, int delta) {
    return __shfl_down_sync(0xFFFFFFFFU, value, delta);
}

// x, and nothing that the compiler knows of: what is computed from it is computed where it stands. Loops
// would otherwise keep in registers what costs one instruction to compute again.
__device__ inline int computed_here(int x) {
    asm volatile("" : "+r"(x));
    return x;
}

// Integers only: their sums do not depend on the order.
__device__ inline void atomic_add(std::int64_t* to, std::int64_t value) {
    atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
}
__device__ inline std::int32_t atomic_add(std::int32_t* to, std::int32_t value) {
    return atomicAdd(to, value);
}

// Conversions, to nearest even.
__device__ inline float widen(float x) { return x; }
__device__ inline float widen(BFloat16 x) { return to_float(x); }
__device__ inline float widen(Float16 x) { return __half2float(__ushort_as_half(x.bits)); }
template <class T>
__device__ T narrow(float x);
template <>
__device__ inline float narrow<float>(float x) {
    return x;
}
template <>
__device__ inline BFloat16 narrow<BFloat16>(float x) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}
template <>
__device__ inline Float16 narrow<Float16>(float x) {
    return {__half_as_ushort(__float2half_rn(x))};
}
// Two narrowed values in one register, `low` in the low half: the operand format of mma.
template <class T>
__device__ std::uint32_t narrow_pair(float low, float high);
template <>
__device__ inline std::uint32_t narrow_pair<BFloat16>(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
}
template <>
__device__ inline std::uint32_t narrow_pair<Float16>(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
}

// 2^x by the special function unit (2 ulp; subnormal results are 0), and the accurate ones.
__device__ inline float exp2_approximate(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// 1 / x to 1 ulp; subnormal results are 0.
__device__ inline float reciprocal_approximate(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ inline float exp_accurate(float x) { return expf(x); }
__device__ inline float log_accurate(float x) { return logf(x); }
__device__ inline float tanh_accurate(float x) { return tanhf(x); }
__device__ inline float reciprocal_root(float x) { return rsqrtf(x); }
// Never contracted or reordered, so that the sum is the same in every build.
__device__ inline float fused_multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ inline float divide(float a, float b) { return __fdiv_rn(a, b); }
__device__ inline float square_root(float x) { return __fsqrt_rn(x); }

// Warp: d[16x8] += a[16x16] b[16x8] in F32, operands BF16 or F16. Fragments as PTX defines mma.m16n8k16: with
// g = lane / 4, t = lane % 4, a holds rows g and g + 8 (a[0], a[1]; a[2], a[3] are columns + 8), columns 2t
// and 2t + 1; b holds rows 2t, 2t + 1 (b[0]; b[1] is rows + 8) of column g; d holds row g (d[0], d[1]) and g
// + 8 (d[2], d[3]), columns 2t and 2t + 1.
template <class T>
__device__ void multiply_accumulate(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);
template <>
__device__ inline void multiply_accumulate<BFloat16>(float (&d)[4], const std::uint32_t (&a)[4],
                                                     const std::uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ inline void multiply_accumulate<Float16>(float (&d)[4], const std::uint32_t (&a)[4],
                                                    const std::uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Warp: four 8x8 matrices of 16-bit elements from shared memory. Lane l gives the address of row l % 8 (16
// bytes, aligned) of matrix l / 8; r[i] of lane l is row l / 4, columns 2 (l % 4) and + 1 of matrix i
// (transposed: column and row exchanged).
__device__ inline void load_matrices(std::uint32_t (&r)[4], const void* row) {
    const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
__device__ inline void load_matrices_transposed(std::uint32_t (&r)[4], const void* row) {
    const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

enum class Fetch { Data, Zeros };  // Zeros: nothing is read, 16 zero bytes arrive

// 16 bytes (both aligned to 16) from global to shared memory, some time before the wait for their group ends.
// A group is what this thread has fetched since its last commit; wait_groups<N> waits until at most the N
// newest of its groups are under way. Other threads see the bytes after a sync_block() that follows the wait.
__device__ inline void fetch_16(void* shared, const void* global, Fetch fetch) {
    const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
    const int bytes = fetch == Fetch::Data ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes)
                 : "memory");
}
// The same for 8 and for 4 bytes (both aligned to that).
__device__ inline void fetch_8(void* shared, const void* global, Fetch fetch) {
    const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
    const int bytes = fetch == Fetch::Data ? 8 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(global), "r"(bytes)
                 : "memory");
}
__device__ inline void fetch_4(void* shared, const void* global, Fetch fetch) {
    const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
    const int bytes = fetch == Fetch::Data ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(global), "r"(bytes)
                 : "memory");
}
__device__ inline void commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int newest>
__device__ void wait_groups() {
    asm volatile("cp.async.wait_group %0;" ::"n"(newest) : "memory");
}

}  // namespace trainctl::cuda
