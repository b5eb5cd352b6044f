// How attention multiplies tiles of a storage type at this level: always in float.
#pragma once

#include "ops/cpu/products_f32.h"

namespace trainctl::cpu {
namespace {  // NOLINT

template <class T>
struct ProductFor {
    using Type = ProductF32;
};

}  // namespace
}  // namespace trainctl::cpu
