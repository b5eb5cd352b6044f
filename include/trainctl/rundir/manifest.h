// MANIFEST: what a checkpoint holds and how to check it. JSON, written once per checkpoint by rank 0, never
// changed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

inline constexpr int manifest_version = 1;

struct ManifestFile {
    std::string name;  // within the checkpoint directory
    std::uint64_t bytes = 0;
    std::vector<std::uint32_t>
        chunk_crcs;  // CRC-32C of each chunk of `chunk_bytes` from byte 0; the last may be short
};

// A stored piece of a global tensor: elements [flat_begin, flat_end) of the box, row-major.
struct ManifestSlice {
    std::uint32_t file = 0;    // index into Manifest::files
    std::uint64_t offset = 0;  // bytes from the start of that file
    std::vector<std::int64_t> begin;
    std::vector<std::int64_t> extent;
    std::int64_t flat_begin = 0;
    std::int64_t flat_end = 0;
};

struct ManifestTensor {
    std::string name;
    std::string dtype;  // safetensors spelling
    std::vector<std::int64_t> shape;
    std::uint64_t hash = 0;  // layout-independent, of the contents
    std::vector<ManifestSlice> slices;
};

enum class Health {
    Probation,  // saved; training has not gone on long enough to trust it
    Good,
};

struct Manifest {
    std::string run_id;
    std::string directory;  // its own name: a copy under another name is noticed
    std::int64_t step = 0;
    int attempt = 0;
    std::string created;                           // UTC, display only
    std::map<std::string, std::int64_t> counters;  // consumed_samples, consumed_tokens, applied_updates, ...
    std::map<std::string, double> scalars;  // loss scale, skip state, ...; exact, non-finite values included
    std::map<std::string, std::int64_t> layout;  // world, data, tensor, pipeline, zero_stage, ...
    std::string spec;                            // the resolved job
    std::string data_fingerprint;
    Health health = Health::Probation;
    std::uint64_t state_hash = 0;
    std::uint64_t chunk_bytes = 0;
    std::vector<ManifestFile> files;
    std::vector<ManifestTensor> tensors;  // by name

    [[nodiscard]] std::uint64_t total_bytes() const;  // of the payload files
    // nullptr if there is none.
    [[nodiscard]] const ManifestTensor* find(std::string_view name) const;
};

std::string_view health_name(Health health);

std::string manifest_text(const Manifest& manifest);

// Exit::BadInput, naming `where` and the field, on any defect: syntax, duplicate keys, missing fields,
// impossible numbers, slices outside their file or tensor, tensors not covered exactly once.
Manifest parse_manifest(std::string_view text, const std::string& where);

// The last part of the above, also used before writing: every tensor is covered exactly once by its slices.
// Exit::BadInput naming the tensor.
void require_coverage(const ManifestTensor& tensor, const std::string& where);

}  // namespace trainctl
