// Channels beside the control channel: for a thread that may wait for long, while training goes on.
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "support/run_ranks.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

// Rank 1 answers in the background only when the training is over.
std::vector<std::string> gather_beside_training(World& world, CpuDevice& device) {
    const std::unique_ptr<HostChannel> channel = world.make_background_channel();
    std::promise<void> trained;
    auto background = std::async(std::launch::async, [&] {
        if (world.rank() == 1) trained.get_future().wait();
        return channel->gather("rank " + std::to_string(world.rank()));
    });
    const auto stream = device.make_stream("gradients", StreamRole::Communication);
    const Buffer buffer = device.allocate(4000, Memory::Device, "x");
    for (int step = 0; step < 20; ++step) {
        world.all().all_reduce(buffer.view(Shape{1000}, DType::F32), Reduce::Sum, *stream);
        stream->synchronize();
        world.control().barrier();
    }
    trained.set_value();
    std::vector<std::string> gathered = background.get();
    world.control().barrier();
    return gathered;
}

}  // namespace

TEST_CASE("what waits in the background holds nothing up", "[threads]") {
    for (const bool late : {false, true}) {
        RankOptions options;
        if (late) options.late_seed = 3;
        const auto answers = collect_ranks<std::vector<std::string>>(3, gather_beside_training, options);
        CHECK(answers[0] == std::vector<std::string>{"rank 0", "rank 1", "rank 2"});
        CHECK(answers[1].empty());
    }
}

TEST_CASE("channels of one world do not hear each other", "[threads]") {
    const auto answers = collect_ranks<std::string>(2, [](World& world, CpuDevice& /*device*/) {
        const std::unique_ptr<HostChannel> first = world.make_background_channel();
        const std::unique_ptr<HostChannel> second = world.make_background_channel();
        // The two ranks use them in different orders.
        auto other = std::async(std::launch::async, [&] { return second->broadcast("second"); });
        std::string heard;
        if (world.rank() == 0) heard = other.get();
        const std::string from_first = first->broadcast("first");
        if (world.rank() == 1) heard = other.get();
        return from_first + " " + heard;
    });
    CHECK(answers == std::vector<std::string>{"first second", "first second"});
}

TEST_CASE("strings are passed round a ring, and from one rank to another", "[threads]") {
    for (const bool late : {false, true}) {
        RankOptions options;
        if (late) options.late_seed = 5;
        const auto heard = collect_ranks<std::string>(
            3,
            [](World& world, CpuDevice& /*device*/) {
                HostChannel& link = world.control();
                const int rank = world.rank();
                const std::string mine(static_cast<std::size_t>(100000 * rank),
                                       static_cast<char>('a' + rank));
                const std::string ring = link.pass((rank + 1) % 3, mine, (rank + 2) % 3);
                const std::string one = link.pass(rank == 2 ? 0 : RankLink::nobody, "for rank 0",
                                                  rank == 0 ? 2 : RankLink::nobody);
                const std::string own = link.pass(rank, "own", rank);
                return std::to_string(ring.size()) + ring.substr(0, 1) + one + own;
            },
            options);
        CHECK(heard == std::vector<std::string>{"200000cfor rank 0own", "0own", "100000bown"});
    }
}

TEST_CASE("a channel that is given up ends whoever waits in it", "[threads]") {
    const auto codes = collect_ranks<Exit>(2, [](World& world, CpuDevice& /*device*/) {
        const std::unique_ptr<HostChannel> channel = world.make_background_channel();
        Exit code = Exit::Ok;
        if (world.rank() == 0) {  // rank 1 never comes
            auto waiting = std::async(std::launch::async, [&] {
                try {
                    channel->barrier();
                    return Exit::Ok;
                } catch (const Error& error) {
                    return error.code();
                }
            });
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            channel->give_up();
            code = waiting.get();
        }
        world.control().barrier();  // the world lives on
        return code;
    });
    CHECK(codes[0] == Exit::Peer);
    CHECK(codes[1] == Exit::Ok);
}
