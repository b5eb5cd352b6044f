// Unaligned little-endian loads and stores (every supported machine is little-endian; the static_assert says
// so).
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "trainctl/base/error.h"

namespace trainctl::data_detail {

static_assert(std::endian::native == std::endian::little,
              "token files are little-endian and are read in place");

template <class T>
T load(std::span<const std::byte> bytes, std::size_t offset) {
    invariant(offset + sizeof(T) <= bytes.size(), "load: outside the buffer");
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof(T));
    return value;
}

template <class T>
void store(std::vector<std::byte>& bytes, T value) {
    const std::size_t before = bytes.size();
    bytes.resize(before + sizeof(T));
    std::memcpy(bytes.data() + before, &value, sizeof(T));
}

}  // namespace trainctl::data_detail
