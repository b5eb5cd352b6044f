#include "object_storage/s3_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "trainctl/base/error.h"
#include "trainctl/base/hash.h"
#include "trainctl/base/text.h"

namespace trainctl {
namespace {

constexpr double abort_patience_s = 5.0;
constexpr double complete_answer_s = 600.0;

// Only what is said to be of the whole object: others are made of the parts' checksums, and not all stores
// mark them as such.
std::string whole_crc(const HttpAnswer& answer) {
    const bool whole = header_of(answer, "x-amz-checksum-type") == "FULL_OBJECT";
    return whole ? header_of(answer, "x-amz-checksum-crc32c") : std::string();
}

// Of the bytes that were just sent.
void require_crc(const HttpAnswer& answer, const std::string& expected) {
    const std::string found = header_of(answer, "x-amz-checksum-crc32c");
    if (!found.empty() && found != expected) {
        fail(Exit::Resource,
             fmt::format("the store counts CRC-32C {} over the bytes, expected {}", found, expected));
    }
}

[[noreturn]] void fail_existing(const ObjectPath& path) {
    fail(Exit::Resource,
         fmt::format("cannot create {}: it exists; whatever wrote it owns this name, choose another one",
                     to_string(path)));
}

}  // namespace

S3Client::S3Client(ObjectStorageSettings settings, CredentialSource& credentials, HttpTransport& transport,
                   Clock& clock)
    : exchange_(std::move(settings), credentials, transport, clock) {}

std::optional<ObjectStatus> S3Client::status(const ObjectPath& path, IoSide side) {
    S3Request request{.doing = "query", .side = side, .method = "HEAD", .path = path};
    request.headers = {{"x-amz-checksum-mode", "ENABLED"}};
    request.expected = {404};
    request.check = [](const HttpAnswer& answer) {
        const std::string length = header_of(answer, "content-length");
        if (length.empty() || length.size() > 18 ||
            length.find_first_not_of("0123456789") != std::string::npos)
            fail(Exit::BadInput, "an answer without the size");
    };
    const S3Outcome outcome = exchange_.run(request);
    if (outcome.answer.status == 404) return std::nullopt;
    ObjectStatus status;
    status.bytes = std::stoull(header_of(outcome.answer, "content-length"));
    status.etag = header_of(outcome.answer, "etag");
    status.crc32c = whole_crc(outcome.answer);
    status.modified_unix_s = static_cast<std::int64_t>(outcome.answer.last_modified_unix_s.value_or(0.0));
    return status;
}

bool S3Client::bucket_exists(const std::string& bucket) {
    S3Request request{.doing = "query", .method = "HEAD", .path = {bucket, ""}};
    request.expected = {404};
    return exchange_.run(request).answer.status != 404;
}

void S3Client::get(const ObjectPath& path, std::uint64_t offset, const std::string& etag,
                   std::span<std::byte> into) {
    S3Request request{.doing = "read", .method = "GET", .path = path};
    const std::string range = fmt::format("{}-{}", offset, offset + into.size() - 1);
    request.headers = {{"range", "bytes=" + range}};
    if (!etag.empty()) request.headers.emplace_back("if-match", etag);
    request.expected = {412};
    request.longest_answer = std::max<std::uint64_t>(into.size(), 1U << 16U);
    request.transferred = into.size();
    request.check = [&](const HttpAnswer& answer) {
        const bool part =
            answer.status == 206 && header_of(answer, "content-range").starts_with("bytes " + range + "/");
        const bool whole = answer.status == 200 && offset == 0;
        if (!part && !whole)
            fail(Exit::BadInput, fmt::format("asked for the bytes {}, the store sent something else", range));
        if (answer.body.size() != into.size())
            fail(Exit::BadInput, fmt::format("expected {} bytes, found {}", into.size(), answer.body.size()));
    };
    const S3Outcome outcome = exchange_.run(request);
    if (outcome.answer.status == 412) {
        fail(Exit::BadInput,
             fmt::format("cannot read {}: it was replaced while it was being read; start again",
                         to_string(path)));
    }
    std::memcpy(into.data(), outcome.answer.body.data(), into.size());
}

std::optional<std::vector<std::string>> S3Client::list(const ObjectPath& path, int most) {
    const std::string prefix = path.key.empty() ? "" : path.key + "/";
    std::vector<std::string> names;
    std::string continuation;
    do {
        S3Request request{.doing = "list", .method = "GET", .path = {path.bucket, ""}};
        const int asked = most > 0 ? most : settings().listed_keys;
        request.query = {{"list-type", "2"},
                         {"delimiter", "/"},
                         {"encoding-type", "url"},
                         {"max-keys", std::to_string(asked)},
                         {"prefix", prefix}};
        if (!continuation.empty()) request.query.emplace_back("continuation-token", continuation);
        ListPage page;
        request.check = [&](const HttpAnswer& answer) {
            page = parse_list(answer.body);
            for (const std::string& name : page.names) {
                if (!name.starts_with(prefix)) fail(Exit::BadInput, "a listing of something else");
            }
        };
        request.expected = {404};
        if (exchange_.run(request).answer.status == 404) return std::nullopt;
        for (const std::string& name : page.names) {
            if (name.size() > prefix.size()) names.push_back(name.substr(prefix.size()));
        }
        if (!page.continuation.empty() && page.continuation == continuation) {
            fail(Exit::BadInput,
                 fmt::format("cannot list {}: the store's listing does not go on", to_string(path)));
        }
        continuation = page.continuation;
    } while (!continuation.empty() && (most <= 0 || names.size() < static_cast<std::size_t>(most)));
    return names;
}

// Does the object hold just these bytes?
bool S3Client::holds(const ObjectPath& path, std::span<const std::byte> bytes) {
    const auto found = status(path, IoSide::Writing);
    if (!found || found->bytes != bytes.size()) return false;
    if (bytes.empty()) return true;
    std::vector<std::byte> contents(bytes.size());
    get(path, 0, found->etag, contents);
    return std::equal(contents.begin(), contents.end(), bytes.begin());
}

bool S3Client::holds(const ObjectPath& path, std::uint64_t bytes, std::uint32_t crc) {
    const auto found = status(path, IoSide::Writing);
    if (!found || found->bytes != bytes) return false;
    if (!found->crc32c.empty()) return found->crc32c == crc_text(crc);
    std::vector<std::byte> piece;
    std::uint32_t counted_crc = 0;
    for (std::uint64_t at = 0; at < bytes; at += piece.size()) {
        piece.resize(static_cast<std::size_t>(std::min<std::uint64_t>(settings().part_bytes, bytes - at)));
        get(path, at, found->etag, piece);
        counted_crc = crc32c(piece, counted_crc);
    }
    return counted_crc == crc;
}

// After a failure that may have left the object there although it is reported as not written.
void S3Client::remove_soon(const ObjectPath& path) noexcept {
    try {
        S3Request request{.doing = "remove", .side = IoSide::Writing, .method = "DELETE", .path = path};
        request.expected = {404};
        request.patience_s = abort_patience_s;
        exchange_.run(request);
    } catch (...) {  // NOLINT(bugprone-empty-catch): the failure itself is reported
    }
}

void S3Client::put(const ObjectPath& path, std::span<const std::byte> bytes, Existing existing) {
    S3Request request{.doing = "write", .side = IoSide::Writing, .method = "PUT", .path = path};
    const std::string crc = crc_text(crc32c(bytes));
    bool unsure = false;
    request.headers = {{"x-amz-checksum-crc32c", crc}};
    request.body = bytes;
    request.transferred = bytes.size();
    request.unsure = &unsure;
    request.connection = Connection::Fresh;
    request.check = [&](const HttpAnswer& answer) { require_crc(answer, crc); };
    if (existing == Existing::Refuse) {
        request.headers.emplace_back("if-none-match", "*");
        request.expected = {412};
    }
    bool exists = false;
    try {
        exists = exchange_.run(request).answer.status == 412;
        // The answer to an earlier try was lost: then what is there may be ours.
        if (exists && unsure) exists = !holds(path, bytes);
    } catch (const Error&) {
        if (unsure && existing == Existing::Refuse) remove_soon(path);
        throw;
    }
    if (exists) fail_existing(path);
}

std::string S3Client::begin_upload(const ObjectPath& path) {
    S3Request request{.doing = "write", .side = IoSide::Writing, .method = "POST", .path = path};
    request.query = {{"uploads", ""}};
    request.headers = {{"x-amz-checksum-algorithm", "CRC32C"}, {"x-amz-checksum-type", "FULL_OBJECT"}};
    std::string id;
    request.check = [&](const HttpAnswer& answer) { id = parse_upload_id(answer.body); };
    exchange_.run(request);
    return id;
}

UploadedPart S3Client::put_part(const ObjectPath& path, const std::string& upload, int number,
                                std::span<const std::byte> bytes, const std::atomic<bool>& give_up) {
    S3Request request{.doing = "write", .side = IoSide::Writing, .method = "PUT", .path = path};
    UploadedPart part;
    part.number = number;
    const std::string crc = crc_text(crc32c(bytes));
    request.query = {{"partNumber", std::to_string(number)}, {"uploadId", upload}};
    request.headers = {{"x-amz-checksum-crc32c", crc}};
    request.body = bytes;
    request.transferred = bytes.size();
    request.give_up = &give_up;
    request.check = [&](const HttpAnswer& answer) {
        require_crc(answer, crc);
        if (header_of(answer, "etag").empty()) fail(Exit::Resource, "an answer without the part's ETag");
    };
    const S3Outcome outcome = exchange_.run(request);
    part.etag = header_of(outcome.answer, "etag");
    part.crc32c = header_of(outcome.answer, "x-amz-checksum-crc32c");
    return part;
}

void S3Client::complete_upload(const ObjectPath& path, const std::string& upload,
                               const std::vector<UploadedPart>& parts, std::uint64_t bytes, std::uint32_t crc,
                               Existing existing) {
    S3Request request{.doing = "write", .side = IoSide::Writing, .method = "POST", .path = path};
    const std::string body = complete_upload_body(parts);
    request.query = {{"uploadId", upload}};
    request.body = std::as_bytes(std::span(body));
    request.expected = {404};  // the upload is over: completed by a try whose answer was lost, or aborted
    request.slow_answer_s = complete_answer_s;
    request.check = [](const HttpAnswer& answer) { require_completed(answer.body); };
    if (existing == Existing::Refuse) {
        request.headers = {{"if-none-match", "*"}};
        request.expected.push_back(412);
    }
    bool unsure = false;
    request.unsure = &unsure;
    request.connection = Connection::Fresh;
    bool exists = false;
    try {
        const S3Outcome outcome = exchange_.run(request);
        const bool completed = is_success(outcome.answer.status);
        exists = outcome.answer.status == 412;
        if (completed) {
            require_size(path, bytes, crc);
        } else if (unsure && holds(path, bytes, crc)) {
            exists = false;  // made by a try whose answer was lost
        } else if (!exists) {
            exchange_.fail_request(request, outcome.answer);
        }
    } catch (const Error&) {
        if (unsure && existing == Existing::Refuse) remove_soon(path);
        throw;
    }
    if (exists) fail_existing(path);
}

// What was joined is looked at once more: a store that did it wrongly is found here, not at a load.
void S3Client::require_size(const ObjectPath& path, std::uint64_t bytes, std::uint32_t crc) {
    const auto found = status(path, IoSide::Writing);
    const bool same_crc = found && (found->crc32c.empty() || found->crc32c == crc_text(crc));
    if (found && found->bytes == bytes && same_crc) return;
    remove_soon(path);
    fail(Exit::Resource,
         fmt::format(
             "cannot write {}: sent {} with CRC-32C {}, the store holds {}; write it again, and check the "
             "store if it happens again",
             to_string(path), counted(bytes, "byte"), crc_text(crc),
             found ? fmt::format("{} with {}", counted(found->bytes, "byte"), found->crc32c) : "nothing"));
}

void S3Client::abort_upload(const ObjectPath& path, const std::string& upload) noexcept {
    try {
        S3Request request{.doing = "remove", .side = IoSide::Writing, .method = "DELETE", .path = path};
        request.query = {{"uploadId", upload}};
        request.expected = {404};
        request.patience_s = abort_patience_s;
        exchange_.run(request);
    } catch (...) {  // NOLINT(bugprone-empty-catch): a lifecycle rule of the bucket removes what is left
    }
}

void S3Client::copy(const ObjectPath& from, const ObjectPath& to) {
    S3Request request{.doing = "write", .side = IoSide::Writing, .method = "PUT", .path = to};
    request.headers = {
        {"x-amz-copy-source", fmt::format("/{}/{}", from.bucket, uri_encode(from.key, Slash::Kept))}};
    request.check = [](const HttpAnswer& answer) { require_copied(answer.body); };
    request.slow_answer_s = complete_answer_s;
    exchange_.run(request);
}

void S3Client::remove(const ObjectPath& path) {
    S3Request request{.doing = "remove", .side = IoSide::Writing, .method = "DELETE", .path = path};
    request.expected = {404};
    exchange_.run(request);
}

}  // namespace trainctl
