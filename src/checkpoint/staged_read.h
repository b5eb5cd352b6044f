// Private to the room: wanted slices are read where they lie, or through staging memory.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "trainctl/checkpoint/load_through.h"
#include "trainctl/model/named_slice.h"

namespace trainctl {

// Has `read` fill all of `wanted`, at once or part by part (slices are cut where staging memory ends), and
// returns the hash of each of them. What `read` throws is thrown.
std::vector<std::uint64_t> read_wanted(std::span<const NamedSlice> wanted, const LoadThrough& through,
                                       const std::function<void(std::span<const NamedSlice>)>& read);

}  // namespace trainctl
