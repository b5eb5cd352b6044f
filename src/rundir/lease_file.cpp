#include "rundir/lease_file.h"

#include <fmt/format.h>

#include "rundir/owner_json.h"
#include "trainctl/base/text.h"
#include "trainctl/rundir/attempt.h"

namespace trainctl {

std::string lease_text(const LeaseRecord& record) {
    return fmt::format(
        R"({{"format": "trainctl-lease", "owner": {}, "attempt": {}, "counter": {}, "since": {}, "released": {}}})"
        "\n",
        owner_json(record.owner), record.attempt, record.counter, json_quote(record.since), record.released);
}

std::optional<LeaseRecord> parse_lease(std::string_view text) {
    const std::string where = "LEASE";
    try {
        const nlohmann::json document = parse_strict_json(text, where);
        const JsonObject lease(document, where);
        if (lease.text("format") != "trainctl-lease") return std::nullopt;
        return LeaseRecord{parse_owner(lease.object("owner"), where),
                           static_cast<int>(lease.integer("attempt", 1, 1 << 30)),
                           lease.unsigned_integer("counter"), lease.text("since"), lease.boolean("released")};
    } catch (const Error&) {
        return std::nullopt;
    }
}

std::optional<LeaseRecord> read_lease(FileSystem& files, const RunLayout& layout) {
    if (!files.status(layout.lease())) return std::nullopt;
    return parse_lease(read_text(files, layout.lease(), 1U << 16U));
}

bool OwnershipEvidence::free() const {
    if (lease.empty()) return highest_claim == 0;
    return record && record->released && record->attempt >= highest_claim;
}

std::string OwnershipEvidence::describe() const {
    const std::string who =
        owner ? describe_owner(*owner) : std::string("a process that left no readable trace");
    if (record && record->attempt >= highest_claim) {
        return fmt::format("{}, attempt {}, since {}", who, record->attempt, record->since);
    }
    return fmt::format("{}, attempt {}, which is starting", who, highest_claim);
}

OwnershipEvidence read_ownership(FileSystem& files, const RunLayout& layout, int below) {
    OwnershipEvidence found;
    // The claims first: an attempt claimed after this is seen as a failed claim of ours.
    found.highest_claim = highest_attempt(files, layout, below);
    if (files.status(layout.lease())) found.lease = read_text(files, layout.lease(), 1U << 16U);
    found.record = parse_lease(found.lease);
    if (found.record && found.record->attempt >= found.highest_claim) {
        found.owner = found.record->owner;
    } else if (found.highest_claim > 0) {
        found.owner = attempt_owner(files, layout, found.highest_claim);
    }
    return found;
}

void fail_owned(const RunLayout& layout, const OwnershipEvidence& evidence) {
    fail(Exit::Fenced,
         fmt::format("run directory {} is owned by another process: {}. Wait for it to end, stop it "
                     "(`kill -USR1` on its host: it saves), or choose another job.run_dir",
                     layout.root(), evidence.describe()));
}

}  // namespace trainctl
