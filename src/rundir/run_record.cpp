#include "trainctl/rundir/run_record.h"

#include <fmt/format.h>

#include "trainctl/base/text.h"
#include "trainctl/rundir/durable_file.h"

namespace trainctl {

RunRecord::RunRecord(FileSystem& files, const RunLayout& layout, int attempt)
    : files_(files), directory_(layout.record(attempt)) {
    make_durable_directories(files_, directory_);
}

void RunRecord::set_spec(const std::string& resolved_toml) {
    write_durably(files_, directory_, "spec.toml", resolved_toml);
}

void RunRecord::set_arguments(const std::vector<std::string>& argv) {
    std::string text = "[";
    for (const std::string& argument : argv) text += (text.size() > 1 ? ", " : "") + json_quote(argument);
    write_durably(files_, directory_, "argv.json", text + "]\n");
}

void RunRecord::set_versions(const std::map<std::string, std::string>& versions) {
    std::string text = "{";
    for (const auto& [name, version] : versions) {
        text +=
            fmt::format("{}\n  {}: {}", text.size() > 1 ? "," : "", json_quote(name), json_quote(version));
    }
    write_durably(files_, directory_, "versions.json", text + "\n}\n");
}

void RunRecord::set_hosts(const std::vector<std::string>& host_of_rank) {
    write_durably(files_, directory_, "hosts.txt", fmt::format("{}\n", fmt::join(host_of_rank, "\n")));
}

void RunRecord::set_data_fingerprint(const std::string& fingerprint) {
    write_durably(files_, directory_, "data_fingerprint.txt", fingerprint + "\n");
}

void RunRecord::set_initial_weights(const std::string& source) {
    write_durably(files_, directory_, "initial_weights.txt", source + "\n");
}

}  // namespace trainctl
