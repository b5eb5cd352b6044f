// One optimizer step over the mesh: data -> model -> reduction -> update, with the host waiting once, at the
// end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "trainctl/base/clock.h"
#include "trainctl/comm/world.h"
#include "trainctl/config/job_spec.h"
#include "trainctl/data/loader.h"
#include "trainctl/device/arena.h"
#include "trainctl/observe/step_record.h"
#include "trainctl/parallel/zero.h"
#include "trainctl/train/batch_slots.h"
#include "trainctl/train/progress.h"
#include "trainctl/train/stage_executor.h"

namespace trainctl {

// What a step runs on; all references outlive the runner.
struct StepParts {
    Device& device;
    Ops ops;
    Stream& compute;
    Stream& communication;
    Communicator& data_axis;
    Communicator& pipeline_axis;
    Arena& arena;
    StageExecutor& executor;
    ZeroState& state;
    Clock& clock;
    Ranges* ranges = nullptr;  // optional
};

struct StepResult {
    double loss = 0.0;       // mean over the target tokens of the global batch
    double grad_norm = 0.0;  // before clipping, of the unscaled gradient
    double clip = 1.0;
    double lr = 0.0;
    StepOutcome outcome = StepOutcome::Applied;  // agreed over all ranks
    std::optional<LossScale> next_loss_scale;    // fp16 only: of the step after this one
    double seconds = 0.0;
    PhaseSeconds phases;
};

struct EvaluationResult {
    double loss = 0.0;
    std::int64_t tokens = 0;
};

// Thread rule: the rank's compute thread. Batch buffers are allocated once, at construction.
class StepRunner {
  public:
    // `held`: micro-batches that the executor uses at once.
    StepRunner(const StepParts& parts, const JobSpec& job, const BatchLayout& layout, int held);
    ~StepRunner();
    StepRunner(const StepRunner&) = delete;
    StepRunner& operator=(const StepRunner&) = delete;

    // Waits for the data of step progress.step. false: `stop` said so first (the wait asks it often). Throws
    // what cannot be read. Only this rank's affair: call it before the ranks agree to take the step, since a
    // step once begun must be finished by all.
    bool fetch(Loader& loader, const Progress& progress, const std::function<bool()>& stop);

    // Step number progress.step (0-based), after fetch() returned true for it on every rank. Does not change
    // `progress`, whose loss scale must have been started (LossScaler::start).
    StepResult step(Loader& loader, const Progress& progress);

    // Updates wait for `readers`, an event of whoever reads weights and moments beside the steps; nullptr:
    // for nobody. Must outlive the runner or be taken back.
    void update_after(const Event* readers) { readers_ = readers; }

    // Mean loss over the first `batches` global batches of a finite stream (0: all). The same on every rank.
    // nullopt if `stop` said so, which must be agreed over the ranks: it is asked before each global batch,
    // the same number of times everywhere.
    std::optional<EvaluationResult> evaluate(Loader& loader, std::int64_t batches,
                                             const std::function<bool(std::int64_t batch)>& stop);

  private:
    // Fills the slot's staging; nullopt: `stop` said so.
    std::optional<Batch> load(Loader& loader, BatchSlots::Slot& slot, std::int64_t batch, std::int64_t micro,
                              const std::function<bool()>& stop);
    // Copies the step scalars to the host; the compute stream has passed everything then.
    std::vector<double> read_scalars();
    [[nodiscard]] double target_tokens() const;

    struct Fetched {
        std::int64_t step = 0;
        std::int64_t first_sample = 0;
        BatchSlots::Slot* slot = nullptr;
        double waited_s = 0.0;
    };

    StepParts parts_;
    JobSpec job_;
    BatchLayout layout_;
    LossScaler scaler_;
    BatchSlots slots_;
    std::optional<Fetched> fetched_;
    const Event* readers_ = nullptr;
    Buffer scalars_;
    Buffer scalars_host_;
};

}  // namespace trainctl
