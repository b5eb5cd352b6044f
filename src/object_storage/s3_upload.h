// A new object, written from begin to end: FileSystem::publish() on an object store.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <future>
#include <string>
#include <vector>

#include "object_storage/s3_client.h"
#include "trainctl/base/file_system.h"

namespace trainctl {

// Small objects go in one request at close(); larger ones in parts, several at once, which the store joins at
// close(). Memory: `parallel_parts` + 1 parts. Nothing appears before close(); a destroyed one gives its
// parts back. One thread; its parts have threads of their own.
class S3Upload final : public File {
  public:
    S3Upload(S3Client& client, ObjectPath path, Existing existing);
    ~S3Upload() override;
    S3Upload(const S3Upload&) = delete;
    S3Upload& operator=(const S3Upload&) = delete;

    void read_at(std::uint64_t offset, std::span<std::byte> into) override;
    std::size_t read_some_at(std::uint64_t offset, std::span<std::byte> into) override;
    void write(std::span<const std::byte> bytes) override;
    void sync() override {}  // an object is durable when it is there, and it is there whole
    void close() override;
    std::uint64_t size() override { return total_; }

  private:
    enum class State { Open, Failed, Closed };

    void require_open() const;
    void send_part();
    void await_oldest();
    void finish();

    S3Client& client_;
    ObjectPath path_;
    Existing existing_;
    State state_ = State::Open;
    std::vector<std::byte> part_;  // what the next part has so far
    std::uint64_t total_ = 0;
    std::uint32_t crc_ = 0;
    std::string upload_;  // empty: no part was sent
    std::vector<UploadedPart> sent_;
    std::atomic<bool> give_up_{false};
    std::deque<std::future<UploadedPart>> under_way_;  // last: its threads end before what they use
};

// Size of a part once `written` bytes have been sent. The length to come is not known and an upload has at
// most 10,000 parts: equal parts for as long as that does no harm, then growing ones, up to S3's 5 TiB.
std::uint64_t next_part_bytes(std::uint64_t smallest, std::uint64_t written);

}  // namespace trainctl
