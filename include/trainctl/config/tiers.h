// checkpoint.tiers: the places that hold a run's checkpoints, nearest first. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainctl/config/job_spec.h"

namespace trainctl {

enum class TierKind {
    Local,   // "local:/path": a disk of each node
    Shared,  // "shared": checkpoint.directory; "shared:/path": another directory that all nodes see
    Object,  // "s3://bucket/prefix"
};

struct Tier {
    std::string text;  // as the job file has it
    TierKind kind = TierKind::Shared;
    std::string path;  // empty: checkpoint.directory
};

// nullopt: not one of the forms above.
std::optional<Tier> parse_tier(std::string_view text);

// Saves go to the first; the others get copies. A job without tiers has one: "shared".
// checkpoint.backup_to_object_storage is the last. What is no tier, which the job's checks report, is left
// out.
std::vector<Tier> checkpoint_tiers(const CheckpointSpec& checkpoint);

// Which of these makes a checkpoint count as saved: checkpoint.durable_tier, or the first that outlives a
// node, or the first.
std::size_t durable_tier(const CheckpointSpec& checkpoint, const std::vector<Tier>& tiers);

}  // namespace trainctl
