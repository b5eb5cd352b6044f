// One client of a network file system whose server is a file system in memory: what other clients did it may
// see late, its replies get lost, its open files go stale.
//
// What the kernel's NFS client does, and how long (default mount options): looked-up names, present or not,
// and listings are remembered for up to 60 s, but for what this client changed itself; an open of a present
// name is answered by the server (close to open); a reply that was lost makes the repeated request fail
// although the first one had worked (rename: ENOENT, exclusive create: EEXIST; for mkdir, remove and rmdir
// the real FileSystem takes that as success, and so does this one); errors of writing may come with close;
// a removed file that is still in use stays as .nfs*, and its directory cannot be removed meanwhile.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>

#include "support/manual_clock.h"
#include "support/memory_file_system.h"

namespace trainctl::test {

// One thread at a time. Server and clock must outlive it.
class NfsClient final : public FileSystem {
  public:
    // The same seed and the same calls fail alike.
    NfsClient(MemoryFileSystem& server, ManualClock& clock, std::uint64_t seed)
        : server_(server), clock_(clock), random_(seed), seed_(seed) {}

    // No more faults; what is remembered stays so for its time.
    void calm_down() { calm_ = true; }

    std::unique_ptr<File> open(const std::string& path, Open mode) override;
    std::optional<FileStatus> status(const std::string& path) override;
    std::vector<std::string> list(const std::string& directory) override;
    void make_directories(const std::string& path) override;
    void require_creatable(const std::string& path) override { server_.require_creatable(path); }
    void rename(const std::string& from, const std::string& to) override;
    void remove_file(const std::string& path) override;
    void remove_directory(const std::string& path) override;
    void sync_directory(const std::string& path) override;
    SpaceStatus space(const std::string& path) override { return server_.space(path); }

  private:
    friend class NfsFile;
    template <class T>
    struct Remembered {
        T answer;
        double until_s = 0.0;
    };

    bool one_in(std::uint64_t count) { return !calm_ && random_() % count == 0; }
    [[nodiscard]] double some_time() { return clock_.monotonic_s() + static_cast<double>(random_() % 61); }
    bool goes_stale(std::uint64_t one_in_count);  // not twice within a few calls: an answer renews the handle
    void forget(const std::string& path);         // this client changed it
    void remove_what_is_no_more_in_use();

    MemoryFileSystem& server_;
    ManualClock& clock_;
    std::mt19937_64 random_;
    std::uint64_t seed_;
    bool calm_ = false;
    int calls_since_stale_ = 0;
    std::map<std::string, Remembered<std::optional<FileStatus>>> lookups_;
    std::map<std::string, Remembered<std::vector<std::string>>> listings_;
    std::map<std::string, double> in_use_;  // .nfs* files, until when
};

}  // namespace trainctl::test
