// From the dtype of a tensor to the type that kernels are made for. Host code.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "cuda/vectors.h"
#include "trainctl/tensor/dtype.h"

namespace trainctl::cuda {

// body(pointer type tag) for the types that models compute in; callers have refused all others.
template <class Body>
void with_storage(DType dtype, const Body& body) {
    if (dtype == DType::BF16) {
        body(static_cast<BFloat16*>(nullptr));
    } else if (dtype == DType::F16) {
        body(static_cast<Float16*>(nullptr));
    } else {
        body(static_cast<float*>(nullptr));
    }
}

// Whether rows of `width` elements that begin at these places (absent ones are null) can be read by Packs of
// T.
template <class T>
bool packable(std::int64_t width, std::initializer_list<const void*> places) {
    bool all = width % Pack<T>::size == 0;
    for (const void* place : places) all = all && aligned_16(place);
    return all;
}

}  // namespace trainctl::cuda
