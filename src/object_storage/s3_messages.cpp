#include "object_storage/s3_messages.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <exception>

#include "object_storage/xml.h"
#include "trainctl/base/error.h"

namespace trainctl {
namespace {

constexpr std::size_t longest_message = 300;

void require_root(const XmlElement& root, std::string_view name) {
    if (root.name != name) fail(Exit::BadInput, fmt::format("expected <{}>, found <{}>", name, root.name));
}

std::string printable(std::string_view text) {
    std::string line(text.substr(0, longest_message));
    std::replace_if(
        line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == '\x7f'; },
        ' ');
    return line;
}

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

}  // namespace

std::optional<S3ErrorBody> parse_s3_error(std::string_view body) noexcept {
    try {
        const XmlElement root = parse_xml(body);
        if (root.name != "Error") return std::nullopt;
        return S3ErrorBody{printable(root.text_of("Code")), printable(root.text_of("Message"))};
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

std::string uri_decode(std::string_view text) {
    std::string decoded;
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text[at] == '+') {  // a form's space: what the stores' own libraries write
            decoded += ' ';
        } else if (text[at] != '%') {
            decoded += text[at];
        } else {
            const int high = at + 2 < text.size() ? hex_digit(text[at + 1]) : -1;
            const int low = at + 2 < text.size() ? hex_digit(text[at + 2]) : -1;
            if (high < 0 || low < 0) fail(Exit::BadInput, "a key with a malformed % code");
            decoded += static_cast<char>(high * 16 + low);
            at += 2;
        }
    }
    return decoded;
}

ListPage parse_list(std::string_view body) {
    const XmlElement root = parse_xml(body);
    require_root(root, "ListBucketResult");
    const bool encoded = root.text_of("EncodingType") == "url";
    const auto name_of = [encoded](std::string_view text) {
        return encoded ? uri_decode(text) : std::string(text);
    };
    ListPage page;
    for (const XmlElement& child : root.children) {
        if (child.name == "Contents") page.names.push_back(name_of(child.text_of("Key")));
        if (child.name == "CommonPrefixes") page.names.push_back(name_of(child.text_of("Prefix")));
    }
    const std::string_view truncated = root.text_of("IsTruncated");
    if (truncated != "true" && truncated != "false")
        fail(Exit::BadInput, "a listing that does not say whether it is whole");
    if (truncated == "true") {
        page.continuation = root.text_of("NextContinuationToken");
        if (page.continuation.empty()) fail(Exit::BadInput, "a listing that does not say how it goes on");
    }
    return page;
}

std::string parse_upload_id(std::string_view body) {
    const XmlElement root = parse_xml(body);
    require_root(root, "InitiateMultipartUploadResult");
    std::string id(root.text_of("UploadId"));
    if (id.empty() || id.size() > 4096) fail(Exit::BadInput, "expected an UploadId");
    return id;
}

void require_completed(std::string_view body) {
    require_root(parse_xml(body), "CompleteMultipartUploadResult");
}

void require_copied(std::string_view body) { require_root(parse_xml(body), "CopyObjectResult"); }

std::string complete_upload_body(const std::vector<UploadedPart>& parts) {
    std::string body = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
    for (const UploadedPart& part : parts) {
        body += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag>", part.number,
                            xml_escaped(part.etag));
        if (!part.crc32c.empty())
            body += fmt::format("<ChecksumCRC32C>{}</ChecksumCRC32C>", xml_escaped(part.crc32c));
        body += "</Part>";
    }
    return body + "</CompleteMultipartUpload>";
}

std::string crc_text(std::uint32_t crc) {
    const std::array<unsigned char, 4> bytes{
        static_cast<unsigned char>(crc >> 24U), static_cast<unsigned char>(crc >> 16U & 0xFFU),
        static_cast<unsigned char>(crc >> 8U & 0xFFU), static_cast<unsigned char>(crc & 0xFFU)};
    std::array<unsigned char, 9> text{};  // with the terminator that OpenSSL writes
    EVP_EncodeBlock(text.data(), bytes.data(), static_cast<int>(bytes.size()));
    return {text.begin(), text.end() - 1};
}

}  // namespace trainctl
