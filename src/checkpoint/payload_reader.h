// Private to the room: verified reading of payload files.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainctl/base/file_system.h"
#include "trainctl/model/named_slice.h"
#include "trainctl/rundir/manifest.h"

namespace trainctl {

// Reads ranges of one payload file; every chunk that a range touches is read whole and checked. Keeps one
// chunk.
class ChunkReader {
  public:
    // `file` must outlive the reader.
    ChunkReader(FileSystem& files, std::string path, const ManifestFile& file, std::uint64_t chunk_bytes);
    // Ascending ranges read each chunk once. A bad chunk is read once more through a fresh open; then
    // Exit::BadInput naming file, chunk, bytes, expected and actual checksum.
    void read(std::uint64_t offset, std::span<std::byte> into);
    // Checks every chunk of the file.
    void verify_all();

  private:
    void load(std::uint64_t chunk);
    // Empty if the chunk is right, else what is wrong.
    std::string try_load(std::uint64_t chunk);

    FileSystem& files_;
    std::string path_;
    const ManifestFile& file_;
    std::uint64_t chunk_bytes_;
    std::unique_ptr<File> open_file_;
    std::vector<std::byte> buffer_;
    std::uint64_t loaded_ = UINT64_MAX;
};

// Exit::BadInput naming the tensor unless the manifest has every wanted tensor with the same dtype and global
// shape.
void require_available(const Manifest& manifest, std::span<const NamedSlice> wanted);

// Fills all wanted slices from the checkpoint in `path`. Exit::BadInput on damage.
void read_slices(FileSystem& files, const std::string& path, const Manifest& manifest,
                 std::span<const NamedSlice> wanted);

}  // namespace trainctl
