#include "cli/rank_errors.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "trainctl/base/log.h"
#include "trainctl/base/text.h"
#include "trainctl/comm/host_name.h"

namespace trainctl {
namespace {

int environment_number(std::initializer_list<const char*> names, int otherwise) {
    for (const char* name : names) {
        const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody writes it
        if (text != nullptr) return std::atoi(text);
    }
    return otherwise;
}

void write_error(const Error& error, const std::string& origin, OutputFormat format) {
    std::string text = origin + error.what();
    if (error.code() == Exit::Internal) {
        text += fmt::format("\n  at {}:{}; this is a defect of trainctl: please report it with this text",
                            error.where().file, error.where().line);
    }
    if (format == OutputFormat::Json) {
        write_text(STDERR_FILENO, fmt::format("{{\"error\":{{\"code\":{},\"message\":{}}},\"exit\":{}}}\n",
                                              json_quote(exit_name(error.code())), json_quote(text),
                                              static_cast<int>(error.code())));
        return;
    }
    // Several collected problems bring their own "error:" lines.
    write_text(STDERR_FILENO,
               (text.starts_with("error:") ? "" : "error: ") + text + (text.ends_with('\n') ? "" : "\n"));
}

}  // namespace

int environment_rank() {
    return environment_number({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"}, 0);
}

int environment_ranks() { return environment_number({"OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"}, 1); }

void report_error(const Error& error, OutputFormat format) {
    if (dynamic_cast<const ReportedError*>(&error) != nullptr) return;
    const int rank = environment_rank();
    if (rank == 0) return write_error(error, "", format);
    std::this_thread::sleep_for(std::chrono::milliseconds(3000 + 50 * std::min(rank, 20)));
    report_rank_error(error, rank, host_name(), format);
}

void report_shared_error(const Error& error, OutputFormat format) { write_error(error, "", format); }

void report_rank_error(const Error& error, int rank, const std::string& host, OutputFormat format) {
    write_error(error, fmt::format("[rank {} {}] ", rank, host), format);
}

}  // namespace trainctl
