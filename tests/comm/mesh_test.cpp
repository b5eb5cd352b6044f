#include "support/catch.h"
#include "support/run_ranks.h"

using namespace trainctl;
using namespace trainctl::test;

TEST_CASE("places and ranks are inverse, tensor ranks are neighbours, stages are far apart") {
    const MeshShape shape{3, 2, 4};
    for (int rank = 0; rank < 24; ++rank) {
        const MeshPlace place = mesh_place(rank, shape);
        CHECK(mesh_rank(place, shape) == rank);
        CHECK(place.tensor < shape.tensor);
        CHECK(place.data < shape.data);
        CHECK(place.pipeline < shape.pipeline);
    }
    CHECK(mesh_place(1, shape).tensor == 1);
    CHECK(mesh_place(2, shape).data == 1);
    CHECK(mesh_place(6, shape).pipeline == 1);
}

TEST_CASE("the communicators of a mesh join the ranks that differ in one coordinate", "[threads]") {
    const MeshShape shape{2, 2, 3};
    const auto wrong = collect_ranks<std::string>(12, [&](World& world, CpuDevice& device) -> std::string {
        const Mesh mesh = make_mesh(world, shape);
        const auto stream = device.make_stream("x", StreamRole::Communication);
        const Buffer buffer = device.allocate(64, Memory::Device, "x");
        // Members in their order, as world ranks.
        const auto members = [&](Communicator& comm) {
            const TensorView all = buffer.view(Shape{comm.size()}, DType::I32);
            all.as<std::int32_t>()[comm.rank()] = world.rank();
            comm.all_gather(all, all.flat(comm.rank(), 1), *stream);
            stream->synchronize();
            return std::vector<int>(all.as<std::int32_t>(), all.as<std::int32_t>() + comm.size());
        };
        const auto expected = [&](int MeshPlace::*axis, int size) {
            std::vector<int> ranks;
            for (int i = 0; i < size; ++i) {
                MeshPlace place = mesh.place;
                place.*axis = i;
                ranks.push_back(mesh_rank(place, shape));
            }
            return ranks;
        };
        if (members(*mesh.data) != expected(&MeshPlace::data, 2)) return "data";
        if (members(*mesh.tensor) != expected(&MeshPlace::tensor, 2)) return "tensor";
        if (members(*mesh.pipeline) != expected(&MeshPlace::pipeline, 3)) return "pipeline";
        if (mesh.node->size() != 12 || mesh.node->rank() != world.rank()) return "node";
        const bool at_an_end = mesh.place.pipeline != 1;
        if ((mesh.embedding != nullptr) != at_an_end) return "embedding on a middle stage";
        if (at_an_end) {
            auto ends = expected(&MeshPlace::pipeline, 3);
            ends.erase(ends.begin() + 1);
            if (members(*mesh.embedding) != ends) return "embedding";
        }
        return "";
    });
    for (const std::string& text : wrong) CHECK(text == "");
}

TEST_CASE("sizes that do not multiply to the world are refused with the numbers", "[threads]") {
    CHECK_THROWS_WITH(run_ranks(3,
                                [](World& world, CpuDevice& /*device*/) {
                                    make_mesh(world, {2, 2, 1});
                                }),
                      Catch::Contains("3 ranks") && Catch::Contains("2 x tensor 2 x pipeline 1 = 4"));
}

TEST_CASE("a world of one needs no launcher", "[threads]") {
    const auto device = make_cpu_device({});
    const auto world = make_single_world(*device, {});
    CHECK(world->size() == 1);
    CHECK(world->local_size() == 1);
    CHECK_FALSE(launched_by_mpi());
    const Mesh mesh = make_mesh(*world, {});
    const auto stream = device->make_stream("comm", StreamRole::Communication);
    const Buffer buffer = device->allocate(32, Memory::Device, "x");
    const TensorView a = buffer.view(Shape{2}, DType::F32);
    const TensorView b = buffer.view(Shape{2}, DType::F32, 8);
    a.as<float>()[0] = 3.0F;
    mesh.data->reduce_scatter(b, a, Into::Accumulate, *stream);
    mesh.data->reduce_scatter(b, a, Into::Accumulate, *stream);
    mesh.data->all_gather(a, b, *stream);
    mesh.data->all_reduce(a, Reduce::Sum, *stream);
    stream->synchronize();
    CHECK(a.as<float>()[0] == 6.0F);
}
