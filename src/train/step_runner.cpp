#include "trainctl/train/step_runner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "trainctl/train/schedule.h"

namespace trainctl {

namespace {

// Wall time of the compute thread by phase, without what the stream was held up by messages. Everything since
// the last phase ended counts to the one that ends.
class PhaseTimer final : public Ranges {
  public:
    PhaseTimer(Clock& clock, const Stream& compute, Ranges* next)
        : clock_(clock),
          compute_(compute),
          next_(next),
          mark_s_(clock.monotonic_s()),
          held_up_s_(compute.held_up_s()) {}

    void push(const RangeLabel& label) override {
        invariant(depth_ < open_.size(), "ranges of a step are nested too deeply");
        open_[depth_++] = label.kind;
        if (next_ != nullptr) next_->push(label);
    }
    void pop() noexcept override {
        try {
            if (double* phase = phase_of(open_[--depth_]); phase != nullptr) close(*phase);
        } catch (const Error&) {
            // The device has failed, which its next call says; what is lost is a time.
        }
        if (next_ != nullptr) next_->pop();
    }

    PhaseSeconds phases;

  private:
    double* phase_of(RangeKind kind) {
        switch (kind) {
            case RangeKind::Data:
                return &phases.data;
            case RangeKind::Forward:
                return &phases.forward;
            case RangeKind::Backward:
                return &phases.backward;
            case RangeKind::Optimizer:
                return &phases.optimizer;
            default:
                return nullptr;
        }
    }
    void close(double& phase) {
        const double now = clock_.monotonic_s();
        const double held_up = compute_.held_up_s();
        phase += now - mark_s_ - (held_up - held_up_s_);
        phases.communication += held_up - held_up_s_;
        mark_s_ = now;
        held_up_s_ = held_up;
    }

    Clock& clock_;
    const Stream& compute_;
    Ranges* next_;
    double mark_s_;
    double held_up_s_;
    std::array<RangeKind, 8> open_{};
    std::size_t depth_ = 0;
};

}  // namespace

StepRunner::StepRunner(const StepParts& parts, const JobSpec& job, const BatchLayout& layout, int held)
    : parts_(parts),
      job_(job),
      layout_(layout),
      scaler_(job.precision),
      slots_(parts.device, parts.compute, layout.micro_batch, job.training.sequence_length, held) {
    check_layout(layout);
    constexpr std::size_t scalar_bytes = step_scalars * sizeof(double);
    scalars_ = parts_.device.allocate(scalar_bytes, Memory::Device, "step scalars");
    scalars_host_ = parts_.device.allocate(scalar_bytes, Memory::Pinned, "step scalars");
    parts_.compute.show_waits(parts_.ranges);
}

StepRunner::~StepRunner() { parts_.compute.show_waits(nullptr); }

double StepRunner::target_tokens() const {
    return static_cast<double>(layout_.global_batch * job_.training.sequence_length);
}

std::optional<Batch> StepRunner::load(Loader& loader, BatchSlots::Slot& slot, std::int64_t batch,
                                      std::int64_t micro, const std::function<bool()>& stop) {
    return loader.batch_unless(stop, batch, micro, slots_.host_tokens(slot), slots_.host_targets(slot));
}

bool StepRunner::fetch(Loader& loader, const Progress& progress, const std::function<bool()>& stop) {
    if (fetched_ && fetched_->step == progress.step) return true;
    const RangeScope range(parts_.ranges, RangeKind::Data);
    const double waited_before = loader.waited_s();
    if (!loader.await_step(stop, progress.step)) return false;
    BatchSlots::Slot& slot = slots_.next();
    const std::optional<Batch> batch = load(loader, slot, progress.step, 0, stop);
    if (!batch) return false;
    fetched_ = Fetched{progress.step, batch->first_sample, &slot, loader.waited_s() - waited_before};
    return true;
}

std::vector<double> StepRunner::read_scalars() {
    parts_.device.copy(parts_.compute, scalars_host_.data(), scalars_.data(), scalars_.bytes());
    parts_.compute.synchronize();
    std::vector<double> values(step_scalars);
    std::memcpy(values.data(), scalars_host_.data(), scalars_host_.bytes());
    // The NaN of x86 arithmetic has its sign set, which means nothing: people and scripts look for "nan".
    for (double& value : values) {
        if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();
    }
    return values;
}

StepResult StepRunner::step(Loader& loader, const Progress& progress) {
    invariant(fetched_ && fetched_->step == progress.step, "step() without fetch()");
    invariant(scaler_.start(progress.loss_scale) == progress.loss_scale, "step() without a loss scale");
    const Fetched first = *std::exchange(fetched_, std::nullopt);
    const double began = parts_.clock.monotonic_s();
    PhaseTimer timer(parts_.clock, parts_.compute, parts_.ranges);
    const TensorView scalars = scalars_.view(Shape{step_scalars}, DType::F64);
    const double scale = progress.loss_scale ? progress.loss_scale->scale : 1.0;
    StepResult result;
    result.lr = learning_rate(job_.schedule, scaled_peak_lr(job_.optimizer, job_.training.global_batch_size),
                              job_.steps, progress.step);

    const auto load_micro = [&](int micro) {
        BatchSlots::Slot& slot = micro == 0 ? *first.slot : slots_.next();
        std::int64_t first_sample = first.first_sample;
        if (micro > 0) {
            const RangeScope range(&timer, RangeKind::Data);
            first_sample = load(loader, slot, progress.step, micro, [] { return false; })->first_sample;
        }
        return slots_.upload(slot, first_sample);
    };
    LossRequest loss;
    loss.sum = scalars.flat(scalar_loss_sum, 1);
    loss.into = Into::Accumulate;  // a stage without the head adds nothing
    loss.gradient_scale = static_cast<float>(scale / target_tokens());
    parts_.ops.elementwise.fill_zero(parts_.compute, loss.sum);
    Runtime runtime{parts_.ops,           parts_.arena, parts_.compute, parts_.state.params(),
                    parts_.state.grads(), &timer};
    parts_.executor.train(runtime, load_micro, loss);

    UpdateSettings update;
    update.lr = result.lr;
    update.beta1 = job_.optimizer.beta1;
    update.beta2 = job_.optimizer.beta2;
    update.epsilon = job_.optimizer.epsilon;
    update.weight_decay = job_.optimizer.weight_decay;
    update.max_norm = job_.training.gradient_clip;
    update.inverse_loss_scale = 1.0 / scale;
    update.applied_updates = progress.applied_updates;
    std::vector<double> values;
    {
        const RangeScope range(&timer, RangeKind::Optimizer);
        if (readers_ != nullptr) parts_.compute.wait(*readers_);
        parts_.state.update(scalars, update);
        values = read_scalars();  // the one host synchronisation of the step
    }
    result.loss = values[scalar_loss_sum] / target_tokens();
    result.grad_norm = values[scalar_grad_norm];
    result.clip = values[scalar_clip] * scale;  // the device's includes 1 / scale
    result.outcome = scaler_.judge(values[scalar_apply] != 0.0, result.loss, progress.loss_scale);
    result.next_loss_scale = scaler_.after(progress.loss_scale, result.outcome);

    result.phases = timer.phases;
    result.phases.data += first.waited_s;
    result.seconds = parts_.clock.monotonic_s() - began + first.waited_s;
    return result;
}

std::optional<EvaluationResult> StepRunner::evaluate(Loader& loader, std::int64_t batches,
                                                     const std::function<bool(std::int64_t)>& stop) {
    const std::int64_t available = loader.batches().value_or(0);
    const std::int64_t count = batches > 0 ? std::min(batches, available) : available;
    const TensorView scalars = scalars_.view(Shape{step_scalars}, DType::F64);
    parts_.ops.elementwise.fill_zero(parts_.compute, scalars);
    const LossRequest loss{scalars.flat(scalar_loss_sum, 1), Into::Accumulate};
    Runtime runtime{parts_.ops,           parts_.arena, parts_.compute, parts_.state.params(),
                    parts_.state.grads(), parts_.ranges};
    std::int64_t tokens = 0;
    for (std::int64_t batch = 0; batch < count; ++batch) {
        if (stop(batch)) return std::nullopt;
        const auto load_micro = [&](int micro) {
            BatchSlots::Slot& slot = slots_.next();
            const Batch rows = *load(loader, slot, batch, micro, [] { return false; });
            tokens += rows.rows * job_.training.sequence_length;
            return slots_.upload(slot, rows.first_sample);
        };
        parts_.executor.evaluate(runtime, load_micro, loss);
    }
    // Token counts travel as doubles beside the loss: exact far beyond any validation set.
    const TensorView token_sum = scalars.flat(scalar_grad_norm, 1);
    parts_.compute.synchronize();
    const auto exact = static_cast<double>(tokens);
    std::memcpy(scalars_host_.data(), &exact, sizeof(exact));
    parts_.device.copy(parts_.compute, token_sum.data, scalars_host_.data(), sizeof(exact));
    const auto ready = parts_.device.make_event();
    parts_.compute.record(*ready);
    parts_.communication.wait(*ready);
    parts_.data_axis.all_reduce(scalars.flat(scalar_loss_sum, 2), Reduce::Sum, parts_.communication);
    // Every stage of a pipeline counts the tokens; one has their losses.
    parts_.pipeline_axis.all_reduce(loss.sum, Reduce::Sum, parts_.communication);
    parts_.communication.record(*ready);
    parts_.compute.wait(*ready);
    const std::vector<double> values = read_scalars();

    EvaluationResult result;
    result.tokens = static_cast<std::int64_t>(values[scalar_grad_norm]);
    result.loss = result.tokens > 0 ? values[scalar_loss_sum] / values[scalar_grad_norm] : 0.0;
    return result;
}

}  // namespace trainctl
