// Writing headers, and the rules that a parsed header must meet. The JSON itself is read in
// safetensors_sax.cpp.
#include "trainctl/rundir/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <span>

#include "rundir/safetensors_sax.h"
#include "trainctl/base/error.h"
#include "trainctl/base/text.h"

namespace trainctl {
namespace {

constexpr std::uint64_t max_header_bytes = 100'000'000;  // of the format
constexpr std::uint64_t data_alignment = 4096;

struct DTypeBits {
    std::string_view name;
    std::uint64_t bits;
};
constexpr std::array dtype_table{
    DTypeBits{"BOOL", 8},        DTypeBits{"U8", 8},          DTypeBits{"I8", 8},
    DTypeBits{"F8_E5M2", 8},     DTypeBits{"F8_E4M3", 8},     DTypeBits{"F8_E8M0", 8},
    DTypeBits{"F8_E4M3FNUZ", 8}, DTypeBits{"F8_E5M2FNUZ", 8}, DTypeBits{"I16", 16},
    DTypeBits{"U16", 16},        DTypeBits{"F16", 16},        DTypeBits{"BF16", 16},
    DTypeBits{"I32", 32},        DTypeBits{"U32", 32},        DTypeBits{"F32", 32},
    DTypeBits{"C64", 64},        DTypeBits{"F64", 64},        DTypeBits{"I64", 64},
    DTypeBits{"U64", 64},        DTypeBits{"F4", 4},          DTypeBits{"F6_E2M3", 6},
    DTypeBits{"F6_E3M2", 6},
};

// product(shape) * bits / 8; nullopt on overflow, a negative extent or a fraction of a byte.
std::optional<std::uint64_t> bytes_of(const SafetensorsEntry& entry) {
    const auto bits = safetensors_dtype_bits(entry.dtype);
    if (!bits) return std::nullopt;
    std::uint64_t total = *bits;
    for (const std::int64_t extent : entry.shape) {
        if (extent < 0 || __builtin_mul_overflow(total, static_cast<std::uint64_t>(extent), &total)) {
            return std::nullopt;
        }
    }
    if (total % 8 != 0) return std::nullopt;
    return total / 8;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
    return fmt::format("[{}]", fmt::join(shape, ","));
}

void check_spans(std::vector<SafetensorsEntry>& tensors, std::uint64_t data_bytes, const std::string& where) {
    // Empty tensors share their offset with the next one: by end as well, so that they come first.
    std::sort(tensors.begin(), tensors.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
        return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
    std::uint64_t reached = 0;
    for (const SafetensorsEntry& entry : tensors) {
        if (entry.begin != reached) {
            fail(Exit::BadInput, fmt::format("{}: {} before tensor \"{}\": expected it at byte {}, found {}",
                                             where, entry.begin > reached ? "a hole" : "an overlap",
                                             entry.name, reached, entry.begin));
        }
        reached = entry.end;
    }
    if (reached != data_bytes) {
        fail(Exit::BadInput,
             fmt::format("{}: the tensors take {} bytes, the file has {} after its header; it is {}", where,
                         reached, data_bytes, reached > data_bytes ? "truncated" : "longer than it says"));
    }
}

}  // namespace

std::optional<std::uint64_t> safetensors_dtype_bits(std::string_view dtype) {
    for (const DTypeBits& row : dtype_table) {
        if (row.name == dtype) return row.bits;
    }
    return std::nullopt;
}

std::string safetensors_header(std::vector<SafetensorsEntry>& tensors,
                               std::map<std::string, std::string> metadata) {
    metadata.emplace("format", "pt");
    std::string json = "{\"__metadata__\":{";
    const char* comma = "";
    for (const auto& [key, value] : metadata) {
        json += fmt::format("{}{}:{}", comma, json_quote(key), json_quote(value));
        comma = ",";
    }
    json += '}';
    std::set<std::string_view> names{"__metadata__"};
    std::uint64_t position = 0;
    for (SafetensorsEntry& entry : tensors) {
        const auto bytes = bytes_of(entry);
        invariant(bytes.has_value(), "safetensors_header: impossible dtype or shape");
        invariant(names.insert(entry.name).second, "safetensors_header: duplicate tensor name");
        entry.begin = position;
        entry.end = position + *bytes;
        position = entry.end;
        json +=
            fmt::format(",{}:{{\"dtype\":{},\"shape\":{},\"data_offsets\":[{},{}]}}", json_quote(entry.name),
                        json_quote(entry.dtype), shape_text(entry.shape), entry.begin, entry.end);
    }
    json += '}';
    const std::uint64_t unpadded = 8 + json.size();
    json.resize((unpadded + data_alignment - 1) / data_alignment * data_alignment - 8, ' ');
    invariant(json.size() <= max_header_bytes,
              "safetensors_header: more tensors in one file than the format allows");

    std::string header(8, '\0');
    for (std::size_t byte = 0; byte < 8; ++byte) {
        header[byte] = static_cast<char>((std::uint64_t{json.size()} >> (8 * byte)) & 0xFFU);
    }
    return header + json;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t file_bytes,
                                           const std::string& where) {
    invariant(json.size() + 8 <= file_bytes, "parse_safetensors_header: header longer than the file");
    if (json.empty() || json.front() != '{') {
        fail(Exit::BadInput, where + ": the header does not start with '{'; this is not a safetensors file");
    }
    SafetensorsHeader header = parse_safetensors_json(json, where);
    header.data_offset = 8 + json.size();
    for (const SafetensorsEntry& entry : header.tensors) {
        if (!safetensors_dtype_bits(entry.dtype)) {
            fail(Exit::BadInput, fmt::format("{}: tensor \"{}\" has the unknown dtype \"{}\"", where,
                                             entry.name, entry.dtype));
        }
        const auto bytes = bytes_of(entry);
        if (!bytes || entry.end < entry.begin || entry.end - entry.begin != *bytes) {
            fail(
                Exit::BadInput,
                fmt::format("{}: tensor \"{}\" of dtype {} and shape {} does not fit its bytes [{}, {})",
                            where, entry.name, entry.dtype, shape_text(entry.shape), entry.begin, entry.end));
        }
    }
    check_spans(header.tensors, file_bytes - header.data_offset, where);
    return header;
}

SafetensorsHeader read_safetensors_header(FileSystem& files, const std::string& path) {
    const std::unique_ptr<File> file = files.open(path, Open::Read);
    const std::uint64_t file_bytes = file->size();
    if (file_bytes < 8) {
        fail(Exit::BadInput, fmt::format("{}: found {}, too few for a safetensors file; the file is cut",
                                         path, counted(file_bytes, "byte")));
    }
    std::array<std::byte, 8> length_bytes{};
    file->read_at(0, length_bytes);
    std::uint64_t length = 0;
    for (std::size_t byte = 0; byte < 8; ++byte)
        length |= std::to_integer<std::uint64_t>(length_bytes[byte]) << (8 * byte);
    if (length > max_header_bytes || length > file_bytes - 8) {  // never 8 + length: it may overflow
        fail(Exit::BadInput,
             fmt::format("{}: says that its header has {} bytes; the file has {} and the format allows "
                         "{}. It is truncated or not a safetensors file",
                         path, length, file_bytes, max_header_bytes));
    }
    std::string json(static_cast<std::size_t>(length), '\0');
    file->read_at(8, std::as_writable_bytes(std::span(json)));
    return parse_safetensors_header(json, file_bytes, path);
}

}  // namespace trainctl
