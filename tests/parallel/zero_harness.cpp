#include "parallel/zero_harness.h"

#include <algorithm>
#include <array>
#include <limits>
#include <mutex>

#include "support/reference/elements.h"
#include "support/reference_ops.h"
#include "trainctl/comm/world.h"
#include "trainctl/device/host_stream.h"

namespace trainctl::test {
namespace {

// State joined from the slices of all ranks; counts who named which element.
class Joined {
  public:
    explicit Joined(const std::vector<ParamSpec>& params) {
        for (const ParamSpec& param : params) {
            for (const char* suffix : {"", ".m", ".v"}) {
                const auto count = static_cast<std::size_t>(param.global.elements());
                tensors[param.name + suffix].resize(count);
                named_[param.name + suffix].resize(count);
            }
        }
    }
    void add(const std::vector<NamedSlice>& slices) {
        const std::lock_guard lock(mutex_);
        for (const NamedSlice& slice : slices) {
            std::vector<float>& tensor = tensors.at(slice.name);
            for (std::int64_t e = 0; e < slice.flat.size(); ++e) {
                tensor[static_cast<std::size_t>(slice.flat.begin + e)] = slice.view.as<float>()[e];
                ++named_.at(slice.name)[static_cast<std::size_t>(slice.flat.begin + e)];
            }
        }
    }
    void find_defects(std::vector<std::string>& defects) const {
        for (const auto& [name, counts] : named_)
            for (const int count : counts)
                if (count != 1) {
                    defects.push_back("elements of " + name + " were not saved exactly once");
                    break;
                }
    }
    NamedTensors tensors;

  private:
    std::mutex mutex_;
    std::map<std::string, std::vector<int>> named_;
};

void fill_from(const std::vector<NamedSlice>& slices, const NamedTensors& tensors) {
    for (const NamedSlice& slice : slices) {
        const std::vector<float>& tensor = tensors.at(slice.name);
        std::copy(tensor.begin() + slice.flat.begin, tensor.begin() + slice.flat.end, slice.view.as<float>());
    }
}

// One rank's run.
class RankRun {
  public:
    RankRun(RankContext& context, const std::vector<ParamSpec>& params, const ZeroRun& run)
        : context_(context),
          params_(params),
          run_(run),
          units_(unit_layouts(params, run.ranks)),
          zero_(make_zero_state(context.device, context.ops, {context.data}, context.compute,
                                context.communication, params, run.options)),
          scalars_(context.device.allocate(step_scalars * sizeof(double), Memory::Device, "scalars")) {
        producers_.push_back(&context.compute);
        for (int i = 1; i < run.producers; ++i) {
            own_.push_back(context.device.make_stream("producer", StreamRole::Communication));
            producers_.push_back(own_.back().get());
        }
        if (run.load == nullptr) {
            zero_->initialise(run.seed);
        } else {
            zero_->initialise(run.seed + 1);  // other values, so that what is not loaded shows
            context.compute.synchronize();
            context.communication.synchronize();
            fill_from(zero_->load_slices(), *run.load);
            zero_->loaded();
        }
    }

    // Issues all steps without waiting for any, unless a fault makes the number of updates unknown.
    std::vector<StepResult> train() {
        std::vector<std::array<double, step_scalars>> scalars(static_cast<std::size_t>(run_.steps));
        int updates = run_.updates_before;
        std::uint64_t allocations = 0;
        for (int step = 0; step < run_.steps; ++step) {
            auto& values = scalars[static_cast<std::size_t>(step)];
            if (run_.abandon) backward(-1 - step);
            one_step(step, updates, values);
            if (run_.fault.rank >= 0) context_.compute.synchronize();
            if (run_.fault.rank < 0 || values[scalar_apply] != 0.0) ++updates;
            const std::uint64_t now = context_.device.memory_use().allocations;
            if (step > 0) steady_allocations += now - allocations;
            allocations = now;
        }
        context_.compute.synchronize();
        std::vector<StepResult> results;
        for (const auto& values : scalars)
            results.push_back({values[scalar_loss_sum], values[scalar_grad_norm], values[scalar_clip],
                               values[scalar_apply]});
        return results;
    }

    // Full weights of every parameter as layers see them; padding that is not 0 is a defect.
    NamedTensors weights(std::vector<std::string>& defects) {
        NamedTensors tensors;
        for (const UnitLayout& unit : units_) {
            const Weights weights = zero_->params().acquire(unit.unit, context_.compute);
            context_.compute.synchronize();
            std::vector<bool> logical(static_cast<std::size_t>(unit.padded), false);
            for (const TensorRange& range : tensor_ranges(unit, params_, {0, unit.padded})) {
                auto& tensor = tensors[params_[static_cast<std::size_t>(range.param)].name];
                for (std::int64_t e = 0; e < range.flat.size(); ++e) {
                    tensor.push_back(static_cast<float>(element(weights.flat(), range.unit_offset + e)));
                    logical[static_cast<std::size_t>(range.unit_offset + e)] = true;
                }
            }
            for (std::int64_t e = 0; e < unit.padded; ++e) {
                if (logical[static_cast<std::size_t>(e)] || element(weights.flat(), e) == 0.0) continue;
                defects.push_back("padding of unit " + std::to_string(unit.unit) + " is not 0");
                break;
            }
            zero_->params().release(unit.unit, context_.compute);
        }
        return tensors;
    }

    ZeroState& zero() { return *zero_; }
    std::uint64_t steady_allocations = 0;

  private:
    // Returns the sum of this rank's losses.
    double backward(int step) {
        const int micros = run_.samples / run_.ranks;
        SyntheticGradient gradient{static_cast<std::uint64_t>(run_.first_step + step), run_.kind, -1};
        const bool faulty = run_.fault.rank == context_.rank && run_.fault.step == step;
        double loss = 0.0;
        for (int micro = 0; micro < micros; ++micro) {
            const int sample = micro * run_.ranks + context_.rank;
            if (faulty && run_.fault.where == Fault::Where::Gradient) gradient.poisoned_sample = sample;
            zero_->grads().begin_micro(0, micro, micro + 1 == micros ? MicroKind::Last : MicroKind::Inner);
            synthetic_backward(params_, units_, zero_->params(), zero_->grads(), producers_, gradient, sample,
                               run_.first, run_.announce);
            loss += sample + 1;
        }
        const bool loses = faulty && run_.fault.where == Fault::Where::Loss;
        return loses ? std::numeric_limits<double>::quiet_NaN() : loss;
    }

    void one_step(int step, int updates, std::array<double, step_scalars>& values) {
        const double loss = backward(step);
        const TensorView scalars = scalars_.view(Shape{step_scalars}, DType::F64);
        host_stream(context_.compute).run([=] { scalars.as<double>()[scalar_loss_sum] = loss; });
        UpdateSettings settings;
        settings.lr = 0.01;
        settings.max_norm = run_.max_norm;
        settings.applied_updates = updates;
        zero_->update(scalars, settings);
        host_stream(context_.compute).run([=, &values] {
            std::copy_n(scalars.as<double>(), values.size(), values.begin());
        });
    }

    RankContext& context_;
    const std::vector<ParamSpec>& params_;
    const ZeroRun& run_;
    std::vector<UnitLayout> units_;
    std::vector<std::unique_ptr<Stream>> own_;
    std::vector<Stream*> producers_;
    std::unique_ptr<ZeroState> zero_;
    Buffer scalars_;
};

void compare_weights(const NamedTensors& state, const NamedTensors& weights, DType compute, int rank,
                     std::vector<std::string>& defects) {
    for (const auto& [name, tensor] : weights) {
        const std::vector<float>& master = state.at(name);
        bool equal = tensor.size() == master.size();
        for (std::size_t e = 0; equal && e < tensor.size(); ++e) {
            const float rounded = compute == DType::BF16  ? to_float(to_bfloat16(master[e]))
                                  : compute == DType::F16 ? to_float(to_float16(master[e]))
                                                          : master[e];
            equal = rounded == tensor[e];
        }
        if (!equal)
            defects.push_back("weights of " + name + " on rank " + std::to_string(rank) +
                              " are not the rounded master");
    }
}

}  // namespace

void on_ranks(int ranks, const std::function<void(RankContext&)>& f, const RankOptions& options) {
    run_ranks(
        ranks,
        [&](World& world, CpuDevice& device) {
            const auto ops = make_reference_ops();
            const auto compute = device.make_stream("compute", StreamRole::Compute);
            const auto communication = device.make_stream("communication", StreamRole::Communication);
            RankContext context{world.rank(), device, world.all(), *compute, *communication, ops->ops()};
            f(context);
            communication->synchronize();
        },
        options);
}

ZeroResult run_zero(const std::vector<ParamSpec>& params, const ZeroRun& run) {
    ZeroResult result;
    result.steps.resize(static_cast<std::size_t>(run.ranks));
    std::vector<NamedTensors> weights(static_cast<std::size_t>(run.ranks));
    Joined joined(params);
    std::mutex mutex;
    const auto run_rank = [&](RankContext& context) {
        RankRun rank(context, params, run);
        const auto index = static_cast<std::size_t>(context.rank);
        result.steps[index] = rank.train();
        std::vector<std::string> defects;
        weights[index] = rank.weights(defects);
        context.communication.synchronize();
        joined.add(rank.zero().state_slices());
        const std::lock_guard lock(mutex);
        result.defects.insert(result.defects.end(), defects.begin(), defects.end());
        result.buckets = rank.zero().buckets();
        result.steady_allocations += rank.steady_allocations;
    };
    on_ranks(run.ranks, run_rank, run.on);
    joined.find_defects(result.defects);
    result.state = std::move(joined.tensors);
    for (int rank = 0; rank < run.ranks; ++rank)
        compare_weights(result.state, weights[static_cast<std::size_t>(rank)], run.options.compute, rank,
                        result.defects);
    return result;
}

}  // namespace trainctl::test
