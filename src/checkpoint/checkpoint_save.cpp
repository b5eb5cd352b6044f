// The save protocol. Three agreed steps: plan, write and commit, prove. Everything before COMMIT can be lost
// without loss; everything after it is a warning.
#include <fmt/format.h>

#include <utility>

#include "checkpoint/save_messages.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/agree.h"
#include "trainctl/checkpoint/checkpoint_store.h"
#include "trainctl/checkpoint/state_hash.h"
#include "trainctl/rundir/commit.h"
#include "trainctl/rundir/durable_file.h"
#include "trainctl/rundir/run_identity.h"

namespace trainctl {
namespace {

// Puts file, offset and hash of what each rank wrote into the planned tensors.
void fill_manifest(Manifest& manifest, SavePlan& plan, const std::vector<std::string>& receipts) {
    for (std::size_t rank = 0; rank < receipts.size(); ++rank) {
        SaveReceipt receipt = parse_receipt(receipts[rank]);
        const auto& written = plan.written[rank];
        invariant(receipt.payload.offsets.size() == written.size() && receipt.hashes.size() == written.size(),
                  "save: a rank wrote other slices than it was told to");
        if (written.empty()) continue;
        const auto file = static_cast<std::uint32_t>(manifest.files.size());
        manifest.files.push_back(std::move(receipt.payload.file));
        for (std::size_t index = 0; index < written.size(); ++index) {
            ManifestTensor& tensor = plan.tensors[written[index].first];
            ManifestSlice& slice = tensor.slices[written[index].second];
            slice.file = file;
            slice.offset = receipt.payload.offsets[index];
            tensor.hash += receipt.hashes[index];
        }
    }
    for (const ManifestTensor& tensor : plan.tensors) {
        manifest.state_hash +=
            state_hash_term(tensor.name, tensor.dtype, shape_of(tensor.shape), tensor.hash);
    }
    manifest.tensors = std::move(plan.tensors);
}

void require_sizes(FileSystem& files, const std::string& path, const Manifest& manifest) {
    for (const ManifestFile& file : manifest.files) {
        const std::string name = join_path(path, file.name);
        const auto status = files.status(name);
        if (!status || status->size != file.bytes) {
            fail(Exit::Resource,
                 fmt::format("{}: a rank wrote {} bytes, rank 0 sees {}; is the checkpoint directory "
                             "shared by all nodes?",
                             name, file.bytes, status ? fmt::format("{}", status->size) : "no file"));
        }
    }
}

SaveReceipt write_part(FileSystem& files, const StoreSettings& settings, const std::string& directory,
                       int rank, std::int64_t step, const std::vector<const NamedSlice*>& mine) {
    SaveReceipt receipt;
    if (mine.empty()) return receipt;
    const std::string path = join_path(settings.root, directory);
    files.make_directories(path);  // another node may not have seen it yet
    receipt.payload =
        write_payload(files, path, fmt::format("r{:05}", rank), mine,
                      {{"format", "pt"}, {"step", std::to_string(step)}, {"run_id", settings.run_id}},
                      settings.chunk_bytes);
    for (const NamedSlice* slice : mine) receipt.hashes.push_back(slice_hash(*slice));
    return receipt;
}

}  // namespace

std::string CheckpointStore::begin_save(const Snapshot& snapshot) {
    if (settings_.fence) settings_.fence();
    const std::uint32_t nonce =
        settings_.nonce ? settings_.nonce() : static_cast<std::uint32_t>(random_bits());
    std::string directory = checkpoint_directory_name({snapshot.step, settings_.attempt, nonce});
    const std::string path = join_path(settings_.root, directory);
    invariant(!files_.status(path), "save: a checkpoint directory name came up twice");
    make_durable_directories(files_, settings_.root);
    note(JournalEvent::Begin, snapshot.step, directory, "");
    files_.make_directories(path);  // its own entry becomes durable with COMMIT
    return directory;
}

std::string CheckpointStore::manifest_of(const Snapshot& snapshot, const std::string& directory,
                                         SavePlan& plan, const std::vector<std::string>& receipts) const {
    Manifest manifest;
    manifest.run_id = settings_.run_id;
    manifest.directory = directory;
    manifest.step = snapshot.step;
    manifest.attempt = settings_.attempt;
    manifest.created = utc_timestamp(clock_.unix_s());
    manifest.counters = snapshot.counters;
    manifest.scalars = snapshot.scalars;
    manifest.layout = snapshot.layout;
    manifest.spec = snapshot.spec;
    manifest.data_fingerprint = snapshot.data_fingerprint;
    manifest.health = snapshot.health;
    manifest.chunk_bytes = settings_.chunk_bytes;
    fill_manifest(manifest, plan, receipts);
    // What lies on another node's disk its own ranks have synced.
    if (settings_.reach == Reach::Everybody)
        require_sizes(files_, join_path(settings_.root, directory), manifest);
    return manifest_text(manifest);
}

void CheckpointStore::mark(int rank, const std::string& directory, const std::string& manifest) {
    if (!settings_.nodes.keeps_markers(rank, settings_.reach)) return;
    if (rank != 0) make_durable_directories(files_, settings_.root);
    write_manifest(files_, join_path(settings_.root, directory), manifest);
}

SaveReport CheckpointStore::commit(const std::string& directory, const std::string& manifest_text) {
    const Manifest manifest = parse_manifest(manifest_text, "MANIFEST of this save");
    if (settings_.fence) settings_.fence();
    write_commit(files_, settings_.root, join_path(settings_.root, directory),
                 commit_of(manifest, manifest_text));
    SaveReport report;
    report.directory = directory;
    report.bytes = manifest.total_bytes();
    report.state_hash = manifest.state_hash;
    return report;
}

namespace {

// Adds what the leaders of other nodes could not do to the warnings; nobody takes back what rank 0 decided.
void on_other_nodes(const Nodes& nodes, SaveReport& report, RankLink& link,
                    const std::function<void()>& work) {
    const auto attempt = [&]() -> std::string {
        if (link.rank() == 0 || nodes.leader_of(link.rank()) != link.rank()) return {};
        try {
            work();
            return {};
        } catch (const Error& error) {
            return error.what();
        }
    };
    report = parse_report(agree(link, attempt, [&](const std::vector<std::string>& problems) {
        for (std::size_t rank = 0; rank < problems.size(); ++rank) {
            if (!problems[rank].empty())
                report.warnings.push_back(fmt::format("[rank {}] {}", rank, problems[rank]));
        }
        return report_text(report);
    }));
}

}  // namespace

void CheckpointStore::commit_on_nodes(SaveReport& report, const std::string& manifest_text, RankLink& link) {
    const std::string directory = report.directory;
    on_other_nodes(settings_.nodes, report, link, [&] {
        write_commit(files_, settings_.root, join_path(settings_.root, directory),
                     commit_of(parse_manifest(manifest_text, "MANIFEST of this save"), manifest_text));
    });
}

void CheckpointStore::remove_on_nodes(SaveReport& report, RankLink& link) {
    const std::vector<std::string> removed = report.removed;
    on_other_nodes(settings_.nodes, report, link, [&] {
        for (const std::string& directory : removed) remove_checkpoint(files_, settings_.root, directory);
    });
}

SaveReport CheckpointStore::write_and_commit(const Snapshot& snapshot, RankLink& link) {
    const auto rank = static_cast<std::size_t>(link.rank());
    std::vector<const NamedSlice*> slices;
    SavePlan plan;      // rank 0
    std::string begun;  // rank 0: the directory to clean up if anything fails before COMMIT
    SaveOrder order;
    std::string manifest;  // rank 0, and whoever else keeps markers
    const auto offer = [&] {
        slices = slices_to_offer(snapshot);
        return offer_text(snapshot, slices);
    };
    const auto decide_plan = [&](const std::vector<std::string>& offers) {
        plan = plan_save(offers);
        begun = begin_save(snapshot);
        return order_text({begun, plan.chosen});
    };
    const auto write = [&] {
        std::vector<const NamedSlice*> mine;
        for (std::size_t index = 0; index < slices.size(); ++index) {
            if (order.chosen.at(rank).at(index)) mine.push_back(slices[index]);
        }
        return receipt_text(write_part(files_, settings_, order.directory, link.rank(), snapshot.step, mine));
    };
    const auto decide_manifest = [&](const std::vector<std::string>& receipts) {
        manifest = manifest_of(snapshot, order.directory, plan, receipts);
        return settings_.reach == Reach::Node ? manifest : std::string();  // megabytes
    };
    const auto decide_commit = [&](const std::vector<std::string>&) {
        SaveReport report = commit(order.directory, manifest);
        begun.clear();
        try {
            note(JournalEvent::Commit, snapshot.step, report.directory,
                 fmt::format("state {:016x}", report.state_hash));
        } catch (const Error& error) {
            report.warnings.push_back(fmt::format("{} is committed but the journal does not say so: {}",
                                                  report.directory, error.what()));
        }
        return report_text(report);
    };
    SaveReport report;
    try {
        order = parse_order(agree(link, offer, decide_plan));
        const std::string told = agree(link, write, decide_manifest);
        if (link.rank() != 0) manifest = told;
        const auto write_markers = [&] {
            mark(link.rank(), order.directory, manifest);
            return std::string();
        };
        report = parse_report(agree(link, write_markers, decide_commit));
    } catch (const Error& error) {
        if (!begun.empty()) abandon(begun, error.what());
        // Only what all ranks know to have failed: rank 0 may have committed what a lost message does not
        // say.
        const bool own = settings_.reach == Reach::Node && link.rank() != 0 && !order.directory.empty();
        if (own && error.scope() == Scope::Shared && settings_.nodes.leader_of(link.rank()) == link.rank())
            remove_incomplete(order.directory);
        throw;
    }
    if (settings_.reach == Reach::Node) commit_on_nodes(report, manifest, link);
    return report;
}

// Without COMMIT it is swept by a later save if it cannot be removed now.
void CheckpointStore::remove_incomplete(const std::string& directory) {
    try {
        remove_checkpoint(files_, settings_.root, directory);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the failure of the save is what is reported
    }
}

void CheckpointStore::abandon(const std::string& directory, const std::string& reason) {
    remove_incomplete(directory);
    try {
        note(JournalEvent::Failed, -1, directory, reason);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the failure itself is reported by the caller
    }
}

void CheckpointStore::prove_visible(const std::string& directory, double patience_s) const {
    const std::string path = join_path(settings_.root, directory);
    const double start = clock_.monotonic_s();
    while (true) {
        try {
            static_cast<void>(read_committed(files_, path));
            return;
        } catch (const Error&) {
            if (clock_.monotonic_s() - start >= patience_s) throw;
        }
        clock_.sleep_s(1.0);
    }
}

Result<SaveReport> CheckpointStore::save(const Snapshot& snapshot, RankLink& link) {
    const double start = clock_.monotonic_s();
    try {
        SaveReport report = write_and_commit(snapshot, link);
        // The last rank, on another node if there are several, must see it before anything older may go.
        const auto prove = [&]() -> std::string {
            if (settings_.reach == Reach::Node || link.rank() != link.size() - 1) return {};
            try {
                // What a process wrote itself it sees at once, or somebody has removed it.
                prove_visible(report.directory, link.size() == 1 ? 0.0 : settings_.proof_wait_s);
                return {};
            } catch (const Error& error) {
                return error.what();
            }
        };
        const auto finish = [&](const std::vector<std::string>& proofs) {
            if (proofs.back().empty()) {
                apply_retention(report);
            } else {
                report.warnings.push_back(
                    fmt::format("rank {} does not see it, older checkpoints are kept: {}", link.size() - 1,
                                proofs.back()));
            }
            return report_text(report);
        };
        report = parse_report(agree(link, prove, finish));
        if (settings_.reach == Reach::Node) remove_on_nodes(report, link);
        report.seconds = clock_.monotonic_s() - start;
        return report;
    } catch (const Error& error) {
        if (error.code() == Exit::Peer) throw;
        return Error(error);
    }
}

}  // namespace trainctl
