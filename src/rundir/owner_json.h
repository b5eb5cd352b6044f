// Private to the room: a process identity inside LEASE and claim files.
#pragma once

#include <string>

#include "rundir/strict_json.h"
#include "trainctl/rundir/process_identity.h"

namespace trainctl {

std::string owner_json(const ProcessIdentity& owner);
ProcessIdentity parse_owner(const nlohmann::json& value, const std::string& where);
// "host gpu7, pid 4711"
std::string describe_owner(const ProcessIdentity& owner);

}  // namespace trainctl
