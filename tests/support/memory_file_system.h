// A FileSystem in memory that is as unkind as POSIX allows: it forgets what was not synced, stops at a chosen
// operation, fails on request, and can be damaged. The basis of every crash test.
//
// How to use it for a crash test of some protocol:
//
//     MemoryFileSystem clean;  run(clean);                        // how many mutating operations are there?
//     for (std::uint64_t k = 0; k < clean.mutations(); ++k) {
//         MemoryFileSystem files;  files.crash_at(k);
//         try { run(files); } catch (const Crash&) {}
//         for_each_crash_state(files, 1000, [](MemoryFileSystem& disk, const std::string& what) {
//             INFO(what);  // reproduces the state
//             check_invariants(disk);                             // `disk` is what a restarted machine finds
//         });
//     }
//
// What is durable. File contents: what they were at the last successful sync() of the file. Directory entries
// (create, mkdir, rename, remove): after sync_directory() of the directory; a rename between two directories
// after both. Everything else may or may not be there after a crash, in any combination; a single rename is
// atomic, and creating a directory and then files in it can lose the directory although the files were
// synced.
//
// Mutating operations, in the order in which they are counted from 0: creating, emptying and appending opens,
// write, sync, mkdir (one per new directory), rename, remove, rmdir, sync_directory. Calls that change
// nothing (remove of a missing file, mkdir of an existing one) are not counted. Crashing *at* operation k
// means that it has begun: its effect is there but not durable (a crash before it, or in the midst of a
// write, is among the states of the same crash); a sync has had no effect. After a crash every call throws
// Crash again.
//
// Thread-safe. Paths: "/a/b" and "a/b" are the same; ".." is refused. Files must not outlive the file system.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "trainctl/base/file_system.h"
#include "trainctl/base/io_error.h"

namespace trainctl::test {

// The machine has stopped. Code under test must not catch it as an Error, and need not: nothing works
// afterwards.
class Crash : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

enum class FileOp {
    OpenRead,
    Create,  // Open::CreateNew, and Open::Append of a missing file
    Truncate,
    Append,
    Read,
    Write,
    Sync,
    Close,
    Status,
    List,
    MakeDirectory,
    Rename,
    RemoveFile,
    RemoveDirectory,
    SyncDirectory,
    Space,
};

struct Operation {
    FileOp op;
    std::string path;
    std::string to;           // target of a rename
    std::uint64_t bytes = 0;  // of Read and Write
    bool mutating = false;
};

// "write ckpt/a 4096"
std::string to_string(const Operation& operation);

enum class FaultEffect {
    None,     // the operation fails and changed nothing
    Applied,  // it took effect, yet an error is reported (NFS retransmissions, replies lost)
};

// Makes some operations fail as the kernel would: Error by io_error() with this errno. A failed sync, or a
// failed close of a file with unsynced contents, loses them for good although they can still be read: a later
// sync of the same file reports success and makes nothing durable (what Linux does after a write-back error).
struct Fault {
    int error_number = 0;
    std::optional<FileOp> op;  // nullopt: any mutating operation
    std::string path_part;     // only paths that contain this; empty: all
    std::uint64_t after = 0;   // let so many matching operations pass first
    std::uint64_t times = 1;   // then fail so many; UINT64_MAX: for ever
    FaultEffect effect = FaultEffect::None;
};

enum class Mount { ReadWrite, ReadOnly };

class MemoryFileSystem final : public FileSystem {
  public:
    MemoryFileSystem();
    ~MemoryFileSystem() override;

    std::unique_ptr<File> open(const std::string& path, Open mode) override;
    std::optional<FileStatus> status(const std::string& path) override;
    std::vector<std::string> list(const std::string& directory) override;
    void make_directories(const std::string& path) override;
    void require_creatable(const std::string& path) override;
    void rename(const std::string& from, const std::string& to) override;
    void remove_file(const std::string& path) override;
    void remove_directory(const std::string& path) override;
    void sync_directory(const std::string& path) override;
    SpaceStatus space(const std::string& path) override;

    // --- What happened.
    [[nodiscard]] std::vector<Operation> operations() const;  // all, in order
    [[nodiscard]] std::uint64_t mutations() const;            // how many of them were mutating
    [[nodiscard]] bool crashed() const;

    // --- What shall go wrong.
    void crash_at(std::uint64_t mutation);  // counted from 0 since construction
    void crash_now();
    void add_fault(Fault fault);
    void clear_faults();
    // Room for file contents; a write beyond it stores what fits and fails with ENOSPC. May be raised or
    // lowered.
    void set_capacity(std::uint64_t bytes);
    void set_mount(Mount mount);  // ReadOnly: every mutating operation fails with EROFS

    // --- Damage and direct access: not recorded, never fails on a fault, durable at once, works after a
    // crash.
    void put(const std::string& path, std::string contents);  // makes parents
    [[nodiscard]] std::optional<std::string> contents(const std::string& path) const;
    [[nodiscard]] std::vector<std::string> all_files() const;  // paths without leading '/', sorted
    void flip_bit(const std::string& path, std::uint64_t bit);
    void truncate(const std::string& path, std::uint64_t bytes);
    void erase(const std::string& path);  // a file or a whole directory

    // --- What may be found after a power cut now. Each state is a new file system where all is durable.
    // Number of states: 2 per directory change that is not durable, 4 per file with unsynced contents
    // (dropped, kept, right size but zeros, torn at 4 KiB pages); saturates at UINT64_MAX.
    [[nodiscard]] std::uint64_t crash_state_count() const;
    // 0: only what is durable; crash_state_count() - 1 and others: mixed-radix digits of the choices.
    [[nodiscard]] std::unique_ptr<MemoryFileSystem> crash_state(std::uint64_t index) const;
    [[nodiscard]] std::unique_ptr<MemoryFileSystem> random_crash_state(std::uint64_t seed) const;
    // Everything that was done is there, synced or not (the process died, the machine did not).
    [[nodiscard]] std::unique_ptr<MemoryFileSystem> all_kept() const;

  private:
    friend class MemoryFile;
    struct Inode;
    using InodePtr = std::shared_ptr<Inode>;
    struct NameChange;
    struct NameOp;
    struct Choice;
    struct Place {           // where a path leads
        InodePtr directory;  // holds its last part; null for the root itself and where a parent is missing
        std::string name;    // the last part
        InodePtr found;      // null: nothing is there
    };

    using FailedFault = std::optional<int>;  // errno to report after the effect

    FailedFault begin(Operation operation, IoSide side);
    template <class Apply>
    void mutate(Operation operation, Apply apply);
    [[nodiscard]] Place find(const std::string& path, const char* operation, IoSide side) const;
    InodePtr require_directory(const std::string& path, const char* operation, IoSide side) const;
    InodePtr make_inode(bool directory);
    void change_names(std::vector<NameChange> changes);
    void settle_names();
    [[nodiscard]] std::uint64_t used_bytes() const;
    void check_alive() const;

    [[nodiscard]] std::vector<InodePtr> dirty_files() const;
    [[nodiscard]] std::unique_ptr<MemoryFileSystem> build_state(const Choice& choice) const;

    mutable std::mutex mutex_;
    InodePtr root_;
    std::uint64_t next_inode_ = 0;
    std::vector<NameOp> pending_names_;  // in order of execution, from the first that is not durable
    std::vector<Operation> operations_;
    std::uint64_t mutations_ = 0;
    std::optional<std::uint64_t> crash_at_;
    bool crashed_ = false;
    std::vector<Fault> faults_;
    std::optional<std::uint64_t> capacity_;
    Mount mount_ = Mount::ReadWrite;
};

// Calls `check` on every crash state if there are at most `limit`; otherwise on "only durable", "all kept"
// and limit - 2 seeded random ones. `what` says how to rebuild the state.
void for_each_crash_state(const MemoryFileSystem& files, std::uint64_t limit,
                          const std::function<void(MemoryFileSystem& disk, const std::string& what)>& check);

}  // namespace trainctl::test
