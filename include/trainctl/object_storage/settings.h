// What is needed to reach an S3-compatible object store. Secrets are not among it: it may be printed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace trainctl {

// Value of an environment variable; nullopt: not set. Must be thread-safe. Tests give one of their own.
using Environment = std::function<std::optional<std::string>(const char* name)>;
// The environment of this process, where nobody writes it.
Environment process_environment();

struct ObjectStorageSettings {
    // "https://host[:port]", or "http://..." where that is written explicitly. Empty: Amazon's for the
    // region.
    std::string endpoint;
    std::string region;            // empty: "us-east-1", which other stores mostly take for "any"
    std::string credentials_file;  // empty: the environment, or the file that it names
    std::string ca_file;           // certificates (PEM) to trust; empty: the system's

    std::size_t part_bytes = std::size_t{16} << 20U;  // of a multipart upload; S3 wants at least 5 MiB
    int parallel_parts = 4;                           // of one file, each with its memory and connection
    int listed_keys = 1000;                           // per answer to a listing
    double retry_for_s = 600.0;                       // from the first failure of a request
    // The same until the store has answered: at first, since the endpoint may be mistyped, and again after a
    // request was given up, since whoever waited once need not wait as long for each request that follows.
    double first_contact_s = 30.0;
    double answer_timeout_s = 60.0;  // besides the time that the bytes take
};

// Endpoint, region and certificates from AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_REGION or
// AWS_DEFAULT_REGION, AWS_CA_BUNDLE, where `given` leaves them open.
ObjectStorageSettings with_environment(ObjectStorageSettings given, const Environment& environment);

}  // namespace trainctl
