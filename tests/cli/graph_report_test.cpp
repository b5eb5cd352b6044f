// How much runs as CUDA graphs is said once what repeats has been captured, and at the end.
#include "cli/graph_report.h"

#include <string>
#include <vector>

#include "support/catch.h"
#include "trainctl/base/error.h"

namespace trainctl {
namespace {

class Gpu final : public CudaDevice {
  public:
    explicit Gpu(CudaGraphs graphs) : graphs_(graphs) {}
    [[nodiscard]] CudaGraphs graphs() const override { return graphs_; }
    [[nodiscard]] CudaGraphUse graph_use() const override { return use; }

    [[nodiscard]] DeviceInfo info() const override { return {}; }
    Buffer allocate(std::size_t, Memory, std::string_view) override { unexpected(); }
    std::unique_ptr<Stream> make_stream(std::string_view, StreamRole) override { unexpected(); }
    std::unique_ptr<Event> make_event() override { unexpected(); }
    void copy(Stream&, std::byte*, const std::byte*, std::size_t) override { unexpected(); }
    [[nodiscard]] MemoryUse memory_use() const override { return {}; }

    CudaGraphUse use;

  private:
    [[noreturn]] static void unexpected() { fail(Exit::Internal, "a report computes nothing"); }
    void deallocate(std::byte*, std::size_t, Memory) noexcept override {}

    CudaGraphs graphs_;
};

class Lines final : public Log {
  public:
    void write(LogLevel level, std::string_view text) override {
        lines.push_back((level == LogLevel::Warning ? "warning: " : "") + std::string(text));
    }
    std::vector<std::string> lines;
};

}  // namespace

TEST_CASE("the use of CUDA graphs is said when it has settled, and at the end", "[cli]") {
    Gpu gpu(CudaGraphs::On);
    Lines log;
    GraphReport report(&gpu, GraphNews::Everything, log);
    gpu.use = {0, 25, 0, {}};
    report.step_closed(1);
    gpu.use = {20, 30, 20, {}};
    report.step_closed(2);
    gpu.use = {40, 35, 21, {}};
    report.step_closed(3);
    gpu.use = {61, 41, 21, {}};
    report.step_closed(4);
    REQUIRE(log.lines.size() == 1);
    CHECK(log.lines[0] ==
          "cuda graphs: 21 sections of a step are replayed, 6 are issued call by call; 21 graphs kept");
    gpu.use = {82, 47, 21, {}};
    report.step_closed(5);
    report.finish();
    REQUIRE(log.lines.size() == 2);
    CHECK(log.lines[1] == "cuda graphs: 82 of 129 sections were replayed by 21 graphs");
}

TEST_CASE("CUDA graphs that replayed nothing are a warning; no graphs, no words", "[cli]") {
    Lines log;
    Gpu gpu(CudaGraphs::On);
    gpu.use.issued = 25;
    GraphReport(&gpu, GraphNews::Everything, log).finish();
    REQUIRE(log.lines.size() == 1);
    CHECK_THAT(log.lines[0], Catch::StartsWith("warning: ") && Catch::Contains("0 of 25 sections"));
    Gpu off(CudaGraphs::Off);
    for (const CudaDevice* device :
         {static_cast<const CudaDevice*>(nullptr), static_cast<const CudaDevice*>(&off)}) {
        GraphReport report(device, GraphNews::Everything, log);
        for (int step = 1; step < 6; ++step) report.step_closed(step);
        report.finish();
    }
    CHECK(log.lines.size() == 1);
}

TEST_CASE("a graph that CUDA refuses is told once, by every rank that meets it", "[cli]") {
    for (const GraphNews news : {GraphNews::Everything, GraphNews::Refusals}) {
        Gpu gpu(CudaGraphs::On);
        Lines log;
        GraphReport report(&gpu, news, log);
        for (int step = 1; step < 9; ++step) {
            gpu.use.replayed += 20;
            if (step >= 6) gpu.use.refusal = "cudaErrorMemoryAllocation: out of memory";
            report.step_closed(step);
        }
        report.finish();
        REQUIRE(log.lines.size() == (news == GraphNews::Everything ? 3 : 1));
        const std::string& warning = log.lines[news == GraphNews::Everything ? 1 : 0];
        CHECK_THAT(warning, Catch::StartsWith("warning: ") &&
                                Catch::Contains("cudaErrorMemoryAllocation: out of memory") &&
                                Catch::Contains("device.cuda_graphs"));
    }
}

}  // namespace trainctl
