// What changed between the job of a checkpoint and the job that wants to continue it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trainctl/config/job_spec.h"
#include "trainctl/config/key.h"

namespace trainctl {

struct KeyChange {
    std::string key;
    std::string stored;  // as in TOML; "off" when not given
    std::string wanted;
    ResumeClass resume = ResumeClass::Refuse;
};

// Every key whose value differs, in the order of the registry. Both jobs are resolved.
std::vector<KeyChange> compare_for_resume(const JobSpec& stored, const JobSpec& wanted);

// Throws Error(Exit::Usage) naming every change that is refused, or that has class Warn and is not in
// `allowed`
// (--allow-change). A name in `allowed` that is no key, or whose class is Refuse, is an error as well.
void require_resumable(std::span<const KeyChange> changes, std::span<const std::string> allowed);

}  // namespace trainctl
