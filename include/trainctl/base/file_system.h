// The only door to files. Production uses PosixFileSystem; tests use one that forgets what was not synced.
//
// Errors: every call throws Error with path, operation and errno text. ENOENT on reading is Exit::BadInput;
// ENOSPC, EDQUOT, EROFS, EACCES on writing are Exit::Resource; everything else by the caller's side
// (reading: BadInput, writing: Resource). Thread-safe: calls on different objects never interfere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trainctl {

// An open file. The destructor closes without checking; writers must call close().
class File {
  public:
    virtual ~File() = default;

    // Fills the whole span from byte `offset`; a short file is Exit::BadInput naming path, offset and size.
    virtual void read_at(std::uint64_t offset, std::span<std::byte> into) = 0;
    // Reads up to into.size() bytes from `offset`; returns how many (0 at the end).
    virtual std::size_t read_some_at(std::uint64_t offset, std::span<std::byte> into) = 0;
    // Appends at the end of what this object has written so far (sequential writer).
    virtual void write(std::span<const std::byte> bytes) = 0;
    // Makes contents durable. After a failure the file must be discarded and rewritten under a new name,
    // never retried.
    virtual void sync() = 0;
    // Reports late write errors (NFS). Safe to call once; the object is unusable afterwards.
    virtual void close() = 0;
    [[nodiscard]] virtual std::uint64_t size() = 0;
};

enum class Open {
    Read,       // must exist
    CreateNew,  // O_CREAT|O_EXCL, for writing; EEXIST is Exit::Resource ("exists")
    Truncate,   // create or empty, for writing
    Append,     // create if absent, write at the end (single writer: journals, metrics)
};

// What to do when the file that is to be written is there already.
enum class Existing { Refuse, Replace };

struct FileStatus {
    std::uint64_t size = 0;
    bool directory = false;
    std::int64_t modified_unix_s = 0;
};

struct SpaceStatus {
    std::uint64_t free_bytes = 0;  // available to this user
    std::uint64_t total_bytes = 0;
    std::uint64_t free_inodes = 0;
};

class FileSystem {
  public:
    virtual ~FileSystem() = default;

    virtual std::unique_ptr<File> open(const std::string& path, Open mode) = 0;
    // A new file, written from its begin to its end, that is at `path` whole and durable when close()
    // returns, and not at all if close() is not reached or fails. Refuse: an existing file is Exit::Resource
    // ("exists"), and a close() that fails leaves nothing at `path`; Replace: what was there stays until
    // close() returns. After any failure the object must be discarded; what it held is written again by
    // another publish(). One writer per path. By default: a temporary name in the same directory, sync,
    // close, rename, sync_directory, all of them calls of this object. Overridden where the store has a
    // better way; a file system that wraps another one forwards it, unless it wants to see those calls.
    virtual std::unique_ptr<File> publish(const std::string& path, Existing existing);
    // nullopt if nothing is there; other failures throw.
    virtual std::optional<FileStatus> status(const std::string& path) = 0;
    // Names (not paths) sorted bytewise, without "." and "..". A missing directory is Exit::BadInput.
    virtual std::vector<std::string> list(const std::string& directory) = 0;
    // Creates the directory and its parents; an existing directory is success.
    virtual void make_directories(const std::string& path) = 0;
    // Whether that would succeed and the directory take files, as far as can be seen without making anything:
    // Exit::Usage if the path itself is wrong (a file where a directory is needed, a name that is too long),
    // Exit::Resource if the system refuses (permissions, a read-only mount).
    virtual void require_creatable(const std::string& path) = 0;
    // Atomically replaces `to`.
    virtual void rename(const std::string& from, const std::string& to) = 0;
    // A missing file is success.
    virtual void remove_file(const std::string& path) = 0;
    // Must be empty; a missing directory is success.
    virtual void remove_directory(const std::string& path) = 0;
    // Makes creations, renames and removals inside `path` durable.
    virtual void sync_directory(const std::string& path) = 0;
    virtual SpaceStatus space(const std::string& path) = 0;
};

// The process's real file system. Stateless: one shared instance is enough, passed by reference.
std::unique_ptr<FileSystem> make_posix_file_system();

// "a/b" + "c" -> "a/b/c". An absolute `name` wins.
std::string join_path(const std::string& directory, const std::string& name);
// "a/b/c" -> "a/b"; "c" -> ".".
std::string parent_path(const std::string& path);

// Whole small file as text; Exit::BadInput if it is larger than `limit_bytes`.
std::string read_text(FileSystem& files, const std::string& path, std::uint64_t limit_bytes = 64U << 20U);
// Removal on the way out of a failure that is reported otherwise: as far as it can be done.
void remove_quietly(FileSystem& files, const std::string& path) noexcept;
// Durable replacement of a small file by publish().
void write_text_atomically(FileSystem& files, const std::string& path, const std::string& text);

}  // namespace trainctl
