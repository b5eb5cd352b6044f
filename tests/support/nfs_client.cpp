#include "support/nfs_client.h"

#include <fmt/format.h>

#include <cerrno>
#include <memory>
#include <utility>

namespace trainctl::test {

class NfsFile final : public File {
  public:
    NfsFile(NfsClient& client, std::unique_ptr<File> file, std::string path, IoSide side)
        : client_(client),
          file_(std::move(file)),
          path_(std::move(path)),
          side_(side),
          goes_stale_(side == IoSide::Reading && client.goes_stale(25)) {}

    void read_at(std::uint64_t offset, std::span<std::byte> into) override {
        require_handle();
        file_->read_at(offset, into);
    }
    std::size_t read_some_at(std::uint64_t offset, std::span<std::byte> into) override {
        require_handle();
        return file_->read_some_at(offset, into);
    }
    void write(std::span<const std::byte> bytes) override {
        client_.forget(path_);
        if (client_.one_in(150)) fail_io("write", path_, ESTALE, side_);
        file_->write(bytes);
    }
    void sync() override {
        client_.forget(path_);
        if (client_.one_in(80)) fail_io("make durable (fsync)", path_, EIO, side_);
        file_->sync();
    }
    void close() override {
        client_.forget(path_);
        file_->close();
        if (side_ == IoSide::Writing && client_.one_in(40)) fail_io("close", path_, EIO, side_);
    }
    std::uint64_t size() override { return file_->size(); }

  private:
    void require_handle() const {
        if (goes_stale_) fail_io("read", path_, ESTALE, IoSide::Reading);
    }

    NfsClient& client_;
    std::unique_ptr<File> file_;
    std::string path_;
    IoSide side_;
    bool goes_stale_;
};

bool NfsClient::goes_stale(std::uint64_t one_in_count) {
    constexpr int few_calls = 30;
    const bool stale = ++calls_since_stale_ > few_calls && one_in(one_in_count);
    if (stale) calls_since_stale_ = 0;
    return stale;
}

void NfsClient::forget(const std::string& path) {
    lookups_.erase(path);
    lookups_.erase(parent_path(path));
    listings_.erase(path);
    listings_.erase(parent_path(path));
}

std::unique_ptr<File> NfsClient::open(const std::string& path, Open mode) {
    if (mode == Open::Read) {
        const auto known = lookups_.find(path);
        if (known != lookups_.end() && clock_.monotonic_s() < known->second.until_s && !known->second.answer)
            fail_io("open", path, ENOENT, IoSide::Reading);
        return std::make_unique<NfsFile>(*this, server_.open(path, mode), path, IoSide::Reading);
    }
    forget(path);
    auto file = server_.open(path, mode);
    if (mode == Open::CreateNew && one_in(60)) fail_io("create", path, EEXIST, IoSide::Writing);
    return std::make_unique<NfsFile>(*this, std::move(file), path, IoSide::Writing);
}

std::optional<FileStatus> NfsClient::status(const std::string& path) {
    const auto known = lookups_.find(path);
    if (known != lookups_.end() && clock_.monotonic_s() < known->second.until_s) return known->second.answer;
    if (goes_stale(300)) fail_io("query", path, ESTALE, IoSide::Reading);
    const auto answer = server_.status(path);
    lookups_.erase(path);
    if (one_in(2)) lookups_[path] = {answer, some_time()};
    return answer;
}

std::vector<std::string> NfsClient::list(const std::string& directory) {
    remove_what_is_no_more_in_use();
    const auto known = listings_.find(directory);
    if (known != listings_.end() && clock_.monotonic_s() < known->second.until_s) return known->second.answer;
    auto answer = server_.list(directory);
    listings_.erase(directory);
    if (one_in(2)) listings_[directory] = {answer, some_time()};
    return answer;
}

void NfsClient::make_directories(const std::string& path) {
    for (std::string part = path; part != "." && part != "/"; part = parent_path(part)) forget(part);
    server_.make_directories(path);
    if (one_in(100)) fail_io("create directory", path, EIO, IoSide::Writing);
}

void NfsClient::rename(const std::string& from, const std::string& to) {
    forget(from);
    forget(to);
    server_.rename(from, to);
    if (one_in(30)) fail_io("rename", from, ENOENT, IoSide::Writing);
}

void NfsClient::remove_file(const std::string& path) {
    forget(path);
    const std::string directory = parent_path(path);
    if (path.find("/.nfs", directory.size()) == directory.size()) {
        remove_what_is_no_more_in_use();
        if (server_.status(path)) fail_io("remove", path, EBUSY, IoSide::Writing);
        return;
    }
    if (server_.status(path) && one_in(12)) {
        const std::string left =
            join_path(directory, fmt::format(".nfs{:04x}{:06}", seed_, random_() % 1'000'000));
        server_.rename(path, left);
        in_use_[left] = some_time();
        return;
    }
    server_.remove_file(path);
}

void NfsClient::remove_directory(const std::string& path) {
    forget(path);
    remove_what_is_no_more_in_use();
    server_.remove_directory(path);
}

void NfsClient::sync_directory(const std::string& path) {
    if (one_in(100)) fail_io("make durable (fsync) directory", path, EIO, IoSide::Writing);
    server_.sync_directory(path);
}

void NfsClient::remove_what_is_no_more_in_use() {
    for (auto left = in_use_.begin(); left != in_use_.end();) {
        if (clock_.monotonic_s() < left->second) {
            ++left;
            continue;
        }
        forget(left->first);
        server_.remove_file(left->first);
        left = in_use_.erase(left);
    }
}

}  // namespace trainctl::test
