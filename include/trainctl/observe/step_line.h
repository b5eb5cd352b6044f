// The step line people watch: one redrawn line on a terminal, plain key=value lines elsewhere.
#pragma once

#include <string>

#include "trainctl/observe/step_record.h"

namespace trainctl {

// "step 1200/20000  6.0%  loss 3.412  lr 6.0e-04  gnorm 0.41  1.23M tok/s  MFU 41.2%  comm 1.0%  mem 61.0 GiB
// eta 4h12m". Fields are dropped from the right until it fits `width` columns. eta_s < 0: not known yet.
std::string terminal_step_line(const StepRecord& record, double eta_s, int width);
// "2026-11-30T07:12:01Z step=1200 total=20000 loss=3.4121 ..."; loss=nan is printed as such.
std::string plain_step_line(const StepRecord& record, double eta_s);

enum class ProgressStyle { Terminal, Plain, None };

// Owns the progress display of rank 0 on file descriptor 2. Thread rule: one thread.
class StepLine {
  public:
    StepLine(ProgressStyle style, std::int64_t log_interval, double plain_interval_s);
    // Shows the step if it is due: terminal at most 5 times a second, plain every log_interval steps and at
    // least every plain_interval_s; the last step always.
    void show(const StepRecord& record);
    // Ends a redrawn line so that other text can follow.
    void finish();

  private:
    [[nodiscard]] double eta_s(const StepRecord& record) const;

    ProgressStyle style_;
    std::int64_t log_interval_;
    double plain_interval_s_;
    double step_s_average_ = 0.0;  // exponential, without evaluation and checkpoint stalls
    std::int64_t seen_ = 0;
    double last_shown_s_ = -1e300;
    bool line_open_ = false;
};

// Terminal if descriptor 2 is one and TERM is not "dumb" and CI is unset.
ProgressStyle choose_progress_style();

}  // namespace trainctl
