#include "trainctl/observe/step_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <vector>

#include "trainctl/base/clock.h"
#include "trainctl/base/log.h"
#include "trainctl/base/text.h"

namespace trainctl {
namespace {

double exposed_share(const StepRecord& record) {
    return record.step_s > 0.0 ? record.phases.communication / record.step_s : 0.0;
}

int terminal_width() {
    winsize size{};
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
    return size.ws_col;
}

}  // namespace

std::string terminal_step_line(const StepRecord& record, double eta_s, int width) {
    std::vector<std::string> fields;
    fields.push_back(fmt::format("step {}/{}", record.step, record.total));
    fields.push_back(
        fmt::format("{:.1f}%", 100.0 * static_cast<double>(record.step) / static_cast<double>(record.total)));
    fields.push_back(fmt::format("loss {:.4f}", record.loss));
    fields.push_back(fmt::format("lr {:.2e}", record.lr));
    fields.push_back(fmt::format("gnorm {:.3g}", record.grad_norm));
    if (record.loss_scale) fields.push_back(fmt::format("scale {}", *record.loss_scale));
    fields.push_back(fmt::format("{} tok/s", format_count(record.tokens_per_s)));
    if (const auto mfu = record.mfu()) fields.push_back(fmt::format("MFU {:.1f}%", 100.0 * *mfu));
    fields.push_back(fmt::format("comm {:.1f}%", 100.0 * exposed_share(record)));
    fields.push_back(fmt::format("mem {}", format_bytes(record.device_bytes)));
    if (eta_s >= 0.0) fields.push_back(fmt::format("eta {}", format_duration(eta_s)));
    if (record.skipped > 0) fields.push_back(fmt::format("skipped {}", record.skipped));
    std::string line;
    for (const std::string& field : fields) {
        std::string next = line;
        if (!next.empty()) next += "  ";
        next += field;
        if (static_cast<int>(next.size()) >= width && !line.empty()) break;
        line = next;
    }
    return line;
}

std::string plain_step_line(const StepRecord& record, double eta_s) {
    const auto mfu = record.mfu();
    std::string line = fmt::format(
        "{} step={} total={} loss={:.6f} lr={:.4e} gnorm={:.4f} clip={:.4f} tok_s={:.1f} mfu={} "
        "comm={:.4f} "
        "mem_bytes={} skipped={} applied={} updates={}",
        utc_timestamp(record.unix_s), record.step, record.total, record.loss, record.lr, record.grad_norm,
        record.clip, record.tokens_per_s, mfu ? fmt::format("{:.4f}", *mfu) : "n/a", exposed_share(record),
        record.device_bytes, record.skipped, record.applied ? 1 : 0, record.applied_updates);
    if (record.loss_scale) line += fmt::format(" loss_scale={}", *record.loss_scale);
    if (eta_s >= 0.0) line += fmt::format(" eta_s={:.0f}", eta_s);
    return line;
}

StepLine::StepLine(ProgressStyle style, std::int64_t log_interval, double plain_interval_s)
    : style_(style),
      log_interval_(log_interval < 1 ? 1 : log_interval),
      plain_interval_s_(plain_interval_s) {}

double StepLine::eta_s(const StepRecord& record) const {
    constexpr std::int64_t steps_before_estimate = 10;
    if (seen_ < steps_before_estimate) return -1.0;
    return step_s_average_ * static_cast<double>(record.total - record.step);
}

void StepLine::show(const StepRecord& record) {
    ++seen_;
    step_s_average_ = seen_ == 1 ? record.step_s : 0.95 * step_s_average_ + 0.05 * record.step_s;
    const double now = SystemClock().monotonic_s();
    const bool last = record.step == record.total;
    switch (style_) {
        case ProgressStyle::None:
            return;
        case ProgressStyle::Terminal:
            if (!last && now - last_shown_s_ < 0.2) return;
            write_text(STDERR_FILENO,
                       "\r\x1b[2K" + terminal_step_line(record, eta_s(record), terminal_width()));
            line_open_ = true;
            break;
        case ProgressStyle::Plain:
            if (!last && record.step % log_interval_ != 0 && now - last_shown_s_ < plain_interval_s_) return;
            write_text(STDERR_FILENO, plain_step_line(record, eta_s(record)) + "\n");
            break;
    }
    last_shown_s_ = now;
}

void StepLine::finish() {
    if (line_open_) write_text(STDERR_FILENO, "\n");
    line_open_ = false;
}

ProgressStyle choose_progress_style() {
    // Nothing in this process writes its environment once threads run.
    const char* term = std::getenv("TERM");             // NOLINT(concurrency-mt-unsafe)
    const bool watched = std::getenv("CI") == nullptr;  // NOLINT(concurrency-mt-unsafe)
    const bool dumb = term == nullptr || std::string_view(term) == "dumb" || !watched;
    return isatty(STDERR_FILENO) == 1 && !dumb ? ProgressStyle::Terminal : ProgressStyle::Plain;
}

}  // namespace trainctl
