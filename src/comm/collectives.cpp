#include "comm/collectives.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "comm/combine.h"
#include "comm/reduce_phase.h"

namespace trainctl {
namespace {

class ReduceScatter final : public CommOperation {
  public:
    ReduceScatter(CollectiveContext context, TensorView shard, TensorView full, Into into)
        : CommOperation(context.core, "reduce_scatter", full.bytes(), context.sequence),
          tag_(collective_tag(context.sequence)),
          phase_({full, shard, into, Reduce::Sum,
                  plan_reduction(shard.elements(), full.dtype, size(), core().options.tuning),
                  std::move(context.staging)},
                 rank(), size()) {}

  private:
    bool step() override {
        phase_.step([&](int to, std::byte* data, std::size_t bytes,
                        std::int64_t chunk) { send(to, tag_, data, bytes, chunk); },
                    [&](int from, std::byte* data, std::size_t bytes, std::int64_t chunk) {
                        receive(from, tag_, data, bytes, chunk);
                    });
        return phase_.finished();
    }
    void sent(int to, std::int64_t /*chunk*/) override { phase_.sent(to); }
    void received(int /*from*/, std::int64_t chunk) override { phase_.received(chunk); }

    int tag_;
    ReducePhase phase_;
};

// Everybody gets everything and adds it: one round, for small tensors.
class SmallAllReduce final : public CommOperation {
  public:
    SmallAllReduce(CollectiveContext context, TensorView tensor, Reduce reduce)
        : CommOperation(context.core, "all_reduce", tensor.bytes(), context.sequence),
          tag_(collective_tag(context.sequence)),
          tensor_(tensor),
          reduce_(reduce),
          staging_(std::move(context.staging)) {}

  private:
    bool step() override {
        if (!started_) {
            started_ = true;
            for (int k = 1; k < size(); ++k) {
                const int other = peer(k);
                receive(other, tag_, slot(other), tensor_.bytes());
                send(other, tag_, tensor_.data, tensor_.bytes());
            }
        }
        if (!settled()) return false;  // also our own sends: the result replaces what they read
        std::vector<const std::byte*> sources(static_cast<std::size_t>(size()));
        for (int source = 0; source < size(); ++source) {
            sources[static_cast<std::size_t>(source)] = source == rank() ? tensor_.data : slot(source);
        }
        combine(tensor_.data, tensor_.dtype, Into::Overwrite, sources, tensor_.dtype, reduce_,
                tensor_.elements());
        return true;
    }
    [[nodiscard]] std::byte* slot(int source) const {
        return staging_->data() +
               static_cast<std::size_t>(source < rank() ? source : source - 1) * tensor_.bytes();
    }

    int tag_;
    TensorView tensor_;
    Reduce reduce_;
    std::shared_ptr<Buffer> staging_;
    bool started_ = false;
};

// The second half of a large all_reduce, and all_gather itself: every rank's part goes straight to its place.
class GatherPhase {
  public:
    // Part r of `full` is [r * part, (r + 1) * part) cut at the end.
    GatherPhase(TensorView full, std::int64_t part) : full_(full), part_(part) {}

    [[nodiscard]] TensorView part(int owner) const {
        const std::int64_t begin = std::min(owner * part_, full_.elements());
        return full_.flat(begin, std::min(part_, full_.elements() - begin));
    }

  private:
    TensorView full_;
    std::int64_t part_;
};

class LargeAllReduce final : public CommOperation {
  public:
    LargeAllReduce(CollectiveContext context, TensorView tensor, Reduce reduce)
        : CommOperation(context.core, "all_reduce", tensor.bytes(), context.sequence),
          tag_(collective_tag(context.sequence)),
          part_(all_reduce_part(tensor.elements(), size())),
          gather_(tensor, part_),
          reduce_({tensor, gather_.part(rank()), Into::Overwrite, reduce,
                   plan_reduction(part_, tensor.dtype, size(), core().options.tuning),
                   std::move(context.staging)},
                  rank(), size()) {}

  private:
    bool step() override {
        if (!reduced_) {
            reduce_.step([&](int to, std::byte* data, std::size_t bytes,
                             std::int64_t chunk) { send(to, tag_, data, bytes, chunk); },
                         [&](int from, std::byte* data, std::size_t bytes, std::int64_t chunk) {
                             receive(from, tag_, data, bytes, chunk);
                         });
            if (!reduce_.finished())
                return false;  // what was sent has been taken: its place may be overwritten
            reduced_ = true;
            for (int k = 1; k < size(); ++k) {
                const TensorView theirs = gather_.part(peer(k));
                const TensorView mine = gather_.part(rank());
                if (theirs.bytes() > 0) receive_pieces(peer(k), tag_, theirs.data, theirs.bytes());
                if (mine.bytes() > 0) send_pieces(peer(k), tag_, mine.data, mine.bytes());
            }
        }
        return settled();
    }
    void sent(int to, std::int64_t /*chunk*/) override {
        if (!reduced_) reduce_.sent(to);
    }
    void received(int /*from*/, std::int64_t chunk) override {
        if (!reduced_) reduce_.received(chunk);
    }

    int tag_;
    std::int64_t part_;
    GatherPhase gather_;
    ReducePhase reduce_;
    bool reduced_ = false;
};

class AllGather final : public CommOperation {
  public:
    AllGather(const CollectiveContext& context, TensorView full, TensorView shard)
        : CommOperation(context.core, "all_gather", full.bytes(), context.sequence),
          tag_(collective_tag(context.sequence)),
          gather_(full, shard.elements()),
          shard_(shard) {}

  private:
    bool step() override {
        if (!started_) {
            started_ = true;
            for (int k = 1; k < size(); ++k) {
                const TensorView theirs = gather_.part(peer(k));
                receive_pieces(peer(k), tag_, theirs.data, theirs.bytes());
                send_pieces(peer(k), tag_, shard_.data, shard_.bytes());
            }
            const TensorView mine = gather_.part(rank());
            if (mine.data != shard_.data) std::memcpy(mine.data, shard_.data, shard_.bytes());
        }
        return settled();
    }

    int tag_;
    GatherPhase gather_;
    TensorView shard_;
    bool started_ = false;
};

// Binomial tree, in chunks that are passed on as they arrive.
class Broadcast final : public CommOperation {
  public:
    Broadcast(const CollectiveContext& context, TensorView tensor, int root)
        : CommOperation(context.core, "broadcast", tensor.bytes(), context.sequence),
          tag_(collective_tag(context.sequence)),
          tensor_(tensor) {
        const int place = (rank() - root + size()) % size();  // in the tree rooted at 0
        for (int bit = 1; bit < size(); bit *= 2) {
            if ((place & bit) != 0) {
                parent_ = (place - bit + root) % size();
                break;
            }
            if (place + bit < size()) children_.push_back((place + bit + root) % size());
        }
        chunk_ = std::min(4 * core().options.tuning.chunk_bytes, core().options.tuning.message_bytes);
        chunks_ = static_cast<std::int64_t>((tensor.bytes() + chunk_ - 1) / chunk_);
        if (parent_ < 0) arrived_ = chunks_;
        there_.assign(static_cast<std::size_t>(chunks_), parent_ < 0);
    }

  private:
    static constexpr std::int64_t window = 4;

    bool step() override {
        while (parent_ >= 0 && posted_ < std::min(chunks_, arrived_ + window)) {
            receive(parent_, tag_, data(posted_), bytes(posted_), posted_);
            ++posted_;
        }
        while (passed_on_ < chunks_ && there_[static_cast<std::size_t>(passed_on_)]) {
            for (const int child : children_) send(child, tag_, data(passed_on_), bytes(passed_on_));
            ++passed_on_;
        }
        return passed_on_ == chunks_ && settled();
    }
    void received(int /*from*/, std::int64_t chunk) override {
        there_[static_cast<std::size_t>(chunk)] = true;
        ++arrived_;
    }
    [[nodiscard]] std::byte* data(std::int64_t chunk) const {
        return tensor_.data + static_cast<std::size_t>(chunk) * chunk_;
    }
    [[nodiscard]] std::size_t bytes(std::int64_t chunk) const {
        return std::min(chunk_, tensor_.bytes() - static_cast<std::size_t>(chunk) * chunk_);
    }

    int tag_;
    TensorView tensor_;
    int parent_ = -1;
    std::vector<int> children_;
    std::size_t chunk_ = 0;
    std::int64_t chunks_ = 0;
    std::int64_t posted_ = 0;
    std::int64_t arrived_ = 0;
    std::int64_t passed_on_ = 0;
    std::vector<bool> there_;
};

class PairMessages final : public CommOperation {
  public:
    PairMessages(std::shared_ptr<CommCore> core, std::vector<PairMessage> messages, const char* what,
                 std::size_t bytes, unsigned sequence)
        : CommOperation(std::move(core), what, bytes, sequence), messages_(std::move(messages)) {}

  private:
    bool step() override {
        for (const PairMessage& message : messages_) {
            const TensorView& tensor = message.tensor;
            if (message.kind == PairMessage::Kind::Send) {
                send_pieces(message.peer, pair_tag(message.sequence), tensor.data, tensor.bytes());
            } else {
                receive_pieces(message.peer, pair_tag(message.sequence), tensor.data, tensor.bytes());
            }
        }
        messages_.clear();
        return settled();
    }

    std::vector<PairMessage> messages_;
};

}  // namespace

std::unique_ptr<Operation> make_reduce_scatter(CollectiveContext context, TensorView shard, TensorView full,
                                               Into into) {
    return std::make_unique<ReduceScatter>(std::move(context), shard, full, into);
}

std::unique_ptr<Operation> make_all_reduce(CollectiveContext context, TensorView tensor, Reduce reduce) {
    const CommCore& core = *context.core;
    if (all_reduce_is_small(tensor.bytes(), core.transport->size(), core.options.tuning)) {
        return std::make_unique<SmallAllReduce>(std::move(context), tensor, reduce);
    }
    return std::make_unique<LargeAllReduce>(std::move(context), tensor, reduce);
}

std::unique_ptr<Operation> make_all_gather(const CollectiveContext& context, TensorView full,
                                           TensorView shard) {
    return std::make_unique<AllGather>(context, full, shard);
}

std::unique_ptr<Operation> make_broadcast(const CollectiveContext& context, TensorView tensor, int root) {
    return std::make_unique<Broadcast>(context, tensor, root);
}

std::unique_ptr<Operation> make_pair_messages(std::shared_ptr<CommCore> core,
                                              std::vector<PairMessage> messages) {
    const char* what = messages.size() > 1                           ? "group of messages"
                       : messages[0].kind == PairMessage::Kind::Send ? "send"
                                                                     : "receive";
    std::size_t bytes = 0;
    for (const PairMessage& message : messages) bytes += message.tensor.bytes();
    const unsigned sequence = messages[0].sequence;
    return std::make_unique<PairMessages>(std::move(core), std::move(messages), what, bytes, sequence);
}

}  // namespace trainctl
