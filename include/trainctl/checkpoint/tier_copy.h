// Copies of committed checkpoints in further places: made behind the training, each complete or not there.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "trainctl/base/clock.h"
#include "trainctl/base/file_system.h"
#include "trainctl/base/result.h"
#include "trainctl/checkpoint/place.h"
#include "trainctl/comm/rank_link.h"

namespace trainctl {

struct CopySettings {
    Place from;  // where saves go
    Nodes nodes;
    std::string run_id;
    // Rank 0, before COMMIT: throws Exit::Fenced when the run was taken over.
    std::function<void()> fence;
    // Rank 0: what must not be in a copy's place any more, because retention removed it where saves go, or
    // because it was given up. Called on the thread that copies.
    std::function<std::set<std::string>()> unwanted;
};

struct CopyReport {
    std::string directory;
    std::uint64_t bytes = 0;  // of payload, written by all ranks; 0: it was there already
    double seconds = 0.0;
    std::vector<std::string> removed;   // from there
    std::vector<std::string> warnings;  // the copy is complete, but ...
};

// One per rank and place; one thread at a time, not that of the store. References must outlive it.
class TierCopier {
  public:
    TierCopier(FileSystem& files, Clock& clock, CopySettings settings)
        : files_(files), clock_(clock), settings_(std::move(settings)) {}

    // Collective. Copies the committed checkpoint `directory` to `to`, which all ranks see: every file by a
    // rank that sees it, every chunk checked on the way, then MANIFEST and COMMIT. A copy that is complete is
    // left alone, one that was interrupted is completed. The same Error on all ranks as for a save;
    // Exit::Peer is thrown.
    Result<CopyReport> copy(const std::string& directory, const Place& to, RankLink& link);

    // Collective. Each file that a node wrote goes to the disk of the next node as well, in the order of
    // their lowest ranks; nothing to do on one node. The checkpoint must have been saved by these very ranks.
    Result<CopyReport> copy_to_peers(const std::string& directory, RankLink& link);

  private:
    CopyReport copy_files(const std::string& directory, const Place& to, RankLink& link);
    void commit(const std::string& directory, const Place& to, const std::string& manifest_text);
    void remove_unwanted(const Place& to, CopyReport& report);

    FileSystem& files_;
    Clock& clock_;
    CopySettings settings_;
};

}  // namespace trainctl
