// The one way in which a file comes into being whole: FileSystem::publish() out of the other operations.
#include <fmt/format.h>

#include <utility>

#include "trainctl/base/error.h"
#include "trainctl/base/file_system.h"

namespace trainctl {
namespace {

std::string temporary_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    const std::size_t name = slash == std::string::npos ? 0 : slash + 1;
    return fmt::format("{}.{}.part", path.substr(0, name), path.substr(name));
}

class PublishedFile final : public File {
  public:
    PublishedFile(FileSystem& files, std::string path, Existing existing)
        : files_(files), path_(std::move(path)), temporary_(temporary_of(path_)), existing_(existing) {
        require_absent();
        // A left-over of a crashed writer is removed, never reused: after a failed sync an old inode's pages
        // may be marked clean although they never reached the disk.
        files_.remove_file(temporary_);
        file_ = files_.open(temporary_, Open::CreateNew);
    }
    ~PublishedFile() override { discard(); }
    PublishedFile(const PublishedFile&) = delete;
    PublishedFile& operator=(const PublishedFile&) = delete;

    void read_at(std::uint64_t offset, std::span<std::byte> into) override { file_->read_at(offset, into); }
    std::size_t read_some_at(std::uint64_t offset, std::span<std::byte> into) override {
        return file_->read_some_at(offset, into);
    }
    void write(std::span<const std::byte> bytes) override {
        require_whole();
        whole_ = false;
        file_->write(bytes);
        whole_ = true;
    }
    void sync() override {
        require_whole();
        whole_ = false;
        file_->sync();
        whole_ = true;
    }
    void close() override {
        require_whole();
        whole_ = false;
        try {
            file_->sync();
            file_->close();
            require_absent();
            stage_ = Stage::Renamed;  // from here on: a rename that reports an error may have happened
            files_.rename(temporary_, path_);
            files_.sync_directory(parent_path(path_));
            stage_ = Stage::Over;
        } catch (const Error&) {
            discard();
            throw;
        }
    }
    std::uint64_t size() override { return file_->size(); }

  private:
    enum class Stage { Written, Renamed, Over };

    void require_whole() const {
        invariant(whole_, "publish: a file was used after it had failed or been closed");
    }
    void require_absent() {
        if (existing_ == Existing::Replace || !files_.status(path_)) return;
        fail(Exit::Resource,
             fmt::format("cannot create {}: it exists; whatever wrote it owns this name, choose another one",
                         path_));
    }
    void discard() noexcept {
        if (stage_ == Stage::Over) return;
        remove_quietly(files_, temporary_);
        if (stage_ == Stage::Renamed && existing_ == Existing::Refuse) remove_quietly(files_, path_);
        stage_ = Stage::Over;
    }

    FileSystem& files_;
    std::string path_;
    std::string temporary_;
    Existing existing_;
    std::unique_ptr<File> file_;
    Stage stage_ = Stage::Written;
    bool whole_ = true;
};

}  // namespace

void remove_quietly(FileSystem& files, const std::string& path) noexcept {
    try {
        files.remove_file(path);
    } catch (...) {  // NOLINT(bugprone-empty-catch): the first failure is the one to report
    }
}

std::unique_ptr<File> FileSystem::publish(const std::string& path, Existing existing) {
    return std::make_unique<PublishedFile>(*this, path, existing);
}

}  // namespace trainctl
