#include "cuda/staged_communicator.h"

#include <atomic>
#include <functional>
#include <map>
#include <vector>

#include "cuda/stream.h"
#include "cuda/stream_flags.h"
#include "trainctl/device/host_stream.h"

namespace trainctl::cuda {
namespace {

constexpr std::size_t staging_grain = 256;  // bytes: pieces begin at cache lines

// Until the stream's copies are in pinned memory.
class AwaitStream final : public Operation {
  public:
    AwaitStream(std::shared_ptr<StreamFlags> flags, std::uint32_t value)
        : flags_(std::move(flags)), value_(value) {}
    bool advance() override { return flags_->stream_has_stored(value_); }

  private:
    std::shared_ptr<StreamFlags> flags_;
    std::uint32_t value_;
};

// Lets the stream go on. Also when it is dropped because something in front of it failed: the stream must not
// wait for ever, and whoever issues the next message hears of the failure.
class ReleaseStream final : public Operation {
  public:
    ReleaseStream(std::shared_ptr<StreamFlags> flags, std::uint32_t value,
                  std::shared_ptr<std::atomic<bool>> failed)
        : flags_(std::move(flags)), value_(value), failed_(std::move(failed)) {}
    ~ReleaseStream() override {
        if (!done_) failed_->store(true);
        flags_->store_on_host(value_);
    }
    ReleaseStream(const ReleaseStream&) = delete;
    ReleaseStream& operator=(const ReleaseStream&) = delete;
    bool advance() override {
        done_ = true;
        return true;
    }

  private:
    std::shared_ptr<StreamFlags> flags_;
    std::uint32_t value_;
    std::shared_ptr<std::atomic<bool>> failed_;
    bool done_ = false;
};

enum class Way : std::uint8_t { Down, Up, DownAndUp };

struct Piece {
    TensorView device;
    Way way;
};

// What belongs to one cuda stream: messages of one stream follow each other, so they share it.
struct Lane {
    std::unique_ptr<Stream> messages;  // of the host device
    std::shared_ptr<StreamFlags> flags;
    std::shared_ptr<std::atomic<bool>> failed = std::make_shared<std::atomic<bool>>(false);
    std::uint32_t value = 0;
    std::vector<Buffer> staging;  // the last is in use; outgrown ones may still be read
};

class StagedCommunicator final : public Communicator {
  public:
    StagedCommunicator(std::unique_ptr<Communicator> inner, Device& device, CpuDevice& host)
        : inner_(std::move(inner)), device_(device), host_(host) {}

    [[nodiscard]] int rank() const override { return inner_->rank(); }
    [[nodiscard]] int size() const override { return inner_->size(); }
    [[nodiscard]] std::string_view name() const override { return inner_->name(); }

    void all_reduce(TensorView tensor, Reduce reduce, Stream& stream) override {
        if (size() == 1) return;
        run(stream, {{tensor, Way::DownAndUp}},
            [&](const auto& host, Stream& messages) { inner_->all_reduce(host[0], reduce, messages); });
    }

    void reduce_scatter(TensorView shard, TensorView full, Into into, Stream& stream) override {
        if (size() == 1 && into == Into::Overwrite && shard.data == full.data) return;
        run(stream, {{full, Way::Down}, {shard, into == Into::Accumulate ? Way::DownAndUp : Way::Up}},
            [&](const auto& host, Stream& messages) {
                inner_->reduce_scatter(host[1], host[0], into, messages);
            });
    }

    void all_gather(TensorView full, TensorView shard, Stream& stream) override {
        if (size() == 1 && shard.data == full.data) return;
        run(stream, {{full, Way::Up}, {shard, Way::Down}},
            [&](const auto& host, Stream& messages) { inner_->all_gather(host[0], host[1], messages); });
    }

    void broadcast(TensorView tensor, int root, Stream& stream) override {
        if (size() == 1) return;
        run(stream, {{tensor, rank() == root ? Way::Down : Way::Up}},
            [&](const auto& host, Stream& messages) { inner_->broadcast(host[0], root, messages); });
    }

    void send(TensorView tensor, int to, Stream& stream) override {
        pair({tensor, Way::Down}, stream,
             [this, to](TensorView host, Stream& messages) { inner_->send(host, to, messages); });
    }

    void receive(TensorView tensor, int from, Stream& stream) override {
        pair({tensor, Way::Up}, stream,
             [this, from](TensorView host, Stream& messages) { inner_->receive(host, from, messages); });
    }

    void group_begin(Stream& stream) override {
        invariant(group_stream_ == nullptr, "group_begin: a group is open already");
        group_stream_ = &stream;
    }

    void group_end(Stream& stream) override {
        invariant(group_stream_ == &stream, "group_end: no group is open on this stream");
        group_stream_ = nullptr;
        std::vector<Piece> pieces;
        std::vector<PairCall> calls;
        pieces.swap(group_pieces_);
        calls.swap(group_calls_);
        if (pieces.empty()) return;
        run(stream, pieces, [&](const auto& host, Stream& messages) {
            const CommGroup group(*inner_, messages);
            for (std::size_t i = 0; i < calls.size(); ++i) calls[i](host[i], messages);
        });
    }

    void barrier() override { inner_->barrier(); }

    std::unique_ptr<Communicator> split(int color, int key, std::string_view name) override {
        std::unique_ptr<Communicator> part = inner_->split(color, key, name);
        if (!part) return nullptr;
        return std::make_unique<StagedCommunicator>(std::move(part), device_, host_);
    }

    void abort(const std::string& reason) override { inner_->abort(reason); }

  private:
    using PairCall = std::function<void(TensorView, Stream&)>;

    void pair(const Piece& piece, Stream& stream, PairCall call) {
        if (group_stream_ == &stream) {
            group_pieces_.push_back(piece);
            group_calls_.push_back(std::move(call));
            return;
        }
        run(stream, {piece}, [&](const auto& host, Stream& messages) { call(host[0], messages); });
    }

    Lane& lane_of(Stream& stream) {
        Lane& lane = lanes_[&stream];
        if (!lane.messages) {
            lane.messages = host_.make_stream(stream.name(), StreamRole::Communication);
            lane.flags = std::make_shared<StreamFlags>(device_);
        }
        if (lane.failed->load()) lane.messages->synchronize();  // throws what happened
        return lane;
    }

    std::vector<TensorView> stage(Lane& lane, const std::vector<Piece>& pieces) {
        std::size_t bytes = 0;
        std::vector<std::size_t> offsets;
        for (const Piece& piece : pieces) {
            offsets.push_back(bytes);
            bytes += (piece.device.bytes() + staging_grain - 1) / staging_grain * staging_grain;
        }
        if (lane.staging.empty() || lane.staging.back().bytes() < bytes)
            lane.staging.push_back(device_.allocate(bytes, Memory::Pinned, "communication staging"));
        std::vector<TensorView> host;
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            const TensorView& piece = pieces[i].device;
            host.push_back({lane.staging.back().data() + offsets[i], piece.shape, piece.dtype});
        }
        return host;
    }

    // `issue` hands the message over the staged tensors to the inner communicator.
    template <class Issue>
    void run(Stream& stream, const std::vector<Piece>& pieces, const Issue& issue) {
        Lane& lane = lane_of(stream);
        const std::vector<TensorView> host = stage(lane, pieces);
        const std::uint32_t value = ++lane.value;
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            if (pieces[i].way != Way::Up)
                device_.copy(stream, host[i].data, pieces[i].device.data, host[i].bytes());
        }
        lane.flags->store_on_stream(handle(stream), value);
        HostStream& messages = host_stream(*lane.messages);
        messages.submit(std::make_unique<AwaitStream>(lane.flags, value));
        issue(host, messages);
        messages.submit(std::make_unique<ReleaseStream>(lane.flags, value, lane.failed));
        lane.flags->wait_on_stream(handle(stream), value);
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            if (pieces[i].way != Way::Down)
                device_.copy(stream, pieces[i].device.data, host[i].data, host[i].bytes());
        }
    }

    std::unique_ptr<Communicator> inner_;
    Device& device_;
    CpuDevice& host_;
    std::map<const Stream*, Lane> lanes_;
    const Stream* group_stream_ = nullptr;
    std::vector<Piece> group_pieces_;
    std::vector<PairCall> group_calls_;
};

}  // namespace

std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> inner, Device& device,
                                                       CpuDevice& host) {
    return std::make_unique<StagedCommunicator>(std::move(inner), device, host);
}

}  // namespace trainctl::cuda
