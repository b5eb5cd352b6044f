#include "trainctl/checkpoint/suspicion.h"

#include "trainctl/base/error.h"
#include "trainctl/rundir/durable_file.h"
#include "trainctl/rundir/layout.h"

namespace trainctl {
namespace {

constexpr std::uint64_t max_mark_bytes = 1U << 20U;

bool has(FileSystem& files, const std::string& directory, std::string_view name) {
    return files.status(join_path(directory, std::string(name))).has_value();
}

// False where COMMIT is gone.
bool mark(FileSystem& files, const std::string& directory, std::string_view name, std::string_view text) {
    if (!has(files, directory, commit_file_name)) return false;
    write_durably(files, directory, name, text);
    return true;
}

void unmark(FileSystem& files, const std::string& directory, std::string_view name) {
    if (!has(files, directory, name)) return;
    files.remove_file(join_path(directory, std::string(name)));
    files.sync_directory(directory);
}

}  // namespace

std::optional<std::string> read_suspicion(FileSystem& files, const std::string& directory) {
    const std::string path = join_path(directory, std::string(suspect_file_name));
    try {
        if (!files.status(path)) return std::nullopt;
        std::string why = read_text(files, path, max_mark_bytes);
        while (why.ends_with('\n')) why.pop_back();
        return why;
    } catch (const Error& error) {
        return error.what();
    }
}

void remember_suspicion(FileSystem& files, const std::string& directory, const std::string& why) {
    mark(files, directory, suspect_file_name, why + "\n");
}

bool is_healthy(FileSystem& files, const std::string& directory) {
    return has(files, directory, healthy_file_name);
}

bool remember_health(FileSystem& files, const std::string& directory) {
    return mark(files, directory, healthy_file_name, "\n");
}

bool is_pinned(FileSystem& files, const std::string& directory) {
    return has(files, directory, pinned_file_name);
}

bool pin_checkpoint(FileSystem& files, const std::string& directory) {
    return mark(files, directory, pinned_file_name, "\n") && has(files, directory, commit_file_name);
}

void unpin_checkpoint(FileSystem& files, const std::string& directory) {
    unmark(files, directory, pinned_file_name);
}

void clear_suspicion(FileSystem& files, const std::string& directory) {
    unmark(files, directory, suspect_file_name);
}

}  // namespace trainctl
