// Ranks that fail, stay away, or disagree: everybody ends soon, with a text that says who and what.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "support/run_ranks.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Outcome {
    Exit code = Exit::Ok;
    std::string text;
};

// What each rank's function threw.
template <class F>
std::vector<Outcome> outcomes(int ranks, const F& function, const RankOptions& options) {
    return collect_ranks<Outcome>(
        ranks,
        [&](World& world, CpuDevice& device) -> Outcome {
            try {
                function(world, device);
                return {};
            } catch (const Error& error) {
                world.abort(error);
                return {error.code(), error.what()};
            }
        },
        options);
}

void reduce_once(World& world, CpuDevice& device) {
    const auto stream = device.make_stream("gradients", StreamRole::Communication);
    const Buffer buffer = device.allocate(4000, Memory::Device, "x");
    world.all().all_reduce(buffer.view(Shape{1000}, DType::F32), Reduce::Sum, *stream);
    stream->synchronize();
}

}  // namespace

TEST_CASE("a rank that throws ends the others at once, and its error is the one reported", "[threads]") {
    for (const bool late : {false, true}) {
        RankOptions options;
        if (late) options.late_seed = 5;
        const auto start = std::chrono::steady_clock::now();
        try {
            run_ranks(
                4,
                [](World& world, CpuDevice& device) {
                    if (world.rank() == 2) fail(Exit::BadInput, "token file is truncated");
                    reduce_once(world, device);
                },
                options);
            FAIL("the error got lost");
        } catch (const Error& error) {
            CHECK(error.code() == Exit::BadInput);
            CHECK_THAT(error.what(), Catch::Contains("token file is truncated"));
        }
        CHECK(seconds_since(start) < 8.0);  // the grace for memory in use is 2 s
    }
}

TEST_CASE("the others learn which rank failed and why", "[threads]") {
    const auto results = outcomes(3,
                                  [](World& world, CpuDevice& device) {
                                      if (world.rank() == 1) fail(Exit::Resource, "disk full");
                                      reduce_once(world, device);
                                  },
                                  {});
    CHECK(results[1].code == Exit::Resource);
    for (const int other : {0, 2}) {
        CHECK(results[static_cast<std::size_t>(other)].code == Exit::Peer);
        CHECK_THAT(results[static_cast<std::size_t>(other)].text,
                   Catch::Contains("rank 1 failed: disk full"));
    }
}

TEST_CASE("a deadline names the communicator, the operation and the missing rank", "[threads]") {
    RankOptions options;
    options.world.timeout_s = 1.0;
    const auto run = [&](auto&& function) {
        return outcomes(
            3,
            [&](World& world, CpuDevice& device) {
                // Only rank 0 and 1 take part; rank 2 is alive but elsewhere until the others have given up.
                const auto pair =
                    world.all().split(0, 2 - world.rank(), "replicas");  // reversed: member = 2 - rank
                if (world.rank() == 2) {
                    std::this_thread::sleep_for(std::chrono::milliseconds(2000));
                    return;
                }
                function(*pair, device);
            },
            options);
    };
    SECTION("tensors") {
        const auto results = run([](Communicator& pair, CpuDevice& device) {
            const auto stream = device.make_stream("gradients", StreamRole::Communication);
            const Buffer buffer = device.allocate(400'000, Memory::Device, "x");
            pair.all_reduce(buffer.view(Shape{100'000}, DType::F32), Reduce::Sum, *stream);
            stream->synchronize();
        });
        // The one whose deadline passed first; the other one may have been told by it ("rank 1 failed: ...").
        const bool first = results[0].text.rfind("communicator 'replicas'", 0) == 0;
        const Outcome& outcome = results[first ? 0 : 1];
        CHECK(outcome.code == Exit::Peer);
        CHECK_THAT(outcome.text, Catch::Contains("communicator 'replicas': all_reduce of 390.62 KiB") &&
                                     Catch::Contains("nothing came from rank 2"));
        CHECK_THAT(outcome.text, !Catch::Contains("rank 0") && !Catch::Contains("rank 1"));
    }
    SECTION("a barrier") {
        const auto results = run([](Communicator& pair, CpuDevice& /*device*/) { pair.barrier(); });
        const bool first = results[0].text.rfind("communicator", 0) == 0;
        CHECK_THAT(results[first ? 0 : 1].text,
                   Catch::Contains("'replicas': barrier") && Catch::Contains("rank 2"));
    }
    SECTION("a send that nobody takes") {
        const auto results = run([](Communicator& pair, CpuDevice& device) {
            if (pair.rank() != 2) return;
            const auto stream = device.make_stream("stages", StreamRole::Communication);
            const Buffer buffer = device.allocate(4000, Memory::Device, "x");
            pair.send(buffer.view(Shape{1000}, DType::F32), 0, *stream);
            stream->synchronize();
        });
        CHECK_THAT(results[0].text,
                   Catch::Contains("send of") && Catch::Contains("nothing was taken by rank 2"));
    }
}

TEST_CASE("ranks that are out of step are told so", "[threads]") {
    const auto results =
        outcomes(2,
                 [](World& world, CpuDevice& device) {
                     const auto stream = device.make_stream("x", StreamRole::Communication);
                     const Buffer buffer = device.allocate(4000, Memory::Device, "x");
                     world.all().all_reduce(buffer.view(Shape{world.rank() == 0 ? 10 : 11}, DType::F32),
                                            Reduce::Sum, *stream);
                     stream->synchronize();
                 },
                 {});
    CHECK_THAT(results[0].text + results[1].text, Catch::Contains("ranks are out of step"));
}

TEST_CASE("abort from another thread ends a blocked collective everywhere", "[threads]") {
    const auto start = std::chrono::steady_clock::now();
    const auto results = outcomes(2,
                                  [](World& world, CpuDevice& device) {
                                      const auto stream = device.make_stream("x", StreamRole::Communication);
                                      const Buffer buffer = device.allocate(4000, Memory::Device, "x");
                                      std::thread stopper;
                                      if (world.rank() == 0) {
                                          stopper = std::thread([&] {
                                              std::this_thread::sleep_for(std::chrono::milliseconds(30));
                                              world.all().abort("the watchdog saw no step for 10 minutes");
                                          });
                                      }
                                      const int peer = 1 - world.rank();
                                      world.all().receive(buffer.view(Shape{1000}, DType::F32), peer,
                                                          *stream);  // nobody sends
                                      try {
                                          stream->synchronize();
                                      } catch (...) {
                                          if (stopper.joinable()) stopper.join();
                                          throw;
                                      }
                                  },
                                  {});
    CHECK(seconds_since(start) < 5.0);
    for (const Outcome& outcome : results) {
        CHECK(outcome.code == Exit::Peer);
        CHECK_THAT(outcome.text, Catch::Contains("the watchdog saw no step"));
    }
}
