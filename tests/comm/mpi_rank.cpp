// One rank of the MPI tests: `mpirun -n N comm_mpi_rank MODE [COUNT]`. Exit code 0, or that of the error.
//   program  COUNT random programs of collectives against the oracle, on the cpu device and on late devices
//   throw    rank 1 fails while the others are in a collective
//   kill     rank 1 kills itself with SIGKILL while the others are in a collective
//   away     rank 1 never comes to a collective that has a short deadline
//   abort    a helper thread of rank 0 aborts a communicator while all ranks wait in it
//   background  a gather in the background that rank 1 joins late, beside collectives
//   finish   prints a lot on every rank and leaves cleanly, the last rank late
//   unwind   rank 1 leaves the world by an exception without telling anybody
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "comm/collective_program.h"
#include "support/late_device.h"

using namespace trainctl;
using namespace trainctl::test;

// OpenMPI's plugins leak and are unloaded before the end, so that no list of suppressions can name them.
extern "C" const char* __asan_default_options() {
    return "detect_leaks=0";
}  // NOLINT(bugprone-reserved-identifier)

namespace {

void reduce_for_ever(World& world, CpuDevice& device) {
    const auto stream = device.make_stream("gradients", StreamRole::Communication);
    const Buffer buffer = device.allocate(4'000'000, Memory::Device, "x");
    for (;;) {
        world.all().all_reduce(buffer.view(Shape{1'000'000}, DType::F32), Reduce::Sum, *stream);
        stream->synchronize();
    }
}

void run_programs(World& world, CpuDevice& device, int count) {
    for (int seed = 0; seed < count; ++seed) {
        const Program program = make_program(static_cast<std::uint64_t>(1000 + seed), world.size(), 60);
        const std::string difference = run_program(world, device, program);
        if (!difference.empty()) fail(Exit::Internal, difference);
    }
    if (world.rank() == 0)
        std::printf("%d programs on %d ranks agree with the oracle\n", count, world.size());
}

void run_mode(const std::string& mode, int count, World& world, CpuDevice& device) {
    const int rank = world.rank();
    if (mode == "program") {
        run_programs(world, device, count);
    } else if (mode == "throw") {
        if (rank == 1) fail(Exit::BadInput, "rank 1: the token file is truncated");
        reduce_for_ever(world, device);
    } else if (mode == "kill") {
        world.control().barrier();
        if (rank == 1) std::raise(SIGKILL);
        reduce_for_ever(world, device);
    } else if (mode == "away") {
        if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(60));
        reduce_for_ever(world, device);
    } else if (mode == "abort") {
        std::thread stopper;
        if (rank == 0) {
            stopper = std::thread([&] {
                std::this_thread::sleep_for(std::chrono::milliseconds(200));
                world.all().abort("the watchdog saw no step");
            });
        }
        const auto stream = device.make_stream("x", StreamRole::Communication);
        const Buffer buffer = device.allocate(4000, Memory::Device, "x");
        world.all().receive(buffer.view(Shape{1000}, DType::F32), (rank + 1) % world.size(), *stream);
        stream->synchronize();
    } else if (mode == "background") {
        const std::unique_ptr<HostChannel> channel = world.make_background_channel();
        std::vector<std::string> answers;
        std::thread waiting([&] {
            if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
            answers = channel->gather(std::to_string(rank));
        });
        run_programs(world, device, count);
        waiting.join();
        for (const std::string& answer : answers) std::printf("answer %s\n", answer.c_str());
    } else if (mode == "finish") {
        if (rank == world.size() - 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
        for (int line = 0; line < 2000; ++line) std::printf("line %d of rank %d\n", line, rank);
    } else if (mode == "unwind") {
        if (rank == 1) throw std::string("not an Error");
        reduce_for_ever(world, device);
    } else {
        fail(Exit::Usage, "unknown mode " + mode);
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) return static_cast<int>(Exit::Usage);
    const std::string mode = argv[1];
    const int count = argc > 2 ? std::atoi(argv[2]) : 1;
    const char* late = std::getenv("LATE_SEED");
    WorldOptions options;
    options.timeout_s = mode == "away" ? 1.0 : 60.0;
    if (mode == "program") options.tuning = small_tuning();
    try {
        const auto device = late != nullptr
                                ? make_late_device({std::strtoull(late, nullptr, 10), 1, CpuIsa::V3})
                                : make_cpu_device({});
        const auto world = make_mpi_world(*device, options);
        try {
            run_mode(mode, count, *world, *device);
        } catch (const Error& error) {
            std::fprintf(stderr, "trainctl: %s\n", error.what());
            world->abort(error);
        }
    } catch (const std::string& text) {
        std::fprintf(stderr, "caught: %s\n", text.c_str());
        return 99;
    }
    return 0;
}
