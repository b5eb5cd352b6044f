// The requests of S3 that a file system needs, each with its retries: what a network and a store do wrong for
// a while is waited out here, within a bound.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "object_storage/s3_exchange.h"
#include "object_storage/s3_messages.h"
#include "trainctl/base/file_system.h"

namespace trainctl {

struct ObjectStatus {
    std::uint64_t bytes = 0;
    std::string etag;    // with its quotes; names this very content
    std::string crc32c;  // of the whole object, base64; empty: the store does not say it
    std::int64_t modified_unix_s = 0;
};

// Thread-safe. Errors: what is read and not there or not allowed is Exit::BadInput, what is written and
// refused Exit::Resource; a store that cannot be reached, or a clock that is wrong, Exit::Resource; wrong
// endpoint or credentials Exit::Usage. Every text names the object, what the store said and what to do; no
// text holds a secret. No call lasts much longer than `retry_for_s` of the settings (plus one
// `answer_timeout_s`).
class S3Client {
  public:
    S3Client(ObjectStorageSettings settings, CredentialSource& credentials, HttpTransport& transport,
             Clock& clock);

    // nullopt: there is no such object (or bucket).
    std::optional<ObjectStatus> status(const ObjectPath& path, IoSide side);
    bool bucket_exists(const std::string& bucket);
    // Exactly into.size() (> 0) bytes from `offset` of the object that `etag` names; Exit::BadInput if it is
    // another one by now.
    void get(const ObjectPath& path, std::uint64_t offset, const std::string& etag,
             std::span<std::byte> into);
    // What lies right under the prefix path.key + "/": names without it, directories with '/' at their end,
    // unsorted. `most` > 0: stops after so many. nullopt: there is no such bucket.
    std::optional<std::vector<std::string>> list(const ObjectPath& path, int most);

    // A whole small object. Refuse: Exit::Resource if there is one, unless it turns out to be the one that an
    // earlier try of the same call has made.
    void put(const ObjectPath& path, std::span<const std::byte> bytes, Existing existing);
    std::string begin_upload(const ObjectPath& path);
    // `give_up` ends the retries early. Throws Error.
    UploadedPart put_part(const ObjectPath& path, const std::string& upload, int number,
                          std::span<const std::byte> bytes, const std::atomic<bool>& give_up);
    // Makes the parts an object of `bytes` bytes with that CRC-32C, and proves it by asking for it
    // afterwards.
    void complete_upload(const ObjectPath& path, const std::string& upload,
                         const std::vector<UploadedPart>& parts, std::uint64_t bytes, std::uint32_t crc,
                         Existing existing);
    // Best effort, soon over.
    void abort_upload(const ObjectPath& path, const std::string& upload) noexcept;

    void copy(const ObjectPath& from, const ObjectPath& to);
    void remove(const ObjectPath& path);  // a missing object is success

    [[nodiscard]] const ObjectStorageSettings& settings() const { return exchange_.settings(); }

  private:
    void require_size(const ObjectPath& path, std::uint64_t bytes, std::uint32_t crc);
    void remove_soon(const ObjectPath& path) noexcept;
    bool holds(const ObjectPath& path, std::span<const std::byte> bytes);
    bool holds(const ObjectPath& path, std::uint64_t bytes, std::uint32_t crc);

    S3Exchange exchange_;
};

}  // namespace trainctl
