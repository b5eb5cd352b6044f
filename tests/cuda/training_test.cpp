// Whole trainings on one cuda device against the cpu device.
#include <utility>

#include "cuda/cuda_training.h"
#include "support/catch.h"
#include "support/memory_file_system.h"

namespace trainctl::cuda_test {

using test::TrainOutcome;
using test::TrainSetup;

TEST_CASE("one cuda device trains as the cpu does", "[cuda]") {
    for (const Architecture architecture : {Architecture::Gpt2, Architecture::Llama}) {
        const TrainSetup setup = five_steps(architecture, DType::F32);
        const TrainOutcome wanted = test::train(setup);
        const TrainOutcome found = train_on_cuda(setup, 1);
        CHECK(found.steps.size() == 5);
        CHECK(trace_difference(found, wanted) < 1e-4);
        CHECK(test::differing_tensors(found, wanted, 1e-4, {"k.bias"}).empty());
        CHECK(found.device_allocations_after_first_step == 0);
        CHECK(found.off_plan.empty());
    }
}

TEST_CASE("one cuda device trains in bf16 as the cpu does", "[cuda]") {
    for (const Architecture architecture : {Architecture::Gpt2, Architecture::Llama}) {
        const TrainSetup setup = five_steps(architecture, DType::BF16);
        CHECK(trace_difference(train_on_cuda(setup, 1), test::train(setup)) < 2e-2);
    }
}

TEST_CASE("a training on a cuda device repeats to the bit, in whatever order work runs", "[cuda]") {
    const TrainSetup setup = five_steps(Architecture::Llama, DType::BF16);
    const TrainOutcome one = train_on_cuda(setup, 0);
    for (std::uint64_t seed = 1; seed < 4; ++seed) {
        const TrainOutcome other = train_on_cuda(setup, seed);
        CHECK(other.steps == one.steps);
        CHECK(other.state == one.state);
    }
}

TEST_CASE("a training with graphs has the bits of one without", "[cuda]") {
    // F16 with another loss scale on the way.
    for (const auto& [architecture, compute] :
         {std::pair(Architecture::Gpt2, DType::F16), std::pair(Architecture::Llama, DType::BF16)}) {
        TrainSetup setup = five_steps(architecture, compute);
        setup.job.precision.loss_scale.growth_interval = 2;
        const TrainOutcome wanted = train_on_cuda(setup, 0);
        const TrainOutcome found = train_on_cuda(setup, 3, CudaTransport::Nccl, CudaGraphs::On);
        CHECK(found.steps.size() == 5);
        CHECK(found.steps == wanted.steps);
        CHECK(found.state == wanted.state);
        CHECK(found.device_allocations_after_first_step == 0);
    }
}

// The copy for a checkpoint runs beside the next step, as late as its events allow.
TEST_CASE("a checkpoint of a cuda device holds its own step, whatever ran beside its copy", "[cuda]") {
    const std::string root = "checkpoints";
    for (const std::uint64_t seed : {0, 1, 5}) {
        test::MemoryFileSystem files;
        TrainSetup setup = five_steps(Architecture::Llama, DType::BF16);
        setup.job.checkpoint.async = true;
        setup.job.checkpoint.interval_steps = 1;
        setup.files = &files;
        setup.root = root;
        const TrainOutcome whole = train_on_cuda(setup, seed);
        CHECK(whole.device_allocations_after_first_step == 0);
        // That of the first step always comes to its end; of the others, what storage allowed.
        REQUIRE(whole.saves.front().step == 1);
        for (const std::string& name : files.list(root))
            if (parse_checkpoint_directory_name(name)->step != 1) files.erase(join_path(root, name));
        setup.resume = ResumeMode::Auto;
        setup.attempt = 2;
        const TrainOutcome rest = train_on_cuda(setup, seed);
        CHECK(rest.steps.size() == 4);
        CHECK(rest.state == whole.state);
        CHECK(whole.off_plan.empty());
        CHECK(rest.off_plan.empty());  // a resume reads through the memory of saves
    }
}

}  // namespace trainctl::cuda_test
