#include "trainctl/device/sim_device.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "support/catch.h"

using namespace trainctl;

namespace {
// 1 GFLOP/s, 100 MB/s memory, 10 MB/s link, 1 ms latency.
constexpr SimProfile slow{1e9, 1e8, 1e7, 1e-3};
}  // namespace

TEST_CASE("sim memory has addresses but nothing behind them") {
    const auto device = make_sim_device({});
    const std::size_t huge = std::size_t{1} << 40U;  // a TiB, on any machine
    const Buffer weights = device->allocate(huge, Memory::Device, "weights");
    Buffer staging = device->allocate(100, Memory::Pinned, "staging");
    CHECK(device->memory_use().device_bytes == huge);
    CHECK(device->memory_use().pinned_bytes == 100);
    REQUIRE(device->live().size() == 2);
    CHECK(device->live()[0].what == "weights");

    // The kernel, asked to read there, finds no readable page.
    const int sink = open("/dev/null", O_WRONLY);
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    CHECK(write(ends[1], staging.data(), 1) == -1);
    CHECK(errno == EFAULT);
    close(ends[0]);
    close(ends[1]);
    close(sink);

    staging = {};
    CHECK(device->memory_use().pinned_bytes == 0);
    CHECK(device->memory_use().pinned_peak_bytes == 100);
    CHECK(device->live().size() == 1);
    CHECK(device->memory_use().allocations == 2);
}

TEST_CASE("streams overlap on virtual clocks unless an event orders them") {
    const auto device = make_sim_device(slow);
    const auto compute = device->make_stream("compute", StreamRole::Compute);
    const auto comm = device->make_stream("comm", StreamRole::Communication);
    const auto ready = device->make_event();
    const auto done = device->make_event();

    device->work(*compute, 1e9, 0.0);  // 1 s
    compute->record(*ready);
    device->work(*compute, 2e9, 0.0);  // until 3 s
    comm->wait(*ready);
    device->message(*comm, 5e6);  // 1.0 .. 1.501 s: hidden behind compute
    comm->record(*done);
    CHECK(device->clock_s(*comm) == Approx(1.501));
    CHECK(device->clock_s(*compute) == Approx(3.0));
    compute->wait(*done);
    CHECK(device->clock_s(*compute) == Approx(3.0));

    device->message(*comm, 3e7);  // 3 s more: exposed
    comm->record(*done);
    compute->wait(*done);
    CHECK(device->clock_s(*compute) == Approx(1.501 + 3.001));
    CHECK(device->counters().messages == 2);
    CHECK(device->counters().message_bytes == 3.5e7);
    CHECK(device->counters().flops == 3e9);
}

TEST_CASE("a wait refers to the newest record made before it") {
    const auto device = make_sim_device(slow);
    const auto a = device->make_stream("a", StreamRole::Compute);
    const auto b = device->make_stream("b", StreamRole::Communication);
    const auto event = device->make_event();
    b->wait(*event);  // never recorded: complete
    CHECK(device->clock_s(*b) == 0.0);
    CHECK(event->complete());
    device->work(*a, 1e9, 0.0);
    a->record(*event);
    b->wait(*event);
    device->work(*a, 1e9, 0.0);
    a->record(*event);
    CHECK(device->clock_s(*b) == Approx(1.0));
    CHECK_FALSE(event->complete());
    event->synchronize();
    CHECK(event->complete());
    // The host waited until 2 s: what it issues now cannot have started before.
    device->work(*b, 1e9, 0.0);
    CHECK(device->clock_s(*b) == Approx(3.0));
}

TEST_CASE("an op takes the longer of its arithmetic and its memory traffic; copies count both directions") {
    const auto device = make_sim_device(slow);
    const auto stream = device->make_stream("compute", StreamRole::Compute);
    device->work(*stream, 1e9, 3e8);
    CHECK(device->clock_s(*stream) == Approx(3.0));
    const Buffer buffer = device->allocate(1000, Memory::Device, "x");
    device->copy(*stream, buffer.data(), buffer.data() + 500, 500);
    CHECK(device->counters().bytes_moved == 3e8 + 1000);
    CHECK(device->counters().ops == 2);
}
