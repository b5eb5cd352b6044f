// Loading state that the host cannot write, through a little memory that it can.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace trainctl {

// A part of one wanted slice, in host memory.
struct StagedPart {
    std::size_t slice = 0;    // index into what is wanted
    std::uint64_t begin = 0;  // bytes of that slice in front of the part
    std::span<const std::byte> bytes;
};

struct LoadThrough {
    // At least 64 bytes, aligned to 8; little of it means many reads. Empty: the wanted slices are host
    // memory, and are filled where they lie.
    std::span<std::byte> staging = {};
    // Takes what has been staged: parts of neighbouring slices, every byte of a candidate once if it loads.
    // When it returns the staging memory is used again. Called on the thread that loads.
    std::function<void(std::span<const StagedPart>)> take = {};
};

}  // namespace trainctl
