// Which units each stage of a pipeline holds: pure data.
#pragma once

#include <cstdint>
#include <vector>

#include "trainctl/config/job_spec.h"
#include "trainctl/model/param.h"

namespace trainctl {

// The units of the model cut into `parts` runs of at least one block each, of as nearly equal work as whole
// blocks allow: the embedding belongs to the first, the head to the last, and the head counts as the blocks
// whose FLOPs it has (the embedding, a lookup, has none). Of equally good cuts the one whose later parts are
// longer: they hold fewer micro-batches in flight. Exit::Usage with the numbers if there are fewer blocks
// than parts.
std::vector<UnitRun> pipeline_parts(const ModelSpec& model, std::int64_t sequence_length, int parts);

// Those of one stage: numbers stage, stage + stages, ...
std::vector<UnitRun> stage_parts(const std::vector<UnitRun>& all, int stage, int stages);

}  // namespace trainctl
