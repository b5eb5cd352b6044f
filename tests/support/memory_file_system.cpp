#include "support/memory_file_system.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include "support/memory_inode.h"
#include "trainctl/base/io_error.h"

namespace trainctl::test {
namespace {

std::vector<std::string> split(const std::string& path) {
    std::vector<std::string> parts;
    for (std::size_t begin = 0; begin < path.size();) {
        const std::size_t end = std::min(path.find('/', begin), path.size());
        const std::string part = path.substr(begin, end - begin);
        if (part == "..") fail_io("resolve", path, EINVAL, IoSide::Writing);
        if (!part.empty() && part != ".") parts.push_back(part);
        begin = end + 1;
    }
    return parts;
}

constexpr std::array<const char*, 16> op_names{"open",   "create", "truncate", "append", "read",  "write",
                                               "sync",   "close",  "status",   "list",   "mkdir", "rename",
                                               "remove", "rmdir",  "syncdir",  "space"};

const char* op_name(FileOp op) { return op_names[static_cast<std::size_t>(op)]; }

bool is_mutating(FileOp op) {
    switch (op) {
        case FileOp::OpenRead:
        case FileOp::Read:
        case FileOp::Close:
        case FileOp::Status:
        case FileOp::List:
        case FileOp::Space:
            return false;
        default:
            return true;
    }
}

}  // namespace

std::string to_string(const Operation& operation) {
    std::string text = std::string(op_name(operation.op)) + " " + operation.path;
    if (!operation.to.empty()) text += " -> " + operation.to;
    if (operation.bytes > 0) text += " " + std::to_string(operation.bytes);
    return text;
}

// Records the operation and applies faults. Returns the errno to report once a fault's effect is applied.
MemoryFileSystem::FailedFault MemoryFileSystem::begin(Operation operation, IoSide side) {
    check_alive();
    operation.mutating = is_mutating(operation.op);
    operations_.push_back(operation);
    if (operation.mutating && mount_ == Mount::ReadOnly) {
        fail_io(op_name(operation.op), operation.path, EROFS, side);
    }
    for (Fault& fault : faults_) {
        const bool matches = fault.op ? *fault.op == operation.op : operation.mutating;
        if (!matches || fault.times == 0) continue;
        if (operation.path.find(fault.path_part) == std::string::npos &&
            operation.to.find(fault.path_part) == std::string::npos) {
            continue;
        }
        if (fault.after > 0) {
            --fault.after;
            continue;
        }
        if (fault.times != std::numeric_limits<std::uint64_t>::max()) --fault.times;
        if (fault.effect == FaultEffect::Applied) return fault.error_number;
        fail_io(op_name(operation.op), operation.path, fault.error_number, side);
    }
    return std::nullopt;
}

// Counts a mutating operation and carries it out; `apply(dying)` knows whether the machine stops at it.
template <class Apply>
void MemoryFileSystem::mutate(Operation operation, Apply apply) {
    const FailedFault failed = begin(operation, IoSide::Writing);
    const bool dying = crash_at_ && *crash_at_ == mutations_;
    ++mutations_;
    apply(dying);
    if (dying) {
        crashed_ = true;
        check_alive();
    }
    if (failed) fail_io(op_name(operation.op), operation.path, *failed, IoSide::Writing);
}

// An open file. It holds the inode, so that a removed or renamed file stays usable, as in POSIX.
class MemoryFile final : public File {
  public:
    MemoryFile(MemoryFileSystem& files, MemoryFileSystem::InodePtr inode, std::string path, Open mode)
        : files_(files), inode_(std::move(inode)), path_(std::move(path)), mode_(mode) {}

    void read_at(std::uint64_t offset, std::span<std::byte> into) override {
        const std::size_t got = read_some_at(offset, into);
        if (got < into.size()) {
            fail(Exit::BadInput, "cannot read " + path_ + ": expected " + std::to_string(into.size()) +
                                     " bytes at offset " + std::to_string(offset) +
                                     ", found the end of the file at " + std::to_string(offset + got));
        }
    }

    std::size_t read_some_at(std::uint64_t offset, std::span<std::byte> into) override {
        const std::scoped_lock lock(files_.mutex_);
        files_.begin({FileOp::Read, path_, "", into.size()}, IoSide::Reading);
        if (mode_ != Open::Read || closed_) fail_io("read", path_, EBADF, IoSide::Reading);
        if (offset >= inode_->live.size()) return 0;
        const std::size_t count = std::min<std::size_t>(into.size(), inode_->live.size() - offset);
        std::memcpy(into.data(), inode_->live.data() + offset, count);
        return count;
    }

    void write(std::span<const std::byte> bytes) override {
        const std::scoped_lock lock(files_.mutex_);
        if (mode_ == Open::Read || closed_) fail_io("write", path_, EBADF, IoSide::Writing);
        bool full = false;
        files_.mutate({FileOp::Write, path_, "", bytes.size()}, [&](bool /*dying*/) {
            std::string& live = inode_->live;
            const std::uint64_t at = mode_ == Open::Append ? live.size() : position_;
            std::uint64_t count = bytes.size();
            if (files_.capacity_) {
                const std::uint64_t growth = at + count > live.size() ? at + count - live.size() : 0;
                const std::uint64_t used = files_.used_bytes();
                const std::uint64_t room = *files_.capacity_ > used ? *files_.capacity_ - used : 0;
                if (growth > room) {
                    full = true;
                    count -= growth - room;
                }
            }
            if (live.size() < at + count) live.resize(at + count, '\0');
            std::memcpy(live.data() + at, bytes.data(), count);
            position_ = at + count;
            if (count > 0) inode_->mark_changed(at);
            inode_->modified = static_cast<std::int64_t>(files_.mutations_);
        });
        if (full) fail_io("write", path_, ENOSPC, IoSide::Writing);
    }

    void sync() override {
        const std::scoped_lock lock(files_.mutex_);
        if (closed_) fail_io("sync", path_, EBADF, IoSide::Writing);
        try {
            files_.mutate({FileOp::Sync, path_, "", 0}, [&](bool dying) {
                if (dying || inode_->lost) return;
                inode_->durable = inode_->live;
                inode_->dirty = false;
            });
        } catch (const Error&) {
            inode_->lost = inode_->lost || inode_->dirty;
            throw;
        }
    }

    void close() override {
        const std::scoped_lock lock(files_.mutex_);
        if (closed_) fail(Exit::Internal, "File::close called twice on " + path_);
        closed_ = true;
        try {
            const auto failed = files_.begin({FileOp::Close, path_, "", 0},
                                             mode_ == Open::Read ? IoSide::Reading : IoSide::Writing);
            if (failed) fail_io("close", path_, *failed, IoSide::Writing);
        } catch (const Error&) {
            inode_->lost = inode_->lost || inode_->dirty;
            throw;
        }
    }

    std::uint64_t size() override {
        const std::scoped_lock lock(files_.mutex_);
        files_.check_alive();
        return inode_->live.size();
    }

  private:
    MemoryFileSystem& files_;
    MemoryFileSystem::InodePtr inode_;
    std::string path_;
    Open mode_;
    std::uint64_t position_ = 0;
    bool closed_ = false;
};

MemoryFileSystem::MemoryFileSystem() { root_ = make_inode(true); }
MemoryFileSystem::~MemoryFileSystem() = default;

MemoryFileSystem::InodePtr MemoryFileSystem::make_inode(bool directory) {
    auto inode = std::make_shared<Inode>();
    inode->id = next_inode_++;
    inode->directory = directory;
    inode->modified = static_cast<std::int64_t>(mutations_);
    return inode;
}

MemoryFileSystem::Place MemoryFileSystem::find(const std::string& path, const char* operation,
                                               IoSide side) const {
    Place place{nullptr, "", root_};
    for (const std::string& part : split(path)) {
        if (place.found == nullptr) return {nullptr, "", nullptr};  // a parent is missing
        if (!place.found->directory) fail_io(operation, path, ENOTDIR, side);
        place.directory = place.found;
        place.name = part;
        const auto entry = place.directory->entries.find(part);
        place.found = entry == place.directory->entries.end() ? nullptr : entry->second;
    }
    return place;
}

MemoryFileSystem::InodePtr MemoryFileSystem::require_directory(const std::string& path, const char* operation,
                                                               IoSide side) const {
    InodePtr found = find(path, operation, side).found;
    if (found == nullptr) fail_io(operation, path, ENOENT, side);
    if (!found->directory) fail_io(operation, path, ENOTDIR, side);
    return found;
}

void MemoryFileSystem::change_names(std::vector<NameChange> changes) {
    for (const NameChange& change : changes) {
        if (change.target == nullptr) {
            change.directory->entries.erase(change.name);
        } else {
            change.directory->entries[change.name] = change.target;
        }
    }
    pending_names_.push_back({std::move(changes)});
}

// Moves the leading durable operations into the durable directories; later ones wait for their order.
void MemoryFileSystem::settle_names() {
    const auto first = std::find_if(pending_names_.begin(), pending_names_.end(),
                                    [](const NameOp& op) { return !op.durable(); });
    for (auto op = pending_names_.begin(); op != first; ++op) {
        for (const NameChange& change : op->changes) {
            if (change.target == nullptr) {
                change.directory->durable_entries.erase(change.name);
            } else {
                change.directory->durable_entries[change.name] = change.target;
            }
        }
    }
    pending_names_.erase(pending_names_.begin(), first);
}

std::uint64_t MemoryFileSystem::used_bytes() const {
    std::uint64_t used = 0;
    std::vector<InodePtr> directories{root_};
    while (!directories.empty()) {
        const InodePtr directory = directories.back();
        directories.pop_back();
        for (const auto& [name, inode] : directory->entries) {
            if (inode->directory) directories.push_back(inode);
            used += inode->live.size();
        }
    }
    return used;
}

void MemoryFileSystem::check_alive() const {
    if (crashed_) throw Crash("the machine stopped at mutating operation " + std::to_string(mutations_ - 1));
}

std::unique_ptr<File> MemoryFileSystem::open(const std::string& path, Open mode) {
    const std::scoped_lock lock(mutex_);
    check_alive();
    const bool reads = mode == Open::Read;
    const IoSide side = reads ? IoSide::Reading : IoSide::Writing;
    const Place place = find(path, "open", side);
    if (place.found == nullptr && (reads || place.directory == nullptr)) fail_io("open", path, ENOENT, side);
    if (place.found != nullptr && place.found->directory) fail_io("open", path, EISDIR, side);
    if (place.found != nullptr && mode == Open::CreateNew) fail_io("create", path, EEXIST, side);

    InodePtr inode = place.found;
    if (reads) {
        if (const auto failed = begin({FileOp::OpenRead, path, "", 0}, IoSide::Reading))
            fail_io("open", path, *failed, side);
    } else if (inode == nullptr) {
        mutate({FileOp::Create, path, "", 0}, [&](bool /*dying*/) {
            inode = make_inode(false);
            change_names({{place.directory, place.name, inode}});
        });
    } else if (mode == Open::Truncate) {
        mutate({FileOp::Truncate, path, "", 0}, [&](bool /*dying*/) {
            if (!inode->live.empty()) inode->mark_changed(0);
            inode->live.clear();
        });
    } else {
        mutate({FileOp::Append, path, "", 0}, [](bool /*dying*/) {});
    }
    return std::make_unique<MemoryFile>(*this, inode, path, mode);
}

std::optional<FileStatus> MemoryFileSystem::status(const std::string& path) {
    const std::scoped_lock lock(mutex_);
    if (const auto failed = begin({FileOp::Status, path, "", 0}, IoSide::Reading)) {
        fail_io("query", path, *failed, IoSide::Reading);
    }
    InodePtr inode = root_;
    for (const std::string& part : split(path)) {
        const auto entry = inode->entries.find(part);
        if (entry == inode->entries.end()) return std::nullopt;
        inode = entry->second;
    }
    return FileStatus{inode->live.size(), inode->directory, inode->modified};
}

std::vector<std::string> MemoryFileSystem::list(const std::string& directory) {
    const std::scoped_lock lock(mutex_);
    if (const auto failed = begin({FileOp::List, directory, "", 0}, IoSide::Reading)) {
        fail_io("list", directory, *failed, IoSide::Reading);
    }
    std::vector<std::string> names;
    for (const auto& [name, inode] : require_directory(directory, "list", IoSide::Reading)->entries)
        names.push_back(name);
    return names;  // std::map orders bytewise
}

void MemoryFileSystem::make_directories(const std::string& path) {
    const std::scoped_lock lock(mutex_);
    check_alive();
    InodePtr parent = root_;
    std::string made;
    for (const std::string& part : split(path)) {
        made += (made.empty() ? "" : "/") + part;
        const auto entry = parent->entries.find(part);
        InodePtr inode = entry == parent->entries.end() ? nullptr : entry->second;
        if (inode == nullptr) {
            mutate({FileOp::MakeDirectory, made, "", 0}, [&](bool /*dying*/) {
                inode = make_inode(true);
                change_names({{parent, part, inode}});
            });
        }
        if (!inode->directory) fail_io("create directory", made, ENOTDIR, IoSide::Writing);
        parent = inode;
    }
}

void MemoryFileSystem::require_creatable(const std::string& path) {
    const std::scoped_lock lock(mutex_);
    InodePtr inode = root_;
    for (const std::string& part : split(path)) {
        const auto entry = inode->entries.find(part);
        if (entry == inode->entries.end()) break;
        inode = entry->second;
        if (!inode->directory) fail(Exit::Usage, path + ": " + part + " is a file");
    }
    if (mount_ == Mount::ReadOnly) fail_io("create directory", path, EROFS, IoSide::Writing);
}

void MemoryFileSystem::rename(const std::string& from, const std::string& to) {
    const std::scoped_lock lock(mutex_);
    check_alive();
    const Place source = find(from, "rename", IoSide::Writing);
    const Place target = find(to, "rename", IoSide::Writing);
    if (source.found == nullptr) fail_io("rename", from, ENOENT, IoSide::Writing);
    if (source.directory == nullptr || target.found == root_) fail_io("rename", to, EBUSY, IoSide::Writing);
    if (target.directory == nullptr) fail_io("rename", to, ENOENT, IoSide::Writing);
    if (target.found == source.found) return;
    if (target.found != nullptr && target.found->directory != source.found->directory) {
        fail_io("rename", to, target.found->directory ? EISDIR : ENOTDIR, IoSide::Writing);
    }
    if (target.found != nullptr && !target.found->entries.empty()) {
        fail_io("rename", to, ENOTEMPTY, IoSide::Writing);
    }
    mutate({FileOp::Rename, from, to, 0}, [&](bool /*dying*/) {
        change_names(
            {{source.directory, source.name, nullptr}, {target.directory, target.name, source.found}});
    });
}

void MemoryFileSystem::remove_file(const std::string& path) {
    const std::scoped_lock lock(mutex_);
    check_alive();
    const Place place = find(path, "remove", IoSide::Writing);
    if (place.found == nullptr) return;
    if (place.found->directory) fail_io("remove", path, EISDIR, IoSide::Writing);
    mutate({FileOp::RemoveFile, path, "", 0}, [&](bool /*dying*/) {
        change_names({{place.directory, place.name, nullptr}});
    });
}

void MemoryFileSystem::remove_directory(const std::string& path) {
    const std::scoped_lock lock(mutex_);
    check_alive();
    const Place place = find(path, "remove directory", IoSide::Writing);
    if (place.found == nullptr) return;
    if (!place.found->directory) fail_io("remove directory", path, ENOTDIR, IoSide::Writing);
    if (place.directory == nullptr) fail_io("remove directory", path, EBUSY, IoSide::Writing);
    if (!place.found->entries.empty()) fail_io("remove directory", path, ENOTEMPTY, IoSide::Writing);
    mutate({FileOp::RemoveDirectory, path, "", 0}, [&](bool /*dying*/) {
        change_names({{place.directory, place.name, nullptr}});
    });
}

void MemoryFileSystem::sync_directory(const std::string& path) {
    const std::scoped_lock lock(mutex_);
    check_alive();
    const InodePtr directory = require_directory(path, "sync directory", IoSide::Writing);
    mutate({FileOp::SyncDirectory, path, "", 0}, [&](bool dying) {
        if (dying) return;
        for (NameOp& op : pending_names_) {
            for (NameChange& change : op.changes)
                change.synced = change.synced || change.directory == directory;
        }
        settle_names();
    });
}

SpaceStatus MemoryFileSystem::space(const std::string& path) {
    const std::scoped_lock lock(mutex_);
    if (const auto failed = begin({FileOp::Space, path, "", 0}, IoSide::Reading)) {
        fail_io("query the free space of", path, *failed, IoSide::Reading);
    }
    require_directory(path, "query the free space of", IoSide::Reading);
    const std::uint64_t total = capacity_.value_or(std::uint64_t{1} << 40U);
    const std::uint64_t used = used_bytes();
    return {total > used ? total - used : 0, total, 1'000'000};
}

std::vector<Operation> MemoryFileSystem::operations() const {
    const std::scoped_lock lock(mutex_);
    return operations_;
}

std::uint64_t MemoryFileSystem::mutations() const {
    const std::scoped_lock lock(mutex_);
    return mutations_;
}

bool MemoryFileSystem::crashed() const {
    const std::scoped_lock lock(mutex_);
    return crashed_;
}

void MemoryFileSystem::crash_at(std::uint64_t mutation) {
    const std::scoped_lock lock(mutex_);
    crash_at_ = mutation;
}

void MemoryFileSystem::crash_now() {
    const std::scoped_lock lock(mutex_);
    crashed_ = true;
}

void MemoryFileSystem::add_fault(Fault fault) {
    const std::scoped_lock lock(mutex_);
    faults_.push_back(std::move(fault));
}

void MemoryFileSystem::clear_faults() {
    const std::scoped_lock lock(mutex_);
    faults_.clear();
}

void MemoryFileSystem::set_capacity(std::uint64_t bytes) {
    const std::scoped_lock lock(mutex_);
    capacity_ = bytes;
}

void MemoryFileSystem::set_mount(Mount mount) {
    const std::scoped_lock lock(mutex_);
    mount_ = mount;
}

}  // namespace trainctl::test
