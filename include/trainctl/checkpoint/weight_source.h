// The checkpoint of another run that weights are taken from (model.init_from).
#pragma once

#include <string>

#include "trainctl/base/file_system.h"
#include "trainctl/config/job_spec.h"
#include "trainctl/rundir/manifest.h"

namespace trainctl {

struct WeightSource {
    std::string root;
    Manifest manifest;  // manifest.directory below root
};

// `path`: a run directory or a directory of checkpoints, and of those the newest complete one, or one
// checkpoint. Reads COMMIT and MANIFEST. Exit::BadInput: there is none.
WeightSource find_weight_source(FileSystem& files, const std::string& path);

// Whether its weights mean the same in `model`: all that fixes shapes and arithmetic is as in the job that
// saved it; dropout may differ, and in models without a position table the longest sequence. Exit::Usage
// naming what is not.
void require_same_model(const WeightSource& source, const ModelSpec& model);

}  // namespace trainctl
