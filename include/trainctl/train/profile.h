// The ranges of some steps of a training, written as a trace for people to look at.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainctl/base/clock.h"
#include "trainctl/base/file_system.h"
#include "trainctl/base/log.h"
#include "trainctl/device/ranges.h"

namespace trainctl {

// Numbers of steps from 1, both inclusive.
struct ProfileSteps {
    std::int64_t first = 0;
    std::int64_t last = 0;
};

struct ProfileFile {
    FileSystem& files;
    std::string directory;  // made if need be
    std::string name;
    int rank = 0;
    std::string host;
};

// Passes all ranges on, and keeps those of the steps it is for. When the last of these steps ends, or else
// when it is destroyed, it writes what it kept in Chrome's trace event format (https://ui.perfetto.dev opens
// it): times of the host's clock, process id = rank, so that the files of all ranks can be looked at
// together. A file that cannot be written is a warning. Keeps no more than `most_ranges`; the file and a
// warning say how many were left out.
class ProfileRecorder final : public Ranges {
  public:
    static constexpr std::size_t most_ranges = 500'000;

    // `next` (nullptr: nobody) also gets all ranges, and is told when the steps begin and end.
    ProfileRecorder(ProfileSteps steps, ProfileFile file, Clock& clock, Log& log, Ranges* next,
                    std::size_t most = most_ranges);
    ~ProfileRecorder() override;
    ProfileRecorder(const ProfileRecorder&) = delete;
    ProfileRecorder& operator=(const ProfileRecorder&) = delete;

    void push(const RangeLabel& label) override;
    void pop() noexcept override;

  private:
    struct Recorded {
        RangeLabel label;
        double begin_s = 0.0;  // monotonic
        double end_s = 0.0;
    };
    struct Open {
        RangeLabel label;
        std::size_t index;  // in recorded_, or left_out
    };
    static constexpr std::size_t left_out = SIZE_MAX;

    void finish() noexcept;
    [[nodiscard]] std::string trace() const;
    [[nodiscard]] std::int64_t first_recorded() const;  // step

    ProfileSteps steps_;
    ProfileFile file_;
    Clock& clock_;
    Log& log_;
    Ranges* next_;
    std::size_t most_;
    double origin_unix_s_;  // what times in the trace count from
    double origin_s_;       // the same on the monotonic clock
    bool recording_ = false;
    std::vector<Recorded> recorded_;
    std::vector<Open> open_;  // since recording began
    std::size_t cut_ = 0;
};

}  // namespace trainctl
