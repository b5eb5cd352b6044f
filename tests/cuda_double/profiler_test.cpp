// What NVIDIA's tools see of a training.
#include "cuda_double/profiler.h"

#include <algorithm>

#include "cuda/cuda_training.h"
#include "cuda_double/machine.h"
#include "support/catch.h"
#include "support/memory_file_system.h"
#include "trainctl/train/profile.h"

namespace trainctl::cuda_test {

using cuda_double::ProfilerSeen;

TEST_CASE("NVTX shows the phases and units of every step, and a profile switches the profiler", "[cuda]") {
    class Silent final : public Log {
        void write(LogLevel /*level*/, std::string_view /*text*/) override {}
    };
    cuda_double::start_machine({.devices = 1, .seed = 1});
    test::TrainSetup setup = five_steps(Architecture::Llama, DType::F32);
    test::MemoryFileSystem files;
    SystemClock clock;
    Silent log;
    std::unique_ptr<ProfileRecorder> recorder;
    setup.make_rank = [&](World& world, CpuDevice& host, MeshShape shape) {
        std::shared_ptr<Rank> rank = make_cuda_rank(world, host, shape, CudaTransport::Nccl);
        recorder = std::make_unique<ProfileRecorder>(
            ProfileSteps{2, 3}, ProfileFile{files, "p", "t", 0, "here"}, clock, log, rank->ranges);
        rank->ranges = recorder.get();
        return rank;
    };
    std::vector<ProfilerSeen> seen;  // by step boundary, within the range of the next step
    setup.at_boundary = [&](int, StopFlag&, std::int64_t) {
        seen.push_back(cuda_double::listen_as_profiler());
    };
    test::train(setup);
    REQUIRE(seen.size() == 5);
    for (const ProfilerSeen& one : seen) {
        CHECK(one.open == 1);
        CHECK(one.stray_pops == 0);
    }
    const std::vector<std::string>& ranges = seen[1].ranges;
    for (const char* part :
         {"step 1/data", "step 1/forward", "step 1/forward/embedding", "step 1/forward/block 2",
          "step 1/forward/head", "step 1/backward/block 1", "step 1/optimizer", "step 2"})
        CHECK(std::count(ranges.begin(), ranges.end(), part) > 0);
    CHECK(seen[1].captured == std::vector<std::string>{"step 2"});
    CHECK(seen[2].captured == seen[2].ranges);
    CHECK(seen[3].captured.size() + 1 == seen[3].ranges.size());  // all but "step 4"
    CHECK(seen[4].captured.empty());
    CHECK(seen[1].captures + seen[2].captures + seen[3].captures + seen[4].captures == 1);
    CHECK(files.status("p/t"));
}

}  // namespace trainctl::cuda_test
