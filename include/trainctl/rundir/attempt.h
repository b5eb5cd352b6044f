// Attempts: numbered incarnations of a run. A claim is an O_EXCL file, so no two incarnations can ever write
// one path.
#pragma once

#include <optional>
#include <string>

#include "trainctl/base/file_system.h"
#include "trainctl/rundir/layout.h"
#include "trainctl/rundir/process_identity.h"

namespace trainctl {

// The highest claimed attempt below `below`; 0 if there is none.
int highest_attempt(FileSystem& files, const RunLayout& layout, int below = 1 << 30);

// Claims attempt `attempt` for `owner`; false if somebody was quicker.
bool claim_attempt(FileSystem& files, const RunLayout& layout, int attempt, const ProcessIdentity& owner);

// What the claim file says about its owner; nullopt if it was torn by a crash.
std::optional<ProcessIdentity> attempt_owner(FileSystem& files, const RunLayout& layout, int attempt);

// Exit::Fenced if an attempt above `attempt` was claimed: this incarnation must not commit anything any more.
void require_newest_attempt(FileSystem& files, const RunLayout& layout, int attempt);

}  // namespace trainctl
