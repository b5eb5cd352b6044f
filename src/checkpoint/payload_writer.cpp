#include "checkpoint/payload_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "checkpoint/dtype_names.h"
#include "trainctl/base/error.h"
#include "trainctl/base/hash.h"
#include "trainctl/rundir/safetensors.h"

namespace trainctl {
namespace {

constexpr int max_tries = 3;

// Collects bytes into chunks; each full chunk is summed and written with one call.
class ChunkWriter {
  public:
    ChunkWriter(File& file, std::uint64_t chunk_bytes) : file_(file), buffer_(chunk_bytes) {}

    void append(std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
            const std::size_t count = std::min(bytes.size(), buffer_.size() - filled_);
            std::memcpy(buffer_.data() + filled_, bytes.data(), count);
            filled_ += count;
            bytes = bytes.subspan(count);
            if (filled_ == buffer_.size()) flush();
        }
    }
    void flush() {
        if (filled_ == 0) return;
        const auto chunk = std::span(std::as_const(buffer_)).first(filled_);
        crcs_.push_back(crc32c(chunk));
        file_.write(chunk);
        total_ += filled_;
        filled_ = 0;
    }
    [[nodiscard]] std::uint64_t total() const { return total_; }
    std::vector<std::uint32_t> take_crcs() { return std::move(crcs_); }

  private:
    File& file_;
    std::vector<std::byte> buffer_;
    std::size_t filled_ = 0;
    std::uint64_t total_ = 0;
    std::vector<std::uint32_t> crcs_;
};

// A whole tensor keeps its name and shape, so that other tools find it; a part is named by where it belongs.
SafetensorsEntry entry_of(const NamedSlice& slice) {
    SafetensorsEntry entry;
    entry.dtype = safetensors_dtype(slice.view.dtype);
    const Shape& extent = slice.box.extent;
    const bool whole_of_box = slice.flat.size() == extent.elements();
    if (whole_of_box) {
        for (int dim = 0; dim < extent.rank(); ++dim) entry.shape.push_back(extent[dim]);
    } else {
        entry.shape = {slice.flat.size()};
    }
    entry.name = slice.name;
    if (!(slice.box == whole_box(slice.global))) {
        entry.name += fmt::format("|box {}+{}", to_string(slice.box.offset), to_string(extent));
    }
    if (!whole_of_box) entry.name += fmt::format("|flat {}:{}", slice.flat.begin, slice.flat.end);
    return entry;
}

ManifestFile write_once(FileSystem& files, const std::string& directory, const std::string& name,
                        const std::string& header, std::span<const NamedSlice* const> slices,
                        std::uint64_t chunk_bytes) {
    const std::unique_ptr<File> file = files.publish(join_path(directory, name), Existing::Refuse);
    ChunkWriter writer(*file, chunk_bytes);
    writer.append(std::as_bytes(std::span(header)));
    for (const NamedSlice* slice : slices) writer.append({slice->view.data, slice->view.bytes()});
    writer.flush();
    file->close();
    return {name, writer.total(), writer.take_crcs()};
}

}  // namespace

Payload write_payload(FileSystem& files, const std::string& directory, const std::string& stem,
                      std::span<const NamedSlice* const> slices, std::map<std::string, std::string> metadata,
                      std::uint64_t chunk_bytes) {
    std::vector<SafetensorsEntry> entries;
    entries.reserve(slices.size());
    for (const NamedSlice* slice : slices) entries.push_back(entry_of(*slice));
    const std::string header = safetensors_header(entries, std::move(metadata));
    Payload payload;
    for (const SafetensorsEntry& entry : entries) payload.offsets.push_back(header.size() + entry.begin);
    for (int attempt = 0;; ++attempt) {
        const std::string name = attempt == 0 ? stem + ".st" : fmt::format("{}-{}.st", stem, attempt);
        try {
            payload.file = write_once(files, directory, name, header, slices, chunk_bytes);
            return payload;
        } catch (const Error&) {
            if (attempt + 1 == max_tries) throw;
        }
    }
}

}  // namespace trainctl
