// Saving and loading a training: its state slices and counters through the checkpoint store.
//
// A save is a snapshot, then the store's protocol on a thread of its own with a channel of its own, so that
// training goes on beside it. That thread never touches the device nor a communicator of the training.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainctl/base/log.h"
#include "trainctl/checkpoint/checkpoint_store.h"
#include "trainctl/train/state_snapshot.h"
#include "trainctl/train/tier_copies.h"
#include "trainctl/train/trainer.h"
#include "trainctl/train/training.h"

namespace trainctl {

// What goes into every checkpoint beside the state.
struct CheckpointContext {
    std::string spec;  // resolved job, TOML
    std::string data_fingerprint;
    std::map<std::string, std::int64_t> layout;
};
std::map<std::string, std::int64_t> layout_counters(const JobSpec& job, const Mesh& mesh);

// Thread rule: the rank's compute thread. Construction, begin and resume are collective. All references must
// outlive it.
class RunCheckpoints final : public CheckpointWriter {
  public:
    // `copies` gets what is committed; nullptr: checkpoints are in one place.
    RunCheckpoints(CheckpointStore& store, Rank& rank, Training& training, CheckpointContext context,
                   Log& log, TierCopies* copies = nullptr);
    // A save under way is given up, but what its thread asked of the storage is waited for: give_up() first
    // where that may hang.
    ~RunCheckpoints() override;
    RunCheckpoints(const RunCheckpoints&) = delete;
    RunCheckpoints& operator=(const RunCheckpoints&) = delete;

    void begin(const Progress& progress) override;
    bool busy() override;
    std::optional<SaveReport> finish(double patience_s) override;
    void closed(StepOutcome outcome) override;
    // For a rank that is about to leave by an error: ends the messages of a save under way. False: its thread
    // still waits for the storage after `patience`, and so would whoever destroys this.
    bool give_up(std::chrono::duration<double> patience);
    std::string newest() override;
    std::string lack_of_room() override;
    std::vector<CopyRecord> copied() override;

    // Fills the training's state from what `request` decides and returns where it stands; StartFresh: nothing
    // was touched (the caller initialises). Rank 0 logs what was decided, and asks `accept` first
    // (LoadRequest).
    struct Resumed {
        LoadReport report;
        Progress progress;
    };
    Resumed resume(const ResumeRequest& request, RunState state,
                   const std::function<void(const Manifest&)>& accept = {});

    // Collective. Instead of initialise(): the weights of checkpoint `directory` of another run, in the root
    // that `source` reads; moments are zero and nothing is counted. Exit::BadInput: damaged, or a weight of
    // this model is not in it; all ranks alike.
    LoadReport start_from(CheckpointStore& source, const std::string& directory);

  private:
    void hand_over();
    SaveReport write(const Snapshot& snapshot);
    void require_finite(const Snapshot& snapshot);
    void mark_good();
    void offer_again(const Manifest& manifest);
    [[nodiscard]] bool writing() const { return writing_.valid(); }

    CheckpointStore& store_;  // of the writing thread while that runs
    Rank& rank_;
    Training& training_;
    CheckpointContext context_;
    Log& log_;
    TierCopies* copies_;
    std::unique_ptr<HostChannel> channel_;  // of the writing thread
    StateSnapshot state_;
    std::optional<Snapshot> begun_;  // not handed over to a thread yet: its copy is being made
    std::int64_t saving_ = -1;       // step of the save under way
    std::int64_t finite_steps_ = 0;  // closed since that save was begun
    std::future<SaveReport> writing_;
    // Rank 0: checkpoints of this attempt that are not known to be good, and finite steps since.
    struct Probation {
        std::string directory;
        std::int64_t finite_steps = 0;
    };
    std::vector<Probation> on_probation_;
};

}  // namespace trainctl
