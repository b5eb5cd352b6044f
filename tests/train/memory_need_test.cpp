// What is said about memory before a training exists is what the training then holds.
#include "trainctl/train/memory_need.h"

#include "support/catch.h"
#include "support/run_ranks.h"
#include "train/finite_stream.h"
#include "train/train_harness.h"
#include "trainctl/train/synthetic_stream.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

struct Found {
    MemoryNeed need;
    MemoryNeed of_large_batch;
    std::uint64_t held_before = 0;
    std::uint64_t held = 0;  // by the device and the two loaders
};

Found look(const JobSpec& job, World& world, CpuDevice& device) {
    const SyntheticLanguage language(97, 42);
    const SyntheticStream all(language, 16);
    const FiniteStream validation(all, 64);
    SystemClock clock;
    Rank rank(device, world, mesh_shape(job.parallel, world.size()));
    const auto need = [&](const JobSpec& of) {
        return memory_need(of, rank.mesh.shape, rank.mesh.place, batch_layout(of, rank.mesh),
                           rank.backend->ops());
    };
    JobSpec large = job;
    large.training.micro_batch_size = 1 << 16;
    large.training.global_batch_size = 1 << 17;
    Found found{need(job), need(large)};
    found.held_before = device.memory_use().device_bytes;
    const Training training(rank, job, all, &validation, clock);
    // That the device holds what was planned, once a step was made, every training test checks.
    found.held = training.plan().device_bytes() + device.memory_use().pinned_bytes +
                 2 * loader_bytes(batch_layout(job, rank.mesh), 16, {job.data.prefetch_batches});
    return found;
}

}  // namespace

TEST_CASE("the memory of a rank is known before it is allocated, and grows where it should") {
    for (const int stage : {0, 3}) {
        JobSpec job = tiny_job(Architecture::Llama);
        job.memory.zero_stage = stage;
        job.training.eval_interval = 4;
        RankOptions options;
        options.isa = detect_cpu_isa();
        const std::vector<Found> ranks = collect_ranks<Found>(
            2, [&](World& world, CpuDevice& device) { return look(job, world, device); }, options);
        for (const Found& found : ranks) {
            CHECK(found.held_before == 0);
            CHECK(found.held == found.need.bytes());
            CHECK(found.need.host_bytes > 0);
            CHECK(found.of_large_batch.state_bytes == found.need.state_bytes);
            CHECK(found.of_large_batch.batch_bytes > 1000 * found.need.batch_bytes);
        }
    }
}
