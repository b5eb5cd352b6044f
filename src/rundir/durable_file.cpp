#include "trainctl/rundir/durable_file.h"

#include "trainctl/base/error.h"

namespace trainctl {
namespace {

// A file that we could not remove after its rename had been reported as failed is told by its contents.
bool holds(FileSystem& files, const std::string& path, std::string_view text) {
    try {
        return read_text(files, path, text.size()) == text;
    } catch (const Error&) {
        return false;
    }
}

}  // namespace

void write_durably(FileSystem& files, const std::string& directory, std::string_view name,
                   std::string_view text, Existing existing) {
    const std::string path = join_path(directory, std::string(name));
    for (int attempt = 0;; ++attempt) {
        try {
            const std::unique_ptr<File> file = files.publish(path, existing);
            file->write(std::as_bytes(std::span(text)));
            file->close();
            return;
        } catch (const Error&) {
            if (attempt + 1 == durable_tries) throw;
            if (existing == Existing::Refuse && holds(files, path, text)) existing = Existing::Replace;
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
    file->write(std::as_bytes(std::span(text)));
    file->sync();
    file->close();
    files.sync_directory(directory);
    return Claim::Taken;
}

}  // namespace trainctl
