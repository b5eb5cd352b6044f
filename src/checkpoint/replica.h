// Private to the room: one whole checkpoint in another root, made or mended by the protocol of a save.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainctl/base/file_system.h"
#include "trainctl/rundir/commit.h"

namespace trainctl {

enum class ReplicaState {
    Absent,
    Incomplete,  // begun, and not committed
    Damaged,     // committed once; something is missing or wrong
    Complete,    // every byte is right
};

struct ReplicaPlan {
    std::string path;
    ReplicaState state = ReplicaState::Absent;
    std::vector<std::size_t>
        lacking;  // payload files that are not there or wrong: indices into the manifest's
    [[nodiscard]] std::uint64_t lacking_bytes(const Manifest& manifest) const;
};

// What has to be done so that `root` holds a replica of `source`; reads every byte of what is there.
// Exit::BadInput: another checkpoint was committed there under that name.
ReplicaPlan plan_replica(FileSystem& files, const CommittedManifest& source, const std::string& root);

// Does it: an old COMMIT is taken away first, files that are right are left alone, wrong ones replaced, then
// MANIFEST and, after `fence`, COMMIT. What is known of the source's health goes along; a mark of suspicion
// is taken away. `from`: path of the source. Safe to do again after any failure. Exit::BadInput: the source
// is damaged (then there is no COMMIT); Exit::Resource.
void make_replica(FileSystem& files, const std::string& from, const CommittedManifest& source,
                  const std::string& root, const ReplicaPlan& plan, const std::function<void()>& fence = {});

}  // namespace trainctl
