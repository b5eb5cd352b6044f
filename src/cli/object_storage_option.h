// What a job says about the object store behind "s3://" paths.
#pragma once

#include "trainctl/config/job_spec.h"
#include "trainctl/object_storage/routed_file_system.h"

namespace trainctl {

// For whatever is opened from now on. Reaches for nothing yet.
void use_object_storage(RoutedFileSystem& files, const JobSpec& job);

}  // namespace trainctl
