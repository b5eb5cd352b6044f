// MemoryFileSystem: direct access, damage, and the states that a power cut may leave.
#include <algorithm>
#include <cerrno>
#include <limits>
#include <map>
#include <set>

#include "support/memory_inode.h"
#include "trainctl/base/philox.h"

namespace trainctl::test {
namespace {

constexpr std::size_t page_bytes = 4096;

// A small deterministic source of choices.
class Choices {
  public:
    explicit Choices(std::uint64_t seed) : key_(philox_key(seed)) {}
    std::uint64_t below(std::uint64_t bound) {  // bound > 0
        const PhiloxBlock block = philox4x32(key_, next_++, 0);
        return ((std::uint64_t{block[0]} << 32U) | block[1]) % bound;
    }

  private:
    PhiloxKey key_;
    std::uint64_t next_ = 0;
};

std::string page(const std::string& text, std::size_t index) {
    const std::size_t begin = index * page_bytes;
    return begin < text.size() ? text.substr(begin, page_bytes) : std::string();
}

// New contents that did not arrive read as zeros: sizes are journaled, data blocks are not.
std::string zeroed(const std::string& live, std::size_t changed_from) {
    std::string text = live;
    if (changed_from < text.size())
        text.replace(changed_from, std::string::npos, text.size() - changed_from, '\0');
    return text;
}

// From the first changed byte on: any page old, new or zero; any size from a page boundary or the old or new
// end.
std::string torn(const std::string& durable, const std::string& live, std::size_t changed_from,
                 Choices& choices) {
    const std::size_t longest = std::max(durable.size(), live.size());
    std::string text;
    for (std::size_t index = 0; index * page_bytes < longest; ++index) {
        std::string piece = page(choices.below(2) == 0 ? durable : live, index);
        if (choices.below(4) == 0) piece.assign(piece.size(), '\0');
        piece.resize(std::min(page_bytes, longest - index * page_bytes), '\0');
        text += piece;
    }
    const std::size_t safe = std::min({changed_from, durable.size(), live.size()});
    text.replace(0, safe, live, 0, safe);
    std::size_t size = 0;
    switch (choices.below(3)) {
        case 0:
            size = durable.size();
            break;
        case 1:
            size = live.size();
            break;
        default:
            size = std::min(longest, page_bytes * choices.below(longest / page_bytes + 2));
            break;
    }
    text.resize(std::max(size, safe));
    return text;
}

std::uint64_t saturating_multiply(std::uint64_t a, std::uint64_t b) {
    constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    return b != 0 && a > most / b ? most : a * b;
}

}  // namespace

void MemoryFileSystem::put(const std::string& path, std::string contents) {
    const std::scoped_lock lock(mutex_);
    InodePtr directory = root_;
    std::string rest = path;
    while (true) {
        rest.erase(0, rest.find_first_not_of('/'));
        const std::size_t slash = rest.find('/');
        const std::string part = rest.substr(0, slash);
        InodePtr& live = directory->entries[part];
        if (live == nullptr) live = make_inode(slash != std::string::npos);
        directory->durable_entries[part] = live;
        if (slash == std::string::npos) {
            live->live = contents;
            live->durable = std::move(contents);
            live->dirty = false;
            return;
        }
        directory = live;
        rest.erase(0, slash);
    }
}

std::optional<std::string> MemoryFileSystem::contents(const std::string& path) const {
    const std::scoped_lock lock(mutex_);
    const InodePtr inode = find(path, "read", IoSide::Reading).found;
    if (inode == nullptr || inode->directory) return std::nullopt;
    return inode->live;
}

std::vector<std::string> MemoryFileSystem::all_files() const {
    const std::scoped_lock lock(mutex_);
    std::vector<std::string> paths;
    std::vector<std::pair<std::string, InodePtr>> directories{{"", root_}};
    while (!directories.empty()) {
        const auto [prefix, directory] = directories.back();
        directories.pop_back();
        for (const auto& [name, inode] : directory->entries) {
            if (inode->directory) {
                directories.emplace_back(prefix + name + "/", inode);
            } else {
                paths.push_back(prefix + name);
            }
        }
    }
    std::sort(paths.begin(), paths.end());
    return paths;
}

void MemoryFileSystem::flip_bit(const std::string& path, std::uint64_t bit) {
    const std::scoped_lock lock(mutex_);
    const InodePtr inode = find(path, "flip a bit of", IoSide::Reading).found;
    if (inode == nullptr) fail_io("flip a bit of", path, ENOENT, IoSide::Reading);
    invariant(bit / 8 < inode->live.size(), "flip_bit: beyond the end of the file");
    for (std::string* text : {&inode->live, &inode->durable}) {
        if (bit / 8 >= text->size()) continue;
        char& byte = (*text)[bit / 8];
        byte = static_cast<char>(static_cast<unsigned char>(byte) ^ (1U << (bit % 8)));
    }
}

void MemoryFileSystem::truncate(const std::string& path, std::uint64_t bytes) {
    const std::scoped_lock lock(mutex_);
    const InodePtr inode = find(path, "truncate", IoSide::Reading).found;
    if (inode == nullptr) fail_io("truncate", path, ENOENT, IoSide::Reading);
    for (std::string* text : {&inode->live, &inode->durable}) {
        if (text->size() > bytes) text->resize(bytes);
    }
}

void MemoryFileSystem::erase(const std::string& path) {
    const std::scoped_lock lock(mutex_);
    const Place place = find(path, "erase", IoSide::Reading);
    if (place.found == nullptr) fail_io("erase", path, ENOENT, IoSide::Reading);
    place.directory->entries.erase(place.name);
    place.directory->durable_entries.erase(place.name);
    for (NameOp& op : pending_names_) {  // nothing pending may bring it back
        for (NameChange& change : op.changes) {
            if (change.directory == place.directory && change.name == place.name) change.target = nullptr;
        }
    }
}

// Files with unsynced contents that some crash state can reach, in order of creation.
std::vector<MemoryFileSystem::InodePtr> MemoryFileSystem::dirty_files() const {
    std::vector<InodePtr> open{root_};
    for (const NameOp& op : pending_names_) {
        for (const NameChange& change : op.changes) {
            if (change.target != nullptr) open.push_back(change.target);
        }
    }
    std::set<std::uint64_t> seen;
    std::vector<InodePtr> dirty;
    while (!open.empty()) {
        const InodePtr inode = open.back();
        open.pop_back();
        if (!seen.insert(inode->id).second) continue;
        if (inode->dirty) dirty.push_back(inode);
        for (const auto& [name, child] : inode->durable_entries) open.push_back(child);
    }
    std::sort(dirty.begin(), dirty.end(), [](const InodePtr& a, const InodePtr& b) { return a->id < b->id; });
    return dirty;
}

std::unique_ptr<MemoryFileSystem> MemoryFileSystem::build_state(const Choice& choice) const {
    // Names: what is durable, then the chosen pending changes in the order in which they were made.
    std::map<const Inode*, std::map<std::string, InodePtr>> changed;
    const auto entries_of = [&](const InodePtr& directory) -> std::map<std::string, InodePtr>& {
        return changed.try_emplace(directory.get(), directory->durable_entries).first->second;
    };
    std::size_t next = 0;
    for (const NameOp& op : pending_names_) {
        if (!op.durable() && !choice.keep_names[next++]) continue;
        for (const NameChange& change : op.changes) {
            if (change.target == nullptr) {
                entries_of(change.directory).erase(change.name);
            } else {
                entries_of(change.directory)[change.name] = change.target;
            }
        }
    }

    // Contents.
    Choices choices(choice.torn_seed);
    std::map<const Inode*, std::string> contents;
    const std::vector<InodePtr> dirty = dirty_files();
    for (std::size_t i = 0; i < dirty.size(); ++i) {
        const std::string& durable = dirty[i]->durable;
        const std::string& live = dirty[i]->live;
        switch (choice.data[i]) {
            case DataFate::Dropped:
                contents[dirty[i].get()] = durable;
                break;
            case DataFate::Kept:
                contents[dirty[i].get()] = live;
                break;
            case DataFate::Zeroed:
                contents[dirty[i].get()] = zeroed(live, dirty[i]->changed_from);
                break;
            case DataFate::Torn:
                contents[dirty[i].get()] = torn(durable, live, dirty[i]->changed_from, choices);
                break;
        }
    }

    auto state = std::make_unique<MemoryFileSystem>();
    state->capacity_ = capacity_;
    std::vector<std::pair<InodePtr, InodePtr>> open{{root_, state->root_}};  // from, to
    while (!open.empty()) {
        const auto [from, to] = open.back();
        open.pop_back();
        for (const auto& [name, inode] : entries_of(from)) {
            const InodePtr copy = state->make_inode(inode->directory);
            const auto chosen = contents.find(inode.get());
            copy->live = chosen == contents.end() ? inode->live : chosen->second;
            copy->durable = copy->live;
            to->entries[name] = copy;
            to->durable_entries[name] = copy;
            if (inode->directory) open.emplace_back(inode, copy);
        }
    }
    return state;
}

std::uint64_t MemoryFileSystem::crash_state_count() const {
    const std::scoped_lock lock(mutex_);
    std::uint64_t count = 1;
    for (const NameOp& op : pending_names_) {
        if (!op.durable()) count = saturating_multiply(count, 2);
    }
    for (std::size_t i = 0; i < dirty_files().size(); ++i) count = saturating_multiply(count, data_fates);
    return count;
}

std::unique_ptr<MemoryFileSystem> MemoryFileSystem::crash_state(std::uint64_t index) const {
    const std::scoped_lock lock(mutex_);
    Choice choice;
    choice.torn_seed = index;
    for (const NameOp& op : pending_names_) {
        if (op.durable()) continue;
        choice.keep_names.push_back(index % 2 == 1);
        index /= 2;
    }
    for (std::size_t i = dirty_files().size(); i > 0; --i) {
        choice.data.push_back(static_cast<DataFate>(index % data_fates));
        index /= data_fates;
    }
    return build_state(choice);
}

std::unique_ptr<MemoryFileSystem> MemoryFileSystem::random_crash_state(std::uint64_t seed) const {
    const std::scoped_lock lock(mutex_);
    Choices choices(seed);
    Choice choice;
    choice.torn_seed = seed ^ 0x746F726EU;
    for (const NameOp& op : pending_names_) {
        if (!op.durable()) choice.keep_names.push_back(choices.below(2) == 1);
    }
    for (std::size_t i = dirty_files().size(); i > 0; --i) {
        choice.data.push_back(static_cast<DataFate>(choices.below(data_fates)));
    }
    return build_state(choice);
}

std::unique_ptr<MemoryFileSystem> MemoryFileSystem::all_kept() const {
    const std::scoped_lock lock(mutex_);
    Choice choice;
    choice.keep_names.assign(pending_names_.size(), true);
    choice.data.assign(dirty_files().size(), DataFate::Kept);
    return build_state(choice);
}

void for_each_crash_state(const MemoryFileSystem& files, std::uint64_t limit,
                          const std::function<void(MemoryFileSystem& disk, const std::string& what)>& check) {
    const std::uint64_t count = files.crash_state_count();
    const std::uint64_t mutations = files.mutations();
    const auto visit = [&](std::unique_ptr<MemoryFileSystem> state, const std::string& name) {
        check(*state, "after " + std::to_string(mutations) + " mutating operations: " + name);
    };
    if (count <= limit) {
        for (std::uint64_t index = 0; index < count; ++index) {
            visit(files.crash_state(index), "crash_state(" + std::to_string(index) + ")");
        }
        return;
    }
    visit(files.crash_state(0), "crash_state(0)");
    visit(files.all_kept(), "all_kept()");
    for (std::uint64_t i = 2; i < limit; ++i) {
        // Different operations must not all see the same choices.
        const std::uint64_t seed = mutations * 1'000'003 + i;
        visit(files.random_crash_state(seed), "random_crash_state(" + std::to_string(seed) + ")");
    }
}

}  // namespace trainctl::test
