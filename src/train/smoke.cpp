#include "trainctl/train/smoke.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

#include "trainctl/base/error.h"
#include "trainctl/base/text.h"
#include "trainctl/rundir/run_identity.h"
#include "trainctl/train/host_slices.h"
#include "trainctl/train/run_checkpoints.h"
#include "trainctl/train/synthetic_stream.h"

namespace trainctl {
namespace {

constexpr std::int64_t smoke_steps = 100;
constexpr std::int64_t saved_step = 50;
constexpr std::int64_t compared_steps = 10;  // trained again after the load
constexpr std::int64_t symbols = 64;

// What one step left behind, to be compared bit by bit.
struct StepTrace {
    double loss = 0.0;
    double grad_norm = 0.0;
};

bool same_bits(double a, double b) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

HostSlices state_on_host(Rank& rank, Training& training) {
    HostSlices state(rank.device, *rank.compute, training.state().state_slices());
    state.download();
    return state;
}

std::vector<std::byte> copy_state(Rank& rank, Training& training) {
    std::vector<std::byte> bytes;
    const HostSlices state = state_on_host(rank, training);
    for (const NamedSlice& slice : state.host()) {
        bytes.insert(bytes.end(), slice.view.data, slice.view.data + slice.view.bytes());
    }
    return bytes;
}

bool any_nonzero(const TensorView& view) {
    return std::any_of(view.data, view.data + view.bytes(),
                       [](std::byte byte) { return byte != std::byte{0}; });
}

// Names of the parameters whose second moment is still zero everywhere: they never saw a gradient.
std::vector<std::string> parameters_without_gradient(Rank& rank, Training& training) {
    const std::vector<ParamSpec>& params = training.model().parameters();
    std::vector<std::int64_t> moved(params.size(), 0);
    const HostSlices state = state_on_host(rank, training);
    for (const NamedSlice& slice : state.host()) {
        for (std::size_t index = 0; index < params.size(); ++index) {
            if (slice.name == params[index].name + ".v" && any_nonzero(slice.view)) moved[index] = 1;
        }
    }
    rank.world.control().all_reduce(moved, Reduce::Max);
    std::vector<std::string> still;
    for (std::size_t index = 0; index < params.size(); ++index) {
        if (moved[index] == 0) still.push_back(params[index].name);
    }
    return still;
}

SmokeCheck check_ranks(Rank& rank) {
    std::string found;
    bool contiguous = true;
    const std::vector<std::string> names =
        rank.world.control().gather(fmt::format("{} {}", rank.world.rank(), rank.world.host()));
    for (std::size_t index = 0; index < names.size(); ++index) {
        contiguous = contiguous && names[index].starts_with(std::to_string(index) + " ");
    }
    found = rank.world.control().broadcast(
        fmt::format("{} heard{}", counted(names.size(), "rank"), contiguous ? ", contiguous" : ""));
    const std::string expected = fmt::format("{} heard, contiguous", counted(rank.world.size(), "rank"));
    return {"ranks", found == expected, expected, found};
}

SmokeCheck check_first_loss(double loss) {
    const double uniform = std::log(static_cast<double>(symbols));
    constexpr double tolerance =
        0.1;  // an untrained model is nearly uniform: logits have a standard deviation below 0.2
    return {"first loss", std::abs(loss - uniform) <= tolerance,
            fmt::format("ln V = {:.3f} +- {}", uniform, tolerance), fmt::format("{:.3f}", loss)};
}

SmokeCheck check_last_loss(const SyntheticLanguage& language, const std::vector<StepTrace>& trace) {
    constexpr std::size_t averaged = 10;
    double loss = 0.0;
    for (std::size_t index = trace.size() - averaged; index < trace.size(); ++index)
        loss += trace[index].loss;
    loss /= averaged;
    // Half of what the context tells: no learner that ignores or misplaces the last symbol gets there.
    const double bound = 0.5 * (language.unigram_entropy() + language.entropy());
    return {"learning", loss < bound && loss > language.entropy() - 0.05,
            fmt::format("below {:.3f} on the way to the entropy {:.3f} (without context {:.3f})", bound,
                        language.entropy(), language.unigram_entropy()),
            fmt::format("{:.3f}", loss)};
}

SmokeCheck check_gradients(Rank& rank, Training& training) {
    const std::vector<std::string> still = parameters_without_gradient(rank, training);
    return {"every tensor learns", still.empty(),
            fmt::format("{} with gradients", counted(training.model().parameters().size(), "tensor")),
            still.empty() ? "all" : fmt::format("{} without, first: {}", still.size(), still.front())};
}

SmokeCheck check_finite(const Progress& progress) {
    return {"finite", progress.skipped == 0, "0 steps skipped",
            fmt::format("{} skipped", counted(progress.skipped, "step"))};
}

// Trains step by step, remembering what each left behind.
class TracedRun {
  public:
    TracedRun(Rank& rank, Training& training, Clock& clock, const SmokeOptions& options)
        : rank_(rank), training_(training), clock_(clock), options_(options) {}

    void run_to(std::int64_t step, Progress& progress, std::vector<StepTrace>& trace) {
        const JobSpec& job = training_.job();
        while (progress.step < step) {
            leave_if_asked(progress.step);
            training_.runner().fetch(training_.train_data(), progress, [] { return false; });
            const StepResult result = training_.runner().step(training_.train_data(), progress);
            const std::int64_t tokens = job.training.global_batch_size * job.training.sequence_length;
            progress.advance(job.training.global_batch_size, tokens, result.outcome, result.next_loss_scale);
            trace.push_back({result.loss, result.grad_norm});
            if (rank_.world.rank() != 0 || !options_.progress) continue;
            StepRecord record;
            record.step = progress.step;
            record.total = job.steps;
            record.loss = result.loss;
            record.grad_norm = result.grad_norm;
            record.clip = result.clip;
            record.lr = result.lr;
            record.applied = result.outcome == StepOutcome::Applied;
            record.applied_updates = progress.applied_updates;
            record.skipped = progress.skipped;
            record.unix_s = clock_.unix_s();
            record.step_s = result.seconds;
            record.tokens_per_s = static_cast<double>(tokens) / result.seconds;
            record.phases = result.phases;
            record.device_bytes = rank_.device.memory_use().device_bytes;
            options_.progress(record);
        }
    }

  private:
    void leave_if_asked(std::int64_t step) {
        if (options_.stop == nullptr) return;
        std::array<std::int64_t, 1> asked{options_.stop->stop_requested() ? 1 : 0};
        rank_.world.control().all_reduce(asked, Reduce::Max);
        if (asked[0] == 0) return;
        throw Error(
            Exit::Interrupted,
            fmt::format("stopped on request after {}: the smoke run gives no verdict", counted(step, "step")),
            Where::here(), Scope::Shared);
    }

    Rank& rank_;
    Training& training_;
    Clock& clock_;
    const SmokeOptions& options_;
};

}  // namespace

bool SmokeReport::passed() const {
    return std::all_of(checks.begin(), checks.end(), [](const SmokeCheck& check) { return check.passed; });
}

JobSpec smoke_job(std::uint64_t seed, int ranks) {
    JobSpec job;
    job.name = "smoke";
    job.seed = seed;
    job.steps = smoke_steps;
    job.model.architecture = Architecture::Llama;
    job.model.layers = 2;
    job.model.hidden_size = 64;
    job.model.heads = 4;
    job.model.kv_heads = 2;
    job.model.head_dim = 16;
    job.model.ffn_size = 192;
    job.model.vocab_size = symbols;
    job.model.max_sequence_length = 64;
    job.training.sequence_length = 64;
    // About 32 samples a step whatever the number of ranks; each rank gets at least one.
    job.training.micro_batch_size = std::max(1, 32 / ranks);
    job.training.global_batch_size = job.training.micro_batch_size * ranks;
    job.optimizer.lr = 1e-2;
    job.schedule.kind = ScheduleKind::Cosine;
    job.schedule.warmup_steps = 10;
    job.schedule.min_lr = 1e-3;
    return job;
}

SmokeReport run_smoke(Rank& rank, FileSystem& files, Clock& clock, Log& log, const SmokeOptions& options) {
    const double began = clock.monotonic_s();
    const JobSpec job = smoke_job(options.seed, rank.world.size());
    const SyntheticLanguage language(symbols, options.seed);
    const SyntheticStream honest(language, job.training.sequence_length);
    const std::unique_ptr<SampleStream> wrapped = options.wrap_data ? options.wrap_data(honest) : nullptr;
    const SampleStream& data = wrapped ? *wrapped : static_cast<const SampleStream&>(honest);

    SmokeReport report;
    report.ranks = rank.world.size();
    report.checks.push_back(check_ranks(rank));

    std::vector<StepTrace> trace;
    std::vector<std::byte> state_after_compared;
    const bool with_checkpoint = !options.directory.empty();
    StoreSettings settings;
    settings.root = RunLayout(options.directory).checkpoints();
    settings.run_id = rank.world.control().broadcast(make_run_id());
    std::unique_ptr<JournalWriter> journal;
    if (with_checkpoint && rank.world.rank() == 0) {
        journal =
            std::make_unique<JournalWriter>(files, clock, RunLayout(options.directory), settings.attempt);
    }
    CheckpointStore store(files, clock, settings, journal.get(), {});
    {
        Training training(rank, job, data, nullptr, clock, options.hooks);
        training.state().initialise(job.seed);
        RunCheckpoints checkpoints(store, rank, training, {"", "", layout_counters(job, rank.mesh)}, log);
        TracedRun run(rank, training, clock, options);
        Progress progress;
        run.run_to(saved_step, progress, trace);
        if (with_checkpoint) {
            checkpoints.begin(progress);
            checkpoints.finish(INFINITY);
        }
        run.run_to(saved_step + compared_steps, progress, trace);
        rank.communication->synchronize();
        state_after_compared = copy_state(rank, training);
        run.run_to(smoke_steps, progress, trace);
        rank.communication->synchronize();
        report.checks.push_back(check_first_loss(trace.front().loss));
        report.checks.push_back(check_last_loss(language, trace));
        report.checks.push_back(check_gradients(rank, training));
        report.checks.push_back(check_finite(progress));
    }
    if (with_checkpoint) {
        Training training(rank, job, data, nullptr, clock, options.hooks);
        RunCheckpoints checkpoints(store, rank, training, {}, log);
        Progress progress = checkpoints.resume({ResumeMode::Auto, -1}, RunState::Existing).progress;
        std::vector<StepTrace> again;
        SmokeOptions quiet;
        quiet.stop = options.stop;
        TracedRun run(rank, training, clock, quiet);
        run.run_to(saved_step + compared_steps, progress, again);
        rank.communication->synchronize();
        bool exact = copy_state(rank, training) == state_after_compared;
        for (std::size_t index = 0; index < again.size(); ++index) {
            const StepTrace& straight = trace[saved_step + index];
            exact = exact && same_bits(again[index].loss, straight.loss) &&
                    same_bits(again[index].grad_norm, straight.grad_norm);
        }
        std::array<std::int64_t, 1> all_exact{exact ? 1 : 0};
        rank.world.control().all_reduce(all_exact, Reduce::Min);
        report.checks.push_back(
            {"checkpoint", all_exact[0] != 0,
             fmt::format("step {} saved, loaded, {} more steps equal to the bit", saved_step, compared_steps),
             all_exact[0] != 0 ? "equal to the bit" : "weights, moments, losses or norms differ"});
    }
    report.seconds = clock.monotonic_s() - began;
    return report;
}

std::string describe(const SmokeReport& report) {
    std::string text;
    for (const SmokeCheck& check : report.checks) {
        text += fmt::format("{}  {:<20} {}  (expected: {})\n", check.passed ? "ok  " : "FAIL", check.name,
                            check.found, check.expected);
    }
    return text + fmt::format("{} on {} in {}\n", report.passed() ? "smoke passed" : "smoke FAILED",
                              counted(report.ranks, "rank"), format_duration(report.seconds));
}

std::string to_json(const SmokeReport& report) {
    std::string checks;
    for (const SmokeCheck& check : report.checks) {
        checks += fmt::format("{}{{\"name\":{},\"passed\":{},\"expected\":{},\"found\":{}}}",
                              checks.empty() ? "" : ",", json_quote(check.name), check.passed,
                              json_quote(check.expected), json_quote(check.found));
    }
    return fmt::format(
        "{{\"type\":\"smoke\",\"v\":1,\"passed\":{},\"ranks\":{},\"seconds\":{},\"checks\":[{}]}}",
        report.passed(), report.ranks, json_number(report.seconds), checks);
}

}  // namespace trainctl
