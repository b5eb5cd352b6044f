// How attention multiplies tiles of a storage type at this level: bf16 by pairs, with float sums.
#pragma once

#include "ops/cpu/products_bf16.h"

namespace trainctl::cpu {
namespace {  // NOLINT

template <class T>
struct ProductFor {
    using Type = ProductF32;
};
template <>
struct ProductFor<BFloat16> {
    using Type = ProductBf16;
};

}  // namespace
}  // namespace trainctl::cpu
