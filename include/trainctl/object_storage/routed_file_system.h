// The process's file system with object stores in it: "s3://bucket/key" goes to the store, any other path to
// the file system behind. So whatever works on files works on objects, as far as a store can do it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "trainctl/base/clock.h"
#include "trainctl/base/file_system.h"
#include "trainctl/object_storage/settings.h"

namespace trainctl {

// Does the path begin with "s3://"?
bool is_object_path(std::string_view path);

// Thread-safe if the file system behind it is. The store's connections and credentials are made at the first
// use of an object path: who names none, needs neither. All arguments must outlive it.
class RoutedFileSystem final : public FileSystem {
  public:
    RoutedFileSystem(FileSystem& local, Clock& clock, Environment environment);
    ~RoutedFileSystem() override;
    RoutedFileSystem(const RoutedFileSystem&) = delete;
    RoutedFileSystem& operator=(const RoutedFileSystem&) = delete;

    // Settings of a job file, for what is opened from now on.
    void configure(const ObjectStorageSettings& settings);

    std::unique_ptr<File> open(const std::string& path, Open mode) override;
    std::unique_ptr<File> publish(const std::string& path, Existing existing) override;
    std::optional<FileStatus> status(const std::string& path) override;
    std::vector<std::string> list(const std::string& directory) override;
    void make_directories(const std::string& path) override;
    void require_creatable(const std::string& path) override;
    // Both on the same side: Exit::Internal otherwise.
    void rename(const std::string& from, const std::string& to) override;
    void remove_file(const std::string& path) override;
    void remove_directory(const std::string& path) override;
    void sync_directory(const std::string& path) override;
    SpaceStatus space(const std::string& path) override;

  private:
    FileSystem& at(const std::string& path);

    FileSystem& local_;
    Clock& clock_;
    Environment environment_;
    std::mutex mutex_;
    ObjectStorageSettings settings_;
    std::unique_ptr<FileSystem> store_;                 // made at its first use, under the mutex
    std::vector<std::unique_ptr<FileSystem>> earlier_;  // of other settings: files may be open there
};

}  // namespace trainctl
