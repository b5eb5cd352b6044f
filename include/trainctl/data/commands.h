// The `data` commands as functions: arguments in, text and exit code out. Nothing is printed here. Bad
// arguments and unreadable files are thrown as Error.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainctl/base/clock.h"
#include "trainctl/base/command_result.h"
#include "trainctl/base/file_system.h"
#include "trainctl/config/job_spec.h"
#include "trainctl/data/megatron_writer.h"
#include "trainctl/data/sidecar.h"
#include "trainctl/data/token_file.h"

namespace trainctl {

// ---- data prepare
// ----------------------------------------------------------------------------------------------

struct PrepareProgress {
    std::uint64_t bytes_read = 0;  // of the stored (compressed) input
    std::uint64_t bytes_total = 0;
    std::int64_t documents = 0;
    std::int64_t tokens = 0;
    double elapsed_s = 0.0;
};
// "41.2%  12.3 MiB of 30.0 MiB  1234 documents  12.9M tokens  45.1M tokens/s  eta 3s"
std::string format_progress(const PrepareProgress& progress);

struct PrepareArgs {
    std::vector<std::string>
        inputs;          // files, or directories (all their .txt/.jsonl/... files, bytewise order)
    std::string output;  // PREFIX
    std::string tokenizer = "byte";
    std::string jsonl_key = "text";
    std::int64_t threads = 0;  // 0: the cores of this process, at most 32
    Existing existing = Existing::Refuse;
    double progress_interval_s = 0.5;
    std::function<void(const PrepareProgress&)> progress;  // may be empty; called by the calling thread
    std::function<bool()> stop;                            // may be empty; true: leave with Exit::Interrupted
    // May be empty. Called with the prefix before anything of it is written; throws where another process
    // writes it.
    std::function<void(const std::string&)> claim;
};

// Text (.txt and everything unknown: one file = one document), JSONL (.jsonl, .ndjson: one line = one
// document), each also as .gz and .zst, to PREFIX.bin, PREFIX.idx, PREFIX.json. The result does not depend on
// the number of threads. Memory is bounded by about threads x 16 MiB (a single JSON line may be up to 256
// MiB). On any error nothing is left behind; what a killed process left is written over.
CommandResult prepare_data(FileSystem& files, Clock& clock, const PrepareArgs& given, OutputFormat format);

// ---- data inspect
// ----------------------------------------------------------------------------------------------

struct InspectArgs {
    std::string path;  // prefix or file
    TokenFormat format = TokenFormat::Auto;
    std::optional<DType> dtype;
    std::string tokenizer;                        // empty: the one of PREFIX.json, else ids are shown
    std::optional<std::int32_t> end_of_document;  // splits formats that keep no documents
    std::int64_t excerpts = 3;
    std::int64_t excerpt_tokens = 160;  // at most, of each
};
CommandResult inspect_data(FileSystem& files, const InspectArgs& args, OutputFormat format);

struct InspectStepArgs {
    std::int64_t step = 1;              // as logs and metrics count: the first step is 1
    std::int64_t ranks = 1;             // data-parallel ranks, to name the rank that read each sample
    std::string tokenizer;              // empty: of the source's PREFIX.json, else ids are shown
    std::int64_t excerpt_tokens = 160;  // of each sample; 0: all
};
// Files, documents, offsets and text of what the job reads in that step.
CommandResult inspect_step(FileSystem& files, const JobSpec& job, const InspectStepArgs& args,
                           OutputFormat format);

// ---- data verify
// -----------------------------------------------------------------------------------------------

struct VerifyArgs {
    std::string path;
    TokenFormat format = TokenFormat::Auto;
    std::optional<DType> dtype;
    std::int64_t vocab_size = 0;  // 0: of PREFIX.json if there is one, else ids are only reported
    Wording wording = Wording::Options;
};
// Sizes, every index entry, every id, checksums. Exit::BadInput if any check failed, with a line in `err`.
CommandResult verify_data(FileSystem& files, const VerifyArgs& args, OutputFormat format);

enum class Contents { Check, Skip };  // whether verify_data also runs on every file

struct VerifyJobArgs {
    std::int64_t ranks = 1;  // data-parallel ranks
    std::int64_t sample_limit = 100'000'000;
    Contents contents = Contents::Check;
};
// Walks the samples of the job as `ranks` ranks take them and counts every window: no overlap between ranks,
// each complete epoch covers every window exactly once, weights within one in 1024, validation covered once.
CommandResult verify_job(FileSystem& files, const JobSpec& job, const VerifyJobArgs& args,
                         OutputFormat format);

}  // namespace trainctl
