// Small files that must be on disk, whole, when the call returns.
#pragma once

#include <string>
#include <string_view>

#include "trainctl/base/file_system.h"

namespace trainctl {

// How often whatever must be on disk is written, each time to a new file, before the failure is reported.
constexpr int durable_tries = 3;

// Writes `directory`/`name` by temporary name, write, sync, checked close, rename, directory sync. Whatever
// fails, the file is written again from `text` under another temporary name, `durable_tries` times in all:
// the kernel may forget dirty pages after a failed sync, so the same file is never synced again. Throws the
// last Error. One writer per path.
void write_durably(FileSystem& files, const std::string& directory, std::string_view name,
                   std::string_view text);

enum class Claim { Taken, ExistsAlready };
// Creates `directory`/`name` exclusively with `text`, durable on return. Other failures throw Exit::Resource.
// A crash may leave the file empty or torn; its existence is what counts.
Claim create_exclusively(FileSystem& files, const std::string& directory, std::string_view name,
                         std::string_view text);

// Creates `path` and its parents so that they are still there after a power cut. The entry of a directory
// that was there already is synced too where that is allowed: the process that made it may have died before.
void make_durable_directories(FileSystem& files, const std::string& path);

// Best effort removal on the way out of a failure that is reported otherwise.
void remove_quietly(FileSystem& files, const std::string& path);

}  // namespace trainctl
