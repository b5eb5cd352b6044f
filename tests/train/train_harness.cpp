#include "train/train_harness.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>

#include "support/larger.h"
#include "support/memory_file_system.h"
#include "support/run_ranks.h"
#include "trainctl/train/host_slices.h"
#include "trainctl/train/synthetic_stream.h"

namespace trainctl::test {
namespace {

class RecordingLog final : public Log {
  public:
    void write(LogLevel /*level*/, std::string_view text) override {
        const std::lock_guard lock(mutex_);
        lines_.emplace_back(text);
    }
    std::vector<std::string> lines() {
        const std::lock_guard lock(mutex_);
        return lines_;
    }

  private:
    std::mutex mutex_;
    std::vector<std::string> lines_;
};

class RecordingObserver final : public StepObserver {
  public:
    RecordingObserver(TrainOutcome& outcome, const Device& device) : outcome_(outcome), device_(device) {
        outcome_.steps.reserve(2048);  // the harness must not grow the heap that a test watches
    }
    void step(const StepRecord& record) override {
        outcome_.last_record = record;
        const std::uint64_t allocations = device_.memory_use().allocations;
        if (!first_allocations_) first_allocations_ = allocations;
        outcome_.device_allocations_after_first_step = allocations - *first_allocations_;
        outcome_.steps.push_back(
            {record.loss, record.grad_norm, record.lr, record.applied, record.loss_scale});
    }
    void evaluation(const EvaluationRecord& record) override { outcome_.evaluations.push_back(record.loss); }
    void checkpoint(const CheckpointRecord& record) override { outcome_.saves.push_back(record); }
    void copy(const CopyRecord& record) override { outcome_.copies.push_back(record); }

  private:
    TrainOutcome& outcome_;
    const Device& device_;
    std::optional<std::uint64_t> first_allocations_;
};

// Where element e of a slice lies in the flattened whole tensor.
class WholeIndex {
  public:
    explicit WholeIndex(const NamedSlice& slice)
        : slice_(slice),
          width_(slice.box.extent.elements() / slice.box.extent[0]),
          whole_width_(slice.global.elements() / slice.global[0]),
          column_(slice.global.rank() > 1 ? slice.box.offset[1] : 0) {}
    [[nodiscard]] std::size_t of(std::int64_t e) const {
        const std::int64_t row = slice_.box.offset[0] + (slice_.flat.begin + e) / width_;
        return static_cast<std::size_t>(row * whole_width_ + column_ + (slice_.flat.begin + e) % width_);
    }

  private:
    const NamedSlice& slice_;
    std::int64_t width_;
    std::int64_t whole_width_;
    std::int64_t column_;
};

// Adds a rank's slices to the whole tensors.
void collect(const std::vector<NamedSlice>& slices, std::map<std::string, std::vector<float>>& state,
             std::mutex& mutex) {
    const std::lock_guard lock(mutex);
    for (const NamedSlice& slice : slices) {
        std::vector<float>& whole = state[slice.name];
        whole.resize(static_cast<std::size_t>(slice.global.elements()));
        const WholeIndex index(slice);
        for (std::int64_t e = 0; e < slice.flat.size(); ++e) whole[index.of(e)] = slice.view.as<float>()[e];
    }
}

// The values of the whole tensor that a rank holds; in host memory.
void set_values(const NamedSlice& slice, const std::vector<float>& whole) {
    const WholeIndex index(slice);
    for (std::int64_t e = 0; e < slice.flat.size(); ++e) slice.view.as<float>()[e] = whole[index.of(e)];
}

// Whether a rank holds what the one that saves it does, to the bit.
bool equals(const NamedSlice& slice, const std::vector<float>& whole) {
    const WholeIndex index(slice);
    for (std::int64_t e = 0; e < slice.flat.size(); ++e)
        if (std::memcmp(&whole[index.of(e)], slice.view.as<float>() + e, sizeof(float)) != 0) return false;
    return true;
}

}  // namespace

bool TracedStep::operator==(const TracedStep& other) const {
    const auto bits = [](const TracedStep& step) {
        return std::array{std::bit_cast<std::uint64_t>(step.loss),
                          std::bit_cast<std::uint64_t>(step.grad_norm),
                          std::bit_cast<std::uint64_t>(step.lr)};
    };
    return bits(*this) == bits(other) && applied == other.applied && loss_scale == other.loss_scale;
}

JobSpec tiny_job(Architecture architecture) {
    JobSpec job;
    job.seed = 42;
    job.steps = 20;
    job.model.architecture = architecture;
    job.model.layers = 2;
    job.model.hidden_size = 32;
    job.model.heads = 4;
    job.model.kv_heads = architecture == Architecture::Llama ? 2 : 4;
    job.model.head_dim = 8;
    job.model.ffn_size = architecture == Architecture::Llama ? 96 : 128;
    job.model.vocab_size = 97;
    job.model.max_sequence_length = 16;
    job.model.tie_embeddings = architecture == Architecture::Gpt2;
    job.training.sequence_length = 16;
    job.training.micro_batch_size = 2;
    job.training.global_batch_size = 8;
    job.precision.compute = DType::F32;
    job.optimizer.lr = 3e-3;
    job.schedule.warmup_steps = 5;
    job.schedule.min_lr = 3e-4;
    job.data.prefetch_batches = 2;
    job.checkpoint.async = false;  // so that it depends on no clock which steps are saved
    return job;
}

JobSpec calm_job(Architecture architecture) {
    JobSpec job = tiny_job(architecture);
    job.optimizer.epsilon = 1e-6;
    job.optimizer.lr = 1e-3;
    job.schedule.min_lr = 1e-4;
    return job;
}

void make_updates_far_too_large(JobSpec& job) {
    job.schedule.kind = ScheduleKind::Constant;
    job.schedule.warmup_steps = 0;
    job.optimizer.lr = 1e38;
    job.optimizer.weight_decay = 1e3;
}

TrainOutcome train(const TrainSetup& setup) {
    TrainOutcome outcome;
    outcome.steps_of_rank.resize(static_cast<std::size_t>(setup.ranks));
    RecordingLog log;
    std::mutex mutex;
    const SyntheticLanguage language(setup.job.model.vocab_size, setup.job.seed);
    const SyntheticStream synthetic(language, setup.job.training.sequence_length);
    RankOptions options;
    options.threads = setup.threads;
    options.isa = detect_cpu_isa();
    options.late_seed = setup.late_seed;
    const auto as_rank = [&](World& world, CpuDevice& device) {
        SystemClock system_clock;
        Clock& clock = setup.clock != nullptr ? *setup.clock : system_clock;
        JobSpec job = setup.job;
        const MeshShape shape = mesh_shape(job.parallel, world.size());
        const std::shared_ptr<Rank> made = setup.make_rank ? setup.make_rank(world, device, shape)
                                                           : std::make_shared<Rank>(device, world, shape);
        Rank& rank = *made;
        Training training(rank, job, setup.data != nullptr ? *setup.data : synthetic, setup.validation, clock,
                          setup.hooks ? setup.hooks(world.rank()) : TrainingHooks{});
        std::unique_ptr<CheckpointStore> store;
        std::unique_ptr<RunCheckpoints> checkpoints;
        Progress start;
        bool fresh = true;
        std::unique_ptr<TierCopies> copies;
        if (setup.files != nullptr || setup.files_of) {
            FileSystem& files = setup.files_of ? setup.files_of(world.rank()) : *setup.files;
            StoreSettings settings;
            settings.root = setup.root;
            settings.run_id = "test-run";
            settings.attempt = setup.attempt;
            settings.retention.keep_latest = 100;
            settings.reach = setup.reach;
            settings.nodes = setup.nodes;
            for (const CopyTarget& target : setup.copies)
                if (target.kind == CopyTarget::Kind::Place) settings.copies.push_back(target.place);
            store = std::make_unique<CheckpointStore>(files, clock, settings, nullptr, Journal{});
            if (!setup.copies.empty()) {
                CopySettings how;
                how.from = {setup.root, setup.root, setup.reach};
                how.nodes = setup.nodes;
                how.run_id = settings.run_id;
                copies = std::make_unique<TierCopies>(files, clock, world, how, setup.copies);
            }
            checkpoints = std::make_unique<RunCheckpoints>(
                *store, rank, training, CheckpointContext{"", "", layout_counters(job, rank.mesh)}, log,
                copies.get());
            if (setup.resume) {
                const auto resumed = checkpoints->resume({*setup.resume, -1}, RunState::Existing);
                fresh = resumed.report.outcome == LoadOutcome::StartFresh;
                start = resumed.progress;
            }
        }
        if (fresh && setup.start_from) {
            StoreSettings source;
            source.root = *setup.start_from;
            source.run_id = "test-run";
            CheckpointStore other(*setup.files, clock, source, nullptr, Journal{});
            checkpoints->start_from(other, other.newest_complete()->manifest.directory);
        } else if (fresh) {
            training.state().initialise(job.seed);
        }
        if (setup.weights != nullptr) {
            for (const NamedSlice& slice : weights_of(training.state().load_slices()))
                set_values(slice, setup.weights->at(slice.name));
            training.state().loaded();
        }
        TrainOutcome own;
        RecordingObserver observer(own, rank.device);
        StopFlag stop;
        std::int64_t boundary = start.step;
        const std::shared_ptr<CheckpointWriter> writer =
            setup.writer ? setup.writer(world.rank(), *checkpoints) : nullptr;
        Trainer trainer({training.runner(),
                         training.train_data(),
                         training.validation_data(),
                         world.control(),
                         writer ? writer.get() : checkpoints.get(),
                         observer,
                         clock,
                         log,
                         [&] {
                             if (setup.at_boundary) setup.at_boundary(world.rank(), stop, boundary);
                             ++boundary;
                         },
                         {},
                         setup.attempt,
                         rank.ranges,
                         setup.gpu ? [&] { return setup.gpu(world.rank()); } : std::function<GpuRecord()>()},
                        job, start);
        if (setup.steps > 0) {
            while (trainer.progress().step < setup.steps) trainer.step();
            if (checkpoints) {
                checkpoints->begin(trainer.progress());
                checkpoints->finish(INFINITY);
            }
        } else {
            try {
                const Exit exit = trainer.run(stop);
                if (copies) {
                    copies->finish();
                    trainer.take_copies();
                }
                if (world.rank() == 0) outcome.exit = exit;
            } catch (const Error&) {
                if (setup.after_error) setup.after_error(world.rank(), *checkpoints);
                throw;
            }
        }
        rank.communication->synchronize();
        rank.compute->synchronize();
        const std::uint64_t planned = training.plan().device_bytes();
        const MemoryUse use = rank.device.memory_use();
        HostSlices saved(rank.device, *rank.compute, training.state().state_slices());
        saved.download();
        collect(saved.host(), outcome.state, mutex);
        // Host memory that messages outgrow lives on until the last of them has ended.
        const bool at_peak =
            rank.device.info().memory == DeviceMemoryKind::Host || planned == use.device_peak_bytes;
        if (planned != use.device_bytes || !at_peak) {
            const std::lock_guard lock(mutex);
            outcome.off_plan.push_back("rank " + std::to_string(world.rank()) + " holds " +
                                       std::to_string(use.device_bytes) + " bytes, at most " +
                                       std::to_string(use.device_peak_bytes) + ", planned " +
                                       std::to_string(planned));
        }
        // Of a device with memory of its own; what is the host's is counted with the rest.
        const std::uint64_t most_pinned = training.plan().pinned_bytes + training.plan().staging_bytes;
        if (rank.device.info().memory == DeviceMemoryKind::Own && use.pinned_peak_bytes > most_pinned) {
            const std::lock_guard lock(mutex);
            outcome.off_plan.push_back("rank " + std::to_string(world.rank()) + " pinned " +
                                       std::to_string(use.pinned_peak_bytes) + " bytes, planned " +
                                       std::to_string(most_pinned));
        }
        if (world.rank() == 0) {
            outcome.progress = trainer.progress();
            outcome.planned_step = training.plan().step;
            outcome.steps = own.steps;
            outcome.last_record = own.last_record;
            outcome.evaluations = own.evaluations;
            outcome.saves = own.saves;
            outcome.copies = own.copies;
            outcome.device_allocations_after_first_step = own.device_allocations_after_first_step;
        }
        outcome.steps_of_rank[static_cast<std::size_t>(world.rank())] = std::move(own.steps);
        world.control().barrier();  // the state is whole
        HostSlices held_slices(rank.device, *rank.compute, training.state().load_slices());
        held_slices.download();
        for (const NamedSlice& slice : held_slices.host()) {
            if (equals(slice, outcome.state.at(slice.name))) continue;
            const std::lock_guard lock(mutex);
            outcome.drifted.push_back(slice.name);
        }
        world.control().barrier();
    };
    run_ranks(setup.ranks, as_rank, options);
    outcome.log = log.lines();
    return outcome;
}

TrainOutcome train_interrupted(TrainSetup setup, std::int64_t stop) {
    MemoryFileSystem files;
    setup.files = &files;
    setup.root = "checkpoints";
    setup.steps = stop;
    train(setup);
    setup.steps = 0;
    setup.resume = ResumeMode::Auto;
    setup.attempt = 2;
    return train(setup);
}

std::vector<std::string> differing_tensors(const TrainOutcome& a, const TrainOutcome& b, double tolerance,
                                           const std::vector<std::string>& exempt) {
    std::vector<std::string> differing;
    for (const auto& [name, values] : a.state) {
        if (std::any_of(exempt.begin(), exempt.end(),
                        [&](const std::string& part) { return name.find(part) != std::string::npos; })) {
            continue;
        }
        const auto other = b.state.find(name);
        if (other == b.state.end() || other->second.size() != values.size()) {
            differing.push_back(name + " (missing)");
            continue;
        }
        double largest = 0.0;
        double difference = 0.0;
        for (std::size_t index = 0; index < values.size(); ++index) {
            largest = larger(largest, std::abs(static_cast<double>(values[index])));
            difference =
                larger(difference, std::abs(static_cast<double>(values[index]) - other->second[index]));
        }
        if (!(difference <= tolerance * largest)) differing.push_back(name);
    }
    return differing;
}

}  // namespace trainctl::test
