// COMMIT: the small file that makes a checkpoint exist. Written last; deleted first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trainctl/base/file_system.h"
#include "trainctl/rundir/manifest.h"

namespace trainctl {

// Lines of text, at most 512 bytes, the last one the CRC-32C of all before it.
struct CommitMarker {
    std::string run_id;
    std::int64_t step = 0;
    int attempt = 0;
    std::uint64_t manifest_bytes = 0;
    std::string manifest_sha256;  // 64 hexadecimal digits
};

std::string commit_text(const CommitMarker& marker);
// Exit::BadInput naming `where` on any difference from exactly what commit_text writes.
CommitMarker parse_commit(std::string_view text, const std::string& where);

// The marker that commits `manifest` stored as `text`.
CommitMarker commit_of(const Manifest& manifest, std::string_view text);

struct CommittedManifest {
    Manifest manifest;
    std::string text;
};
// What of a checkpoint must lie in its directory.
enum class Require {
    AllFiles,
    Markers,  // COMMIT and MANIFEST: the disk of one node has only its part of the rest
};
// Reads and checks COMMIT, then MANIFEST against it (size, SHA-256, run, step, attempt, own directory name),
// then the size of every payload file. Exit::BadInput says what is missing or wrong.
CommittedManifest read_committed(FileSystem& files, const std::string& directory,
                                 Require require = Require::AllFiles);
// The payload file is there with the size that MANIFEST gives it; otherwise what is wrong.
std::optional<std::string> file_problem(FileSystem& files, const std::string& directory,
                                        const ManifestFile& file);

// Durably writes MANIFEST; then COMMIT, which makes the checkpoint exist and is refused where there is one: a
// committed checkpoint is never modified. `root` is the directory that holds it.
void write_manifest(FileSystem& files, const std::string& directory, std::string_view text);
void write_commit(FileSystem& files, const std::string& root, const std::string& directory,
                  const CommitMarker& marker);

}  // namespace trainctl
