#include "object_storage/endpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainctl/base/error.h"

namespace trainctl {
namespace {

constexpr std::size_t longest_key = 1024;

bool is_host_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == ':' || c == '[' || c == ']';
}

bool is_bucket_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
}

}  // namespace

Endpoint parse_endpoint(std::string_view text) {
    Endpoint endpoint;
    const std::size_t mark = text.find("://");
    std::string_view host;
    if (mark != std::string_view::npos) {
        endpoint.scheme = text.substr(0, mark);
        host = text.substr(mark + 3);
    }
    while (host.ends_with('/')) host.remove_suffix(1);
    if ((endpoint.scheme != "https" && endpoint.scheme != "http") || host.empty() ||
        !std::all_of(host.begin(), host.end(), is_host_character)) {
        // The text itself is not repeated: people write credentials into URLs.
        fail(Exit::Usage,
             "the endpoint of the object store is no address: expected \"https://HOST\" or "
             "\"https://HOST:PORT\" (\"http://\" only if meant), without a path or credentials; set "
             "AWS_ENDPOINT_URL_S3 or checkpoint.object_storage.endpoint");
    }
    endpoint.host = host;
    endpoint.loopback =
        host.starts_with("127.") || host.starts_with("localhost") || host.starts_with("[::1]");
    return endpoint;
}

ObjectPath parse_object_path(std::string_view path) {
    constexpr std::string_view scheme = "s3://";
    invariant(path.starts_with(scheme), "object storage: a path without s3://");
    const std::string_view rest = path.substr(scheme.size());
    const std::size_t slash = std::min(rest.find('/'), rest.size());
    ObjectPath parsed;
    parsed.bucket = rest.substr(0, slash);
    if (parsed.bucket.size() < 3 || parsed.bucket.size() > 63 ||
        !std::all_of(parsed.bucket.begin(), parsed.bucket.end(), is_bucket_character)) {
        fail(Exit::Usage,
             fmt::format("{}: expected s3://BUCKET/KEY with a bucket name of 3 to 63 lower-case letters, "
                         "digits, dots and hyphens, found \"{}\"",
                         path, parsed.bucket));
    }
    for (const char c : rest.substr(slash)) {
        if (c != '/' || (!parsed.key.empty() && parsed.key.back() != '/')) parsed.key += c;
    }
    if (parsed.key.ends_with('/')) parsed.key.pop_back();
    if (parsed.key.size() > longest_key) {
        fail(Exit::Usage, fmt::format("{}: a key of {} bytes, S3 allows {}; choose a shorter prefix", path,
                                      parsed.key.size(), longest_key));
    }
    return parsed;
}

std::string to_string(const ObjectPath& path) {
    return fmt::format("s3://{}{}{}", path.bucket, path.key.empty() ? "" : "/", path.key);
}

}  // namespace trainctl
