#include "cli/run_start.h"

#include <fmt/format.h>

#include "cli/checkpoint_places.h"
#include "cli/checkpoint_space.h"
#include "cli/initial_weights.h"
#include "cli/run_places.h"
#include "cli/start_wait.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/scan.h"
#include "trainctl/config/load.h"
#include "trainctl/config/resume.h"

namespace trainctl {
namespace {

// What an existing run has to say to being continued by this job.
void refuse_other_run(FileSystem& files, const RunLayout& layout, const RunIdentity& identity,
                      const JobSpec& job, const TrainOptions& options, const std::string& data_id) {
    const std::vector<Place> places = checkpoint_places(job);
    const CheckpointScan scan = scan_places(files, places, identity.run_id);
    // Other nodes may have what this one, which may be new, does not see: the load finds out.
    if (places.front().reach == Reach::Node && scan.complete.empty()) return;
    check_resume(options.resume, scan, read_journal(files, layout), [&](const Manifest& stored) {
        require_same_run(stored, job, data_id, options.allowed_changes);
    });
}

// Rank 0. Reads only.
void refuse_early(RankContext& context, const RunLayout& layout, const JobSpec& job,
                  const TrainOptions& options, const std::string& data_id) {
    FileSystem& files = context.invocation.files;
    if (const auto places = unusable_places(files, job); !places.empty())
        fail(places.front().exit, places.front().what);
    const auto identity = read_run_identity(files, layout);
    // Of a run that may be going on, its owner is the first thing to be told; the rest waits for the lease.
    if (identity && owner_may_live(files, *make_linux_process_table(files), layout)) return;
    require_startable(files, layout, options.resume.mode);
    if (identity) return refuse_other_run(files, layout, *identity, job, options, data_id);
    if (!job.model.init_from.empty()) static_cast<void>(find_initial_weights(files, job));
    // An existing run looks under the lease, when what its interrupted saves left is gone.
    if (const auto lack =
            lack_of_space(files, layout.checkpoints(), checkpoint_space(files, job, context.world.size())))
        fail(Exit::Resource, *lack);
}

}  // namespace

SharedRun open_run(RankContext& context, const JobSpec& job, const TrainOptions& options,
                   const std::string& data_id, std::unique_ptr<RunDirectory>& directory) {
    const std::string answer =
        wait_at_rank_0(context.world.control(), context.stop, [&](const std::function<bool()>& asked) {
            const RunLayout layout = run_layout(job);
            refuse_early(context, layout, job, options, data_id);
            directory = std::make_unique<RunDirectory>(context.invocation, context.log, job,
                                                       options.resume.mode, asked,
                                                       // What is left of the run may be in memory only.
                                                       [&stop = context.stop] { stop.request_save(); });
            if (directory->state() == RunState::Existing)
                refuse_other_run(context.invocation.files, layout, directory->identity(), job, options,
                                 data_id);
            return fmt::format("{} {} {}", directory->attempt(),
                               directory->state() == RunState::New ? "new" : "existing",
                               directory->identity().run_id);
        });
    const std::size_t first = answer.find(' ');
    const std::size_t second = answer.find(' ', first + 1);
    return {answer.substr(second + 1), std::stoi(answer.substr(0, first)),
            answer.substr(first + 1, second - first - 1) == "new" ? RunState::New : RunState::Existing};
}

void require_same_run(const Manifest& stored, const JobSpec& job, const std::string& data_id,
                      const std::vector<std::string>& allowed_changes) {
    const LoadedJob before = load_job_text(stored.spec, stored.directory + "/MANIFEST");
    require_resumable(compare_for_resume(job_or_fail(before), job), allowed_changes);
    if (stored.data_fingerprint != data_id) {
        fail(Exit::BadInput, fmt::format("the training data differ from those of checkpoint {}: fingerprint "
                                         "{} stored, {} found. Bring back the "
                                         "same files, or start another run on the new ones.",
                                         stored.directory, stored.data_fingerprint, data_id));
    }
    if (stored.step > job.steps) {
        fail(Exit::Usage,
             fmt::format("the checkpoint is at step {}, but job.steps is {}: raise job.steps, or resume an "
                         "earlier checkpoint with --resume STEP",
                         stored.step, job.steps));
    }
}

}  // namespace trainctl
