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
std::string to_json(const CheckpointRecord& record);
std::string to_json(const CopyRecord& record);

enum class Appended {
    AsBefore,
    Anew,  // the file had been removed, moved or cut since the last line: what was in it is gone
};

// Thread rule: one thread. Every line starts a line of the file, whatever a crash, a full disk or somebody
// else left of the one before; a failed append throws, and the next one tries again.
class MetricsFile {
  public:
    MetricsFile(FileSystem& files, const std::string& path);
    Appended append(const std::string& json_line);

  private:
    void open();

    FileSystem& files_;
    std::string path_;
    std::unique_ptr<File> file_;  // null after a failure: opened again
    std::uint64_t size_ = 0;      // of the file as we left it
    bool torn_ = false;           // its last line has no end
};

// Steps of a metrics file with their loss, the last attempt of each step kept; malformed (torn) lines are
// skipped.
std::map<std::int64_t, double> read_losses(FileSystem& files, const std::string& path);

}  // namespace trainctl
