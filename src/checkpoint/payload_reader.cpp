#include "checkpoint/payload_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "checkpoint/dtype_names.h"
#include "checkpoint/save_messages.h"
#include "trainctl/base/error.h"
#include "trainctl/base/hash.h"
#include "trainctl/checkpoint/slice_runs.h"
#include "trainctl/rundir/commit.h"

namespace trainctl {
namespace {

// One stored slice that holds elements of one wanted slice.
struct StoredSlice {
    std::uint64_t offset = 0;
    const ManifestSlice* stored = nullptr;
    const NamedSlice* wanted = nullptr;
};

bool may_overlap(const NamedSlice& wanted, const Box& box, Range flat) {
    if (flat.size() <= 0 || wanted.flat.size() <= 0) return false;
    for (int dim = 0; dim < wanted.global.rank(); ++dim) {
        if (box.offset[dim] + box.extent[dim] <= wanted.box.offset[dim] ||
            wanted.box.offset[dim] + wanted.box.extent[dim] <= box.offset[dim]) {
            return false;
        }
    }
    return true;
}

void copy_overlap(ChunkReader& reader, const StoredSlice& source) {
    const NamedSlice& wanted = *source.wanted;
    const auto element = static_cast<std::uint64_t>(dtype_size(wanted.view.dtype));
    const Box box{shape_of(source.stored->begin), shape_of(source.stored->extent)};
    const Range flat{source.stored->flat_begin, source.stored->flat_end};
    for_each_overlap(wanted.global, box, flat, wanted.box, wanted.flat, [&](const Overlap& part) {
        std::byte* target = wanted.view.data + static_cast<std::uint64_t>(part.b_local) * element;
        reader.read(source.offset + static_cast<std::uint64_t>(part.a_local) * element,
                    {target, static_cast<std::uint64_t>(part.length) * element});
    });
}

}  // namespace

ChunkReader::ChunkReader(FileSystem& files, std::vector<std::string> paths, const ManifestFile& file,
                         std::uint64_t chunk_bytes)
    : files_(files), paths_(std::move(paths)), file_(file), chunk_bytes_(chunk_bytes) {
    invariant(!paths_.empty(), "a payload file without a place to read it from");
}

std::string ChunkReader::try_load(std::uint64_t chunk) {
    loaded_ = UINT64_MAX;
    const std::uint64_t begin = chunk * chunk_bytes_;
    const std::uint64_t count = std::min(chunk_bytes_, file_.bytes - begin);
    try {
        if (open_file_ == nullptr) open_file_ = files_.open(path(), Open::Read);
        buffer_.resize(count);
        open_file_->read_at(begin, buffer_);
    } catch (const Error& error) {
        return error.what();
    }
    const std::uint32_t actual = crc32c(buffer_);
    const std::uint32_t expected = file_.chunk_crcs.at(chunk);
    if (actual != expected) {
        return fmt::format(
            "{} is damaged: chunk {} (bytes {} to {}) has CRC-32C {:08x} by MANIFEST, {:08x} found", path(),
            chunk, begin, begin + count, expected, actual);
    }
    loaded_ = chunk;
    return {};
}

void ChunkReader::load(std::uint64_t chunk) {
    if (loaded_ == chunk) return;
    while (true) {
        if (try_load(chunk).empty()) return;
        open_file_.reset();  // a fresh open: another mount state, another copy in the page cache of a network
                             // file system
        const std::string problem = try_load(chunk);
        if (problem.empty()) return;
        open_file_.reset();
        if (replica_ + 1 == paths_.size()) fail(Exit::BadInput, problem);
        passed_over_.push_back({path(), problem});
        ++replica_;
    }
}

void ChunkReader::read(std::uint64_t offset, std::span<std::byte> into) {
    while (!into.empty()) {
        load(offset / chunk_bytes_);
        const std::uint64_t within = offset % chunk_bytes_;
        const std::size_t count = std::min<std::size_t>(into.size(), buffer_.size() - within);
        std::memcpy(into.data(), buffer_.data() + within, count);
        into = into.subspan(count);
        offset += count;
    }
}

std::span<const std::byte> ChunkReader::chunk(std::uint64_t index) {
    load(index);
    return buffer_;
}

void ChunkReader::verify_all() {
    for (std::uint64_t chunk = 0; chunk < file_.chunk_crcs.size(); ++chunk) load(chunk);
}

void require_available(const Manifest& manifest, std::span<const NamedSlice> wanted) {
    for (const NamedSlice& slice : wanted) {
        require_valid(slice);
        const ManifestTensor* tensor = manifest.find(slice.name);
        if (tensor == nullptr) {
            fail(Exit::BadInput,
                 fmt::format("checkpoint {} has no tensor \"{}\", which this job needs; was it saved with "
                             "another model or optimizer?",
                             manifest.directory, slice.name));
        }
        const std::string_view dtype = safetensors_dtype(slice.view.dtype);
        const Shape stored = shape_of(tensor->shape);
        if (tensor->dtype != dtype || !(stored == slice.global)) {
            fail(Exit::BadInput, fmt::format("checkpoint {}: tensor \"{}\" is {} {}, this job needs {} {}",
                                             manifest.directory, slice.name, tensor->dtype, to_string(stored),
                                             dtype, to_string(slice.global)));
        }
    }
}

ReadResult read_slices(FileSystem& files, const std::vector<std::string>& directories,
                       const Manifest& manifest, std::span<const NamedSlice> wanted) {
    std::vector<std::vector<StoredSlice>> sources(manifest.files.size());
    for (const NamedSlice& slice : wanted) {
        for (const ManifestSlice& stored : manifest.find(slice.name)->slices) {
            const Box box{shape_of(stored.begin), shape_of(stored.extent)};
            if (!may_overlap(slice, box, {stored.flat_begin, stored.flat_end})) continue;
            sources[stored.file].push_back({stored.offset, &stored, &slice});
        }
    }
    ReadResult result;
    std::vector<std::vector<std::string>> paths(sources.size());
    for (std::size_t index = 0; index < sources.size(); ++index) {
        if (sources[index].empty()) continue;
        std::string problem;
        for (const std::string& directory : directories) {
            const auto wrong = file_problem(files, directory, manifest.files[index]);
            if (wrong) problem = *wrong;
            if (!wrong) paths[index].push_back(join_path(directory, manifest.files[index].name));
        }
        if (paths[index].empty()) result.lacking[index] = problem;
    }
    if (!result.lacking.empty()) return result;  // before hours of reading
    for (std::size_t index = 0; index < sources.size(); ++index) {
        if (sources[index].empty()) continue;
        std::sort(sources[index].begin(), sources[index].end(),
                  [](const StoredSlice& a, const StoredSlice& b) { return a.offset < b.offset; });
        ChunkReader reader(files, paths[index], manifest.files[index], manifest.chunk_bytes);
        try {
            for (const StoredSlice& source : sources[index]) copy_overlap(reader, source);
        } catch (const Error& error) {
            result.lacking[index] = error.what();
        }
        const std::vector<BadReplica>& bad = reader.passed_over();
        result.passed_over.insert(result.passed_over.end(), bad.begin(), bad.end());
    }
    return result;
}

}  // namespace trainctl
