#include "cli/train_observer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cinttypes>
#include <cstdio>

#include "trainctl/base/text.h"
#include "trainctl/observe/metrics_file.h"
#include "trainctl/observe/step_line.h"

namespace trainctl {
namespace {

class TrainObserver final : public StepObserver {
  public:
    TrainObserver(FileSystem& files, const std::string& metrics_path, const JobSpec& job, Log& log)
        : metrics_(files, metrics_path),
          line_(choose_progress_style(), job.monitoring.log_interval, job.monitoring.plain_interval_s),
          log_(log) {}
    ~TrainObserver() override { line_.finish(); }
    TrainObserver(const TrainObserver&) = delete;
    TrainObserver& operator=(const TrainObserver&) = delete;

    void step(const StepRecord& record) override {
        append(to_json(record));
        line_.show(record);
    }
    void evaluation(const EvaluationRecord& record) override {
        append(to_json(record));
        line_.finish();
        log_.info(fmt::format("step {}: validation loss {:.6f} over {} in {:.2f} s", record.step, record.loss,
                              counted(record.tokens, "token"), record.seconds));
    }

    void checkpoint(const CheckpointRecord& record) override { append(to_json(record)); }
    void copy(const CopyRecord& record) override { append(to_json(record)); }

  private:
    void append(const std::string& line) {
        try {
            if (metrics_.append(line) == Appended::Anew) {
                log_.error(
                    "the metrics file was removed or cut by somebody under this training; it goes on in a "
                    "new "
                    "one, and the lines that were in it are gone");
            }
            if (failing_) log_.info("metrics are being recorded again; the lines in between are missing");
            failing_ = false;
        } catch (const Error& error) {
            if (!failing_) log_.error(fmt::format("metrics are not being recorded: {}", error.what()));
            failing_ = true;
        }
    }

    MetricsFile metrics_;
    StepLine line_;
    Log& log_;
    bool failing_ = false;
};

class SilentObserver final : public StepObserver {
  public:
    void step(const StepRecord& /*record*/) override {}
    void evaluation(const EvaluationRecord& /*record*/) override {}
    void checkpoint(const CheckpointRecord& /*record*/) override {}
    void copy(const CopyRecord& /*record*/) override {}
};

}  // namespace

std::unique_ptr<StepObserver> make_train_observer(FileSystem& files, const std::string& metrics_path,
                                                  const JobSpec& job, Log& log) {
    return std::make_unique<TrainObserver>(files, metrics_path, job, log);
}

std::unique_ptr<StepObserver> make_silent_observer() { return std::make_unique<SilentObserver>(); }

std::uint64_t resident_bytes(FileSystem& files) {
    try {
        std::array<std::byte, 128> text{};
        const std::size_t size = files.open("/proc/self/statm", Open::Read)->read_some_at(0, text);
        std::uint64_t total = 0;
        std::uint64_t resident = 0;
        const std::string line(reinterpret_cast<const char*>(text.data()), size);
        if (std::sscanf(line.c_str(), "%" SCNu64 " %" SCNu64, &total, &resident) != 2) return 0;
        return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    } catch (const Error&) {
        return 0;
    }
}

}  // namespace trainctl
