// Loading: rank 0 chooses a candidate and sends its MANIFEST, every rank reads its ranges, all agree; a
// damaged one is passed over for the next older.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "checkpoint/catalogue.h"
#include "checkpoint/dtype_names.h"
#include "checkpoint/payload_reader.h"
#include "checkpoint/save_messages.h"
#include "checkpoint/staged_read.h"
#include "checkpoint/transfer.h"
#include "trainctl/base/error.h"
#include "trainctl/base/text.h"
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
constexpr char kind_candidate = 'C';  // LoadOrder
constexpr char kind_transfer = 'T';   // transfers, then the same candidate again
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

// One rank's part. Throws if no older checkpoint could be better.
LoadAnswer load_part(FileSystem& files, const std::vector<std::string>& directories, const Manifest& manifest,
                     const LoadRequest& load, const RankLink& link) {
    require_available(manifest, load.wanted);
    const std::string host = link.host().empty() ? "" : " " + link.host();
    LoadAnswer answer;
    const auto read_part = [&](std::span<const NamedSlice> part) {
        ReadResult read = read_slices(files, directories, manifest, part);
        for (BadReplica& bad : read.passed_over) {
            const bool known = std::any_of(answer.passed_over.begin(), answer.passed_over.end(),
                                           [&](const BadReplica& other) { return other.path == bad.path; });
            if (!known) answer.passed_over.push_back(std::move(bad));
        }
        for (const auto& [file, problem] : read.lacking)
            answer.lacking.emplace(file, fmt::format("[rank {}{}] {}", link.rank(), host, problem));
    };
    const std::vector<std::uint64_t> hashes = read_wanted(load.wanted, load.through, read_part);
    if (!answer.lacking.empty()) return answer;
    for (std::size_t i = 0; i < load.wanted.size(); ++i) {
        const NamedSlice& slice = load.wanted[i];
        if (slice.flat.size() == 0) continue;
        answer.slices.push_back({slice.name, slice.global, slice.box, slice.flat, hashes[i]});
    }
    return answer;
}

// Of the lowest rank that lacks something; empty if none does.
std::string first_problem(const std::vector<LoadAnswer>& answers) {
    for (const LoadAnswer& answer : answers) {
        if (!answer.lacking.empty()) return answer.lacking.begin()->second;
    }
    return {};
}

std::string list_passed_over(const std::vector<std::string>& passed_over) {
    std::string text;
    for (const std::string& why : passed_over) text += "\n  " + why;
    return text;
}

}  // namespace

// What rank 0 keeps of a load in progress.
struct CheckpointStore::Load {
    Catalogue catalogue;
    std::vector<std::size_t> chosen;  // indices into the catalogue
    std::size_t next = 0;             // of chosen: to be tried next
    std::optional<TransferPlan> transfers;
    std::string otherwise = {};  // ResumeDecision
    bool clean = true;           // the present candidate was read without passing anything over
};

std::string CheckpointStore::next_candidate(Load& state, const LoadRequest& load) const {
    const std::size_t index = state.chosen.at(state.next++);
    const CompleteCheckpoint& candidate = state.catalogue.scan.complete.at(index);
    const Replicas& replicas = state.catalogue.replicas.at(index);
    if (load.accept) load.accept(candidate.manifest);
    require_counters(candidate.manifest, load.required_counters);
    state.transfers.emplace(replicas.holders, settings_.nodes);
    state.clean = true;
    return kind_candidate + load_order_text({replicas.places, candidate.manifest_text});
}

// After every rank has read, or tried to.
std::string CheckpointStore::judge_load(Load& state, const LoadRequest& load, const LoadOrder& order,
                                        const Manifest& manifest, const std::vector<LoadAnswer>& answers,
                                        LoadReport& report) {
    for (const LoadAnswer& answer : answers) {
        for (const BadReplica& bad : answer.passed_over) {
            state.clean = false;
            report.passed_over.push_back(fmt::format("{}; read from another replica", bad.problem));
            remember_damage(manifest, parent_path(bad.path), bad.problem, report);
        }
    }
    std::string problem = first_problem(answers);
    try {
        if (problem.empty()) {
            std::vector<std::vector<LoadedSlice>> ranks;
            ranks.reserve(answers.size());
            for (const LoadAnswer& answer : answers) ranks.push_back(answer.slices);
            const auto hash = check_hashes(manifest, ranks);
            if (hash && state.clean) forget_damage(directory_at(order.places.front(), manifest.directory));
            return kind_done + (hash ? fmt::format("{:016x}", *hash) : std::string());
        }
    } catch (const Error& error) {
        problem = error.what();
    }
    if (const auto transfers = state.transfers->next(manifest, answers); !transfers.empty()) {
        state.clean = false;
        report.passed_over.push_back(
            fmt::format("{}; {} brought from other nodes", problem, counted(transfers.size(), "file")));
        return kind_transfer + transfers_text(transfers);
    }
    report.passed_over.push_back(fmt::format("{}: {}", manifest.directory, problem));
    remember_damage(manifest, directory_at(order.places.front(), manifest.directory), problem, report);
    if (state.next == state.chosen.size() && !state.otherwise.empty())
        fail(Exit::BadInput, fmt::format("{}:{}", state.otherwise, list_passed_over(report.passed_over)));
    if (state.next == state.chosen.size()) {
        fail(Exit::BadInput,
             fmt::format("no checkpoint can be loaded ({} tried); not starting at step 0. {}:{}",
                         state.chosen.size(),
                         other_steps(state.catalogue.scan, state.chosen, Lineage(history_)),
                         list_passed_over(report.passed_over)));
    }
    return next_candidate(state, load);
}

LoadReport CheckpointStore::load_candidates(
    const std::function<ResumeDecision(const CheckpointScan&)>& choose, const LoadRequest& load,
    RankLink& link) {
    LoadReport report;
    const std::vector<Place> places = this->places();
    Load state{gather_checkpoints(files_, places, settings_.nodes, settings_.run_id, link), {}, 0, {}};
    const auto start = [&](const std::vector<std::string>&) {
        const CheckpointScan& scan = state.catalogue.scan;
        for (std::size_t index = 0; index < scan.complete.size(); ++index) {
            if (state.catalogue.replicas[index].places.front() == 0)
                known_.insert(scan.complete[index].manifest.directory);
        }
        const ResumeDecision decision = choose(scan);
        report.text = decision.text;
        report.passed_over = state.catalogue.damage;
        for (const RejectedCheckpoint& found : scan.rejected) {
            if (found.reason != RejectReason::Foreign) report.passed_over.push_back(found.text);
        }
        state.chosen = decision.candidates;
        state.otherwise = decision.otherwise;
        return state.chosen.empty() ? kind_fresh + decision.text : next_candidate(state, load);
    };
    std::string message = agree(
        link, [] { return std::string(); }, start);
    LoadOrder order;
    std::optional<LoadAnswer> mine;  // of the present candidate, once this rank has all of it
    while (message.front() == kind_candidate || message.front() == kind_transfer) {
        const std::string text = message.substr(1);
        if (message.front() == kind_candidate) {
            order = parse_load_order(text);
            report.manifest = parse_manifest(order.manifest, "MANIFEST sent by rank 0");
            mine.reset();
        } else {
            make_transfers(files_, directory_at(0, report.manifest.directory), report.manifest,
                           parse_transfers(text), link);
        }
        const auto work = [&] {
            if (!mine) {
                std::vector<std::string> directories;
                for (const std::size_t place : order.places)
                    directories.push_back(directory_at(place, report.manifest.directory));
                LoadAnswer answer = load_part(files_, directories, report.manifest, load, link);
                if (!answer.lacking.empty()) return answer_text(answer);
                mine = std::move(answer);
            }
            // What was passed over is told once.
            return answer_text(LoadAnswer{mine->slices, std::exchange(mine->passed_over, {}), {}});
        };
        message = agree(link, work, [&](const std::vector<std::string>& texts) {
            std::vector<LoadAnswer> answers;
            answers.reserve(texts.size());
            for (const std::string& answer : texts) answers.push_back(parse_answer(answer));
            return judge_load(state, load, order, report.manifest, answers, report);
        });
    }
    if (message.front() == kind_fresh) {
        report.text = message.substr(1);
        return report;
    }
    report.outcome = LoadOutcome::Loaded;
    report.directory = report.manifest.directory;
    if (message.size() > 1) report.state_hash = std::stoull(message.substr(1), nullptr, 16);
    complete_node(link.rank(), report.manifest, order.manifest);
    return report;
}

// A node whose part was brought to it has a replica like the others.
void CheckpointStore::complete_node(int rank, const Manifest& manifest, const std::string& manifest_text) {
    if (settings_.reach != Reach::Node || settings_.nodes.leader_of(rank) != rank) return;
    const std::string path = directory_at(0, manifest.directory);
    if (!files_.status(path) || files_.status(join_path(path, std::string(commit_file_name)))) return;
    try {
        write_manifest(files_, path, manifest_text);
        write_commit(files_, settings_.root, path, commit_of(manifest, manifest_text));
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): it was loaded; a later save says what is wrong
    }
}

// `directory`: the replica that is bad. What lies on a node's own disk is remembered where rank 0 sees it.
void CheckpointStore::remember_damage(const Manifest& manifest, const std::string& directory,
                                      const std::string& problem, LoadReport& report) {
    note(JournalEvent::Suspect, manifest.step, manifest.directory, problem);
    try {
        remember_suspicion(files_, directory, problem);
    } catch (const Error& error) {
        report.passed_over.push_back(
            fmt::format("the damage of {} is not remembered: {}", manifest.directory, error.what()));
    }
}

void CheckpointStore::forget_damage(const std::string& directory) {
    try {
        clear_suspicion(files_, directory);
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
            decision.candidates = Lineage(history_).newest_first(scan.complete);
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

LoadReport CheckpointStore::load_directory(const std::string& directory, const LoadRequest& load,
                                           RankLink& link) {
    return load_candidates(
        [&](const CheckpointScan& scan) {
            ResumeDecision decision;
            for (std::size_t index = 0; index < scan.complete.size(); ++index) {
                if (scan.complete[index].manifest.directory == directory)
                    decision.candidates.push_back(index);
            }
            if (decision.candidates.empty()) {
                fail(Exit::BadInput,
                     fmt::format("{} is not complete (any more){}", directory_at(0, directory),
                                 describe_rejected(scan.rejected)));
            }
            decision.otherwise = directory_at(0, directory) + " cannot be loaded; choose another checkpoint";
            return decision;
        },
        load, link);
}

}  // namespace trainctl
