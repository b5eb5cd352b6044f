#include "trainctl/rundir/commit.h"

#include <fmt/format.h>

#include <charconv>
#include <span>

#include "rundir/strict_json.h"
#include "trainctl/base/error.h"
#include "trainctl/base/hash.h"
#include "trainctl/base/text.h"
#include "trainctl/rundir/durable_file.h"
#include "trainctl/rundir/layout.h"

namespace trainctl {
namespace {

constexpr std::uint64_t max_commit_bytes = 512;
constexpr std::uint64_t max_manifest_bytes = 1U << 30U;

// Takes "<key> <value>\n" off the front.
std::string_view take_line(std::string_view& text, std::string_view key, const std::string& where) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos || text.substr(0, key.size()) != key || end <= key.size() ||
        text[key.size()] != ' ') {
        fail(Exit::BadInput,
             fmt::format("{}: line '{}' is missing; the file is torn or not a COMMIT", where, key));
    }
    const std::string_view value = text.substr(key.size() + 1, end - key.size() - 1);
    text.remove_prefix(end + 1);
    return value;
}

template <class T>
T take_number(std::string_view& text, std::string_view key, const std::string& where) {
    const std::string_view value = take_line(text, key, where);
    T number{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc{} || end != value.data() + value.size() || fmt::format("{}", number) != value) {
        fail(Exit::BadInput, fmt::format("{}: '{}' must be a whole number, found '{}'", where, key, value));
    }
    return number;
}

std::string body_text(const CommitMarker& marker) {
    return fmt::format(
        "trainctl-commit 1\nrun {}\nstep {}\nattempt {}\nmanifest_bytes {}\nmanifest_sha256 {}\n",
        marker.run_id, marker.step, marker.attempt, marker.manifest_bytes, marker.manifest_sha256);
}

// The text of a file that must be there, with a message that says so plainly.
std::string read_part(FileSystem& files, const std::string& path, std::uint64_t limit,
                      std::string_view meaning) {
    if (!files.status(path)) fail(Exit::BadInput, fmt::format("{} is missing: {}", path, meaning));
    return read_text(files, path, limit);
}

}  // namespace

std::optional<std::string> file_problem(FileSystem& files, const std::string& directory,
                                        const ManifestFile& file) {
    const std::string path = join_path(directory, file.name);
    const auto status = files.status(path);
    if (!status || status->directory)
        return fmt::format("{} is missing: MANIFEST lists it with {}", path, counted(file.bytes, "byte"));
    if (status->size == file.bytes) return std::nullopt;
    return fmt::format("{} is {}: {} bytes expected, {} found", path,
                       status->size == 0           ? "empty"
                       : status->size < file.bytes ? "truncated"
                                                   : "longer than written",
                       file.bytes, status->size);
}

std::string commit_text(const CommitMarker& marker) {
    const std::string body = body_text(marker);
    return fmt::format("{}crc32c {:08x}\n", body, crc32c(body));
}

CommitMarker parse_commit(std::string_view text, const std::string& where) {
    if (text.empty()) fail(Exit::BadInput, where + " is empty");
    const std::string_view whole = text;
    if (take_line(text, "trainctl-commit", where) != "1") {
        fail(Exit::BadInput, where + ": of another format version than 1");
    }
    CommitMarker marker;
    marker.run_id = take_line(text, "run", where);
    marker.step = take_number<std::int64_t>(text, "step", where);
    marker.attempt = take_number<int>(text, "attempt", where);
    marker.manifest_bytes = take_number<std::uint64_t>(text, "manifest_bytes", where);
    marker.manifest_sha256 = take_line(text, "manifest_sha256", where);
    const std::uint32_t actual = crc32c(whole.substr(0, whole.size() - text.size()));
    const auto expected = parse_hex(take_line(text, "crc32c", where), 8);
    if (!expected || *expected != actual || !text.empty()) {
        fail(Exit::BadInput,
             fmt::format("{}: checksum {:08x} of its lines does not agree with its last line; the file "
                         "is damaged",
                         where, actual));
    }
    if (marker.manifest_sha256.size() != 64 || marker.step < 0 || marker.attempt < 1) {
        fail(Exit::BadInput, where + ": impossible values");
    }
    return marker;
}

CommitMarker commit_of(const Manifest& manifest, std::string_view text) {
    return {manifest.run_id, manifest.step, manifest.attempt, text.size(),
            sha256_hex(std::as_bytes(std::span(text)))};
}

CommittedManifest read_committed(FileSystem& files, const std::string& directory, Require require) {
    const std::string commit_path = join_path(directory, std::string(commit_file_name));
    const std::string manifest_path = join_path(directory, std::string(manifest_file_name));
    const CommitMarker marker =
        parse_commit(read_part(files, commit_path, max_commit_bytes,
                               "the save was not completed, or the checkpoint was deleted"),
                     commit_path);
    CommittedManifest found;
    found.text = read_part(files, manifest_path, max_manifest_bytes, "the checkpoint is damaged");
    if (found.text.size() != marker.manifest_bytes) {
        fail(Exit::BadInput, fmt::format("{} has the wrong size: COMMIT says {} bytes, found {}",
                                         manifest_path, marker.manifest_bytes, found.text.size()));
    }
    const std::string sha256 = sha256_hex(std::as_bytes(std::span(std::as_const(found.text))));
    if (sha256 != marker.manifest_sha256) {
        fail(Exit::BadInput, fmt::format("{} is damaged: SHA-256 {} expected by COMMIT, {} found",
                                         manifest_path, marker.manifest_sha256, sha256));
    }
    found.manifest = parse_manifest(found.text, manifest_path);
    const Manifest& manifest = found.manifest;
    if (manifest.run_id != marker.run_id || manifest.step != marker.step ||
        manifest.attempt != marker.attempt) {
        fail(Exit::BadInput, fmt::format("{} and COMMIT are of different saves", manifest_path));
    }
    if (join_path(parent_path(directory), manifest.directory) != directory) {
        fail(Exit::BadInput,
             fmt::format("{} was written as {}: the directory was renamed, or files were mixed",
                         manifest_path, manifest.directory));
    }
    if (require == Require::AllFiles) {
        for (const ManifestFile& file : manifest.files) {
            if (const auto problem = file_problem(files, directory, file)) fail(Exit::BadInput, *problem);
        }
    }
    return found;
}

void write_manifest(FileSystem& files, const std::string& directory, std::string_view text) {
    write_durably(files, directory, manifest_file_name, text);
}

void write_commit(FileSystem& files, const std::string& root, const std::string& directory,
                  const CommitMarker& marker) {
    write_durably(files, directory, commit_file_name, commit_text(marker), Existing::Refuse);
    files.sync_directory(
        root);  // the entry of the checkpoint directory: without it nothing of the above would be found
}

}  // namespace trainctl
