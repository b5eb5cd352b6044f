// Loading: rank 0 chooses a candidate and sends its MANIFEST, every rank reads its ranges, all agree; a
// damaged one is passed over for the next older.
#include <fmt/format.h>

#include <map>
#include <utility>

#include "checkpoint/dtype_names.h"
#include "checkpoint/payload_reader.h"
#include "checkpoint/save_messages.h"
#include "checkpoint/staged_read.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/agree.h"
#include "trainctl/checkpoint/checkpoint_store.h"
#include "trainctl/checkpoint/resume.h"
#include "trainctl/checkpoint/slice_runs.h"
#include "trainctl/checkpoint/state_hash.h"
#include "trainctl/checkpoint/suspicion.h"

namespace trainctl {
namespace {

// What rank 0 broadcasts: a kind, then its text.
constexpr char kind_fresh = 'F';      // text for the log
constexpr char kind_candidate = 'C';  // MANIFEST of the checkpoint to try
constexpr char kind_done = 'D';       // state hash in hex, or nothing

void require_counters(const Manifest& manifest, const std::vector<std::string>& required) {
    for (const std::string& name : required) {
        if (manifest.counters.count(name) == 0) {
            fail(Exit::BadInput,
                 fmt::format("checkpoint {}: counter '{}' is missing from its MANIFEST; without it the run "
                             "cannot be continued exactly",
                             manifest.directory, name));
        }
    }
}

// Compares what all ranks hold after loading with what was saved. Returns the state hash if every tensor is
// there.
std::optional<std::uint64_t> check_hashes(const Manifest& manifest,
                                          const std::vector<std::vector<LoadedSlice>>& ranks) {
    std::map<std::string, ManifestTensor> loaded;  // slices once each, hash summed
    std::map<std::string, std::vector<std::uint64_t>> hashes;
    for (const std::vector<LoadedSlice>& rank : ranks) {
        for (const LoadedSlice& slice : rank) {
            ManifestTensor& tensor = loaded[slice.name];
            tensor.name = slice.name;
            tensor.shape = extents_of(slice.global);
            const ManifestSlice here = manifest_slice(slice.box, slice.flat);
            std::size_t known = 0;
            for (; known < tensor.slices.size(); ++known) {
                const ManifestSlice& other = tensor.slices[known];
                if (other.begin == here.begin && other.extent == here.extent &&
                    other.flat_begin == here.flat_begin && other.flat_end == here.flat_end) {
                    break;
                }
            }
            std::vector<std::uint64_t>& values = hashes[slice.name];
            if (known == tensor.slices.size()) {
                tensor.slices.push_back(here);
                values.push_back(slice.hash);
            } else if (values[known] != slice.hash) {
                fail(Exit::BadInput,
                     fmt::format("tensor \"{}\": ranks that read the same part hold different values",
                                 slice.name));
            }
        }
    }
    std::uint64_t state = 0;
    bool all = true;
    for (const ManifestTensor& tensor : manifest.tensors) {
        const auto found = loaded.find(tensor.name);
        bool whole = found != loaded.end();
        try {
            if (whole) require_coverage(found->second, "loaded");
        } catch (const Error&) {
            whole = false;  // wanted in part, or by overlapping parts: cannot be compared
        }
        all = all && whole;
        if (!whole) continue;
        std::uint64_t hash = 0;
        for (const std::uint64_t value : hashes[tensor.name]) hash += value;
        if (hash != tensor.hash) {
            fail(Exit::BadInput,
                 fmt::format("tensor \"{}\" has hash {:016x} in memory after loading, {:016x} when it was "
                             "saved",
                             tensor.name, hash, tensor.hash));
        }
        state += state_hash_term(tensor.name, tensor.dtype, shape_of(tensor.shape), hash);
    }
    return all ? std::optional(state) : std::nullopt;
}

// One rank's part: "+" and its hashes, or "-" and why the checkpoint is bad. Throws if no older one could be
// better.
std::string load_part(FileSystem& files, const std::string& root, const Manifest& manifest,
                      const LoadRequest& load, const RankLink& link) {
    const std::vector<NamedSlice>& wanted = load.wanted;
    require_available(manifest, wanted);
    std::vector<std::uint64_t> hashes;
    try {
        hashes = read_wanted(wanted, load.through, [&](std::span<const NamedSlice> part) {
            read_slices(files, join_path(root, manifest.directory), manifest, part);
        });
    } catch (const Error& error) {
        const std::string host = link.host().empty() ? "" : " " + link.host();
        return fmt::format("-[rank {}{}] {}", link.rank(), host, error.what());
    }
    std::vector<LoadedSlice> loaded;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        const NamedSlice& slice = wanted[i];
        if (slice.flat.size() == 0) continue;
        loaded.push_back({slice.name, slice.global, slice.box, slice.flat, hashes[i]});
    }
    return "+" + loaded_text(loaded);
}

// Empty if all ranks loaded; else the first problem.
std::string first_problem(const std::vector<std::string>& answers) {
    for (const std::string& answer : answers) {
        if (answer.front() == '-') return answer.substr(1);
    }
    return {};
}

std::string list_passed_over(const std::vector<std::string>& passed_over) {
    std::string text;
    for (const std::string& why : passed_over) text += "\n  " + why;
    return text;
}

}  // namespace

LoadReport CheckpointStore::load_candidates(
    const std::function<ResumeDecision(const CheckpointScan&)>& choose, const LoadRequest& load,
    RankLink& link) {
    LoadReport report;
    CheckpointScan scan;                  // rank 0
    std::vector<std::size_t> candidates;  // rank 0, the ones not tried yet
    std::vector<std::size_t> chosen;      // rank 0, all of them
    const auto next_candidate = [&] {
        const CompleteCheckpoint& next = scan.complete.at(candidates.front());
        candidates.erase(candidates.begin());
        if (load.accept) load.accept(next.manifest);
        require_counters(next.manifest, load.required_counters);
        return kind_candidate + next.manifest_text;
    };
    const auto start = [&](const std::vector<std::string>&) {
        scan = scan_checkpoints(files_, settings_.root, settings_.run_id);
        for (const CompleteCheckpoint& found : scan.complete) known_.insert(found.manifest.directory);
        const ResumeDecision decision = choose(scan);
        report.text = decision.text;
        for (const RejectedCheckpoint& found : scan.rejected) {
            if (found.reason != RejectReason::Foreign) report.passed_over.push_back(found.text);
        }
        candidates = decision.candidates;
        chosen = decision.candidates;
        return candidates.empty() ? kind_fresh + decision.text : next_candidate();
    };
    std::string order = agree(
        link, [] { return std::string(); }, start);
    while (order.front() == kind_candidate) {
        report.manifest = parse_manifest(std::string_view(order).substr(1), "MANIFEST sent by rank 0");
        const Manifest& manifest = report.manifest;
        const auto work = [&] { return load_part(files_, settings_.root, manifest, load, link); };
        const auto judge = [&](const std::vector<std::string>& answers) -> std::string {
            std::string problem = first_problem(answers);
            try {
                if (problem.empty()) {
                    std::vector<std::vector<LoadedSlice>> ranks;
                    ranks.reserve(answers.size());
                    for (const std::string& answer : answers) ranks.push_back(parse_loaded(answer.substr(1)));
                    const auto state = check_hashes(manifest, ranks);
                    if (state) forget_damage(manifest.directory);
                    return kind_done + (state ? fmt::format("{:016x}", *state) : std::string());
                }
            } catch (const Error& error) {
                problem = error.what();
            }
            report.passed_over.push_back(fmt::format("{}: {}", manifest.directory, problem));
            remember_damage(manifest, problem, report);
            if (candidates.empty()) {
                fail(Exit::BadInput,
                     fmt::format("no checkpoint can be loaded ({} tried); not starting at step 0. {}:{}",
                                 chosen.size(), other_steps(scan, chosen),
                                 list_passed_over(report.passed_over)));
            }
            return next_candidate();
        };
        order = agree(link, work, judge);
    }
    if (order.front() == kind_fresh) {
        report.text = order.substr(1);
        return report;
    }
    report.outcome = LoadOutcome::Loaded;
    report.directory = report.manifest.directory;
    if (order.size() > 1) report.state_hash = std::stoull(order.substr(1), nullptr, 16);
    return report;
}

void CheckpointStore::remember_damage(const Manifest& manifest, const std::string& problem,
                                      LoadReport& report) {
    note(JournalEvent::Suspect, manifest.step, manifest.directory, problem);
    try {
        remember_suspicion(files_, join_path(settings_.root, manifest.directory), problem);
    } catch (const Error& error) {
        report.passed_over.push_back(
            fmt::format("the damage of {} is not remembered: {}", manifest.directory, error.what()));
    }
}

void CheckpointStore::forget_damage(const std::string& directory) {
    try {
        clear_suspicion(files_, join_path(settings_.root, directory));
    } catch (
        const Error&) {  // NOLINT(bugprone-empty-catch): a copy that is read-only may be loaded all the same
    }
}

LoadReport CheckpointStore::resume(const ResumeRequest& request, RunState state, const LoadRequest& load,
                                   RankLink& link) {
    LoadReport report = load_candidates(
        [&](const CheckpointScan& scan) { return decide_resume(request, state, scan, history_); }, load,
        link);
    if (report.outcome == LoadOutcome::Loaded) {
        const auto record = [&](const std::vector<std::string>&) {
            // Every byte of the state was read and compared: this one is verified.
            if (report.state_hash)
                note(JournalEvent::Verify, report.manifest.step, report.directory, "read back by resume");
            note(JournalEvent::Resume, report.manifest.step, report.directory,
                 fmt::format("attempt {}", settings_.attempt));
            return std::string();
        };
        agree(
            link, [] { return std::string(); }, record);
    }
    return report;
}

LoadReport CheckpointStore::load_newest(const LoadRequest& load, RankLink& link) {
    return load_candidates(
        [&](const CheckpointScan& scan) {
            ResumeDecision decision;
            for (std::size_t index = 0; index < scan.complete.size(); ++index)
                decision.candidates.push_back(index);
            if (decision.candidates.empty()) {
                fail(Exit::BadInput, fmt::format("no complete checkpoint in {}{}", settings_.root,
                                                 describe_rejected(scan.rejected)));
            }
            return decision;
        },
        load, link);
}

LoadReport CheckpointStore::load_step(std::int64_t step, const LoadRequest& load, RankLink& link) {
    return load_candidates(
        [&](const CheckpointScan& scan) {
            return decide_resume({ResumeMode::Step, step}, RunState::Existing, scan, history_);
        },
        load, link);
}

}  // namespace trainctl
