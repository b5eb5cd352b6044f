// A FileSystem whose paths are "s3://bucket/key". What a store has not, it does not have:
// - directories are prefixes of keys: making, syncing and removing them does nothing, and an empty one is not
//   there;
// - a file appears whole when it is closed (open() for writing is publish()); Append is refused;
// - rename copies and removes, which is not atomic, and only up to 5 GiB: publish() needs none;
// - space is without a bound.
#pragma once

#include <memory>

#include "object_storage/credentials.h"
#include "object_storage/http.h"
#include "trainctl/base/clock.h"
#include "trainctl/base/file_system.h"
#include "trainctl/object_storage/settings.h"

namespace trainctl {

// Thread-safe. `settings` with nothing left open (with_environment); Exit::Usage if the endpoint is none.
// `clock` must outlive it, and it its files.
std::unique_ptr<FileSystem> make_s3_file_system(const ObjectStorageSettings& settings,
                                                const Environment& environment, Clock& clock);

}  // namespace trainctl
