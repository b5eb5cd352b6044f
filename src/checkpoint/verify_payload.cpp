#include "checkpoint/verify_payload.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "checkpoint/payload_reader.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/suspicion.h"
#include "trainctl/rundir/safetensors.h"

namespace trainctl {
namespace {

// Problems of one payload file; none if it is right.
std::vector<std::string> verify_file(FileSystem& files, const std::string& path, const Manifest& manifest,
                                     std::size_t index) {
    std::vector<std::string> problems;
    const ManifestFile& file = manifest.files[index];
    const std::string file_path = join_path(path, file.name);
    try {
        ChunkReader(files, {file_path}, file, manifest.chunk_bytes).verify_all();
        const SafetensorsHeader header = read_safetensors_header(files, file_path);
        std::map<std::uint64_t, const SafetensorsEntry*> entries;  // by file offset, the empty ones aside
        for (const SafetensorsEntry& entry : header.tensors) {
            if (entry.begin < entry.end) entries[header.data_offset + entry.begin] = &entry;
        }
        for (const ManifestTensor& tensor : manifest.tensors) {
            for (const ManifestSlice& slice : tensor.slices) {
                if (slice.file != index || slice.flat_begin == slice.flat_end) continue;
                const auto entry = entries.find(slice.offset);
                const std::uint64_t bytes = static_cast<std::uint64_t>(slice.flat_end - slice.flat_begin) *
                                            *safetensors_dtype_bits(tensor.dtype) / 8;
                if (entry == entries.end() || entry->second->dtype != tensor.dtype ||
                    entry->second->end - entry->second->begin != bytes ||
                    entry->second->name.compare(0, tensor.name.size(), tensor.name) != 0) {
                    problems.push_back(
                        fmt::format("{}: MANIFEST has tensor \"{}\" at byte {}, the file does not", file_path,
                                    tensor.name, slice.offset));
                }
            }
        }
    } catch (const Error& error) {
        problems.emplace_back(error.what());
    }
    return problems;
}

}  // namespace

std::vector<std::string> payload_problems(FileSystem& files, const std::string& path,
                                          const Manifest& manifest) {
    std::vector<std::string> problems;
    for (std::size_t index = 0; index < manifest.files.size(); ++index) {
        for (std::string& problem : verify_file(files, path, manifest, index))
            problems.push_back(std::move(problem));
    }
    return problems;
}

std::string settle_mark(FileSystem& files, const std::string& path, const std::string& who,
                        const std::vector<std::string>& problems) {
    try {
        if (problems.empty()) {
            clear_suspicion(files, path);
        } else {
            remember_suspicion(files, path, fmt::format("{}: {}", who, fmt::join(problems, "; ")));
        }
        return {};
    } catch (const Error& error) {
        return fmt::format("warning: what was found is not remembered: {}\n", error.what());
    }
}

}  // namespace trainctl
