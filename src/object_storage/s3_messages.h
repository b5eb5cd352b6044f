// The bodies of S3's answers and requests. Readers throw Exit::BadInput: a body that was cut says nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

struct S3ErrorBody {
    std::string code;     // "NoSuchKey"
    std::string message;  // cut to a line's length, printable
};
// nullopt: not the <Error> document.
std::optional<S3ErrorBody> parse_s3_error(std::string_view body) noexcept;

struct ListPage {
    std::vector<std::string> names;  // keys, and prefixes with '/' at their end; whole, decoded
    std::string continuation;        // empty: the last page
};
ListPage parse_list(std::string_view body);

std::string parse_upload_id(std::string_view body);
// Exit::BadInput unless it is the result of a completed upload, or of a copy.
void require_completed(std::string_view body);
void require_copied(std::string_view body);

struct UploadedPart {
    int number = 0;  // from 1
    std::string etag;
    std::string crc32c;  // base64; empty: the store does not say it
};
std::string complete_upload_body(const std::vector<UploadedPart>& parts);

// "%2F" -> "/"; Exit::BadInput for what is no such code.
std::string uri_decode(std::string_view text);
// Big-endian base64 of a CRC, as in x-amz-checksum-crc32c.
std::string crc_text(std::uint32_t crc);

}  // namespace trainctl
