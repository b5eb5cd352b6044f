#include "trainctl/parallel/zero.h"

#include "parallel/bucketed_reducer.h"
#include "parallel/gathered_params.h"
#include "parallel/gradient_memory.h"
#include "parallel/model_memory.h"
#include "parallel/model_state.h"
#include "parallel/replica_sums.h"
#include "parallel/resident_params.h"
#include "parallel/shard_plan.h"
#include "parallel/sharded_optimizer.h"

namespace trainctl {
namespace {

std::unique_ptr<PublishedParams> make_params(const ShardPlan& plan, const ModelMemory& memory, Device& device,
                                             Communicator& data, Stream& compute, Stream& communication) {
    if (plan.options().stage == 3)
        return std::make_unique<GatheredParams>(plan, memory, device, data, compute, communication);
    return std::make_unique<ResidentParams>(plan, memory, device, data, compute, communication);
}

// The parts, wired. The order of members is the order in which they refer to each other.
class WiredZeroState : public ZeroState {
  public:
    WiredZeroState(Device& device, Ops ops, const ZeroAxes& axes, Stream& compute, Stream& communication,
                   const std::vector<ParamSpec>& params, const ZeroOptions& options)
        : device_(device),
          ops_(ops),
          compute_(compute),
          plan_(params, options, axes.data.rank(), axes.data.size()),
          memory_(plan_, device, compute),
          gradients_(plan_, device),
          params_(make_params(plan_, memory_, device, axes.data, compute, communication)),
          reducer_(plan_, gradients_, device, ops, axes.data, compute, communication),
          replicas_(plan_, gradients_, device, ops, axes.tensor, compute, communication),
          optimizer_(plan_, memory_, gradients_, *params_, device, ops, axes, compute, communication) {}

    ParamSource& params() override { return *params_; }
    GradSink& grads() override { return reducer_; }

    void initialise(std::uint64_t seed) override {
        set_initial_state(plan_, memory_, device_, ops_, compute_, seed);
        optimizer_.publish_masters();
    }

    void update(TensorView scalars, const UpdateSettings& settings) override {
        reducer_.finish();
        replicas_.add();
        optimizer_.update(scalars, settings);
    }

    std::vector<NamedSlice> state_slices() override { return named_slices(plan_, memory_, Share::Owned); }
    std::vector<NamedSlice> load_slices() override { return named_slices(plan_, memory_, Share::Held); }
    void loaded() override { optimizer_.publish_masters(); }

    [[nodiscard]] std::vector<MemoryRow> memory_table() const override {
        std::vector<MemoryRow> rows = memory_.memory_table();
        for (const MemoryRow& row : params_->memory_table()) rows.push_back(row);
        for (const MemoryRow& row : gradients_.memory_table()) rows.push_back(row);
        for (const MemoryRow& row : replicas_.memory_table()) rows.push_back(row);
        return rows;
    }
    [[nodiscard]] int buckets() const override { return static_cast<int>(plan_.buckets().size()); }

  private:
    Device& device_;
    Ops ops_;
    Stream& compute_;
    ShardPlan plan_;
    ModelMemory memory_;
    GradientMemory gradients_;
    std::unique_ptr<PublishedParams> params_;
    BucketedReducer reducer_;
    ReplicaSums replicas_;
    ShardedOptimizer optimizer_;
};

}  // namespace

std::unique_ptr<ZeroState> make_zero_state(Device& device, Ops ops, const ZeroAxes& axes, Stream& compute,
                                           Stream& communication, const std::vector<ParamSpec>& params,
                                           const ZeroOptions& options) {
    return std::make_unique<WiredZeroState>(device, ops, axes, compute, communication, params, options);
}

}  // namespace trainctl
