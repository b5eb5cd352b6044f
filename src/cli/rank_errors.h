// One message per failure, even with 512 ranks.
#pragma once

#include "cli/command.h"
#include "trainctl/base/error.h"

namespace trainctl {

// Prints `error` on stderr, for a process that has not met the others (or is alone). Errors of a job are
// mostly the same everywhere then, and rank 0 (by the launcher's environment) prints; a launcher ends the
// others when it exits. A rank that is still there after some seconds has an error of its own, and prints it.
void report_error(const Error& error, OutputFormat format);
// As it stands: its text says who failed.
void report_shared_error(const Error& error, OutputFormat format);
// With rank and host in front.
void report_rank_error(const Error& error, int rank, const std::string& host, OutputFormat format);

// What the launcher's environment says; 0 of 1 without a launcher.
int environment_rank();
int environment_ranks();

// An error that was already shown to the user, by this or another rank: main only returns its code.
class ReportedError : public Error {
  public:
    explicit ReportedError(const Error& error) : Error(error) {}
};

}  // namespace trainctl
