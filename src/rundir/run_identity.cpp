#include "trainctl/rundir/run_identity.h"

#include <fmt/format.h>

#include <random>

#include "rundir/strict_json.h"
#include "trainctl/base/error.h"
#include "trainctl/base/text.h"
#include "trainctl/rundir/durable_file.h"

namespace trainctl {
namespace {

constexpr int format_version = 1;

}  // namespace

std::uint64_t random_bits() {
    std::random_device source;  // getrandom on Linux
    return (std::uint64_t{source()} << 32U) | source();
}

std::string make_run_id() {
    const std::uint64_t high = (random_bits() & ~0xF000ULL) | 0x4000ULL;         // version 4
    const std::uint64_t low = (random_bits() & ~(3ULL << 62U)) | (2ULL << 62U);  // variant 1
    return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", high >> 32U, (high >> 16U) & 0xFFFFU,
                       high & 0xFFFFU, low >> 48U, low & 0xFFFFFFFFFFFFULL);
}

std::optional<RunIdentity> read_run_identity(FileSystem& files, const RunLayout& layout) {
    const std::string path = layout.run_json();
    if (!files.status(path)) return std::nullopt;
    const std::string text = read_text(files, path, 1U << 20U);
    // The text ends with "}\n"; anything shorter was cut off while being created.
    if (text.size() < 2 || text.substr(text.size() - 2) != "}\n") return std::nullopt;
    const nlohmann::json document = parse_strict_json(text, path);
    const JsonObject run(document, path);
    run.require_format("trainctl-run", format_version);
    RunIdentity identity{run.text("run_id"), run.text("spec_hash"), run.text("created")};
    if (identity.run_id.empty()) run.refuse("run_id", "a non-empty string");
    return identity;
}

RunIdentity create_run(FileSystem& files, Clock& clock, const RunLayout& layout,
                       const std::string& spec_hash) {
    make_durable_directories(files, layout.root());
    RunIdentity identity{make_run_id(), spec_hash, utc_timestamp(clock.unix_s())};
    const std::string text = fmt::format(
        "{{\"format\": \"trainctl-run\", \"version\": {}, \"run_id\": {}, \"spec_hash\": {}, \"created\": "
        "{}}}\n",
        format_version, json_quote(identity.run_id), json_quote(spec_hash), json_quote(identity.created));
    if (create_exclusively(files, layout.root(), "run.json", text) == Claim::ExistsAlready) {
        if (read_run_identity(files, layout)) {
            fail(Exit::Usage,
                 fmt::format("{} exists already: this directory holds a run. Continue it with --resume "
                             "auto, or choose another job.run_dir",
                             layout.run_json()));
        }
        write_durably(files, layout.root(), "run.json", text);  // torn by a crash during its creation
    }
    return identity;
}

}  // namespace trainctl
