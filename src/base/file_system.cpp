// What every FileSystem shares: path texts and the two whole-file helpers.
#include "trainctl/base/file_system.h"

#include <fmt/format.h>

#include "trainctl/base/error.h"
#include "trainctl/base/io_error.h"

namespace trainctl {

std::string join_path(const std::string& directory, const std::string& name) {
    if (directory.empty() || (!name.empty() && name.front() == '/')) return name;
    if (name.empty()) return directory;
    return directory.back() == '/' ? directory + name : directory + '/' + name;
}

std::string parent_path(const std::string& path) {
    std::string_view rest = path;
    while (rest.size() > 1 && rest.back() == '/') rest.remove_suffix(1);  // "a/b/" names the same as "a/b"
    const std::size_t slash = rest.rfind('/');
    if (slash == std::string_view::npos) return ".";
    rest = rest.substr(0, slash);
    while (!rest.empty() && rest.back() == '/') rest.remove_suffix(1);
    return rest.empty() ? "/" : std::string(rest);
}

namespace {

std::string read_open_file(File& file, const std::string& path, std::uint64_t limit_bytes) {
    const std::uint64_t size = file.size();
    const auto too_large = [&] {
        fail(Exit::BadInput,
             fmt::format("cannot read {}: expected a text of at most {} bytes, found {} or more; "
                         "check that it is the right file",
                         path, limit_bytes, std::max(size, limit_bytes + 1)));
    };
    if (size > limit_bytes) too_large();

    // Read to the end rather than `size` bytes: files of /proc and pipes report 0, and a log may be growing.
    std::string text(static_cast<std::size_t>(size) + 1, '\0');
    std::size_t filled = 0;
    while (true) {
        const std::size_t got =
            file.read_some_at(filled, std::as_writable_bytes(std::span(text).subspan(filled)));
        filled += got;
        if (filled > limit_bytes) too_large();
        if (got == 0) break;
        if (filled == text.size()) text.resize(2 * text.size());
    }
    text.resize(filled);
    return text;
}

}  // namespace

std::string read_text(FileSystem& files, const std::string& path, std::uint64_t limit_bytes) {
    try {
        return read_open_file(*files.open(path, Open::Read), path, limit_bytes);
    } catch (const Error& error) {
        // On a network file system whoever replaces a file ends the handles of its readers.
        if (!is_stale_handle(error)) throw;
        return read_open_file(*files.open(path, Open::Read), path, limit_bytes);
    }
}

void write_text_atomically(FileSystem& files, const std::string& path, const std::string& text) {
    const std::unique_ptr<File> file = files.publish(path, Existing::Replace);
    file->write(std::as_bytes(std::span(text)));
    file->close();
}

}  // namespace trainctl
