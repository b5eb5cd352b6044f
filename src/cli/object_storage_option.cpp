#include "cli/object_storage_option.h"

namespace trainctl {

void use_object_storage(RoutedFileSystem& files, const JobSpec& job) {
    const ObjectStorageSpec& spec = job.checkpoint.object_storage;
    ObjectStorageSettings settings;
    settings.endpoint = spec.endpoint;
    settings.region = spec.region;
    settings.credentials_file = spec.credentials_file;
    files.configure(settings);
}

}  // namespace trainctl
