// Everything a call of an op depends on, as bytes that are the same if and only if the calls are.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

#include "trainctl/ops/ops.h"

namespace trainctl::cuda {

// One name per function of ops.h that computes.
enum class OpId : std::uint8_t {
    MatmulForward,
    MatmulBackwardInput,
    MatmulBackwardWeight,
    NormForward,
    NormBackward,
    AttentionForward,
    AttentionBackward,
    Rope,
    BiasGeluForward,
    BiasGeluBackward,
    SwigluForward,
    SwigluBackward,
    BiasBackward,
    Add,
    Dropout,
    Cast,
    FillZero,
    EmbeddingForward,
    EmbeddingBackward,
    CrossEntropy,
    RowMaxima,
    ExponentialSums,
    FinishCrossEntropy,
    SumLosses,
    SumSquares,
    FinishNorm,
    Adamw,
};

// Structures go member by member: their padding may hold anything. Each is taken apart by a structured
// binding, which does not compile any more when a member is added.
class CallBytes {
  public:
    // They are put behind what is there.
    explicit CallBytes(std::vector<std::byte>& bytes) : bytes_(bytes) {}

    template <class T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_pointer_v<T>
    void put(T value) {
        const std::size_t end = bytes_.size();
        bytes_.resize(end + sizeof(T));
        std::memcpy(bytes_.data() + end, &value, sizeof(T));
    }
    void put(const Shape& shape) {
        put(shape.rank());
        for (int dim = 0; dim < shape.rank(); ++dim) put(shape[dim]);
    }
    void put(const TensorView& tensor) {
        const auto& [data, shape, dtype] = tensor;
        put_all(data, shape, dtype);
    }
    void put(const NormSettings& settings) {
        const auto& [kind, epsilon] = settings;
        put_all(kind, epsilon);
    }
    void put(const PhiloxKey& key) {
        const auto& [k0, k1] = key;
        put_all(k0, k1);
    }
    void put(const Dropout& site) {
        const auto& [probability, key, number, first_sample, first_row] = site;
        put_all(probability, key, number, first_sample, first_row);
    }
    void put(const AttentionSettings& settings) {
        const auto& [batch, length, heads, kv_heads, head_dim, scale, dropout, first_head] = settings;
        put_all(batch, length, heads, kv_heads, head_dim, scale, dropout, first_head);
    }
    void put(const LossSettings& settings) {
        const auto& [vocab_size, gradient_scale, pass, first_column] = settings;
        put_all(vocab_size, gradient_scale, pass, first_column);
    }
    void put(const AdamwSettings& settings) {
        const auto& [lr, beta1, beta2, epsilon, weight_decay, step] = settings;
        put_all(lr, beta1, beta2, epsilon, weight_decay, step);
    }
    template <class... Values>
    void put_all(const Values&... values) {
        (put(values), ...);
    }

  private:
    std::vector<std::byte>& bytes_;
};

}  // namespace trainctl::cuda
