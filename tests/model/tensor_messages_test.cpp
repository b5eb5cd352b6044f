// How many messages the ranks that share matrices exchange, counted on the sim device.
#include <memory>
#include <string>
#include <vector>

#include "model/tiny_model.h"
#include "support/catch.h"
#include "trainctl/comm/world.h"
#include "trainctl/model/tensor_partition.h"
#include "trainctl/ops/backends.h"

namespace trainctl {
namespace {

struct Counts {
    int all_reduce = 0;
    int reduce_scatter = 0;
    int all_gather = 0;
    bool operator==(const Counts& other) const = default;
    Counts operator-(const Counts& other) const {
        return {all_reduce - other.all_reduce, reduce_scatter - other.reduce_scatter,
                all_gather - other.all_gather};
    }
};

std::ostream& operator<<(std::ostream& out, const Counts& counts) {
    return out << counts.all_reduce << " all-reduces, " << counts.reduce_scatter << " reduce-scatters, "
               << counts.all_gather << " all-gathers";
}

// Hands on to a sim communicator.
class CountingCommunicator final : public Communicator {
  public:
    explicit CountingCommunicator(std::unique_ptr<Communicator> target) : target_(std::move(target)) {}
    Counts counts;

    [[nodiscard]] int rank() const override { return target_->rank(); }
    [[nodiscard]] int size() const override { return target_->size(); }
    [[nodiscard]] std::string_view name() const override { return target_->name(); }
    void all_reduce(TensorView tensor, Reduce reduce, Stream& stream) override {
        ++counts.all_reduce;
        target_->all_reduce(tensor, reduce, stream);
    }
    void reduce_scatter(TensorView shard, TensorView full, Into into, Stream& stream) override {
        ++counts.reduce_scatter;
        target_->reduce_scatter(shard, full, into, stream);
    }
    void all_gather(TensorView full, TensorView shard, Stream& stream) override {
        ++counts.all_gather;
        target_->all_gather(full, shard, stream);
    }
    void broadcast(TensorView, int, Stream&) override { unexpected(); }
    void send(TensorView, int, Stream&) override { unexpected(); }
    void receive(TensorView, int, Stream&) override { unexpected(); }
    void group_begin(Stream&) override { unexpected(); }
    void group_end(Stream&) override { unexpected(); }
    void barrier() override { unexpected(); }
    std::unique_ptr<Communicator> split(int, int, std::string_view) override { unexpected(); }
    void abort(const std::string&) override { unexpected(); }

  private:
    [[noreturn]] static void unexpected() { fail(Exit::Internal, "layers do not send this"); }
    std::unique_ptr<Communicator> target_;
};

// Counts up to the loss.
class ForwardMark final : public Ranges {
  public:
    explicit ForwardMark(const CountingCommunicator& counting) : counting_(counting) {}
    void push(const RangeLabel& label) override { open_.push_back(label.kind); }
    void pop() noexcept override {
        if (open_.back() == RangeKind::Forward) forward = counting_.counts;
        open_.pop_back();
    }
    Counts forward;

  private:
    const CountingCommunicator& counting_;
    std::vector<RangeKind> open_;
};

struct PassCounts {
    Counts forward;  // with the head's backward, which is part of it
    Counts backward;
    Counts evaluation;
};

PassCounts count(ModelSpec spec, int ranks, ResidualRows rows, GradientCheckpointing checkpointing) {
    constexpr std::int64_t samples = 1;
    constexpr std::int64_t length = 19;
    const std::unique_ptr<SimDevice> device = make_sim_device({});
    TinyModel planned(tiny_gpt2(1, true), TinyOptions{});
    const std::unique_ptr<OpsBackend> backend = make_sim_ops(*device, planned.ops());
    const std::unique_ptr<Stream> stream = device->make_stream("compute", StreamRole::Compute);
    const std::unique_ptr<Stream> messages = device->make_stream("tensor", StreamRole::Communication);
    CountingCommunicator counting(make_sim_communicator(*device, 1 % ranks, ranks, "tensor"));
    const std::unique_ptr<RecordingArena> arena = make_recording_arena();
    ModelOptions options;
    options.compute = DType::F32;
    options.gradient_checkpointing = checkpointing;
    options.tensor = {&counting, messages.get(), rows};
    const auto model = make_transformer(*device, spec, options, length);
    PlainParams params(*device, model->parameters(), DType::F32, DType::F32);
    const Buffer memory = device->allocate(4096, Memory::Device, "ids and loss");
    MicroBatch micro;
    micro.batch = samples;
    micro.length = length;
    micro.tokens = memory.view(Shape{samples, length}, DType::I32);
    micro.targets = micro.tokens;
    const TensorView loss = memory.view(Shape{1}, DType::F64, 2048);
    ForwardMark mark(counting);
    Runtime runtime{backend->ops(), *arena, *stream, params, params, &mark};
    params.begin_micro(0, 0, MicroKind::Last);
    arena->begin(PassKind::OnlyMicro);
    model->train_micro(runtime, micro, 1.0F, loss, Into::Overwrite);
    arena->end();
    PassCounts result{mark.forward, counting.counts - mark.forward, {}};
    counting.counts = {};
    arena->begin(PassKind::Evaluation);
    model->evaluate_micro(runtime, micro, loss, Into::Overwrite);
    arena->end();
    result.evaluation = counting.counts;
    return result;
}

std::vector<ModelSpec> families(std::int64_t layers) {
    return {tiny_gpt2(layers, true), tiny_llama(layers, 2, false)};
}

// What one block more costs.
PassCounts of_a_block(std::size_t family, ResidualRows rows, GradientCheckpointing checkpointing) {
    const PassCounts two = count(families(2)[family], 2, rows, checkpointing);
    const PassCounts three = count(families(3)[family], 2, rows, checkpointing);
    return {three.forward - two.forward, three.backward - two.backward, three.evaluation - two.evaluation};
}

}  // namespace

TEST_CASE("a block costs the textbook's number of collectives") {
    for (std::size_t family = 0; family < 2; ++family) {
        const auto none = GradientCheckpointing::None;
        const PassCounts all = of_a_block(family, ResidualRows::All, none);
        CHECK(all.forward == Counts{2, 0, 0});
        CHECK(all.backward == Counts{2, 0, 0});
        CHECK(all.evaluation == Counts{2, 0, 0});
        const PassCounts sharded = of_a_block(family, ResidualRows::Sharded, none);
        CHECK(sharded.forward == Counts{0, 2, 2});
        // Two of the gathers bring back the inputs of the two weight gradients, which are kept sharded.
        CHECK(sharded.backward == Counts{0, 2, 2 + 2});
        CHECK(sharded.evaluation == Counts{0, 2, 2});
        // Selective keeps products: nothing is sent again. Full repeats all but the last product.
        CHECK(of_a_block(family, ResidualRows::Sharded, GradientCheckpointing::Selective).backward ==
              sharded.backward);
        CHECK(of_a_block(family, ResidualRows::Sharded, GradientCheckpointing::Full).backward ==
              Counts{0, 2 + 1, 4 + 2});
        CHECK(of_a_block(family, ResidualRows::All, GradientCheckpointing::Full).backward ==
              Counts{2 + 1, 0, 0});
    }
}

TEST_CASE("embedding and head: one sum each, and two small ones for every chunk of logits") {
    const auto none = GradientCheckpointing::None;
    for (const ModelSpec& spec : families(1)) {
        const PassCounts all = count(spec, 2, ResidualRows::All, none);
        CHECK(all.forward == Counts{1 + 2 + 2 + 1, 0, 0});
        CHECK(all.backward == Counts{2, 0, 0});
        const PassCounts sharded = count(spec, 2, ResidualRows::Sharded, none);
        CHECK(sharded.forward == Counts{2, 1 + 2 + 1, 2 + 1});
        CHECK(sharded.backward == Counts{0, 2, 4 + 1});
        // Alone nothing is sent.
        const PassCounts alone = count(spec, 1, ResidualRows::Sharded, none);
        CHECK(alone.forward == Counts{});
        CHECK(alone.backward == Counts{});
        CHECK(alone.evaluation == Counts{});
    }
}

}  // namespace trainctl
