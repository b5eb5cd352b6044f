#include "trainctl/train/profile.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <utility>

#include "trainctl/base/error.h"
#include "trainctl/base/text.h"

namespace trainctl {
namespace {

constexpr double origin_grain_s = 1000.0;

// Nanoseconds from the origin. Whole ones, so that a range that ends where the next begins does so in the
// file.
std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

std::string microseconds(std::int64_t nanoseconds) {
    return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

}  // namespace

ProfileRecorder::ProfileRecorder(ProfileSteps steps, ProfileFile file, Clock& clock, Log& log, Ranges* next,
                                 std::size_t most)
    : steps_(steps),
      file_(std::move(file)),
      clock_(clock),
      log_(log),
      next_(next),
      most_(most),
      // The same for ranks that begin within minutes of each other, and near enough that a double holds
      // nanoseconds.
      origin_unix_s_(std::floor(clock.unix_s() / origin_grain_s) * origin_grain_s),
      origin_s_(origin_unix_s_ - (clock.unix_s() - clock.monotonic_s())) {}

ProfileRecorder::~ProfileRecorder() {
    if (recording_) finish();
}

void ProfileRecorder::push(const RangeLabel& label) {
    const bool of_interest =
        label.kind == RangeKind::Step && label.number >= steps_.first && label.number <= steps_.last;
    if (of_interest && !recording_) {
        recording_ = true;
        if (next_ != nullptr) next_->begin_capture();
    }
    if (next_ != nullptr) next_->push(label);
    if (!recording_) return;
    const bool room = recorded_.size() < most_;
    open_.push_back({label, room ? recorded_.size() : left_out});
    if (room) {
        recorded_.push_back({label, clock_.monotonic_s(), 0.0});
    } else {
        ++cut_;
    }
}

void ProfileRecorder::pop() noexcept {
    if (next_ != nullptr) next_->pop();
    if (!recording_ || open_.empty()) return;
    const Open ended = open_.back();
    open_.pop_back();
    if (ended.index != left_out) recorded_[ended.index].end_s = clock_.monotonic_s();
    if (ended.label == RangeLabel{RangeKind::Step, steps_.last}) finish();
}

void ProfileRecorder::finish() noexcept {
    recording_ = false;
    if (next_ != nullptr) next_->end_capture();
    try {
        const std::string path = join_path(file_.directory, file_.name);
        file_.files.make_directories(file_.directory);
        write_text_atomically(file_.files, path, trace());
        if (file_.rank == 0)
            log_.info(fmt::format("profile of steps {} to {} written: {} (one file per rank)",
                                  first_recorded(), steps_.last, path));
        if (cut_ > 0) {
            log_.warn(
                fmt::format("the profile of rank {} holds the first {}, {} more are left out; profile "
                            "fewer steps",
                            file_.rank, counted(static_cast<std::int64_t>(recorded_.size()), "range"), cut_));
        }
    } catch (const std::exception& error) {
        log_.warn(fmt::format("the profile of rank {} was not written, training goes on: {}", file_.rank,
                              error.what()));
    }
    recorded_ = {};
}

// A resumed run may begin in the midst of the steps that were asked for.
std::int64_t ProfileRecorder::first_recorded() const {
    return recorded_.empty() ? steps_.first : recorded_.front().label.number;
}

// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU: "complete" events, in
// microseconds.
std::string ProfileRecorder::trace() const {
    std::string text = fmt::format(
        R"({{"displayTimeUnit":"ms","otherData":{{"rank":{},"host":{},"first_step":{},"last_step":{},"ranges_left_out":{},)"
        R"("origin_unix_s":{:.0f},"times":"of the host: on a GPU, when work was issued"}},"traceEvents":[)"
        "\n"
        R"({{"name":"process_name","ph":"M","pid":{},"tid":0,"args":{{"name":{}}}}})",
        file_.rank, json_quote(file_.host), first_recorded(), steps_.last, cut_, origin_unix_s_, file_.rank,
        json_quote(fmt::format("rank {} ({})", file_.rank, file_.host)));
    for (const Recorded& range : recorded_) {
        const double ended_s = range.end_s > 0.0 ? range.end_s : clock_.monotonic_s();
        const std::int64_t began = nanoseconds(range.begin_s - origin_s_);
        const std::int64_t ended = nanoseconds(ended_s - origin_s_);
        text += fmt::format(
            ",\n"
            R"({{"name":"{}","cat":"{}","ph":"X","ts":{},"dur":{},"pid":{},"tid":0}})",
            range_name(range.label), range_kind_name(range.label.kind), microseconds(began),
            microseconds(ended - began), file_.rank);
    }
    return text + "\n]}\n";
}

}  // namespace trainctl
