// Private to the room: verified reading of payload files.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainctl/base/file_system.h"
#include "trainctl/model/named_slice.h"
#include "trainctl/rundir/manifest.h"

namespace trainctl {

// One file of one replica, and what was found wrong with it.
struct BadReplica {
    std::string path;
    std::string problem;
};

// Reads ranges of one payload file; every chunk that a range touches is read whole and checked. Keeps one
// chunk.
class ChunkReader {
  public:
    // `paths`: replicas of the file, in the order to try; not empty. `file` must outlive the reader.
    ChunkReader(FileSystem& files, std::vector<std::string> paths, const ManifestFile& file,
                std::uint64_t chunk_bytes);
    // Ascending ranges read each chunk once. A bad chunk is read once more through a fresh open, then from
    // the next replica, which all later chunks come from too; then Exit::BadInput naming file, chunk, bytes,
    // expected and actual checksum.
    void read(std::uint64_t offset, std::span<std::byte> into);
    // The bytes of one chunk, checked; valid until the next call.
    std::span<const std::byte> chunk(std::uint64_t index);
    // Checks every chunk of the file.
    void verify_all();
    // What was wrong with replicas that were passed over, by path.
    [[nodiscard]] const std::vector<BadReplica>& passed_over() const { return passed_over_; }

  private:
    void load(std::uint64_t chunk);
    // Empty if the chunk is right, else what is wrong.
    std::string try_load(std::uint64_t chunk);
    [[nodiscard]] const std::string& path() const { return paths_[replica_]; }

    FileSystem& files_;
    std::vector<std::string> paths_;
    std::size_t replica_ = 0;
    const ManifestFile& file_;
    std::uint64_t chunk_bytes_;
    std::unique_ptr<File> open_file_;
    std::vector<std::byte> buffer_;
    std::uint64_t loaded_ = UINT64_MAX;
    std::vector<BadReplica> passed_over_;
};

// Exit::BadInput naming the tensor unless the manifest has every wanted tensor with the same dtype and global
// shape.
void require_available(const Manifest& manifest, std::span<const NamedSlice> wanted);

// Fills all wanted slices of a checkpoint from its replicas in `directories`, in the order to try; files that
// are not in one of them in full length are looked for in the next.
struct ReadResult {
    std::vector<BadReplica> passed_over;
    // Files that could not be had, and why: indices into the manifest's. Empty: all slices are filled.
    std::map<std::size_t, std::string> lacking;
};
ReadResult read_slices(FileSystem& files, const std::vector<std::string>& directories,
                       const Manifest& manifest, std::span<const NamedSlice> wanted);

}  // namespace trainctl
