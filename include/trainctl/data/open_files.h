// Read-only files that are opened when first needed and kept open up to a limit, so that a thousand shards do
// not need a thousand descriptors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "trainctl/base/file_system.h"

namespace trainctl {

// Thread-safe. Reads of different files proceed at the same time; reads of one file take turns.
class OpenFiles {
  public:
    explicit OpenFiles(FileSystem& files, std::size_t limit = 64) : files_(files), limit_(limit) {}

    // Fills the whole span from byte `offset`; errors as File::read_at.
    void read_at(const std::string& path, std::uint64_t offset, std::span<std::byte> into);
    [[nodiscard]] FileSystem& files() const { return files_; }
    [[nodiscard]] std::size_t open_now() const;

  private:
    struct Entry {
        std::string path;
        std::unique_ptr<File> file;
        std::mutex turn;
    };
    std::shared_ptr<Entry> entry(const std::string& path);

    FileSystem& files_;
    const std::size_t limit_;
    mutable std::mutex mutex_;
    std::list<std::shared_ptr<Entry>> recent_;  // most recently used first
};

}  // namespace trainctl
