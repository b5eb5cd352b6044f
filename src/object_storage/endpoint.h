// Where requests go: the store's address and what a path "s3://bucket/key" names in it.
#pragma once

#include <string>
#include <string_view>

namespace trainctl {

struct Endpoint {
    std::string scheme;  // "https" or "http"
    std::string host;    // with ":port" where one is given: just what the Host header says
    bool loopback = false;
};

// Exit::Usage unless it is "https://host[:port]" or "http://host[:port]", with a '/' at its end or not. A
// missing scheme is refused: nobody shall send a training's state in the clear by forgetting a word.
Endpoint parse_endpoint(std::string_view text);

struct ObjectPath {
    std::string bucket;
    std::string key;  // without '/' at its ends or two in a row; empty: the bucket itself
};

// "s3://bucket[/key]". Exit::Usage if the bucket's name or the key is none that S3 allows.
ObjectPath parse_object_path(std::string_view path);
std::string to_string(const ObjectPath& path);  // "s3://bucket/key"

}  // namespace trainctl
