// 16-byte accesses: as many elements of T as fit. Rows whose length is no multiple of that are read element
// by element.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/intrinsics.h"

namespace trainctl::cuda {

template <class T>
struct alignas(16) Pack {
    static constexpr int size = 16 / sizeof(T);
    T lane[size];
};

// Whether p may be read by Packs.
inline bool aligned_16(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

}  // namespace trainctl::cuda
