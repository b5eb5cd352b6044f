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

SaveReport CheckpointStore::commit(const Snapshot& snapshot, const std::string& directory, SavePlan& plan,
                                   const std::vector<std::string>& receipts) {
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
    const std::string path = join_path(settings_.root, directory);
    require_sizes(files_, path, manifest);
    const std::string text = manifest_text(manifest);
    write_manifest(files_, path, text);
    if (settings_.fence) settings_.fence();
    write_commit(files_, settings_.root, path, commit_of(manifest, text));
    SaveReport report;
    report.directory = directory;
    report.bytes = manifest.total_bytes();
    report.state_hash = manifest.state_hash;
    return report;
}

SaveReport CheckpointStore::write_and_commit(const Snapshot& snapshot, RankLink& link) {
    const auto rank = static_cast<std::size_t>(link.rank());
    std::vector<const NamedSlice*> slices;
    SavePlan plan;      // rank 0
    std::string begun;  // rank 0: the directory to clean up if anything fails before COMMIT
    SaveOrder order;
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
    const auto decide_commit = [&](const std::vector<std::string>& receipts) {
        SaveReport report = commit(snapshot, order.directory, plan, receipts);
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
    try {
        order = parse_order(agree(link, offer, decide_plan));
        return parse_report(agree(link, write, decide_commit));
    } catch (const Error& error) {
        if (!begun.empty()) abandon(begun, error.what());
        throw;
    }
}

void CheckpointStore::abandon(const std::string& directory, const std::string& reason) {
    try {
        remove_checkpoint(files_, settings_.root, directory);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): without COMMIT it is swept by a later save
    }
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
            if (link.rank() != link.size() - 1) return {};
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
        report.seconds = clock_.monotonic_s() - start;
        return report;
    } catch (const Error& error) {
        if (error.code() == Exit::Peer) throw;
        return Error(error);
    }
}

}  // namespace trainctl
