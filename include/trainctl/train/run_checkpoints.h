// Saving and loading a training: its state slices and counters through the checkpoint store.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "trainctl/base/log.h"
#include "trainctl/checkpoint/checkpoint_store.h"
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

// Thread rule: the rank's compute thread; collective. All references must outlive it.
class RunCheckpoints final : public CheckpointWriter {
  public:
    RunCheckpoints(CheckpointStore& store, Rank& rank, Training& training, CheckpointContext context,
                   Log& log);

    // Exit::Resource if it failed for want of space; the previous checkpoint is still current then.
    void save(const Progress& progress, SaveReason reason) override;
    void closed(StepOutcome outcome) override;
    std::string newest() override;
    std::string lack_of_room() override;

    // Fills the training's state from what `request` decides and returns where it stands; StartFresh: nothing
    // was touched (the caller initialises). Rank 0 logs what was decided, and asks `accept` first
    // (LoadRequest).
    struct Resumed {
        LoadReport report;
        Progress progress;
    };
    Resumed resume(const ResumeRequest& request, RunState state,
                   const std::function<void(const Manifest&)>& accept = {});

  private:
    void require_finite(const std::vector<NamedSlice>& state, std::int64_t step);

    CheckpointStore& store_;
    Rank& rank_;
    Training& training_;
    CheckpointContext context_;
    Log& log_;
    // Rank 0: the newest checkpoint of this attempt that is not known to be good, and finite steps since.
    struct Probation {
        std::string directory;
        std::int64_t finite_steps = 0;
    };
    std::vector<Probation> on_probation_;
};

}  // namespace trainctl
