// Trainings on several emulated devices against one cpu device.
#include "cuda/cuda_training.h"
#include "support/catch.h"

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

}  // namespace trainctl::cuda_test
