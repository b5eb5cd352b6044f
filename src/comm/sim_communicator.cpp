#include <fmt/core.h>

#include "comm/combine.h"
#include "comm/staging.h"
#include "trainctl/comm/world.h"
#include "trainctl/device/sim_device.h"

namespace trainctl {
namespace {

// Bytes counted per rank are those it sends, which for these collectives are also those it receives: (n-1)/n
// of the whole tensor for each half of a reduction.
class SimCommunicator final : public Communicator {
  public:
    SimCommunicator(SimDevice& device, int rank, int size, std::string_view name)
        : device_(device), rank_(rank), size_(size), name_(name), staging_(device, name) {
        invariant(size >= 1 && rank >= 0 && rank < size, "sim communicator: rank outside its size");
    }

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return size_; }
    [[nodiscard]] std::string_view name() const override { return name_; }

    void all_reduce(TensorView tensor, Reduce /*reduce*/, Stream& stream) override {
        check_combinable(tensor.dtype, tensor.dtype);
        staging_.get(stream, all_reduce_staging(tensor.elements(), tensor.dtype, size_, tuning_));
        const bool small = all_reduce_is_small(tensor.bytes(), size_, tuning_);
        message(stream, small ? static_cast<double>(tensor.bytes()) * (size_ - 1) : 2.0 * half(tensor));
    }
    void reduce_scatter(TensorView shard, TensorView full, Into /*into*/, Stream& stream) override {
        check_combinable(full.dtype, shard.dtype);
        check_parts(full, shard);
        staging_.get(stream, reduce_scatter_staging(shard.elements(), full.dtype, size_, tuning_));
        message(stream, half(full));
    }
    void all_gather(TensorView full, TensorView shard, Stream& stream) override {
        check_parts(full, shard);
        message(stream, half(full));
    }
    void broadcast(TensorView tensor, int /*root*/, Stream& stream) override {
        message(stream, static_cast<double>(tensor.bytes()));
    }
    void send(TensorView tensor, int /*to*/, Stream& stream) override {
        pair(stream, static_cast<double>(tensor.bytes()));
    }
    void receive(TensorView tensor, int /*from*/, Stream& stream) override {
        pair(stream, static_cast<double>(tensor.bytes()));
    }
    void group_begin(Stream& stream) override {
        invariant(group_stream_ == nullptr, "group_begin: a group is open already");
        group_stream_ = &stream;
        group_bytes_ = 0.0;
    }
    void group_end(Stream& stream) override {
        invariant(group_stream_ == &stream, "group_end: no group is open on this stream");
        group_stream_ = nullptr;
        if (group_bytes_ > 0.0) message(stream, group_bytes_);
    }
    void barrier() override {}  // no peers: everybody has arrived

    std::unique_ptr<Communicator> split(int /*color*/, int /*key*/, std::string_view name) override {
        fail(Exit::Internal,
             fmt::format("sim communicator '{}' has no peers that could choose a colour for '{}'; "
                         "make_sim_mesh() makes the communicators of a layout",
                         name_, name));
    }
    void abort(const std::string& reason) override { fail(Exit::Peer, reason); }

  private:
    void message(Stream& stream, double bytes) {
        if (size_ > 1) device_.message(stream, bytes);
    }
    // Messages of a group travel together.
    void pair(Stream& stream, double bytes) {
        if (group_stream_ == &stream) {
            group_bytes_ += bytes;
        } else {
            message(stream, bytes);
        }
    }
    [[nodiscard]] double half(const TensorView& full) const {
        return static_cast<double>(full.bytes()) * (size_ - 1) / size_;
    }
    void check_parts(const TensorView& full, const TensorView& shard) const {
        invariant(full.elements() == shard.elements() * size_, "collective: full is not size() times shard");
    }

    SimDevice& device_;
    int rank_;
    int size_;
    std::string name_;
    CommTuning tuning_;
    StagingPool staging_;
    const Stream* group_stream_ = nullptr;
    double group_bytes_ = 0.0;
};

}  // namespace

std::unique_ptr<Communicator> make_sim_communicator(SimDevice& device, int rank, int size,
                                                    std::string_view name) {
    return std::make_unique<SimCommunicator>(device, rank, size, name);
}

Mesh make_sim_mesh(SimDevice& device, MeshShape shape, MeshPlace place) {
    Mesh mesh;
    mesh.shape = shape;
    mesh.place = place;
    mesh.data = make_sim_communicator(device, place.data, shape.data, "data");
    mesh.tensor = make_sim_communicator(device, place.tensor, shape.tensor, "tensor");
    mesh.pipeline = make_sim_communicator(device, place.pipeline, shape.pipeline, "pipeline");
    if (shape.pipeline > 1 && (place.pipeline == 0 || place.pipeline == shape.pipeline - 1)) {
        mesh.embedding = make_sim_communicator(device, place.pipeline == 0 ? 0 : 1, 2, "embedding");
    }
    mesh.node = make_sim_communicator(device, 0, 1, "node");
    return mesh;
}

}  // namespace trainctl
