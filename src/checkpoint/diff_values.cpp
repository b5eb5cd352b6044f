#include "checkpoint/diff_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "checkpoint/dtype_names.h"
#include "checkpoint/payload_reader.h"
#include "checkpoint/save_messages.h"
#include "trainctl/base/error.h"

namespace trainctl {
namespace {

constexpr std::int64_t block_elements = 1 << 20;

double to_double(BFloat16 value) { return to_float(value); }
double to_double(Float16 value) { return to_float(value); }
template <class Number>
double to_double(Number value) {
    return static_cast<double>(value);
}

template <class Element>
void compare_block(const std::byte* a, const std::byte* b, std::int64_t count, ValueDifference& difference) {
    for (std::int64_t index = 0; index < count; ++index) {
        const std::size_t at = static_cast<std::size_t>(index) * sizeof(Element);
        if (std::memcmp(a + at, b + at, sizeof(Element)) == 0) continue;
        ++difference.differing;
        Element of_a;
        Element of_b;
        std::memcpy(&of_a, a + at, sizeof(Element));
        std::memcpy(&of_b, b + at, sizeof(Element));
        const double first = to_double(of_a);
        const double second = to_double(of_b);
        const double absolute = std::abs(first - second);
        if (!std::isfinite(absolute)) {
            ++difference.not_finite;
            continue;
        }
        difference.max_absolute = std::max(difference.max_absolute, absolute);
        const double larger = std::max(std::abs(first), std::abs(second));
        if (larger > 0.0) difference.max_relative = std::max(difference.max_relative, absolute / larger);
    }
}

void compare_block(DType dtype, const std::byte* a, const std::byte* b, std::int64_t count,
                   ValueDifference& difference) {
    switch (dtype) {
        case DType::F64:
            return compare_block<double>(a, b, count, difference);
        case DType::F32:
            return compare_block<float>(a, b, count, difference);
        case DType::BF16:
            return compare_block<BFloat16>(a, b, count, difference);
        case DType::F16:
            return compare_block<Float16>(a, b, count, difference);
        case DType::I64:
            return compare_block<std::int64_t>(a, b, count, difference);
        case DType::I32:
            return compare_block<std::int32_t>(a, b, count, difference);
        case DType::U32:
            return compare_block<std::uint32_t>(a, b, count, difference);
        case DType::U16:
            return compare_block<std::uint16_t>(a, b, count, difference);
        case DType::U8:
            return compare_block<std::uint8_t>(a, b, count, difference);
    }
}

}  // namespace

ValueDifference compare_values(FileSystem& files, const std::string& path_a, const Manifest& a,
                               const std::string& path_b, const Manifest& b, const std::string& tensor) {
    const ManifestTensor* stored = a.find(tensor);
    invariant(stored != nullptr, "compare_values: no such tensor");
    const auto dtype = parse_safetensors_dtype(stored->dtype);
    invariant(dtype.has_value(), "compare_values: a dtype that is not ours");
    const Shape shape = shape_of(stored->shape);
    ValueDifference difference;
    difference.elements = shape.elements();
    const std::int64_t block = std::min(block_elements, difference.elements);
    std::vector<std::byte> of_a(storage_bytes(block, *dtype));
    std::vector<std::byte> of_b(of_a.size());
    for (std::int64_t begin = 0; begin < difference.elements; begin += block) {
        const Range flat{begin, std::min(begin + block, difference.elements)};
        const auto read = [&](const std::string& path, const Manifest& manifest,
                              std::vector<std::byte>& into) {
            const NamedSlice slice{
                tensor, shape, whole_box(shape), flat, {into.data(), Shape{flat.size()}, *dtype}};
            const ReadResult result = read_slices(files, {path}, manifest, {&slice, 1});
            if (!result.lacking.empty()) fail(Exit::BadInput, result.lacking.begin()->second);
        };
        read(path_a, a, of_a);
        read(path_b, b, of_b);
        compare_block(*dtype, of_a.data(), of_b.data(), flat.size(), difference);
    }
    return difference;
}

}  // namespace trainctl
