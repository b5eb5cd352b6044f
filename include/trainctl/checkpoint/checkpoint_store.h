// Saves and loads the state of a run: named slices to files and back, at any layout. Knows no ranks' meaning.
//
// A save is complete or it never existed: payload files, then MANIFEST, then COMMIT, each durable before the
// next. All ranks call together; rank 0 decides, and all act on the one decision (RankLink).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "trainctl/base/clock.h"
#include "trainctl/base/file_system.h"
#include "trainctl/base/result.h"
#include "trainctl/checkpoint/load_through.h"
#include "trainctl/checkpoint/place.h"
#include "trainctl/checkpoint/resume.h"
#include "trainctl/checkpoint/retention.h"
#include "trainctl/checkpoint/scan.h"
#include "trainctl/comm/rank_link.h"
#include "trainctl/model/named_slice.h"
#include "trainctl/rundir/journal.h"
#include "trainctl/rundir/manifest.h"

namespace trainctl {

// The state at one step boundary. `slices` are this rank's (host memory, unchanged until save returns);
// together the ranks must cover every tensor exactly once, except that several ranks may offer the very same
// slice (the lowest of them writes it). Step, counters and scalars must agree on all ranks; the rest is taken
// from rank 0.
struct Snapshot {
    std::int64_t step = 0;
    std::vector<NamedSlice> slices;
    std::map<std::string, std::int64_t> counters;  // consumed_samples, consumed_tokens, applied_updates, ...
    std::map<std::string, double> scalars;         // loss scale, skip state, ...
    std::map<std::string, std::int64_t> layout;    // world, data, tensor, pipeline, zero_stage, ...
    std::string spec;                              // the resolved job
    std::string data_fingerprint;
    Health health = Health::Probation;
};

struct SaveReport {
    std::string directory;         // name below the root
    std::uint64_t bytes = 0;       // payload of all ranks
    std::uint64_t state_hash = 0;  // as printed after a load of it
    double seconds = 0.0;
    std::vector<std::string> removed;   // by retention
    std::vector<std::string> warnings;  // the checkpoint is committed, but ...
};

// Private to the room.
struct SavePlan;
struct LoadOrder;
struct LoadAnswer;

struct LoadRequest {
    std::vector<NamedSlice> wanted;  // this rank's, to be filled; may differ from what was saved in any way
    std::vector<std::string> required_counters;  // a checkpoint without one of them is refused, naming it
    // Rank 0, before anything of a candidate is read: throws if this run may not continue from it. Ends the
    // load; an older candidate would be no better. Empty: any will do.
    std::function<void(const Manifest&)> accept = {};
    LoadThrough through = {};  // where the host cannot write to `wanted`
};

enum class LoadOutcome { StartFresh, Loaded };

struct LoadReport {
    LoadOutcome outcome = LoadOutcome::StartFresh;
    std::string text;       // for the log: what was decided
    std::string directory;  // name below the root
    Manifest manifest;      // counters, scalars, spec, layout, ...
    // Recomputed from the loaded memory of all ranks; nullopt if not every tensor was wanted.
    std::optional<std::uint64_t> state_hash;
    std::vector<std::string> passed_over;  // newer checkpoints and why each could not be loaded
};

struct StoreSettings {
    std::string root;                // where saves go
    Reach reach = Reach::Everybody;  // of root
    Nodes nodes;                     // which ranks share a node's disk
    std::vector<Place> copies;       // further places that loads look into; of Reach::Everybody
    std::string run_id;              // checkpoints of other runs are neither loaded nor deleted
    int attempt = 1;
    RetentionPolicy retention;
    std::uint64_t chunk_bytes = 4U << 20U;  // of the checksums
    double proof_wait_s = 90.0;  // how long the last rank may take to see what rank 0 committed (NFS)
    std::function<std::uint32_t()> nonce;  // empty: random
    std::function<void()> fence;  // rank 0, before COMMIT: throws Exit::Fenced when the run was taken over
};

// One per rank; one thread at a time.
class CheckpointStore {
  public:
    // `journal` and `history` (read before this attempt began) at rank 0; nullptr and empty elsewhere.
    // References must outlive the store.
    CheckpointStore(FileSystem& files, Clock& clock, StoreSettings settings, JournalWriter* journal,
                    Journal history);

    // Collective. On failure every rank gets the same Error (Exit::Resource: disk; Exit::Fenced: stop at
    // once), nothing half-written counts, and the previous checkpoints are untouched. Exit::Peer is thrown.
    Result<SaveReport> save(const Snapshot& snapshot, RankLink& link);

    // Collective. Loads what `request` decides (resume.h), or reports that training starts at step 0. On a
    // damaged checkpoint falls back to the next older candidate. `wanted` memory is undefined if this throws.
    LoadReport resume(const ResumeRequest& request, RunState state, const LoadRequest& load, RankLink& link);
    // Collective. The newest that loads. Exit::BadInput if there is none.
    LoadReport load_newest(const LoadRequest& load, RankLink& link);
    // Collective. Exactly this step.
    LoadReport load_step(std::int64_t step, const LoadRequest& load, RankLink& link);

    // Collective. Exactly this one, named as below the root; Exit::BadInput if it is not complete.
    LoadReport load_directory(const std::string& directory, const LoadRequest& load, RankLink& link);

    // This process's view: COMMIT, MANIFEST and sizes are right. nullopt: none. At rank 0 those that a
    // rollback set aside are left out.
    [[nodiscard]] std::optional<CompleteCheckpoint> newest_complete() const;
    // Bytes that this user may still write there.
    [[nodiscard]] std::uint64_t free_bytes() const;
    [[nodiscard]] const std::string& root() const { return settings_.root; }
    // Rank 0: training went on well after `directory` was saved; retention keeps the newest such.
    void mark_healthy(const std::string& directory);
    // Rank 0, under the lease, no save in progress: removes what interrupted saves and deletions of this run
    // left (the journal says which; every save does it as well). Returns their names; what cannot be removed
    // now, being in use on a network file system, is left for the next time.
    std::vector<std::string> sweep_leftovers();

    // Rank 0, any thread: what must not be among copies elsewhere: removed here, or given up.
    [[nodiscard]] std::set<std::string> unwanted_copies() const;
    // Collective, at a start: the same on the disks of other nodes, and what retention removed while they
    // were away. Nothing where everybody sees everything.
    void sweep_nodes(RankLink& link);

  private:
    struct Load;
    [[nodiscard]] std::vector<Place> places() const;
    [[nodiscard]] std::string directory_at(std::size_t place, const std::string& directory) const;
    std::string begin_save(const Snapshot& snapshot);
    std::string manifest_of(const Snapshot& snapshot, const std::string& directory, SavePlan& plan,
                            const std::vector<std::string>& receipts) const;
    void mark(int rank, const std::string& directory, const std::string& manifest);
    SaveReport commit(const std::string& directory, const std::string& manifest_text);
    void commit_on_nodes(SaveReport& report, const std::string& manifest_text, RankLink& link);
    void remove_on_nodes(SaveReport& report, RankLink& link);
    SaveReport write_and_commit(const Snapshot& snapshot, RankLink& link);
    void abandon(const std::string& directory, const std::string& reason);
    void remove_incomplete(const std::string& directory);
    void prove_visible(const std::string& directory, double patience_s) const;
    void apply_retention(SaveReport& report);
    [[nodiscard]] CheckpointScan scan_root() const;
    [[nodiscard]] std::string names_to_sweep() const;
    void report_losses(const CheckpointScan& scan, SaveReport& report);
    std::string next_candidate(Load& state, const LoadRequest& load) const;
    std::string judge_load(Load& state, const LoadRequest& load, const LoadOrder& order,
                           const Manifest& manifest, const std::vector<LoadAnswer>& answers,
                           LoadReport& report);
    void complete_node(int rank, const Manifest& manifest, const std::string& manifest_text);
    void remember_damage(const Manifest& manifest, const std::string& directory, const std::string& problem,
                         LoadReport& report);
    void forget_damage(const std::string& directory);
    void note(JournalEvent event, std::int64_t step, const std::string& directory, const std::string& text);
    LoadReport load_candidates(const std::function<ResumeDecision(const CheckpointScan&)>& choose,
                               const LoadRequest& load, RankLink& link);

    FileSystem& files_;
    Clock& clock_;
    StoreSettings settings_;
    mutable std::mutex history_mutex_;
    JournalWriter* journal_;
    Journal history_;              // with what this attempt appended
    std::set<std::string> known_;  // rank 0: directories that were complete at the last look
};

// Collective, before training: rank 0 writes a probe file, every rank looks for it. The ranks that do not see
// the directory as rank 0 does (a local disk where a shared one is needed); empty at all other ranks.
std::vector<int> ranks_without_directory(FileSystem& files, const std::string& root, RankLink& link);

}  // namespace trainctl
