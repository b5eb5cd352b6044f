// What a rank of a node sees: a disk of its own node below one directory, and storage that all share
// elsewhere.
#pragma once

#include <string>
#include <utility>

#include "trainctl/base/file_system.h"

namespace trainctl::test {

// Thread-safe if both file systems are, which must outlive it.
class NodeFileSystem final : public FileSystem {
  public:
    // Paths that begin with `local` are on the node's disk.
    NodeFileSystem(FileSystem& shared, FileSystem& disk, std::string local)
        : shared_(shared), disk_(disk), local_(std::move(local)) {}

    std::unique_ptr<File> open(const std::string& path, Open mode) override {
        return at(path).open(path, mode);
    }
    std::optional<FileStatus> status(const std::string& path) override { return at(path).status(path); }
    std::vector<std::string> list(const std::string& directory) override {
        return at(directory).list(directory);
    }
    void make_directories(const std::string& path) override { at(path).make_directories(path); }
    void require_creatable(const std::string& path) override { at(path).require_creatable(path); }
    void rename(const std::string& from, const std::string& to) override { at(from).rename(from, to); }
    void remove_file(const std::string& path) override { at(path).remove_file(path); }
    void remove_directory(const std::string& path) override { at(path).remove_directory(path); }
    void sync_directory(const std::string& path) override { at(path).sync_directory(path); }
    SpaceStatus space(const std::string& path) override { return at(path).space(path); }

  private:
    FileSystem& at(const std::string& path) { return path.starts_with(local_) ? disk_ : shared_; }

    FileSystem& shared_;
    FileSystem& disk_;
    std::string local_;
};

}  // namespace trainctl::test
