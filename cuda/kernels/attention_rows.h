// Where attention finds its rows in packed tensors, and which probabilities dropout keeps. For kernels.
#pragma once

#include <cstdint>

#include "cuda/kernels/philox.h"
#include "trainctl/ops/ops.h"

namespace trainctl::cuda {

// The rows of one head of one sample: row r begins at `at + r * stride`.
template <class T>
struct HeadRows {
    T* at;
    std::int64_t stride;

    __device__ T* row(int r) const { return at + r * stride; }
};

// Head `head` of `heads` in base[batch x length, heads x head_dim].
template <class T>
__device__ HeadRows<T> head_rows(T* base, const AttentionSettings& s, std::int64_t heads, std::int64_t sample,
                                 std::int64_t head) {
    const std::int64_t stride = heads * s.head_dim;
    return {base + sample * s.length * stride + head * s.head_dim, stride};
}

// A query head and what it reads, or a key/value head, in packed qkv.
template <class T>
__device__ HeadRows<T> query_rows(T* qkv, const AttentionSettings& s, std::int64_t sample,
                                  std::int64_t head) {
    return head_rows(qkv, s, s.heads + 2 * s.kv_heads, sample, head);
}
template <class T>
__device__ HeadRows<T> key_rows(T* qkv, const AttentionSettings& s, std::int64_t sample,
                                std::int64_t kv_head) {
    return head_rows(qkv, s, s.heads + 2 * s.kv_heads, sample, s.heads + kv_head);
}
template <class T>
__device__ HeadRows<T> value_rows(T* qkv, const AttentionSettings& s, std::int64_t sample,
                                  std::int64_t kv_head) {
    return head_rows(qkv, s, s.heads + 2 * s.kv_heads, sample, s.heads + s.kv_heads + kv_head);
}

// What one block works on: blocks are numbered tile by tile within a head, head by head within a sample.
struct BlockPlace {
    std::int64_t sample;
    std::int64_t head;
    int tile;
};
__device__ inline BlockPlace block_place(std::int64_t heads, int tiles) {
    const std::int64_t head = blockIdx.x / static_cast<unsigned>(tiles);
    return {head / heads, head % heads, static_cast<int>(blockIdx.x % static_cast<unsigned>(tiles))};
}

enum class Drops : std::uint8_t { None, Some };

// What dropout does to the probabilities of one head.
class HeadDropout {
  public:
    __device__ HeadDropout(const DropoutMask& mask, const AttentionSettings& s, std::int64_t sample,
                           std::int64_t head)
        : mask_(mask),
          sample_(static_cast<std::uint64_t>(sample)),
          first_((s.first_head + head) * s.length * s.length),
          length_(s.length) {}

    __device__ float one(int query, int key) const {
        float factor[1];
        mask_.factors(sample_, first_ + query * length_ + key, factor);
        return factor[0];
    }
    // Of keys `key` and `key` + 1, mostly from one block of the generator.
    __device__ void two(float (&factors)[2], int query, int key) const {
        const std::int64_t element = first_ + query * length_ + key;
        const int lane = static_cast<int>(element % 4);
        const PhiloxBlock block = mask_.words(sample_, element / 4);
        factors[0] = mask_.one(block, lane);
        factors[1] =
            lane < 3 ? mask_.one(block, lane + 1) : mask_.one(mask_.words(sample_, element / 4 + 1), 0);
    }

  private:
    const DropoutMask& mask_;
    std::uint64_t sample_;
    std::int64_t first_;
    std::int64_t length_;
};

inline constexpr float log2_e = 1.44269504088896340736F;

}  // namespace trainctl::cuda
