#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <map>

#include "trainctl/base/text.h"
#include "trainctl/comm/host_name.h"
#include "trainctl/comm/world.h"

namespace trainctl {

std::string host_name() {
    std::array<char, 256> name{};
    if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
    return name.data();
}

bool launched_by_mpi() {
    // OpenMPI (also under srun), PMIx, and MPICH's and Slurm's PMI. Slurm sets SLURM_PROCID also in a batch
    // script, where there is nothing to join; a step with PMI support sets the others.
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"}) {
        if (std::getenv(name) != nullptr) return true;  // NOLINT(concurrency-mt-unsafe): nobody writes it
    }
    return false;
}

MeshPlace mesh_place(int rank, MeshShape shape) {
    MeshPlace place;
    place.tensor = rank % shape.tensor;
    place.data = rank / shape.tensor % shape.data;
    place.pipeline = rank / shape.tensor / shape.data;
    return place;
}

int mesh_rank(MeshPlace place, MeshShape shape) {
    return (place.pipeline * shape.data + place.data) * shape.tensor + place.tensor;
}

namespace {

// Index of this rank's host among the hosts of the world, in order of their first rank.
int host_index(World& world) {
    std::string list;
    for (const std::string& host : world.control().gather(world.host())) list += host + '\n';
    list = world.control().broadcast(list);
    std::map<std::string, int> indices;
    int mine = 0;
    std::size_t begin = 0;
    for (int rank = 0; rank < world.size(); ++rank) {
        const std::size_t end = list.find('\n', begin);
        const auto [entry, added] =
            indices.emplace(list.substr(begin, end - begin), static_cast<int>(indices.size()));
        if (rank == world.rank()) mine = entry->second;
        begin = end + 1;
    }
    return mine;
}

}  // namespace

Mesh make_mesh(World& world, MeshShape shape) {
    const int product = shape.data * shape.tensor * shape.pipeline;
    if (shape.data < 1 || shape.tensor < 1 || shape.pipeline < 1 || product != world.size()) {
        fail(Exit::Usage,
             fmt::format("the parallel sizes do not fit the job of {}: data {} x tensor "
                         "{} x pipeline {} = {}; change [parallel] or the number of ranks",
                         counted(world.size(), "rank"), shape.data, shape.tensor, shape.pipeline, product));
    }
    Mesh mesh;
    mesh.shape = shape;
    mesh.place = mesh_place(world.rank(), shape);
    const MeshPlace& place = mesh.place;
    Communicator& all = world.all();
    // A colour is the rank of the axis's first member.
    const auto origin = [&](MeshPlace member, int MeshPlace::*axis) {
        member.*axis = 0;
        return mesh_rank(member, shape);
    };
    mesh.data = all.split(origin(place, &MeshPlace::data), place.data, "data");
    mesh.tensor = all.split(origin(place, &MeshPlace::tensor), place.tensor, "tensor");
    mesh.pipeline = all.split(origin(place, &MeshPlace::pipeline), place.pipeline, "pipeline");
    const bool at_an_end = place.pipeline == 0 || place.pipeline == shape.pipeline - 1;
    mesh.embedding = all.split(shape.pipeline > 1 && at_an_end ? origin(place, &MeshPlace::pipeline) : -1,
                               place.pipeline, "embedding");
    mesh.node = all.split(host_index(world), world.rank(), "node");
    return mesh;
}

}  // namespace trainctl
