// What is needed to repeat a run, as plain files in record/a0007/: every attempt has its own.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trainctl/base/file_system.h"
#include "trainctl/rundir/layout.h"

namespace trainctl {

// Each setter writes one file durably. One thread; rank 0, under the lease.
class RunRecord {
  public:
    // `files` must outlive the record. Creates the directory.
    RunRecord(FileSystem& files, const RunLayout& layout, int attempt);

    void set_spec(const std::string& resolved_toml);           // spec.toml
    void set_arguments(const std::vector<std::string>& argv);  // argv.json
    void set_versions(
        const std::map<std::string, std::string>& versions);       // versions.json: us, revision, libraries
    void set_hosts(const std::vector<std::string>& host_of_rank);  // hosts.txt, one line per rank
    void set_data_fingerprint(const std::string& fingerprint);     // data_fingerprint.txt
    // Where the first weights are from, if not from a random draw.
    void set_initial_weights(const std::string& source);  // initial_weights.txt
    [[nodiscard]] const std::string& directory() const { return directory_; }

  private:
    FileSystem& files_;
    std::string directory_;
};

}  // namespace trainctl
