#include "trainctl/checkpoint/suspicion.h"

#include "trainctl/base/error.h"
#include "trainctl/rundir/durable_file.h"
#include "trainctl/rundir/layout.h"

namespace trainctl {
namespace {

constexpr std::uint64_t max_mark_bytes = 1U << 20U;

std::string mark_path(const std::string& directory) {
    return join_path(directory, std::string(suspect_file_name));
}

}  // namespace

std::optional<std::string> read_suspicion(FileSystem& files, const std::string& directory) {
    const std::string path = mark_path(directory);
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
    if (!files.status(join_path(directory, std::string(commit_file_name)))) return;
    write_durably(files, directory, suspect_file_name, why + "\n");
}

bool is_healthy(FileSystem& files, const std::string& directory) {
    return files.status(join_path(directory, std::string(healthy_file_name))).has_value();
}

bool remember_health(FileSystem& files, const std::string& directory) {
    if (!files.status(join_path(directory, std::string(commit_file_name)))) return false;
    write_durably(files, directory, healthy_file_name, "\n");
    return true;
}

void clear_suspicion(FileSystem& files, const std::string& directory) {
    const std::string path = mark_path(directory);
    if (!files.status(path)) return;
    files.remove_file(path);
    files.sync_directory(directory);
}

}  // namespace trainctl
