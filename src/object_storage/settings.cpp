#include "trainctl/object_storage/settings.h"

#include <cstdlib>

namespace trainctl {
namespace {

std::string first_set(const Environment& environment, std::initializer_list<const char*> names) {
    for (const char* name : names) {
        if (auto value = environment(name); value && !value->empty()) return *value;
    }
    return {};
}

}  // namespace

Environment process_environment() {
    return [](const char* name) -> std::optional<std::string> {
        const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody writes it
        if (value == nullptr) return std::nullopt;
        return value;
    };
}

ObjectStorageSettings with_environment(ObjectStorageSettings given, const Environment& environment) {
    if (given.endpoint.empty())
        given.endpoint = first_set(environment, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
    if (given.region.empty()) given.region = first_set(environment, {"AWS_REGION", "AWS_DEFAULT_REGION"});
    if (given.ca_file.empty()) given.ca_file = first_set(environment, {"AWS_CA_BUNDLE"});
    if (given.region.empty()) given.region = "us-east-1";
    if (given.endpoint.empty()) given.endpoint = "https://s3." + given.region + ".amazonaws.com";
    return given;
}

}  // namespace trainctl
