// Private to the room: the run that a path given on the command line lies in, and which checkpoints are its
// own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainctl/base/file_system.h"
#include "trainctl/checkpoint/lineage.h"
#include "trainctl/checkpoint/scan.h"

namespace trainctl {

// `path` itself, or the directory around it (at most two up) that has a run.json.
std::optional<std::string> enclosing_run(FileSystem& files, const std::string& path);

// Other runs' checkpoints are never set aside: numbers of attempts mean nothing among runs.
class RunLine {
  public:
    // Of the run around `path`; where there is none, or it cannot be read, no checkpoint is its own.
    RunLine(FileSystem& files, const std::string& path);

    // Empty: no run.
    [[nodiscard]] const std::string& run_id() const { return run_id_; }
    [[nodiscard]] const Lineage& lineage() const { return lineage_; }
    [[nodiscard]] bool set_aside(const CompleteCheckpoint& found) const;
    // What is not set aside, the newest first; the run's own before those of other runs.
    [[nodiscard]] std::vector<std::size_t> newest_first(
        const std::vector<CompleteCheckpoint>& complete) const;

  private:
    [[nodiscard]] bool own(const CompleteCheckpoint& found) const;

    std::string run_id_;
    Lineage lineage_;
};

}  // namespace trainctl
