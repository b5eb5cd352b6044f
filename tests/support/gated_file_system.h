// A FileSystem whose new files can be held back: a disk that takes its time, for as long as a test wants.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>

#include "trainctl/base/file_system.h"

namespace trainctl::test {

// Thread-safe if the file system behind it is, which must outlive it.
class GatedFileSystem final : public FileSystem {
  public:
    explicit GatedFileSystem(FileSystem& files) : files_(files) {}

    // From now on whoever creates a file whose path contains `part` waits.
    void close_gate(const std::string& part);
    void open_gate();
    // Blocks until somebody waits at the gate.
    void await_arrival();
    // Whether somebody does.
    [[nodiscard]] bool somebody_waits();

    std::unique_ptr<File> open(const std::string& path, Open mode) override;
    std::optional<FileStatus> status(const std::string& path) override { return files_.status(path); }
    std::vector<std::string> list(const std::string& directory) override { return files_.list(directory); }
    void make_directories(const std::string& path) override { files_.make_directories(path); }
    void require_creatable(const std::string& path) override { files_.require_creatable(path); }
    void rename(const std::string& from, const std::string& to) override { files_.rename(from, to); }
    void remove_file(const std::string& path) override { files_.remove_file(path); }
    void remove_directory(const std::string& path) override { files_.remove_directory(path); }
    void sync_directory(const std::string& path) override { files_.sync_directory(path); }
    SpaceStatus space(const std::string& path) override { return files_.space(path); }

  private:
    FileSystem& files_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::string held_;  // empty: the gate is open
    int arrived_ = 0;
};

}  // namespace trainctl::test
