#include "comm/host_communicator.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "comm/collectives.h"
#include "comm/combine.h"
#include "comm/staging.h"
#include "trainctl/comm/host_name.h"

namespace trainctl {
namespace {

class HostCommunicator final : public Communicator {
  public:
    HostCommunicator(std::shared_ptr<WorldLine> line, std::shared_ptr<CommCore> core)
        : line_(std::move(line)),
          core_(std::move(core)),
          rank_(core_->transport->rank()),
          size_(core_->transport->size()),
          staging_(line_->control.device, core_->name),
          sends_(static_cast<std::size_t>(size_), 0),
          receives_(static_cast<std::size_t>(size_), 0) {}

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return size_; }
    [[nodiscard]] std::string_view name() const override { return core_->name; }

    void all_reduce(TensorView tensor, Reduce reduce, Stream& stream) override {
        check_combinable(tensor.dtype, tensor.dtype);
        const CollectiveContext context =
            begin(stream, all_reduce_staging(tensor.elements(), tensor.dtype, size_, core_->options.tuning));
        if (size_ > 1 && tensor.elements() > 0) submit(stream, make_all_reduce(context, tensor, reduce));
    }

    void reduce_scatter(TensorView shard, TensorView full, Into into, Stream& stream) override {
        check_combinable(full.dtype, shard.dtype);
        check_parts("reduce_scatter", full, shard);
        const CollectiveContext context =
            begin(stream, reduce_scatter_staging(shard.elements(), full.dtype, size_, core_->options.tuning));
        const bool is_there = size_ == 1 && into == Into::Overwrite && shard.data == full.data;
        if (shard.elements() > 0 && !is_there)
            submit(stream, make_reduce_scatter(context, shard, full, into));
    }

    void all_gather(TensorView full, TensorView shard, Stream& stream) override {
        check_parts("all_gather", full, shard);
        if (full.dtype != shard.dtype) fail(Exit::Internal, "all_gather: dtypes of shard and full differ");
        const CollectiveContext context = begin(stream, 0);
        const bool is_there = size_ == 1 && shard.data == full.data;
        if (shard.elements() > 0 && !is_there) submit(stream, make_all_gather(context, full, shard));
    }

    void broadcast(TensorView tensor, int root, Stream& stream) override {
        check_peer("broadcast", root);
        const CollectiveContext context = begin(stream, 0);
        if (size_ > 1 && tensor.elements() > 0) submit(stream, make_broadcast(context, tensor, root));
    }

    void send(TensorView tensor, int to, Stream& stream) override {
        check_peer("send", to);
        pair({PairMessage::Kind::Send, to, sends_[static_cast<std::size_t>(to)]++, tensor}, stream);
    }

    void receive(TensorView tensor, int from, Stream& stream) override {
        check_peer("receive", from);
        pair({PairMessage::Kind::Receive, from, receives_[static_cast<std::size_t>(from)]++, tensor}, stream);
    }

    void group_begin(Stream& stream) override {
        invariant(group_stream_ == nullptr, "group_begin: a group is open already");
        group_stream_ = &stream;
    }

    void group_end(Stream& stream) override {
        invariant(group_stream_ == &stream, "group_end: no group is open on this stream");
        group_stream_ = nullptr;
        std::vector<PairMessage> messages;
        messages.swap(group_);
        if (!messages.empty()) submit(stream, make_pair_messages(core_, std::move(messages)));
    }

    void barrier() override {
        line_->control.exchange(core_, "barrier", sequence_++, {ExchangePattern::All}, "");
    }

    std::unique_ptr<Communicator> split(int color, int key, std::string_view name) override {
        const SplitChoice mine{color, key};
        std::string bytes(sizeof mine, '\0');
        std::memcpy(bytes.data(), &mine, sizeof mine);
        const std::vector<std::string> all =
            line_->control.exchange(core_, "split", sequence_++, {ExchangePattern::All}, bytes);
        std::vector<SplitChoice> choices(all.size());
        for (std::size_t i = 0; i < all.size(); ++i) {
            invariant(all[i].size() == sizeof mine,
                      "split: a rank sent something else; ranks are out of step");
            std::memcpy(&choices[i], all[i].data(), sizeof mine);
        }
        auto child = std::make_shared<CommCore>();
        child->name = name;
        child->hosts = core_->hosts;
        child->options = core_->options;
        if (color >= 0) {
            for (const int member : split_members(choices, color)) {
                child->world_ranks.push_back(core_->world_ranks[static_cast<std::size_t>(member)]);
            }
        }
        // Also with a negative colour: MPI wants everybody to take part. On the progress thread, like all
        // messages.
        line_->control.run(std::make_unique<Split>(core_, child, std::move(choices), splits_++));
        if (color < 0) return nullptr;
        return std::make_unique<HostCommunicator>(line_, std::move(child));
    }

    void abort(const std::string& reason) override {
        line_->abort(fmt::format("communicator '{}' was aborted by {}: {}", core_->name,
                                 core_->describe(rank_), reason));
    }

  private:
    class Split final : public Operation {
      public:
        Split(std::shared_ptr<CommCore> parent, std::shared_ptr<CommCore> child,
              std::vector<SplitChoice> choices, int serial)
            : parent_(std::move(parent)),
              child_(std::move(child)),
              choices_(std::move(choices)),
              serial_(serial) {}
        bool advance() override {
            child_->transport = parent_->transport->split(choices_, serial_);
            return true;
        }

      private:
        std::shared_ptr<CommCore> parent_;
        std::shared_ptr<CommCore> child_;
        std::vector<SplitChoice> choices_;
        int serial_;
    };

    // Takes the next sequence number, also when nothing needs to be sent: all ranks count alike.
    CollectiveContext begin(const Stream& stream, std::size_t staging_bytes) {
        return {core_, sequence_++, staging_.get(stream, staging_bytes)};
    }

    static void submit(Stream& stream, std::unique_ptr<Operation> operation) {
        host_stream(stream).submit(std::move(operation));
    }

    void pair(const PairMessage& message, Stream& stream) {
        if (group_stream_ == &stream) {
            group_.push_back(message);
            return;
        }
        submit(stream, make_pair_messages(core_, {message}));
    }

    void check_parts(const char* what, const TensorView& full, const TensorView& shard) const {
        if (full.elements() == shard.elements() * size_) return;
        fail(Exit::Internal, fmt::format("{} over {} ranks of '{}': {} elements are not {} times {}", what,
                                         size_, core_->name, full.elements(), size_, shard.elements()));
    }

    void check_peer(const char* what, int peer) const {
        if (peer >= 0 && peer < size_) return;
        fail(Exit::Internal, fmt::format("{}: rank {} is not in communicator '{}' of {} ranks", what, peer,
                                         core_->name, size_));
    }

    std::shared_ptr<WorldLine> line_;
    std::shared_ptr<CommCore> core_;
    int rank_;
    int size_;
    StagingPool staging_;
    unsigned sequence_ = 0;  // of collectives
    int splits_ = 0;
    std::vector<unsigned> sends_;  // by peer
    std::vector<unsigned> receives_;
    const Stream* group_stream_ = nullptr;
    std::vector<PairMessage> group_;
};

class HostChannelImpl final : public HostChannel {
  public:
    HostChannelImpl(std::shared_ptr<WorldLine> line, std::shared_ptr<CommCore> core)
        : line_(std::move(line)), core_(std::move(core)) {}

    [[nodiscard]] int rank() const override { return core_->transport->rank(); }
    [[nodiscard]] int size() const override { return core_->transport->size(); }
    [[nodiscard]] std::string host() const override { return host_name(); }

    std::vector<std::string> gather(const std::string& mine) override {
        auto strings = exchange("gather", {ExchangePattern::ToRoot}, mine);
        if (rank() != 0) strings.clear();
        return strings;
    }

    std::string broadcast(const std::string& from_rank_0) override {
        return exchange("broadcast", {ExchangePattern::FromRoot}, rank() == 0 ? from_rank_0 : "")[0];
    }

    void all_reduce(std::span<std::int64_t> values, Reduce reduce) override {
        const std::string mine(reinterpret_cast<const char*>(values.data()), values.size_bytes());
        const auto strings = exchange("all_reduce", {ExchangePattern::All}, mine);
        std::vector<const std::byte*> sources;
        for (const std::string& string : strings) {
            invariant(string.size() == mine.size(),
                      "host all_reduce: ranks gave different numbers of values");
            sources.push_back(reinterpret_cast<const std::byte*>(string.data()));
        }
        if (values.empty()) return;
        combine(reinterpret_cast<std::byte*>(values.data()), DType::I64, Into::Overwrite, sources, DType::I64,
                reduce, static_cast<std::int64_t>(values.size()));
    }

    std::string pass(int to, const std::string& mine, int from) override {
        const auto strings = exchange("pass", {ExchangePattern::Pairs, to, from}, mine);
        return from == nobody ? std::string() : strings[static_cast<std::size_t>(from)];
    }

    void barrier() override { exchange("barrier", {ExchangePattern::All}, ""); }
    void give_up() noexcept override { core_->given_up = true; }

  private:
    std::vector<std::string> exchange(const char* what, ExchangeRoute route, const std::string& mine) {
        return line_->control.exchange(core_, what, sequence_++, route, mine);
    }

    std::shared_ptr<WorldLine> line_;
    std::shared_ptr<CommCore> core_;
    unsigned sequence_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_host_communicator(std::shared_ptr<WorldLine> line,
                                                     std::shared_ptr<CommCore> core) {
    return std::make_unique<HostCommunicator>(std::move(line), std::move(core));
}

WorldOptions background_options(WorldOptions options) {
    constexpr double least_timeout_s = 3600.0;
    options.timeout_s = std::max(options.timeout_s, least_timeout_s);
    return options;
}

std::unique_ptr<HostChannel> make_host_channel(std::shared_ptr<WorldLine> line,
                                               std::shared_ptr<CommCore> core) {
    return std::make_unique<HostChannelImpl>(std::move(line), std::move(core));
}

}  // namespace trainctl
