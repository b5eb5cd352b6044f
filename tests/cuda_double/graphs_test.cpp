// The cache of graphs at its bounds, and what a capture forbids.
#include "cuda/check.h"
#include "cuda/cuda_training.h"
#include "cuda/graphs/section_graphs.h"
#include "cuda_double/machine.h"
#include "support/catch.h"
#include "trainctl/base/error.h"

namespace trainctl::cuda_double {
namespace {

using cuda::SectionGraphs;

struct OneStream {
    explicit OneStream(std::size_t most_graphs = SIZE_MAX) {
        start_machine({.devices = 1, .seed = 1, .most_graphs = most_graphs});
        cuda::check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), "cudaStreamCreate");
    }
    ~OneStream() { static_cast<void>(cudaStreamDestroy(stream)); }
    OneStream(const OneStream&) = delete;
    OneStream& operator=(const OneStream&) = delete;
    cudaStream_t stream = nullptr;
};

// A section of three calls that add one, three and five times `amount`.
void gather(SectionGraphs& sections, cudaStream_t stream, int& sum, int amount) {
    for (const int times : {1, 3, 5}) {
        const auto issue = [&sum, stream, amount, times] {
            cuda::check(enqueue_work(stream, [&sum, amount, times] { sum += amount * times; }),
                        "enqueue_work");
        };
        sections.gather(issue, amount, times);
    }
    sections.flush();
}

}  // namespace

TEST_CASE("graphs: no more are kept than allowed, and those in turn do not push each other out", "[cuda]") {
    OneStream one;
    {
        SectionGraphs sections(one.stream, 2);
        int sum = 0;
        for (int round = 0; round < 6; ++round)
            for (const int amount : {1, 2, 3}) gather(sections, one.stream, sum, amount);
        CHECK(sections.use().captured == 2);
        CHECK(sections.use().replayed == 2 * 5);
        CHECK(sections.use().issued == 3 + 5);
        CHECK(graph_counts().alive == 2);
        // The one that has not been used for longest is let go when something else has taken its place for
        // long.
        gather(sections, one.stream, sum, 1);
        for (int round = 0; round < 20; ++round) gather(sections, one.stream, sum, 4);
        CHECK(sections.use().captured == 3);
        CHECK(graph_counts().alive == 2);
        const std::uint64_t replayed = sections.use().replayed;
        gather(sections, one.stream, sum, 1);
        CHECK(sections.use().captured == 3);
        CHECK(sections.use().replayed == replayed + 1);
        gather(sections, one.stream, sum, 2);
        CHECK(sections.use().replayed == replayed + 1);
        CHECK(cudaStreamSynchronize(one.stream) == cudaSuccess);
        CHECK(sum == 9 * (6 * (1 + 2 + 3) + 1 + 20 * 4 + 1 + 2));
    }
    CHECK(graph_counts().alive == 0);
    CHECK(machine_fault().empty());
}

TEST_CASE("graphs: without memory for another one its calls are issued, and the others go on", "[cuda]") {
    OneStream one(1);
    {
        SectionGraphs sections(one.stream);
        int sum = 0;
        for (int round = 0; round < 5; ++round)
            for (const int amount : {1, 2, 3}) gather(sections, one.stream, sum, amount);
        CHECK(cudaStreamSynchronize(one.stream) == cudaSuccess);
        CHECK(sum == 9 * 5 * (1 + 2 + 3));
        CHECK(sections.use().captured == 1);
        CHECK(sections.use().replayed == 4);
        CHECK(sections.use().issued == 1 + 5 + 5);
        CHECK_THAT(sections.use().refusal, Catch::Contains("cudaErrorMemoryAllocation"));
    }
    CHECK(graph_counts().alive == 0);
    CHECK(machine_fault().empty());
}

TEST_CASE("graphs: a call that fails while it is captured is thrown, and the capture ends", "[cuda]") {
    OneStream one;
    SectionGraphs sections(one.stream);
    int sum = 0;
    bool fails = false;
    const auto section = [&] {
        for (int call = 0; call < 3; ++call) {
            const auto issue = [&] {
                if (fails) fail(Exit::Internal, "swiglu_forward: planted");
                cuda::check(enqueue_work(one.stream, [&sum] { ++sum; }), "enqueue_work");
            };
            sections.gather(issue, call);
        }
        sections.flush();
    };
    section();
    fails = true;
    CHECK_THROWS_WITH(section(), Catch::Contains("swiglu_forward: planted"));
    CHECK(graph_counts().alive == 0);
    fails = false;
    for (int round = 0; round < 3; ++round) section();
    CHECK(cudaStreamSynchronize(one.stream) == cudaSuccess);
    CHECK(sum == 3 * 4);
    CHECK(sections.use().replayed == 3);
}

TEST_CASE("the double refuses what a capture does not allow", "[cuda]") {
    const auto capturing = [](auto&& call) {
        OneStream one;
        CHECK(cudaStreamBeginCapture(one.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
        CHECK(call(one.stream) != cudaSuccess);
        const std::string fault = machine_fault();
        cudaGraph_t graph = nullptr;
        CHECK(cudaStreamEndCapture(one.stream, &graph) != cudaSuccess);
        CHECK(graph == nullptr);
        return fault;
    };
    void* memory = nullptr;
    CHECK_THAT(capturing([](cudaStream_t stream) { return cudaStreamSynchronize(stream); }),
               Catch::Contains("cudaStreamSynchronize"));
    CHECK_THAT(capturing([&](cudaStream_t) { return cudaMalloc(&memory, 256); }),
               Catch::Contains("cudaMalloc"));
    CHECK_THAT(capturing([&](cudaStream_t) { return cudaMemsetAsync(&memory, 0, 0, nullptr); }),
               Catch::Contains("the legacy stream"));
    CHECK_THAT(capturing([](cudaStream_t stream) {
                   cudaEvent_t event = nullptr;
                   static_cast<void>(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
                   return cudaEventRecord(event, stream);
               }),
               Catch::Contains("cudaEventRecord"));
}

TEST_CASE("the double sees a graph that is destroyed while it runs", "[cuda]") {
    OneStream one;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    CHECK(cudaStreamBeginCapture(one.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(enqueue_work(one.stream, [] {}) == cudaSuccess);
    CHECK(cudaStreamEndCapture(one.stream, &graph) == cudaSuccess);
    CHECK(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(cudaGraphLaunch(executable, one.stream) == cudaSuccess);
    CHECK(cudaGraphExecDestroy(executable) != cudaSuccess);
    CHECK_THAT(machine_fault(), Catch::Contains("before its newest launch had run"));
}

}  // namespace trainctl::cuda_double
