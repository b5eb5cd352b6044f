#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "cli/device_option.h"
#include "cli/number_option.h"
#include "cli/rank_device.h"
#include "cli/rank_main.h"
#include "cli/tune_products.h"
#include "trainctl/base/error.h"
#include "trainctl/base/io_error.h"
#include "trainctl/checkpoint/agree.h"
#include "trainctl/observe/step_line.h"
#include "trainctl/rundir/layout.h"
#include "trainctl/train/smoke.h"

namespace trainctl {
namespace {

struct SmokeCommandOptions {
    std::uint64_t seed = 1234;
    std::string directory;
    std::int64_t threads = 0;
    std::string device = "auto";
};

// A directory of rank 0 below `base` that goes away with the process, and with it what `base` lacked itself.
class TemporaryDirectory {
  public:
    TemporaryDirectory(FileSystem& files, const std::string& base)
        : files_(files), path_(join_path(base, "trainctl-smoke-XXXXXX")) {
        for (std::string part = base; !files.status(part); part = parent_path(part)) made_.push_back(part);
        try {
            files.make_directories(base);
            if (mkdtemp(path_.data()) == nullptr) fail_io("create directory", path_, errno, IoSide::Writing);
        } catch (const Error& error) {
            remove_made();
            fail(error.code(), fmt::format("{}; --directory takes another place", error.what()));
        }
    }
    ~TemporaryDirectory() {
        try {
            remove_tree(path_);
        } catch (const Error&) {
            // Left behind: nothing depends on it.
        }
        remove_made();
    }
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    void remove_tree(const std::string& directory) {
        for (const std::string& name : files_.list(directory)) {
            const std::string path = join_path(directory, name);
            const auto status = files_.status(path);
            if (status && status->directory) {
                remove_tree(path);
            } else {
                files_.remove_file(path);
            }
        }
        files_.remove_directory(directory);
    }
    void remove_made() {
        try {
            for (const std::string& part : made_) files_.remove_directory(part);
        } catch (const Error&) {
            // Somebody else uses it meanwhile.
        }
    }

    FileSystem& files_;
    std::vector<std::string> made_;  // innermost first
    std::string path_;
};

std::string default_base() {
    const char* base = std::getenv("TMPDIR");  // NOLINT(concurrency-mt-unsafe): nobody sets it
    return base == nullptr ? "/tmp" : base;
}

Exit smoke(RankContext& context, const SmokeCommandOptions& options, const RankSettings& settings) {
    const bool speaks = context.world.rank() == 0;
    std::unique_ptr<TemporaryDirectory> temporary;
    const std::string directory = agree(
        context.world.control(),
        [&] {
            if (!speaks) return std::string();
            temporary = std::make_unique<TemporaryDirectory>(
                context.invocation.files, options.directory.empty() ? default_base() : options.directory);
            return temporary->path();
        },
        [](const std::vector<std::string>& paths) { return paths.front(); });
    SmokeOptions smoke_options;
    smoke_options.seed = options.seed;
    smoke_options.directory = directory;
    StepLine line(choose_progress_style(), 10, 10.0);
    smoke_options.stop = &context.stop;
    smoke_options.progress = [&line](const StepRecord& record) { line.show(record); };

    ParallelSpec parallel;
    const RankOnDevice made = make_rank(context, settings.device, settings.communication,
                                        mesh_shape(parallel, context.world.size()), nullptr);
    tune_products(context, *made.rank, smoke_job(options.seed, context.world.size()));
    const SmokeReport report =
        run_smoke(*made.rank, context.invocation.files, context.invocation.clock, context.log, smoke_options);
    line.finish();
    if (speaks) print_result(context.invocation, describe(report), to_json(report));
    context.world.control().barrier();  // the directory goes away only when nobody reads it any more
    return report.passed() ? Exit::Ok : Exit::Diverged;
}

}  // namespace

void add_smoke_command(CLI::App& app, Invocation& invocation) {
    auto options = std::make_shared<SmokeCommandOptions>();
    CLI::App* command = app.add_subcommand("smoke",
                                           "Train 100 steps of a small model on a synthetic language of "
                                           "known entropy and judge the result; alone or "
                                           "under mpirun. Needs no files");
    command->add_option("--seed", options->seed, "of the language and the weights")->capture_default_str();
    command->add_option("--directory", options->directory,
                        "where the checkpoint check writes, for its time; must be shared by all hosts. "
                        "Default: $TMPDIR or /tmp");
    command->add_option("--threads", options->threads, "per rank; 0: the rank's share of the cores")
        ->check(at_least(0));
    add_device_option(*command, options->device);
    add_json_flag(*command, invocation);
    command->callback([&invocation, options] {
        invocation.action = [&invocation, options] {
            RankSettings settings;
            settings.device.threads = options->threads;
            settings.device.kind = device_kind(options->device);
            settings.communication.timeout_s = 60.0;
            return rank_main(invocation, settings, [options, settings](RankContext& context) {
                return smoke(context, *options, settings);
            });
        };
    });
}

}  // namespace trainctl
