// How the ranks of a job come together, and the mesh of communicators they train on.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trainctl/comm/communicator.h"
#include "trainctl/comm/host_channel.h"
#include "trainctl/device/cpu_device.h"

namespace trainctl {

// One rank's membership in a world. A world of one rank is a world like any other.
class World {
  public:
    virtual ~World() = default;
    virtual Communicator& all() = 0;
    virtual HostChannel& control() = 0;
    // Collective, from the rank's compute thread: a channel beside control(), for one thread of each rank at
    // a time, whichever that is. Its messages never wait behind others, and nobody hurries for them; its
    // deadline is an hour at least, since such work waits for disks (a lost peer shows elsewhere). Must not
    // outlive the world.
    virtual std::unique_ptr<HostChannel> make_background_channel() = 0;
    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;
    // Ranks of the same host: index and number.
    [[nodiscard]] virtual int local_rank() const = 0;
    [[nodiscard]] virtual int local_size() const = 0;
    [[nodiscard]] virtual std::string host() const = 0;
    // Ends all ranks within seconds: prints nothing itself. Any thread; does not return under MPI.
    virtual void abort(const Error& cause) = 0;
};

// Sizes that bound staging and message counts; equal on all ranks. The results do not depend on them.
struct CommTuning {
    std::size_t chunk_bytes = std::size_t{1} << 20U;     // grain of the reduction pipeline, per peer
    std::size_t staging_bytes = std::size_t{32} << 20U;  // most that one communicator stages per stream
    std::size_t small_bytes = std::size_t{16} << 10U;    // all_reduce up to here: everybody adds everything
    std::size_t message_bytes = std::size_t{1} << 30U;   // longest single message (MPI counts are int)
};

struct WorldOptions {
    double timeout_s = 600.0;  // longest time in which one collective or control message makes no progress
    CommTuning tuning;
};

// Whether a launcher (mpirun, srun) started this process as one of several ranks: looks at the environment
// only.
bool launched_by_mpi();

// "Open MPI 4.1.4", of the library at hand.
std::string mpi_library_version();

// MPI_Init (once per process), splits by host. Collectives use the device's progress thread, which makes
// every MPI call from then on. Finalises in the destructor, after everything was flushed. The CPU backend's
// staging uses host memory.
std::unique_ptr<World> make_mpi_world(CpuDevice& device, const WorldOptions& options);

// A world of one rank without MPI.
std::unique_ptr<World> make_single_world(CpuDevice& device, const WorldOptions& options);

// Ranks as threads of this process, for tests and for a world of one.
class InProcessHub;
std::shared_ptr<InProcessHub> make_in_process_hub(int size);
std::unique_ptr<World> join_in_process(std::shared_ptr<InProcessHub> hub, int rank, CpuDevice& device,
                                       const WorldOptions& options);

// Sizes of the parallel axes; their product is the world size.
struct MeshShape {
    int data = 1;
    int tensor = 1;
    int pipeline = 1;
};

// Coordinates of a rank: tensor fastest, then data, then pipeline (tensor ranks are neighbours on a node,
// pipeline stages are farthest apart).
struct MeshPlace {
    int data = 0;
    int tensor = 0;
    int pipeline = 0;
};
MeshPlace mesh_place(int rank, MeshShape shape);
int mesh_rank(MeshPlace place, MeshShape shape);

// How the tensors of a mesh travel, which decides what is staged and where.
enum class MeshTransport {
    Processors,  // between host memories, staged there
    Direct,      // between GPUs; nothing is staged
    ThroughHost  // between GPUs through pinned host memory
};

// The communicators of one rank, one per axis (size 1 where the axis is not used).
struct Mesh {
    MeshShape shape;
    MeshPlace place;
    MeshTransport transport = MeshTransport::Processors;
    std::unique_ptr<Communicator> data;       // same tensor and pipeline coordinate
    std::unique_ptr<Communicator> tensor;     // same data and pipeline coordinate
    std::unique_ptr<Communicator> pipeline;   // same data and tensor coordinate
    std::unique_ptr<Communicator> embedding;  // first and last stage; nullptr elsewhere and without pipeline
    std::unique_ptr<Communicator> node;       // same host
};
// Collective over the world; Exit::Usage with the arithmetic if the product differs from the world size.
Mesh make_mesh(World& world, MeshShape shape);

// Communicators without peers on the sim device: nothing moves, everything is counted, and what a real one of
// that transport would stage is allocated; `size` and `rank` are what a real one would answer.
std::unique_ptr<Communicator> make_sim_communicator(class SimDevice& device, int rank, int size,
                                                    std::string_view name,
                                                    MeshTransport transport = MeshTransport::Processors);
Mesh make_sim_mesh(class SimDevice& device, MeshShape shape, MeshPlace place,
                   MeshTransport transport = MeshTransport::Processors);

}  // namespace trainctl
