#include "object_storage/sigv4.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <span>

#include "trainctl/base/error.h"
#include "trainctl/base/hash.h"

namespace trainctl {
namespace {

using Digest = std::array<unsigned char, 32>;

Digest hmac_sha256(std::string_view key, std::string_view text) {
    Digest digest{};
    unsigned int size = 0;
    const unsigned char* made =
        HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
             reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(), &size);
    invariant(made != nullptr && size == digest.size(), "signature: HMAC-SHA256 failed");
    return digest;
}

std::string_view text_of(const Digest& digest) {
    return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

bool is_unreserved(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    return text;
}

// Without spaces at the ends, runs of them as one.
std::string canonical_value(std::string_view value) {
    std::string text;
    for (const char c : value) {
        if (c != ' ' || (!text.empty() && text.back() != ' ')) text += c;
    }
    if (text.ends_with(' ')) text.pop_back();
    return text;
}

std::vector<NamedText> canonical_headers(const SignedRequest& request) {
    std::vector<NamedText> headers;
    headers.reserve(request.headers.size());
    for (const auto& [name, value] : request.headers)
        headers.emplace_back(lower(name), canonical_value(value));
    std::sort(headers.begin(), headers.end());
    return headers;
}

std::string scope_of(const SigningKey& key, const std::string& timestamp) {
    return fmt::format("{}/{}/{}/aws4_request", timestamp.substr(0, 8), key.region, key.service);
}

}  // namespace

std::string uri_encode(std::string_view text, Slash slash) {
    std::string encoded;
    for (const char c : text) {
        if (is_unreserved(c) || (c == '/' && slash == Slash::Kept)) {
            encoded += c;
        } else {
            encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
        }
    }
    return encoded;
}

std::string canonical_query(const std::vector<NamedText>& query) {
    std::vector<NamedText> encoded;
    encoded.reserve(query.size());
    for (const auto& [name, value] : query)
        encoded.emplace_back(uri_encode(name, Slash::Encoded), uri_encode(value, Slash::Encoded));
    std::sort(encoded.begin(), encoded.end());
    std::string text;
    for (const auto& [name, value] : encoded)
        text += fmt::format("{}{}={}", text.empty() ? "" : "&", name, value);
    return text;
}

std::string amz_timestamp(double unix_s) {
    const auto seconds = static_cast<std::time_t>(unix_s);
    std::tm utc{};
    gmtime_r(&seconds, &utc);
    return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                       utc.tm_hour, utc.tm_min, utc.tm_sec);
}

std::string signed_header_names(const SignedRequest& request) {
    std::string names;
    for (const auto& [name, value] : canonical_headers(request)) names += (names.empty() ? "" : ";") + name;
    return names;
}

std::string canonical_request(const SignedRequest& request) {
    std::string headers;
    for (const auto& [name, value] : canonical_headers(request))
        headers += fmt::format("{}:{}\n", name, value);
    return fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method, request.path, request.query, headers,
                       signed_header_names(request), request.payload_sha256);
}

std::string signature(const std::string& canonical, const SigningKey& key, const std::string& timestamp) {
    const std::string to_sign =
        fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", timestamp, scope_of(key, timestamp),
                    sha256_hex(std::as_bytes(std::span(canonical))));
    const Digest day = hmac_sha256("AWS4" + std::string(key.secret), timestamp.substr(0, 8));
    const Digest region = hmac_sha256(text_of(day), key.region);
    const Digest service = hmac_sha256(text_of(region), key.service);
    const Digest signing = hmac_sha256(text_of(service), "aws4_request");
    return fmt::format("{:02x}", fmt::join(hmac_sha256(text_of(signing), to_sign), ""));
}

std::string authorization(const SignedRequest& request, const SigningKey& key, const std::string& timestamp) {
    return fmt::format("AWS4-HMAC-SHA256 Credential={}/{},SignedHeaders={},Signature={}", key.access_key_id,
                       scope_of(key, timestamp), signed_header_names(request),
                       signature(canonical_request(request), key, timestamp));
}

}  // namespace trainctl
