// The safetensors file format: 8 bytes little-endian header length N, N bytes of JSON, then the tensors'
// bytes. Strict in what it reads; what it writes starts its tensor bytes at a multiple of 4096 so that they
// can be read directly into device memory.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainctl/base/file_system.h"

namespace trainctl {

struct SafetensorsEntry {
    std::string name;
    std::string dtype;  // the format's own spelling: "F32", "BF16", ...
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0;  // bytes, relative to the first tensor byte
    std::uint64_t end = 0;
};

struct SafetensorsHeader {
    std::map<std::string, std::string> metadata;
    std::vector<SafetensorsEntry> tensors;  // by `begin`
    std::uint64_t data_offset = 0;          // 8 + N: file offset of the first tensor byte
};

// Bits per element of a dtype of the format, sub-byte types included; nullopt if it is none.
std::optional<std::uint64_t> safetensors_dtype_bits(std::string_view dtype);

// The header bytes (length, JSON, padding) of a file with these tensors: `begin` and `end` are assigned in
// the given order, gap-free. `metadata` gets "format": "pt" when it has no format, since readers of the field
// insist on it. Exit::Internal on duplicate names, unknown dtypes or impossible shapes.
std::string safetensors_header(std::vector<SafetensorsEntry>& tensors,
                               std::map<std::string, std::string> metadata);

// Parses `json` (without the length) of a file of `file_bytes` bytes in all. Exit::BadInput, naming `where`,
// unless: an object starting with '{', no duplicate names, known dtypes, end - begin == product(shape) * bits
// / 8 without overflow, spans that cover the tensor bytes without hole, overlap or rest, metadata of strings
// only.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t file_bytes,
                                           const std::string& where);

// Reads and checks the header of a file.
SafetensorsHeader read_safetensors_header(FileSystem& files, const std::string& path);

}  // namespace trainctl
