// What follows from the given keys, and what must hold between them. Private to the room.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainctl/config/job_spec.h"
#include "trainctl/config/problem.h"

namespace trainctl {

// A problem between keys. It is dropped when one of them is already known to be wrong: a consequence, not a
// cause.
struct Finding {
    Problem problem;
    std::vector<std::string> involved;  // key names, the one to point at first
};

struct CheckContext {
    std::optional<std::int64_t> world_size;
    std::function<bool(std::string_view)> given;  // by the file, --set or a preset
    std::function<bool(std::string_view)>
        broken;  // has a problem of its own: its member is not what was meant
};

// Fills in everything that derives from other keys; says what is missing.
void resolve_model(JobSpec& job, const CheckContext& context, std::vector<Finding>& findings);
void resolve_training(JobSpec& job, const CheckContext& context, std::vector<Finding>& findings);

void check_model(const JobSpec& job, std::vector<Finding>& findings);
void check_layout(const JobSpec& job, std::vector<Finding>& findings);
void check_schedule(const JobSpec& job, const CheckContext& context, std::vector<Finding>& findings);
void check_precision(const JobSpec& job, const CheckContext& context, std::vector<Finding>& findings);
void check_tiers(const JobSpec& job, std::vector<Finding>& findings);
void check_data_keys(const JobSpec& job, const CheckContext& context, std::vector<Finding>& findings);
void check_buckets(const JobSpec& job, std::vector<Finding>& findings);
void check_memory(const JobSpec& job, const CheckContext& context, std::vector<Finding>& findings);
void check_kernels(const JobSpec& job, std::vector<Finding>& findings);
void check_launch(const JobSpec& job, std::vector<Finding>& findings);
void check_device(const JobSpec& job, std::vector<Finding>& findings);

// `hint` says what to do next; empty only where `what` does already.
Finding finding(std::string code, std::vector<std::string> involved, std::string what, std::string hint);
Finding warning(std::vector<std::string> involved, std::string what, std::string hint);

}  // namespace trainctl
