// Private to the room: one rank's payload file.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trainctl/base/file_system.h"
#include "trainctl/model/named_slice.h"
#include "trainctl/rundir/manifest.h"

namespace trainctl {

struct Payload {
    ManifestFile file;
    std::vector<std::uint64_t> offsets;  // of each slice, bytes from the start of the file
};

// Writes `slices`, in this order, as a safetensors file `<stem>.st` in `directory`, durable on return.
// Checksums are computed from memory on the way out. After any failure the file is written again under a new
// name (`<stem>-1.st`), at most twice; then the last Error is thrown and nothing is left.
Payload write_payload(FileSystem& files, const std::string& directory, const std::string& stem,
                      std::span<const NamedSlice* const> slices, std::map<std::string, std::string> metadata,
                      std::uint64_t chunk_bytes);

}  // namespace trainctl
