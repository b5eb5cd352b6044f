// What the functions that start attention kernels share.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "cuda/kernels/attention_tile.h"
#include "trainctl/base/error.h"

namespace trainctl::cuda {

inline RowAccess row_access(const AttentionSettings& s, std::initializer_list<const void*> tensors) {
    // Every row begins at a multiple of head_dim elements of 2 bytes.
    std::uintptr_t bits = static_cast<std::uintptr_t>(s.head_dim) * 2;
    for (const void* tensor : tensors) bits |= reinterpret_cast<std::uintptr_t>(tensor);
    if (bits % 16 == 0) return RowAccess::By16Bytes;
    return bits % 8 == 0 ? RowAccess::By8Bytes : RowAccess::ByElement;
}

// What attention kernels are made for: element type, the columns that hold a head, dropout.
template <class T, int columns, Drops drops>
struct HeadKind {};

// Calls run(HeadKind) for the narrowest kernel that holds settings.head_dim.
template <class T, Drops drops, class Run>
void with_columns(std::int64_t head_dim, const Run& run) {
    if (head_dim <= 32) {
        run(HeadKind<T, 32, drops>{});
    } else if (head_dim <= 64) {
        run(HeadKind<T, 64, drops>{});
    } else if (head_dim <= 112) {
        run(HeadKind<T, 112, drops>{});
    } else if (head_dim <= 128) {
        run(HeadKind<T, 128, drops>{});
    } else {
        run(HeadKind<T, 256, drops>{});
    }
}
template <class T, class Run>
void with_dropout(const AttentionSettings& s, const Run& run) {
    if (s.dropout.probability > 0.0F) {
        with_columns<T, Drops::Some>(s.head_dim, run);
    } else {
        with_columns<T, Drops::None>(s.head_dim, run);
    }
}
template <class Run>
void with_head_kind(DType dtype, const AttentionSettings& s, const Run& run) {
    invariant(dtype == DType::BF16 || dtype == DType::F16, "attention: tensor cores take BF16 and F16");
    if (dtype == DType::BF16) {
        with_dropout<BFloat16>(s, run);
    } else {
        with_dropout<Float16>(s, run);
    }
}

}  // namespace trainctl::cuda
