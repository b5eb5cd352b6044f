// One message per failure, even with 512 ranks.
#pragma once

#include "cli/command.h"
#include "trainctl/base/error.h"

namespace trainctl {

// Prints `error` on stderr. Before the ranks have met, errors of a job are the same everywhere: only rank 0
// (by the launcher's environment) prints.
void report_error(const Error& error, OutputFormat format);
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
