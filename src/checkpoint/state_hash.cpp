#include "trainctl/checkpoint/state_hash.h"

#include <array>
#include <cstring>

#include "trainctl/base/error.h"
#include "trainctl/base/hash.h"
#include "trainctl/checkpoint/slice_runs.h"

namespace trainctl {
namespace {

constexpr std::int64_t block_elements = 128;

// Finaliser of SplitMix64: every input bit reaches every output bit.
constexpr std::uint64_t mix(std::uint64_t value) {
    value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9U;
    value = (value ^ (value >> 27U)) * 0x94D049BB133111EBU;
    return value ^ (value >> 31U);
}

constexpr std::array<std::uint64_t, block_elements> make_element_keys() {
    std::array<std::uint64_t, block_elements> keys{};
    for (std::size_t index = 0; index < keys.size(); ++index) {
        keys[index] =
            mix((index + 1) * 0x9E3779B97F4A7C15U) | 1U;  // odd: a changed element always changes the sum
    }
    return keys;
}
constexpr std::array<std::uint64_t, block_elements> element_keys = make_element_keys();

// Sum of bits(element) x key over `count` elements at `bytes`, the first one being element `first` of its
// block.
template <class Bits>
std::uint64_t block_sum(const std::byte* bytes, std::int64_t first, std::int64_t count) {
    std::uint64_t sum = 0;
    for (std::int64_t index = 0; index < count; ++index) {
        Bits bits;
        std::memcpy(&bits, bytes + static_cast<std::size_t>(index) * sizeof(Bits), sizeof(Bits));
        sum += std::uint64_t{bits} * element_keys[static_cast<std::size_t>(first + index)];
    }
    return sum;
}

template <class Bits>
std::uint64_t sum_slice(const NamedSlice& slice) {
    const std::uint64_t name_key = name_hash(slice.name);
    std::uint64_t total = 0;
    RunWalker walker(slice.global, slice.box, slice.flat);
    Run run;
    while (walker.next(run)) {
        const std::byte* bytes = slice.view.data + static_cast<std::size_t>(run.local) * sizeof(Bits);
        for (std::int64_t done = 0; done < run.length;) {
            const std::int64_t global = run.global + done;
            const std::int64_t first = global % block_elements;
            const std::int64_t count = std::min(block_elements - first, run.length - done);
            const auto block = static_cast<std::uint64_t>(global / block_elements);
            const std::uint64_t block_key = mix(name_key + block * 0x9E3779B97F4A7C15U) | 1U;
            total += block_key *
                     block_sum<Bits>(bytes + static_cast<std::size_t>(done) * sizeof(Bits), first, count);
            done += count;
        }
    }
    return total;
}

}  // namespace

std::uint64_t slice_hash(const NamedSlice& slice) {
    switch (dtype_size(slice.view.dtype)) {
        case 1:
            return sum_slice<std::uint8_t>(slice);
        case 2:
            return sum_slice<std::uint16_t>(slice);
        case 4:
            return sum_slice<std::uint32_t>(slice);
        case 8:
            return sum_slice<std::uint64_t>(slice);
        default:
            fail(Exit::Internal, "slice_hash: unexpected element size");
    }
}

std::uint64_t state_hash_term(std::string_view name, std::string_view dtype, const Shape& global,
                              std::uint64_t tensor_hash) {
    std::uint64_t key = mix(name_hash(name) + name_hash(dtype));
    for (int dim = 0; dim < global.rank(); ++dim) key = mix(key + static_cast<std::uint64_t>(global[dim]));
    return mix(key ^ mix(tensor_hash));
}

}  // namespace trainctl
