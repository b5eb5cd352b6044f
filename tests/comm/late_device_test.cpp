// The late device finds every missing wait, and runs right programs right.
#include "support/late_device.h"

#include "support/catch.h"
#include "support/run_ranks.h"
#include "trainctl/device/host_stream.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

enum class Missing { Nothing, CommunicationForCompute, ComputeForCommunication };

// A step in miniature: compute makes a gradient, communication reduces it, compute uses the sum; twice, so
// that the second round could be right by accident of the first.
float one_step(World& world, CpuDevice& device, Missing missing) {
    const auto compute = device.make_stream("compute", StreamRole::Compute);
    const auto comm = device.make_stream("comm", StreamRole::Communication);
    const auto ready = device.make_event();
    const auto reduced = device.make_event();
    const Buffer buffer = device.allocate(8, Memory::Device, "x");
    const TensorView gradient = buffer.view(Shape{1}, DType::F32);
    const TensorView weight = buffer.view(Shape{1}, DType::F32, 4);
    for (int round = 1; round <= 2; ++round) {
        host_stream(*compute).run([gradient, round, rank = world.rank()] {
            *gradient.as<float>() = static_cast<float>(round * (rank + 1));
        });
        compute->record(*ready);
        if (missing != Missing::CommunicationForCompute) comm->wait(*ready);
        world.all().all_reduce(gradient, Reduce::Sum, *comm);
        comm->record(*reduced);
        if (missing != Missing::ComputeForCommunication) compute->wait(*reduced);
        host_stream(*compute).run([gradient, weight] { *weight.as<float>() += *gradient.as<float>(); });
    }
    compute->synchronize();
    return *weight.as<float>();
}

std::vector<float> run(std::uint64_t seed, Missing missing) {
    RankOptions options;
    options.late_seed = seed;
    return collect_ranks<float>(
        3, [&](World& world, CpuDevice& device) { return one_step(world, device, missing); }, options);
}

const std::vector<float> right{18.0F, 18.0F, 18.0F};  // (1 + 2 + 3) + 2 (1 + 2 + 3)

}  // namespace

TEST_CASE("a program with all its waits is right in every order", "[threads]") {
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
        INFO(seed);
        CHECK(run(seed, Missing::Nothing) == right);
    }
}

TEST_CASE("a missing wait is a wrong number every time, in the order meant for it", "[threads]") {
    for (int repetition = 0; repetition < 5; ++repetition) {
        CHECK(run(0, Missing::CommunicationForCompute) != right);
        CHECK(run(0, Missing::ComputeForCommunication) != right);
        CHECK(run(1, Missing::ComputeForCommunication) != right);
    }
}

TEST_CASE("nothing runs before a host wait asks for it") {
    const auto device = make_late_device({});
    const auto compute = device->make_stream("compute", StreamRole::Compute);
    const auto comm = device->make_stream("comm", StreamRole::Communication);
    const auto event = device->make_event();
    std::vector<int> order;
    host_stream(*compute).run([&] { order.push_back(1); });
    compute->record(*event);
    host_stream(*compute).run([&] { order.push_back(2); });
    comm->wait(*event);
    host_stream(*comm).run([&] { order.push_back(3); });
    CHECK(order.empty());
    CHECK_FALSE(event->complete());
    comm->synchronize();
    CHECK(order == std::vector<int>{1, 3});  // 2 was not needed
    compute->synchronize();
    CHECK(order == std::vector<int>{1, 3, 2});
}

TEST_CASE("a host that polls an event comes to an end") {
    const auto device = make_late_device({});
    const auto compute = device->make_stream("compute", StreamRole::Compute);
    const auto event = device->make_event();
    int value = 0;
    for (int i = 0; i < 5; ++i) host_stream(*compute).run([&] { ++value; });
    compute->record(*event);
    int looks = 0;
    while (!event->complete()) REQUIRE(++looks < 100);
    CHECK(value == 5);
}

TEST_CASE("memory freed too early turns into NaN") {
    const auto device = make_late_device({});
    const auto compute = device->make_stream("compute", StreamRole::Compute);
    float read = 0.0F;
    {
        const Buffer buffer = device->allocate(4, Memory::Device, "x");
        const auto* data = reinterpret_cast<const float*>(buffer.data());
        host_stream(*compute).run([data, &read] { read = *data; });
    }
    compute->synchronize();
    CHECK(read != read);
}

TEST_CASE("a failure of late work reaches the host wait") {
    const auto device = make_late_device({});
    const auto compute = device->make_stream("compute", StreamRole::Compute);
    const auto comm = device->make_stream("comm", StreamRole::Communication);
    const auto event = device->make_event();
    host_stream(*comm).run([] { fail(Exit::Peer, "rank 1 is gone"); });
    comm->record(*event);
    compute->wait(*event);
    CHECK_THROWS_WITH(compute->synchronize(), "rank 1 is gone");
}
