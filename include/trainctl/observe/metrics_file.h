// metrics.jsonl: one JSON object per line, appended by rank 0 only. After a resume a step may appear again:
// readers keep the line with the highest attempt.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "trainctl/base/file_system.h"
#include "trainctl/observe/step_record.h"

namespace trainctl {

// {"type":"step","v":1,...}; non-finite numbers are the strings "nan", "inf", "-inf" so that none is ever
// missing.
std::string to_json(const StepRecord& record);
std::string to_json(const EvaluationRecord& record);

// Thread rule: one thread. A write failure is reported once to the caller by throwing; training decides what
// to do.
class MetricsFile {
  public:
    MetricsFile(FileSystem& files, const std::string& path);
    void append(const std::string& json_line);

  private:
    std::unique_ptr<File> file_;
};

// Steps of a metrics file with their loss, the last attempt of each step kept; malformed (torn) lines are
// skipped.
std::map<std::int64_t, double> read_losses(FileSystem& files, const std::string& path);

}  // namespace trainctl
