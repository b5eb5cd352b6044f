// The parts of the store that only rank 0's file system and journal matter for.
#include "trainctl/checkpoint/checkpoint_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "trainctl/base/error.h"
#include "trainctl/checkpoint/agree.h"
#include "trainctl/checkpoint/suspicion.h"
#include "trainctl/rundir/durable_file.h"
#include "trainctl/rundir/run_identity.h"

namespace trainctl {
namespace {

// Why a checkpoint must not be on a node (sweep_nodes).
constexpr char begun = 'B';
constexpr char deleted = 'D';

}  // namespace

CheckpointStore::CheckpointStore(FileSystem& files, Clock& clock, StoreSettings settings,
                                 JournalWriter* journal, Journal history)
    : files_(files),
      clock_(clock),
      settings_(std::move(settings)),
      journal_(journal),
      history_(std::move(history)) {}

std::vector<Place> CheckpointStore::places() const {
    std::vector<Place> all{{settings_.root, settings_.root, settings_.reach}};
    all.insert(all.end(), settings_.copies.begin(), settings_.copies.end());
    return all;
}

std::string CheckpointStore::directory_at(std::size_t place, const std::string& directory) const {
    return join_path(place == 0 ? settings_.root : settings_.copies.at(place - 1).root, directory);
}

CheckpointScan CheckpointStore::scan_root() const {
    return scan_checkpoints(files_, settings_.root, settings_.run_id,
                            settings_.reach == Reach::Node ? Require::Markers : Require::AllFiles);
}

std::optional<CompleteCheckpoint> CheckpointStore::newest_complete() const {
    CheckpointScan scan = scan_root();
    const std::vector<std::size_t> order = Lineage(history_).newest_first(scan.complete);
    if (order.empty()) return std::nullopt;
    return std::move(scan.complete[order.front()]);
}

std::uint64_t CheckpointStore::free_bytes() const { return files_.space(settings_.root).free_bytes; }

void CheckpointStore::note(JournalEvent event, std::int64_t step, const std::string& directory,
                           const std::string& text) {
    JournalRecord record;
    record.event = event;
    record.step = step;
    record.directory = directory;
    record.text = text;
    const std::lock_guard lock(history_mutex_);
    record.attempt = settings_.attempt;
    history_.records.push_back(record);  // a line that cannot be written now the journal writes with the next
    if (journal_ != nullptr) journal_->append(std::move(record));
}

void CheckpointStore::mark_healthy(const std::string& directory) {
    const auto name = parse_checkpoint_directory_name(directory);
    invariant(name.has_value(), "mark_healthy: not a checkpoint directory name");
    if (remember_health(files_, join_path(settings_.root, directory)))
        note(JournalEvent::Healthy, name->step, directory, "");
}

// What somebody took away or damaged since the last look is told once; it was not us.
void CheckpointStore::report_losses(const CheckpointScan& scan, SaveReport& report) {
    std::set<std::string> complete;
    for (const CompleteCheckpoint& found : scan.complete) complete.insert(found.manifest.directory);
    for (const std::string& directory : known_) {
        if (complete.contains(directory)) continue;
        const auto rejected =
            std::find_if(scan.rejected.begin(), scan.rejected.end(), [&](const RejectedCheckpoint& found) {
                return checkpoint_directory_name(found.name) == directory;
            });
        report.warnings.push_back(
            rejected == scan.rejected.end()
                ? fmt::format("checkpoint {} was removed by somebody else and cannot be brought back",
                              directory)
                : fmt::format("checkpoint {} was complete and is not any more: {}", directory,
                              rejected->text));
    }
    known_ = std::move(complete);
}

void CheckpointStore::apply_retention(SaveReport& report) {
    try {
        const CheckpointScan scan = scan_root();
        const bool sees_newest = std::any_of(
            scan.complete.begin(), scan.complete.end(),
            [&](const CompleteCheckpoint& found) { return found.manifest.directory == report.directory; });
        if (!sees_newest) {  // a stale or short listing is no ground to delete anything
            report.warnings.push_back(
                "the new checkpoint is not in the directory listing yet; nothing was removed");
            return;
        }
        report_losses(scan, report);
        const std::vector<RetentionItem> items = retention_items(scan.complete, history_);
        for (const std::size_t index : plan_retention(items, settings_.retention)) {
            const CompleteCheckpoint& old = scan.complete[index];
            const std::string& directory = old.manifest.directory;
            if (directory == report.directory)
                continue;  // saved again at a lower step than others: still the newest save
            if (is_pinned(files_, old.path)) continue;  // since the scan
            try {  // said before it is done: copies elsewhere go by what the journal says
                note(JournalEvent::Delete, old.name.step, directory, "retention");
            } catch (const Error& error) {  // a full disk is the last reason to keep what is old
                report.warnings.push_back(fmt::format("{} is removed but the journal does not say so: {}",
                                                      directory, error.what()));
            }
            known_.erase(directory);
            try {
                remove_checkpoint(files_, settings_.root, directory);
                report.removed.push_back(directory);
            } catch (const Error& error) {  // what is left of it is swept by a later save
                report.warnings.push_back(
                    fmt::format("old checkpoint {} is not all removed: {}", directory, error.what()));
            }
        }
        sweep_leftovers();
    } catch (const Error& error) {
        report.warnings.push_back(fmt::format("old checkpoints were not all removed: {}", error.what()));
    }
}

std::vector<std::string> CheckpointStore::sweep_leftovers() {
    // Only what this run's journal says it began: a shared directory holds other runs' saves in progress as
    // well.
    std::set<std::string> ours;
    for (const JournalRecord& record : history_.records) {
        if (record.event == JournalEvent::Begin) ours.insert(record.directory);
    }
    std::vector<std::string> swept;
    if (!files_.status(settings_.root)) return swept;
    for (const std::string& entry : files_.list(settings_.root)) {
        if (ours.count(entry) == 0) continue;
        if (files_.status(join_path(join_path(settings_.root, entry), std::string(commit_file_name))))
            continue;
        try {
            remove_checkpoint(files_, settings_.root, entry);
            swept.push_back(entry);
        } catch (const Error&) {  // NOLINT(bugprone-empty-catch): it counts for nothing and is tried again
        }
    }
    return swept;
}

void CheckpointStore::sweep_nodes(RankLink& link) {
    if (settings_.reach != Reach::Node) return;
    const std::string names = link.broadcast(link.rank() == 0 ? names_to_sweep() : std::string());
    agree(link, [&] {
        if (link.rank() == 0 || settings_.nodes.leader_of(link.rank()) != link.rank()) return;
        std::istringstream lines(names);
        for (std::string line; std::getline(lines, line);) {
            const std::string directory = line.substr(1);
            const std::string path = join_path(settings_.root, directory);
            if (!files_.status(path)) continue;
            const bool committed = files_.status(join_path(path, std::string(commit_file_name))).has_value();
            if (line.front() == deleted || !committed) remove_checkpoint(files_, settings_.root, directory);
        }
    });
}

std::set<std::string> CheckpointStore::unwanted_copies() const {
    const std::lock_guard lock(history_mutex_);
    std::set<std::string> unwanted;
    for (const JournalRecord& record : history_.records) {
        if (record.event == JournalEvent::Delete || record.event == JournalEvent::Failed)
            unwanted.insert(record.directory);
    }
    return unwanted;
}

// What must not be on any node: deleted; or begun, and committed neither there nor here.
std::string CheckpointStore::names_to_sweep() const {
    std::map<std::string, char> unwanted;
    for (const JournalRecord& record : history_.records) {
        if (record.event == JournalEvent::Begin) unwanted[record.directory] = begun;
        if (record.event == JournalEvent::Commit) unwanted.erase(record.directory);
        if (record.event == JournalEvent::Delete) unwanted[record.directory] = deleted;
    }
    // The journal may not know of a commit, if its disk was full just then.
    for (const CompleteCheckpoint& found : scan_root().complete) unwanted.erase(found.manifest.directory);
    std::string names;
    for (const auto& [directory, why] : unwanted) names += why + directory + "\n";
    return names;
}

std::vector<int> ranks_without_directory(FileSystem& files, const std::string& root, RankLink& link) {
    std::string probe;
    const auto nothing = [] { return std::string(); };
    probe = agree(link, nothing, [&](const std::vector<std::string>&) {
        files.make_directories(root);
        std::string name = fmt::format(".shared-{:016x}", random_bits());
        create_exclusively(files, root, name, "is this directory shared by all nodes?\n");
        return name;
    });
    const std::string path = join_path(root, probe);
    std::vector<int> without;
    const auto look = [&]() -> std::string { return files.status(path) ? "yes" : "no"; };
    agree(link, look, [&](const std::vector<std::string>& answers) {
        for (std::size_t rank = 0; rank < answers.size(); ++rank) {
            if (answers[rank] == "no") without.push_back(static_cast<int>(rank));
        }
        files.remove_file(path);
        return std::string();
    });
    return without;
}

}  // namespace trainctl
