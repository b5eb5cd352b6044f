// Inner types of MemoryFileSystem, shared by its two source files.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "support/memory_file_system.h"

namespace trainctl::test {

struct MemoryFileSystem::Inode {
    std::uint64_t id = 0;
    bool directory = false;
    std::int64_t modified = 0;

    // Files.
    std::string live;     // what read returns
    std::string durable;  // at the last sync that worked
    // Lowest byte offset that was changed since; the bytes before it are safe in every crash state.
    std::uint64_t changed_from = 0;
    bool dirty = false;  // live was changed since
    bool lost = false;   // write-back failed: no later sync makes anything durable

    void mark_changed(std::uint64_t offset) {
        changed_from = dirty ? std::min(changed_from, offset) : offset;
        dirty = true;
    }

    // Directories.
    std::map<std::string, InodePtr> entries;
    std::map<std::string, InodePtr> durable_entries;
};

// After this, `name` in `directory` is `target` (null: nothing).
struct MemoryFileSystem::NameChange {
    InodePtr directory;
    std::string name;
    InodePtr target;
    bool synced = false;  // the directory was synced since
};

// Changes that happen together or not at all.
struct MemoryFileSystem::NameOp {
    std::vector<NameChange> changes;

    [[nodiscard]] bool durable() const {
        for (const NameChange& change : changes) {
            if (!change.synced) return false;
        }
        return true;
    }
};

enum class DataFate { Dropped, Kept, Zeroed, Torn };
constexpr std::uint64_t data_fates = 4;

struct MemoryFileSystem::Choice {
    std::vector<bool> keep_names;  // one per not yet durable entry of pending_names_
    std::vector<DataFate> data;    // one per dirty file, in order of inode id
    std::uint64_t torn_seed = 0;
};

}  // namespace trainctl::test
