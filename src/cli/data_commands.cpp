#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/job_options.h"
#include "cli/number_option.h"
#include "cli/output_lock.h"
#include "trainctl/base/error.h"
#include "trainctl/base/log.h"
#include "trainctl/data/commands.h"
#include "trainctl/train/signals.h"

namespace trainctl {
namespace {

// How a token file is to be read when its name and contents do not say.
struct FormatOptions {
    std::string format = "auto";
    std::string dtype;

    void add(CLI::App& command) {
        command.add_option("--format", format, "megatron, nanogpt or llmc; default: found out")
            ->check(CLI::IsMember({"auto", "megatron", "nanogpt", "llmc"}));
        command.add_option("--dtype", dtype, "ids of a headerless (nanogpt) file")
            ->check(CLI::IsMember({"uint16", "uint32"}));
    }
    [[nodiscard]] TokenFormat token_format() const {
        if (format == "megatron") return TokenFormat::Megatron;
        if (format == "nanogpt") return TokenFormat::NanoGpt;
        if (format == "llmc") return TokenFormat::LlmC;
        return TokenFormat::Auto;
    }
    [[nodiscard]] std::optional<DType> token_dtype() const {
        if (dtype.empty()) return std::nullopt;
        return dtype == "uint16" ? DType::U16 : DType::U32;
    }
};

void show_progress(const PrepareProgress& progress, bool terminal) {
    write_text(STDERR_FILENO,
               (terminal ? "\r\x1b[2K" : "") + format_progress(progress) + (terminal ? "" : "\n"));
}

void add_prepare(CLI::App& data, Invocation& invocation) {
    auto args = std::make_shared<PrepareArgs>();
    CLI::App* command =
        data.add_subcommand("prepare", "Turn text and JSONL (also .gz, .zst) into token files");
    command->add_option("--input", args->inputs, "files or directories")->required();
    command->add_option("--output", args->output, "PREFIX of PREFIX.bin, PREFIX.idx and PREFIX.json")
        ->required();
    command->add_option("--tokenizer", args->tokenizer, "byte: 256 bytes and an end-of-document token")
        ->capture_default_str();
    command->add_option("--jsonl-key", args->jsonl_key, "key of the text in JSONL lines")
        ->capture_default_str();
    command->add_option("--threads", args->threads, "0: the cores of this process, at most 32")
        ->check(whole_number({.low = 0, .high = 1024}));
    command->add_flag_callback(
        "--overwrite", [args] { args->existing = Existing::Replace; }, "replace existing output files");
    add_json_flag(*command, invocation);
    command->callback([&invocation, args] {
        invocation.action = [&invocation, args] {
            StopFlag stop;
            DescriptorLog log(STDERR_FILENO, LogLevel::Info, {});
            // What the signal leads to is said by the error that ends the command.
            const SignalThread signals(stop, log, Announce::Never);
            std::optional<OutputLock> lock;
            args->claim = [&lock](const std::string& prefix) { lock.emplace(prefix); };
            const bool terminal = isatty(STDERR_FILENO) == 1;
            args->progress_interval_s = terminal ? 0.2 : 10.0;
            args->progress = [terminal](const PrepareProgress& progress) {
                show_progress(progress, terminal);
            };
            args->stop = [&stop] { return stop.stop_requested(); };
            const CommandResult result =
                prepare_data(invocation.files, invocation.clock, *args, invocation.format);
            if (terminal) write_text(STDERR_FILENO, "\n");
            return show(invocation, result);
        };
    });
}

void add_inspect(CLI::App& data, Invocation& invocation) {
    struct Options {
        InspectArgs args;
        InspectStepArgs step;
        FormatOptions format;
        JobOptions job;
        std::optional<std::int64_t> ranks;
    };
    auto options = std::make_shared<Options>();
    CLI::App* command = data.add_subcommand("inspect",
                                            "Counts, document lengths and excerpts of a token file; or, with "
                                            "--job and --step, what a step is fed");
    CLI::Option* path = command->add_option("PATH", options->args.path, "prefix or file");
    command->add_option("--tokenizer", options->args.tokenizer, "how to show ids; default: of PREFIX.json");
    command->add_option("--end-of-document", options->args.end_of_document, "id that ends a document")
        ->check(whole_number({.low = 0, .high = INT32_MAX}));
    command->add_option("--excerpts", options->args.excerpts, "documents shown")
        ->capture_default_str()
        ->check(whole_number({.low = 0, .high = most_repetitions}));
    command
        ->add_option("--excerpt-tokens", options->args.excerpt_tokens,
                     "tokens shown of each; with --step 0: all")
        ->capture_default_str()
        ->check(whole_number({.low = 0, .high = most_repetitions}));
    options->format.add(*command);
    CLI::Option* job = command->add_option("--job", options->job.path, "job file")->excludes(path);
    command->add_option("--set", options->job.set, "key=value of the job file");
    command->add_option("--step", options->step.step, "any past or future step; the first is 1")
        ->needs(job)
        ->check(whole_number({.low = 1, .high = 1e9}));
    command
        ->add_option("--ranks", options->ranks,
                     "data-parallel ranks, to name the reader of each sample; default: of the job, else 1")
        ->needs(job)
        ->check(rank_count());
    add_json_flag(*command, invocation);
    command->callback([&invocation, options, job] {
        const bool by_step = !job->empty();
        if (!by_step && options->args.path.empty()) throw CLI::RequiredError("PATH or --job");
        invocation.action = [&invocation, options, by_step] {
            options->args.format = options->format.token_format();
            options->args.dtype = options->format.token_dtype();
            if (!by_step)
                return show(invocation, inspect_data(invocation.files, options->args, invocation.format));
            options->step.tokenizer = options->args.tokenizer;
            options->step.excerpt_tokens = options->args.excerpt_tokens;
            const JobSpec spec = load_job_of_readers(invocation.files, options->job, options->ranks);
            options->step.ranks = *options->ranks;
            return show(invocation, inspect_step(invocation.files, spec, options->step, invocation.format));
        };
    });
}

void add_verify(CLI::App& data, Invocation& invocation) {
    struct Options {
        VerifyArgs args;
        VerifyJobArgs job_args;
        FormatOptions format;
        JobOptions job;
        std::optional<std::int64_t> ranks;
    };
    auto options = std::make_shared<Options>();
    CLI::App* command = data.add_subcommand(
        "verify",
        "Check sizes, offsets, ids and checksums; with --job, that ranks read disjoint windows "
        "that cover the set");
    CLI::Option* path = command->add_option("PATH", options->args.path, "prefix or file");
    command
        ->add_option("--vocab-size", options->args.vocab_size,
                     "ids must be below it; default: of PREFIX.json")
        ->check(at_least(1));
    options->format.add(*command);
    CLI::Option* job = command->add_option("--job", options->job.path, "job file")->excludes(path);
    command->add_option("--set", options->job.set, "key=value of the job file");
    command->add_option("--ranks", options->ranks, "data-parallel ranks; default: of the job, else 1")
        ->needs(job)
        ->check(rank_count());
    command->add_option("--sample-limit", options->job_args.sample_limit, "samples to walk at most")
        ->needs(job)
        ->check(at_least(1));
    command
        ->add_flag_callback(
            "--skip-contents", [options] { options->job_args.contents = Contents::Skip; },
            "do not also read every token")
        ->needs(job);
    add_json_flag(*command, invocation);
    command->callback([&invocation, options, job] {
        const bool by_job = !job->empty();
        if (!by_job && options->args.path.empty()) throw CLI::RequiredError("PATH or --job");
        invocation.action = [&invocation, options, by_job] {
            options->args.format = options->format.token_format();
            options->args.dtype = options->format.token_dtype();
            if (!by_job)
                return show(invocation, verify_data(invocation.files, options->args, invocation.format));
            const JobSpec spec = load_job_of_readers(invocation.files, options->job, options->ranks);
            options->job_args.ranks = *options->ranks;
            return show(invocation, verify_job(invocation.files, spec, options->job_args, invocation.format));
        };
    });
}

}  // namespace

void add_data_commands(CLI::App& app, Invocation& invocation) {
    CLI::App* data = app.add_subcommand("data", "Prepare, inspect and verify training data");
    data->require_subcommand(1);
    add_prepare(*data, invocation);
    add_inspect(*data, invocation);
    add_verify(*data, invocation);
}

}  // namespace trainctl
