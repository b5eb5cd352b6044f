// Private to the room: the LEASE file and the judgement whether its owner is still there.
#pragma once

#include <string>

#include "trainctl/rundir/lease.h"

namespace trainctl {

std::string lease_text(const LeaseRecord& record);
// nullopt if it is not a lease.
std::optional<LeaseRecord> parse_lease(std::string_view text);

// Everything that tells who runs in the directory, read at one time.
struct OwnershipEvidence {
    std::string lease;  // raw text of LEASE; any change of it is a sign of life
    std::optional<LeaseRecord> record;
    int highest_claim = 0;
    std::optional<ProcessIdentity> owner;  // of the newest of the two, if readable

    // Nobody was ever here, or the last one left in good order.
    [[nodiscard]] bool free() const;
    [[nodiscard]] std::string describe() const;
};

// Claims at and above `below` are ignored.
OwnershipEvidence read_ownership(FileSystem& files, const RunLayout& layout, int below);

[[noreturn]] void fail_owned(const RunLayout& layout, const OwnershipEvidence& evidence);

}  // namespace trainctl
