#include "trainctl/rundir/durable_file.h"

#include <fmt/format.h>

#include "trainctl/base/error.h"

namespace trainctl {
namespace {

void write_and_sync(File& file, std::string_view text) {
    file.write(std::as_bytes(std::span(text)));
    file.sync();
    file.close();
}

}  // namespace

void remove_quietly(FileSystem& files, const std::string& path) {
    try {
        files.remove_file(path);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the first failure is the one to report
    }
}

void write_durably(FileSystem& files, const std::string& directory, std::string_view name,
                   std::string_view text) {
    const std::string target = join_path(directory, std::string(name));
    for (int attempt = 0;; ++attempt) {
        const std::string temporary = join_path(directory, fmt::format(".{}.part-{}", name, attempt));
        try {
            files.remove_file(temporary);  // left by a crash: a fresh inode is needed
            const std::unique_ptr<File> file = files.open(temporary, Open::CreateNew);
            write_and_sync(*file, text);
            files.rename(temporary, target);
            files.sync_directory(directory);
            return;
        } catch (const Error&) {
            remove_quietly(files, temporary);
            if (attempt + 1 == durable_tries) throw;
        }
    }
}

void make_durable_directories(FileSystem& files, const std::string& path) {
    std::vector<std::string> missing;  // innermost first
    for (std::string part = path; !files.status(part);) {
        missing.push_back(part);
        const std::string parent = parent_path(part);
        if (parent == part || parent == ".") break;
        part = parent;
    }
    files.make_directories(path);
    for (const std::string& part : missing) files.sync_directory(parent_path(part));
    if (!missing.empty()) return;
    try {
        files.sync_directory(parent_path(path));
    } catch (
        const Error&) {  // NOLINT(bugprone-empty-catch): the parent may be somebody else's, and unreadable
    }
}

Claim create_exclusively(FileSystem& files, const std::string& directory, std::string_view name,
                         std::string_view text) {
    const std::string path = join_path(directory, std::string(name));
    std::unique_ptr<File> file;
    try {
        file = files.open(path, Open::CreateNew);
    } catch (const Error&) {
        if (files.status(path).has_value()) return Claim::ExistsAlready;
        throw;
    }
    write_and_sync(*file, text);
    files.sync_directory(directory);
    return Claim::Taken;
}

}  // namespace trainctl
