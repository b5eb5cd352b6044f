// Trainings on several emulated devices against one cpu device.
#include "cuda/cuda_training.h"
#include "cuda_double/machine.h"
#include "support/catch.h"
#include "support/memory_file_system.h"

namespace trainctl::cuda_test {

using test::TrainOutcome;
using test::TrainSetup;

TEST_CASE("emulated devices train together as one cpu does", "[cuda]") {
    struct Layout {
        int ranks;
        std::int64_t tensor, pipeline, zero;
    };
    for (const Layout& layout :
         {Layout{2, 1, 1, 1}, Layout{2, 1, 1, 2}, Layout{4, 1, 1, 3}, Layout{4, 2, 2, 1}}) {
        TrainSetup setup = five_steps(Architecture::Llama, DType::F32);
        const TrainOutcome wanted = test::train(setup);
        setup.ranks = layout.ranks;
        setup.job.parallel.tensor_parallel_size = layout.tensor;
        setup.job.parallel.pipeline_parallel_size = layout.pipeline;
        setup.job.memory.zero_stage = layout.zero;
        for (const CudaTransport transport : {CudaTransport::Nccl, CudaTransport::Host}) {
            const TrainOutcome found = train_on_cuda(setup, 3, transport);
            CAPTURE(layout.ranks, layout.zero, transport == CudaTransport::Nccl);
            CHECK(trace_difference(found, wanted) < 1e-4);
            CHECK(test::differing_tensors(found, wanted, 1e-4).empty());
            CHECK(found.drifted.empty());
        }
    }
}

TEST_CASE("every block of a step is one graph, forward and backward", "[cuda]") {
    for (const Architecture architecture : {Architecture::Gpt2, Architecture::Llama}) {
        TrainSetup setup = five_steps(architecture, DType::BF16);
        std::uint64_t before_last = 0;
        setup.at_boundary = [&](int, StopFlag&, std::int64_t) {
            before_last = cuda_double::graph_counts().launched;
        };
        train_on_cuda(setup, 0, CudaTransport::Nccl, CudaGraphs::On);
        const auto layers = static_cast<std::uint64_t>(setup.job.model.layers);
        const auto micros = static_cast<std::uint64_t>(setup.job.training.global_batch_size /
                                                       setup.job.training.micro_batch_size);
        // The head with its loss is another one; the sums for the norm of the gradient are one per step.
        CHECK(cuda_double::graph_counts().launched - before_last == micros * (2 * layers + 1) + 1);
    }
}

TEST_CASE("emulated devices with graphs train to the bit as without", "[cuda]") {
    struct Layout {
        std::int64_t tensor, zero;
        std::uint64_t graphs;  // at the very least, of a step of both ranks
    };
    // A block of tensor-parallel ranks is cut where they talk; at ZeRO 3, where its weights come and go.
    for (const Layout& layout : {Layout{1, 1, 16}, Layout{1, 3, 16}, Layout{2, 1, 32}}) {
        TrainSetup setup = five_steps(Architecture::Llama, DType::F32);
        setup.ranks = 2;
        setup.job.parallel.tensor_parallel_size = layout.tensor;
        setup.job.memory.zero_stage = layout.zero;
        const TrainOutcome wanted = train_on_cuda(setup, 0);
        CHECK(cuda_double::graph_counts().launched == 0);
        const TrainOutcome found = train_on_cuda(setup, 3, CudaTransport::Nccl, CudaGraphs::On);
        CAPTURE(layout.tensor, layout.zero);
        CHECK(found.steps == wanted.steps);
        CHECK(found.state == wanted.state);
        CHECK(cuda_double::graph_counts().launched >= 3 * layout.graphs);  // of the five steps
        CHECK(cuda_double::graph_counts().alive == 0);
    }
}

// In stage 0 a rank holds several times what it saves.
TEST_CASE("emulated devices resume through the memory of their saves", "[cuda]") {
    struct Layout {
        int ranks;
        std::int64_t pipeline, zero;
    };
    for (const Layout& layout : {Layout{4, 1, 0}, Layout{4, 2, 0}, Layout{2, 1, 3}}) {
        test::MemoryFileSystem files;
        TrainSetup setup = five_steps(Architecture::Gpt2, DType::BF16);
        setup.job.steps = 3;
        setup.job.checkpoint.interval_steps = 1;
        setup.job.parallel.pipeline_parallel_size = layout.pipeline;
        setup.job.memory.zero_stage = layout.zero;
        setup.ranks = layout.ranks;
        setup.files = &files;
        setup.root = "checkpoints";
        const TrainOutcome whole = train_on_cuda(setup, 2);
        for (const std::string& name : files.list(setup.root))
            if (parse_checkpoint_directory_name(name)->step != 1) files.erase(join_path(setup.root, name));
        setup.resume = ResumeMode::Auto;
        setup.attempt = 2;
        const TrainOutcome rest = train_on_cuda(setup, 2);
        CAPTURE(layout.ranks, layout.pipeline, layout.zero, rest.off_plan);
        CHECK(rest.steps.size() == 2);
        CHECK(rest.state == whole.state);
        CHECK(rest.drifted.empty());
        CHECK(rest.off_plan.empty());
    }
}

TEST_CASE("a cuda device holds what was planned, from the first allocation on", "[cuda]") {
    struct Types {
        DType compute, reduce;
    };
    for (const Types types :
         {Types{DType::F32, DType::F32}, Types{DType::BF16, DType::F32}, Types{DType::BF16, DType::BF16}}) {
        for (const std::int64_t zero : {0, 1, 2, 3}) {
            for (const CudaTransport transport : {CudaTransport::Nccl, CudaTransport::Host}) {
                TrainSetup setup = five_steps(Architecture::Gpt2, types.compute);
                setup.job.steps = 1;
                setup.job.schedule.warmup_steps = 0;
                setup.job.model.layers = 1;
                setup.job.communication.reduce_dtype = types.reduce;
                setup.job.memory.zero_stage = zero;
                setup.ranks = 2;  // two micro-batches each
                const TrainOutcome found = train_on_cuda(setup, 4, transport);
                CAPTURE(dtype_name(types.compute), dtype_name(types.reduce), zero,
                        transport == CudaTransport::Nccl, found.off_plan);
                CHECK(found.off_plan.empty());
            }
        }
    }
}

}  // namespace trainctl::cuda_test
