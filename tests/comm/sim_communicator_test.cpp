#include "support/catch.h"
#include "support/run_ranks.h"
#include "trainctl/device/sim_device.h"

using namespace trainctl;
using namespace trainctl::test;

TEST_CASE("every collective is counted with the bytes that a rank sends") {
    const auto device = make_sim_device({});
    const auto comm = make_sim_communicator(*device, 1, 4, "data");
    const auto stream = device->make_stream("comm", StreamRole::Communication);
    const Buffer buffer = device->allocate(std::size_t{1} << 30U, Memory::Device, "gradients");
    const TensorView full = buffer.view(Shape{1 << 28}, DType::F32);
    const TensorView shard = full.flat(1 << 26, 1 << 26);
    const double bytes = static_cast<double>(full.bytes());
    double sent = 0.0;
    const auto grew_by = [&](double amount) {
        sent += amount;
        return device->counters().message_bytes == sent;
    };
    comm->reduce_scatter(shard, full, Into::Overwrite, *stream);
    CHECK(grew_by(0.75 * bytes));
    comm->all_gather(full, shard, *stream);
    CHECK(grew_by(0.75 * bytes));
    comm->all_reduce(full, Reduce::Sum, *stream);
    CHECK(grew_by(1.5 * bytes));
    comm->broadcast(full, 0, *stream);
    CHECK(grew_by(bytes));
    {
        const CommGroup group(*comm, *stream);
        comm->send(shard, 2, *stream);
        comm->receive(shard, 0, *stream);
    }
    CHECK(grew_by(0.5 * bytes));
    CHECK(device->counters().messages == 5);

    const auto alone = make_sim_communicator(*device, 0, 1, "tensor");
    alone->all_reduce(full, Reduce::Sum, *stream);
    CHECK(device->counters().messages == 5);
}

TEST_CASE("the simulated communicator stages as much as the real one", "[threads]") {
    const auto program = [](Communicator& comm, Device& device) {
        const auto stream = device.make_stream("comm", StreamRole::Communication);
        const Buffer buffer = device.allocate(3 * 400'000 * 4, Memory::Device, "x");
        const TensorView full = buffer.view(Shape{3 * 400'000}, DType::F32);
        comm.all_reduce(full.flat(0, 100), Reduce::Sum, *stream);
        comm.reduce_scatter(full.flat(comm.rank() * 400'000, 400'000), full, Into::Overwrite, *stream);
        comm.all_reduce(full.flat(0, 9000), Reduce::Sum, *stream);
        stream->synchronize();
        return device.memory_use().device_peak_bytes;
    };
    const auto real = collect_ranks<std::uint64_t>(
        3, [&](World& world, CpuDevice& device) { return program(world.all(), device); });
    const auto sim = make_sim_device({});
    const auto comm = make_sim_communicator(*sim, 0, 3, "world");
    const std::uint64_t planned = program(*comm, *sim);
    // Staging that was outgrown goes at once in the simulation, and when its operation has ended in reality.
    for (const std::uint64_t bytes : real) {
        CHECK(bytes >= planned);
        CHECK(bytes <= planned + 8192);
    }
}

TEST_CASE("bucketed reductions hide behind backward: the step grows by at most one bucket") {
    // 10 layers of 20 ms backward, a bucket after each, 5 ms per reduction, and an update that needs all of
    // them.
    const auto step_s = [](double bucket_s, bool overlap) {
        SimProfile profile;
        profile.flops_per_s = 1e9;
        profile.message_latency_s = bucket_s;
        const auto device = make_sim_device(profile);
        const Mesh mesh = make_sim_mesh(*device, {4, 1, 1}, {});
        const auto compute = device->make_stream("compute", StreamRole::Compute);
        const auto comm = device->make_stream("comm", StreamRole::Communication);
        const Buffer buffer = device->allocate(4096, Memory::Device, "gradients");
        const TensorView full = buffer.view(Shape{1024}, DType::F32);
        const auto event = device->make_event();
        for (int layer = 0; layer < 10; ++layer) {
            device->work(*compute, 20e6, 0.0);
            compute->record(*event);
            comm->wait(*event);
            mesh.data->reduce_scatter(full.flat(0, 256), full, Into::Overwrite, *comm);
            if (!overlap) {
                comm->record(*event);
                compute->wait(*event);
            }
        }
        comm->record(*event);
        compute->wait(*event);
        device->work(*compute, 1e6, 0.0);
        return device->clock_s(*compute);
    };
    CHECK(step_s(0.0, true) == Approx(0.201));
    CHECK(step_s(0.005, true) == Approx(0.201 + 0.005));
    CHECK(step_s(0.005, false) == Approx(0.201 + 10 * 0.005));
    CHECK(step_s(0.030, true) == Approx(0.020 + 10 * 0.030 + 0.001));  // the link is the bottleneck
}

TEST_CASE("a simulated mesh answers like the real one") {
    const auto device = make_sim_device({});
    const MeshShape shape{4, 2, 3};
    const Mesh mesh = make_sim_mesh(*device, shape, mesh_place(23, shape));
    CHECK(mesh.data->size() == 4);
    CHECK(mesh.data->rank() == 3);
    CHECK(mesh.tensor->rank() == 1);
    CHECK(mesh.pipeline->rank() == 2);
    REQUIRE(mesh.embedding != nullptr);
    CHECK(mesh.embedding->rank() == 1);
    CHECK(make_sim_mesh(*device, shape, {0, 0, 1}).embedding == nullptr);
}
