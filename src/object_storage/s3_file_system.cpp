#include "object_storage/s3_file_system.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "object_storage/curl_transport.h"
#include "object_storage/s3_client.h"
#include "object_storage/s3_upload.h"
#include "trainctl/base/error.h"

namespace trainctl {
namespace {

// Of one request: what fails is asked for again as a whole.
constexpr std::size_t longest_read = std::size_t{32} << 20U;

class S3Object final : public File {
  public:
    S3Object(S3Client& client, ObjectPath path, ObjectStatus status)
        : client_(client), path_(std::move(path)), status_(std::move(status)) {}

    void read_at(std::uint64_t offset, std::span<std::byte> into) override {
        if (offset > status_.bytes || into.size() > status_.bytes - offset) {
            fail(Exit::BadInput,
                 fmt::format(
                     "cannot read {}: expected {} bytes at offset {}, found the end of the object at {}; "
                     "it is truncated or not the one that was written",
                     to_string(path_), into.size(), offset, status_.bytes));
        }
        while (!into.empty()) {
            const std::size_t got = read_some_at(offset, into);
            offset += got;
            into = into.subspan(got);
        }
    }
    std::size_t read_some_at(std::uint64_t offset, std::span<std::byte> into) override {
        if (offset >= status_.bytes || into.empty()) return 0;
        const std::size_t count =
            std::min({into.size(), longest_read, static_cast<std::size_t>(status_.bytes - offset)});
        client_.get(path_, offset, status_.etag, into.first(count));
        return count;
    }
    void write(std::span<const std::byte> /*bytes*/) override {
        fail(Exit::Internal, to_string(path_) + " is open for reading");
    }
    void sync() override {}
    void close() override {}
    std::uint64_t size() override { return status_.bytes; }

  private:
    S3Client& client_;
    ObjectPath path_;
    ObjectStatus status_;
};

class S3FileSystem final : public FileSystem {
  public:
    S3FileSystem(const ObjectStorageSettings& settings, const Environment& environment, Clock& clock)
        : credentials_(settings.credentials_file, environment),
          transport_(parse_endpoint(settings.endpoint).loopback ? Proxy::Never : Proxy::FromEnvironment,
                     settings.ca_file),
          client_(settings, credentials_, transport_, clock) {}

    std::unique_ptr<File> open(const std::string& path, Open mode) override {
        switch (mode) {
            case Open::Read:
                return open_object(path);
            case Open::CreateNew:
                return publish(path, Existing::Refuse);
            case Open::Truncate:
                return publish(path, Existing::Replace);
            case Open::Append:
                fail(Exit::Resource,
                     fmt::format("cannot append to {}: an object store has no such thing; keep "
                                 "what grows in a directory",
                                 path));
        }
        fail(Exit::Internal, "open: unknown mode");
    }

    std::unique_ptr<File> publish(const std::string& path, Existing existing) override {
        return std::make_unique<S3Upload>(client_, object(path), existing);
    }

    std::optional<FileStatus> status(const std::string& path) override {
        const ObjectPath named = parse_object_path(path);
        if (!named.key.empty()) {
            if (const auto found = client_.status(named, IoSide::Reading))
                return FileStatus{found->bytes, false, found->modified_unix_s};
        } else if (!client_.bucket_exists(named.bucket)) {
            return std::nullopt;
        }
        if (!named.key.empty() && client_.list(named, 1).value_or(Names()).empty()) return std::nullopt;
        FileStatus directory;
        directory.directory = true;
        return directory;
    }

    std::vector<std::string> list(const std::string& directory) override {
        const ObjectPath named = parse_object_path(directory);
        const auto found = client_.list(named, 0);
        if (!found || (found->empty() && !named.key.empty())) {
            fail(Exit::BadInput, fmt::format("cannot list {}: nothing is there; check the path", directory));
        }
        Names names = *found;
        for (std::string& name : names) {
            if (name.ends_with('/')) name.pop_back();
        }
        std::sort(names.begin(), names.end());
        names.erase(std::unique(names.begin(), names.end()), names.end());
        return names;
    }

    void make_directories(const std::string& path) override { static_cast<void>(parse_object_path(path)); }

    void require_creatable(const std::string& path) override {
        const ObjectPath named = parse_object_path(path);
        if (!client_.bucket_exists(named.bucket)) {
            fail(Exit::Usage,
                 fmt::format("{}: there is no bucket {}; make it, or correct the name", path, named.bucket));
        }
    }

    void rename(const std::string& from, const std::string& to) override {
        client_.copy(object(from), object(to));
        client_.remove(object(from));
    }

    void remove_file(const std::string& path) override { client_.remove(object(path)); }
    void remove_directory(const std::string& path) override { static_cast<void>(parse_object_path(path)); }
    void sync_directory(const std::string& path) override { static_cast<void>(parse_object_path(path)); }
    SpaceStatus space(const std::string& path) override {
        static_cast<void>(parse_object_path(path));
        constexpr std::uint64_t unlimited = std::uint64_t{1} << 62U;  // with room for sums
        return {unlimited, unlimited, unlimited};
    }

  private:
    using Names = std::vector<std::string>;

    static ObjectPath object(const std::string& path) {
        ObjectPath named = parse_object_path(path);
        if (named.key.empty()) fail(Exit::Usage, path + " is a bucket; name an object in it");
        return named;
    }

    std::unique_ptr<File> open_object(const std::string& path) {
        const ObjectPath named = object(path);
        auto found = client_.status(named, IoSide::Reading);
        if (!found) {
            fail(Exit::BadInput,
                 fmt::format("cannot open {}: there is no such object; check the path", path));
        }
        return std::make_unique<S3Object>(client_, named, std::move(*found));
    }

    CredentialSource credentials_;
    CurlTransport transport_;
    S3Client client_;
};

}  // namespace

std::unique_ptr<FileSystem> make_s3_file_system(const ObjectStorageSettings& settings,
                                                const Environment& environment, Clock& clock) {
    return std::make_unique<S3FileSystem>(settings, environment, clock);
}

}  // namespace trainctl
