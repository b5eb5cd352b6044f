// Private to the room: payload files from one directory to another, every byte checked on the way.
#pragma once

#include <cstdint>
#include <string>

#include "trainctl/base/file_system.h"
#include "trainctl/rundir/manifest.h"

namespace trainctl {

enum class PayloadCopy { Written, ThereAlready };

// Whether `directory` holds `file` with exactly the bytes that MANIFEST says; reads all of them, one chunk at
// a time. Never throws: what cannot be read is not right.
bool holds_payload(FileSystem& files, const std::string& directory, const ManifestFile& file,
                   std::uint64_t chunk_bytes);

// Brings `file` from `from_directory` to the existing directory `to_directory`: whole and durable on return,
// or never there. Every chunk is compared with its checksum before it is written; memory for two chunks. A
// copy that is there and right is left alone, a wrong one is replaced. Safe to call again after any failure.
// Exit::BadInput: the source is damaged, and which chunk. Exit::Resource: it could not be written, tried
// `durable_tries` times, each time a new file. One writer per target; any threads on different ones.
PayloadCopy copy_payload_file(FileSystem& files, const std::string& from_directory,
                              const std::string& to_directory, const ManifestFile& file,
                              std::uint64_t chunk_bytes);

}  // namespace trainctl
