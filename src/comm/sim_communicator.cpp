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
    SimCommunicator(SimDevice& device, int rank, int size, std::string_view name, MeshTransport transport)
        : device_(device),
          rank_(rank),
          size_(size),
          name_(name),
          transport_(transport),
          // Between GPUs it is the host that adds up.
          staging_(device, name, transport == MeshTransport::Processors ? Memory::Device : Memory::Pinned),
          copies_(device, name_ + ", copies", Memory::Pinned) {
        invariant(size >= 1 && rank >= 0 && rank < size, "sim communicator: rank outside its size");
    }

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return size_; }
    [[nodiscard]] std::string_view name() const override { return name_; }

    void all_reduce(TensorView tensor, Reduce /*reduce*/, Stream& stream) override {
        check_combinable(tensor.dtype, tensor.dtype);
        stage(stream, all_reduce_staging(tensor.elements(), tensor.dtype, size_, tuning_), tensor.bytes());
        const bool small = all_reduce_is_small(tensor.bytes(), size_, tuning_);
        message(stream, small ? static_cast<double>(tensor.bytes()) * (size_ - 1) : 2.0 * half(tensor));
    }
    void reduce_scatter(TensorView shard, TensorView full, Into /*into*/, Stream& stream) override {
        check_combinable(full.dtype, shard.dtype);
        check_parts(full, shard);
        stage(stream, reduce_scatter_staging(shard.elements(), full.dtype, size_, tuning_),
              full.bytes() + shard.bytes());
        message(stream, half(full));
    }
    void all_gather(TensorView full, TensorView shard, Stream& stream) override {
        check_parts(full, shard);
        stage(stream, 0, full.bytes() + shard.bytes());
        message(stream, half(full));
    }
    void broadcast(TensorView tensor, int /*root*/, Stream& stream) override {
        stage(stream, 0, tensor.bytes());
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
        stage(stream, 0, static_cast<std::size_t>(group_bytes_));
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
    // `added` bytes where sums are made; `copied`: of the tensors, which go through host memory or do not.
    void stage(const Stream& stream, std::size_t added, std::size_t copied) {
        if (size_ == 1 || transport_ == MeshTransport::Direct) return;
        staging_.get(stream, added);
        if (transport_ == MeshTransport::ThroughHost) copies_.get(stream, copied);
    }
    void message(Stream& stream, double bytes) {
        if (size_ > 1) device_.message(stream, bytes);
    }
    // Messages of a group travel together.
    void pair(Stream& stream, double bytes) {
        if (group_stream_ == &stream) {
            group_bytes_ += bytes;
        } else {
            stage(stream, 0, static_cast<std::size_t>(bytes));
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
    MeshTransport transport_;
    StagingPool staging_;
    StagingPool copies_;
    const Stream* group_stream_ = nullptr;
    double group_bytes_ = 0.0;
};

}  // namespace

std::unique_ptr<Communicator> make_sim_communicator(SimDevice& device, int rank, int size,
                                                    std::string_view name, MeshTransport transport) {
    return std::make_unique<SimCommunicator>(device, rank, size, name, transport);
}

Mesh make_sim_mesh(SimDevice& device, MeshShape shape, MeshPlace place, MeshTransport transport) {
    const auto axis = [&](int rank, int size, std::string_view name) {
        return make_sim_communicator(device, rank, size, name, transport);
    };
    Mesh mesh;
    mesh.shape = shape;
    mesh.place = place;
    mesh.transport = transport;
    mesh.data = axis(place.data, shape.data, "data");
    mesh.tensor = axis(place.tensor, shape.tensor, "tensor");
    mesh.pipeline = axis(place.pipeline, shape.pipeline, "pipeline");
    if (shape.pipeline > 1 && (place.pipeline == 0 || place.pipeline == shape.pipeline - 1))
        mesh.embedding = axis(place.pipeline == 0 ? 0 : 1, 2, "embedding");
    mesh.node = axis(0, 1, "node");
    return mesh;
}

}  // namespace trainctl
