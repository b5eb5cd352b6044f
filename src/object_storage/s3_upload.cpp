#include "object_storage/s3_upload.h"

#include <algorithm>
#include <utility>

#include "trainctl/base/error.h"
#include "trainctl/base/hash.h"

namespace trainctl {

std::uint64_t next_part_bytes(std::uint64_t smallest, std::uint64_t written) {
    constexpr std::uint64_t equal_parts = 1500;
    constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20U;
    const std::uint64_t growing = (written / equal_parts + mebibyte - 1) / mebibyte * mebibyte;
    return written <= smallest * equal_parts ? smallest : std::max(smallest, growing);
}

S3Upload::S3Upload(S3Client& client, ObjectPath path, Existing existing)
    : client_(client), path_(std::move(path)), existing_(existing) {
    if (existing_ == Existing::Replace || !client_.status(path_, IoSide::Writing)) return;
    fail(Exit::Resource, "cannot create " + to_string(path_) +
                             ": it exists; whatever wrote it owns this name, choose another one");
}

S3Upload::~S3Upload() {
    give_up_ = true;
    under_way_.clear();
    if (state_ != State::Closed && !upload_.empty()) client_.abort_upload(path_, upload_);
}

void S3Upload::require_open() const {
    invariant(state_ == State::Open, "publish: an object was used after it had failed or been closed");
}

void S3Upload::read_at(std::uint64_t /*offset*/, std::span<std::byte> /*into*/) {
    fail(Exit::Internal, to_string(path_) + ": an object that is being written cannot be read");
}

std::size_t S3Upload::read_some_at(std::uint64_t offset, std::span<std::byte> into) {
    read_at(offset, into);
    return 0;
}

void S3Upload::write(std::span<const std::byte> bytes) {
    require_open();
    state_ = State::Failed;  // unless it comes back
    while (!bytes.empty()) {
        const std::uint64_t wanted = next_part_bytes(client_.settings().part_bytes, total_ - part_.size());
        if (part_.size() == wanted) {  // only now: the last part may be a whole one
            send_part();
            continue;
        }
        const std::size_t count = std::min<std::size_t>(bytes.size(), wanted - part_.size());
        part_.insert(part_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
        total_ += count;
        bytes = bytes.subspan(count);
    }
    state_ = State::Open;
}

void S3Upload::send_part() {
    crc_ = crc32c(part_, crc_);
    if (upload_.empty()) upload_ = client_.begin_upload(path_);
    if (under_way_.size() >= static_cast<std::size_t>(client_.settings().parallel_parts)) await_oldest();
    const int number = static_cast<int>(sent_.size() + under_way_.size()) + 1;
    under_way_.push_back(std::async(std::launch::async, [this, number, part = std::exchange(part_, {})] {
        return client_.put_part(path_, upload_, number, part, give_up_);
    }));
}

void S3Upload::await_oldest() {
    std::future<UploadedPart> oldest = std::move(under_way_.front());
    under_way_.pop_front();
    sent_.push_back(oldest.get());
}

void S3Upload::finish() {
    if (upload_.empty()) {
        client_.put(path_, part_, existing_);
        return;
    }
    send_part();
    while (!under_way_.empty()) await_oldest();
    client_.complete_upload(path_, upload_, sent_, total_, crc_, existing_);
}

void S3Upload::close() {
    require_open();
    state_ = State::Failed;
    try {
        finish();
        state_ = State::Closed;
    } catch (const Error&) {
        // At once rather than in the destructor: the caller may write the object anew while this one lives.
        give_up_ = true;
        under_way_.clear();
        if (!upload_.empty()) client_.abort_upload(path_, std::exchange(upload_, {}));
        throw;
    }
}

}  // namespace trainctl
