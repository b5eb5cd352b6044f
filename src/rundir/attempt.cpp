#include "trainctl/rundir/attempt.h"

#include <fmt/format.h>

#include <algorithm>

#include "rundir/owner_json.h"
#include "trainctl/base/error.h"
#include "trainctl/rundir/durable_file.h"

namespace trainctl {

int highest_attempt(FileSystem& files, const RunLayout& layout, int below) {
    if (!files.status(layout.attempts())) return 0;
    int highest = 0;
    for (const std::string& name : files.list(layout.attempts())) {
        const auto attempt = parse_attempt_name(name);
        if (attempt && *attempt < below) highest = std::max(highest, *attempt);
    }
    return highest;
}

bool claim_attempt(FileSystem& files, const RunLayout& layout, int attempt, const ProcessIdentity& owner) {
    make_durable_directories(files, layout.attempts());
    return create_exclusively(files, layout.attempts(), attempt_name(attempt), owner_json(owner) + "\n") ==
           Claim::Taken;
}

std::optional<ProcessIdentity> attempt_owner(FileSystem& files, const RunLayout& layout, int attempt) {
    const std::string path = layout.attempt_claim(attempt);
    try {
        return parse_owner(parse_strict_json(read_text(files, path, 1U << 16U), path), path);
    } catch (const Error&) {
        return std::nullopt;
    }
}

void require_newest_attempt(FileSystem& files, const RunLayout& layout, int attempt) {
    const int highest = highest_attempt(files, layout);
    if (highest <= attempt) return;
    const auto owner = attempt_owner(files, layout, highest);
    fail(Exit::Fenced,
         fmt::format("run directory {}: attempt {} was started by {} while this process ran attempt {}; "
                     "this process must not write there any more and stops",
                     layout.root(), highest, owner ? describe_owner(*owner) : "an unknown process", attempt));
}

}  // namespace trainctl
