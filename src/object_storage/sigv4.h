// AWS Signature Version 4 in the Authorization header, as S3 wants it: paths encoded once, the payload's hash
// always given. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainctl {

using NamedText = std::pair<std::string, std::string>;

// RFC 3986: everything but A-Z a-z 0-9 - . _ ~ becomes %XX. In a path '/' stays.
enum class Slash { Kept, Encoded };
std::string uri_encode(std::string_view text, Slash slash);
// "a=1&b=" with both sides encoded, in the order in which they are signed: to be sent just so.
std::string canonical_query(const std::vector<NamedText>& query);

// "20130524T000000Z"
std::string amz_timestamp(double unix_s);

struct SignedRequest {
    std::string method;
    std::string path;                // encoded: "/bucket/key%20"
    std::string query;               // of canonical_query
    std::vector<NamedText> headers;  // what is signed: host and x-amz-* at least; names in any case
    std::string payload_sha256;      // hex; also one of the headers, as x-amz-content-sha256
};

struct SigningKey {
    std::string_view access_key_id;
    std::string_view secret;
    std::string_view region;
    std::string_view service = "s3";
};

// Value of the Authorization header at `timestamp` (of amz_timestamp, also the header x-amz-date).
std::string authorization(const SignedRequest& request, const SigningKey& key, const std::string& timestamp);

// Its last step; what a server compares.
std::string signature(const std::string& canonical_request, const SigningKey& key,
                      const std::string& timestamp);
std::string canonical_request(const SignedRequest& request);
std::string signed_header_names(const SignedRequest& request);  // "host;x-amz-date"

}  // namespace trainctl
