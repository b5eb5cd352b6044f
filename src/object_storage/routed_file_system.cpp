#include "trainctl/object_storage/routed_file_system.h"

#include <utility>

#include "object_storage/s3_file_system.h"
#include "trainctl/base/error.h"

namespace trainctl {

bool is_object_path(std::string_view path) { return path.starts_with("s3://"); }

RoutedFileSystem::RoutedFileSystem(FileSystem& local, Clock& clock, Environment environment)
    : local_(local), clock_(clock), environment_(std::move(environment)) {}
RoutedFileSystem::~RoutedFileSystem() = default;

void RoutedFileSystem::configure(const ObjectStorageSettings& settings) {
    const std::lock_guard lock(mutex_);
    if (store_ != nullptr) earlier_.push_back(std::move(store_));
    settings_ = settings;
}

FileSystem& RoutedFileSystem::at(const std::string& path) {
    if (!is_object_path(path)) return local_;
    const std::lock_guard lock(mutex_);
    if (store_ == nullptr) {
        store_ = make_s3_file_system(with_environment(settings_, environment_), environment_, clock_);
    }
    return *store_;
}

std::unique_ptr<File> RoutedFileSystem::open(const std::string& path, Open mode) {
    return at(path).open(path, mode);
}
std::unique_ptr<File> RoutedFileSystem::publish(const std::string& path, Existing existing) {
    return at(path).publish(path, existing);
}
std::optional<FileStatus> RoutedFileSystem::status(const std::string& path) { return at(path).status(path); }
std::vector<std::string> RoutedFileSystem::list(const std::string& directory) {
    return at(directory).list(directory);
}
void RoutedFileSystem::make_directories(const std::string& path) { at(path).make_directories(path); }
void RoutedFileSystem::require_creatable(const std::string& path) { at(path).require_creatable(path); }
void RoutedFileSystem::rename(const std::string& from, const std::string& to) {
    invariant(is_object_path(from) == is_object_path(to),
              "rename: between a file system and an object store");
    at(from).rename(from, to);
}
void RoutedFileSystem::remove_file(const std::string& path) { at(path).remove_file(path); }
void RoutedFileSystem::remove_directory(const std::string& path) { at(path).remove_directory(path); }
void RoutedFileSystem::sync_directory(const std::string& path) { at(path).sync_directory(path); }
SpaceStatus RoutedFileSystem::space(const std::string& path) { return at(path).space(path); }

}  // namespace trainctl
