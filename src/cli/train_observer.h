// Where rank 0's closed steps go: metrics.jsonl and the step line.
#pragma once

#include <memory>
#include <string>

#include "trainctl/base/file_system.h"
#include "trainctl/base/log.h"
#include "trainctl/config/job_spec.h"
#include "trainctl/train/trainer.h"

namespace trainctl {

// A metrics file that cannot be written is an alarm, reported once; training goes on. References must outlive
// it.
std::unique_ptr<StepObserver> make_train_observer(FileSystem& files, const std::string& metrics_path,
                                                  const JobSpec& job, Log& log);
std::unique_ptr<StepObserver> make_silent_observer();

// Resident set of this process; 0 if the system does not say.
std::uint64_t resident_bytes(FileSystem& files);

}  // namespace trainctl
