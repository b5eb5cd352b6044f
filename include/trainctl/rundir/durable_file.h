// Small files that must be on disk, whole, when the call returns.
#pragma once

#include <string>
#include <string_view>

#include "trainctl/base/file_system.h"

namespace trainctl {

// How often whatever must be on disk is written, each time to a new file, before the failure is reported.
constexpr int durable_tries = 3;

// Publishes `directory`/`name` with `text` (FileSystem::publish). Whatever fails, the file is written again
// from `text`, as another file, `durable_tries` times in all: the kernel may forget dirty pages after a
// failed sync, so the same file is never synced again. Refuse: what is there and is not just `text` is kept.
// Throws the last Error. One writer per path.
void write_durably(FileSystem& files, const std::string& directory, std::string_view name,
                   std::string_view text, Existing existing = Existing::Replace);

enum class Claim { Taken, ExistsAlready };
// Creates `directory`/`name` exclusively with `text`, durable on return. Other failures throw Exit::Resource.
// A crash may leave the file empty or torn; its existence is what counts.
Claim create_exclusively(FileSystem& files, const std::string& directory, std::string_view name,
                         std::string_view text);

// Creates `path` and its parents so that they are still there after a power cut. The entry of a directory
// that was there already is synced too where that is allowed: the process that made it may have died before.
void make_durable_directories(FileSystem& files, const std::string& path);

}  // namespace trainctl
