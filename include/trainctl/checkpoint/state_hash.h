// A hash of tensors that does not depend on how they are cut over ranks: the same state prints the same hash
// at every layout, so save, load and a resumed run can be compared by one line of a log.
#pragma once

#include <cstdint>
#include <string_view>

#include "trainctl/model/named_slice.h"

namespace trainctl {

// The slice's share of its tensor's hash. Shares of disjoint slices add up (modulo 2^64) to the hash of the
// tensor: the sum over elements of bits(element) x key(name, global index / 128) x key(global index % 128),
// all keys odd.
std::uint64_t slice_hash(const NamedSlice& slice);

// One tensor's contribution to the state hash, bound to name, dtype and shape; contributions are added.
std::uint64_t state_hash_term(std::string_view name, std::string_view dtype, const Shape& global,
                              std::uint64_t tensor_hash);

}  // namespace trainctl
