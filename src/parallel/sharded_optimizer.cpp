#include "parallel/sharded_optimizer.h"

namespace trainctl {

ShardedOptimizer::ShardedOptimizer(const ShardPlan& plan, const ModelMemory& memory,
                                   const GradientMemory& gradients, PublishedParams& params, Device& device,
                                   Ops ops, const ZeroAxes& axes, Stream& compute, Stream& communication)
    : plan_(plan),
      memory_(memory),
      gradients_(gradients),
      params_(params),
      ops_(ops),
      axes_(axes),
      compute_(compute),
      communication_(communication),
      computed_(device.make_event()),
      summed_(device.make_event()) {}

void ShardedOptimizer::add_ends() {
    if (axes_.embedding == nullptr) return;
    // Both ends have the same shard map, so nothing but shards travels.
    compute_.record(*computed_);
    communication_.wait(*computed_);
    axes_.embedding->all_reduce(gradients_.held(plan_.index(0)), Reduce::Sum, communication_);
    communication_.record(*summed_);
    compute_.wait(*summed_);
}

void ShardedOptimizer::reduce_norm_and_loss(TensorView scalars) {
    const TensorView bins = memory_.bins();
    // Every rank counts only what it owns, in stage 0 as well, so that each element counts once. The bins are
    // integers: no order of adding them, no sharding, changes a bit.
    ops_.elementwise.fill_zero(compute_, bins);
    for (std::size_t i = 0; i < plan_.units().size(); ++i) {
        const Range owned = plan_.owned(i);
        for (const Range& range : counted_ranges(plan_.unit(i), plan_.params(), owned))
            ops_.optimizer.sum_squares(compute_, bins,
                                       gradients_.owned(i).flat(range.begin - owned.begin, range.size()),
                                       Into::Accumulate);
    }
    compute_.record(*computed_);
    communication_.wait(*computed_);
    const TensorView loss = scalars.flat(scalar_loss_sum, 1);
    for (Communicator* axis : {&axes_.data, axes_.tensor, axes_.pipeline})
        if (axis != nullptr) axis->all_reduce(bins, Reduce::Sum, communication_);
    for (Communicator* axis : {&axes_.data, axes_.pipeline})
        if (axis != nullptr) axis->all_reduce(loss, Reduce::Sum, communication_);
    communication_.record(*summed_);
    compute_.wait(*summed_);
}

void ShardedOptimizer::update(TensorView scalars, const UpdateSettings& settings) {
    add_ends();
    reduce_norm_and_loss(scalars);
    ops_.optimizer.finish_norm(compute_, scalars, memory_.bins(), settings.max_norm,
                               settings.inverse_loss_scale);
    AdamwSettings adamw;
    adamw.lr = settings.lr;
    adamw.beta1 = settings.beta1;
    adamw.beta2 = settings.beta2;
    adamw.epsilon = settings.epsilon;
    adamw.weight_decay = settings.weight_decay;
    adamw.step = settings.applied_updates + 1;
    params_.begin_update();
    // In the order in which the next forward asks for the units, so that each gather hides behind the update
    // of the units after it and behind the forward of the units before it.
    for (std::size_t i = 0; i < plan_.units().size(); ++i) {
        const TensorView rounded = memory_.master_is_weights() ? TensorView{} : memory_.held_weights(i);
        ops_.optimizer.adamw(compute_, rounded, memory_.state(State::Master, i),
                             memory_.state(State::FirstMoment, i), memory_.state(State::SecondMoment, i),
                             gradients_.held(i), memory_.held_flags(i), scalars, adamw);
        params_.publish(i);
    }
}

void ShardedOptimizer::publish_masters() {
    params_.begin_update();
    for (std::size_t i = 0; i < plan_.units().size(); ++i) {
        if (!memory_.master_is_weights())
            ops_.elementwise.cast(compute_, memory_.held_weights(i), memory_.state(State::Master, i));
        params_.publish(i);
    }
}

}  // namespace trainctl
