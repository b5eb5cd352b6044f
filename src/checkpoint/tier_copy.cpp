#include "trainctl/checkpoint/tier_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "checkpoint/copy_messages.h"
#include "checkpoint/payload_copy.h"
#include "checkpoint/transfer.h"
#include "trainctl/base/error.h"
#include "trainctl/checkpoint/agree.h"
#include "trainctl/checkpoint/retention.h"
#include "trainctl/checkpoint/scan.h"
#include "trainctl/rundir/commit.h"
#include "trainctl/rundir/durable_file.h"

namespace trainctl {
namespace {

// Which rank copies which file: of those that see it, each in its turn.
std::vector<int> deal_files(const Manifest& manifest, const std::vector<std::vector<bool>>& seen_by_rank) {
    std::vector<int> copied(seen_by_rank.size(), 0);
    std::vector<int> ranks;
    for (std::size_t file = 0; file < manifest.files.size(); ++file) {
        std::optional<std::size_t> least;
        for (std::size_t rank = 0; rank < seen_by_rank.size(); ++rank) {
            if (seen_by_rank[rank].at(file) && (!least || copied[rank] < copied[*least])) least = rank;
        }
        if (!least)
            fail(Exit::BadInput, fmt::format("{}/{} is seen by no rank, so it cannot be copied",
                                             manifest.directory, manifest.files[file].name));
        ++copied[*least];
        ranks.push_back(static_cast<int>(*least));
    }
    return ranks;
}

bool is_complete(FileSystem& files, const std::string& path, const std::string& manifest_text) {
    try {
        return read_committed(files, path).text == manifest_text;
    } catch (const Error&) {
        return false;
    }
}

// The node after that of `rank`, by their lowest ranks: its ranks, or none if there is one node.
std::vector<int> ranks_of_next_node(const Nodes& nodes, int rank, int size) {
    std::vector<int> leaders;
    for (int other = 0; other < size; ++other)
        if (nodes.leader_of(other) == other) leaders.push_back(other);
    if (leaders.size() < 2) return {};
    const auto own = std::find(leaders.begin(), leaders.end(), nodes.leader_of(rank));
    const int next = own + 1 == leaders.end() ? leaders.front() : *(own + 1);
    std::vector<int> ranks;
    for (int other = 0; other < size; ++other)
        if (nodes.leader_of(other) == next) ranks.push_back(other);
    return ranks;
}

// Every file from the rank that wrote it to one on the next node.
std::vector<Transfer> peer_transfers(const Manifest& manifest, const Nodes& nodes, int size) {
    std::vector<Transfer> transfers;
    for (std::size_t file = 0; file < manifest.files.size(); ++file) {
        const int writer = writer_of(manifest.files[file].name);
        invariant(writer >= 0 && writer < size, "peer copies of a checkpoint that other ranks saved");
        const std::vector<int> ranks = ranks_of_next_node(nodes, writer, size);
        if (ranks.empty()) continue;
        const auto place = static_cast<std::size_t>(writer - nodes.leader_of(writer));
        transfers.push_back({file, writer, ranks[place % ranks.size()]});
    }
    return transfers;
}

template <class Work>
Result<CopyReport> timed(const Clock& clock, const Work& work) {
    const double began = clock.monotonic_s();
    try {
        CopyReport report = work();
        report.seconds = clock.monotonic_s() - began;
        return report;
    } catch (const Error& error) {
        if (error.code() == Exit::Peer) throw;
        return Error(error);
    }
}

}  // namespace

CopyReport TierCopier::copy_files(const std::string& directory, const Place& to, RankLink& link) {
    const std::string source = join_path(settings_.from.root, directory);
    const std::string target = join_path(to.root, directory);
    const Require require = settings_.from.reach == Reach::Node ? Require::Markers : Require::AllFiles;
    CopyReport report;
    report.directory = directory;
    // Empty: a copy is there.
    const std::string text = agree(
        link, [] { return std::string(); },
        [&](const std::vector<std::string>&) {
            const CommittedManifest found = read_committed(files_, source, require);
            if (is_complete(files_, target, found.text)) return std::string();
            make_durable_directories(files_, to.root);
            files_.make_directories(target);
            return found.text;
        });
    if (!text.empty()) {
        const Manifest manifest = parse_manifest(text, "MANIFEST sent by rank 0");
        const auto see = [&] {
            std::vector<bool> seen;
            for (const ManifestFile& file : manifest.files)
                seen.push_back(!file_problem(files_, source, file));
            return seen_text(seen);
        };
        const std::vector<int> dealt =
            parse_dealt(agree(link, see, [&](const std::vector<std::string>& answers) {
                std::vector<std::vector<bool>> seen;
                seen.reserve(answers.size());
                for (const std::string& answer : answers) seen.push_back(parse_seen(answer));
                return dealt_text(deal_files(manifest, seen));
            }));
        const auto copy = [&] {
            std::uint64_t written = 0;
            for (std::size_t file = 0; file < dealt.size(); ++file) {
                if (dealt[file] != link.rank()) continue;
                files_.make_directories(target);  // another node may not have seen it yet
                const PayloadCopy done =
                    copy_payload_file(files_, source, target, manifest.files[file], manifest.chunk_bytes);
                if (done == PayloadCopy::Written) written += manifest.files[file].bytes;
            }
            return std::to_string(written);
        };
        report.bytes = std::stoull(agree(link, copy, [&](const std::vector<std::string>& written) {
            commit(directory, to, text);
            std::uint64_t sum = 0;
            for (const std::string& bytes : written) sum += std::stoull(bytes);
            return std::to_string(sum);
        }));
    }
    if (link.rank() == 0) remove_unwanted(to, report);
    return report;
}

void TierCopier::commit(const std::string& directory, const Place& to, const std::string& text) {
    const std::string target = join_path(to.root, directory);
    const Manifest manifest = parse_manifest(text, "MANIFEST of a copy");
    for (const ManifestFile& file : manifest.files) {
        if (const auto problem = file_problem(files_, target, file)) fail(Exit::Resource, *problem);
    }
    write_manifest(files_, target, text);
    if (settings_.fence) settings_.fence();
    write_commit(files_, to.root, target, commit_of(manifest, text));
}

void TierCopier::remove_unwanted(const Place& to, CopyReport& report) {
    try {
        const std::set<std::string> unwanted =
            settings_.unwanted ? settings_.unwanted() : std::set<std::string>{};
        std::vector<std::string> present = files_.list(to.root);
        present.erase(std::remove_if(present.begin(), present.end(),
                                     [&](const std::string& entry) {
                                         return unwanted.count(entry) == 0 || entry == report.directory;
                                     }),
                      present.end());
        if (present.empty()) return;  // most often: nothing needs to be read of what is there
        // Where saves go there may be a newer one that was not copied: here the newest stays.
        const CheckpointScan scan = scan_checkpoints(files_, to.root, settings_.run_id);
        const std::string newest =
            scan.complete.empty() ? std::string() : scan.complete.front().manifest.directory;
        for (const std::string& entry : present) {
            if (entry == newest) continue;
            remove_checkpoint(files_, to.root, entry);
            report.removed.push_back(entry);
        }
    } catch (const Error& error) {
        report.warnings.push_back(
            fmt::format("old checkpoints in {} were not all removed: {}", to.name, error.what()));
    }
}

Result<CopyReport> TierCopier::copy(const std::string& directory, const Place& to, RankLink& link) {
    return timed(clock_, [&] { return copy_files(directory, to, link); });
}

Result<CopyReport> TierCopier::copy_to_peers(const std::string& directory, RankLink& link) {
    return timed(clock_, [&] {
        const std::string path = join_path(settings_.from.root, directory);
        const std::string text = agree(
            link, [] { return std::string(); },
            [&](const std::vector<std::string>&) {
                return read_committed(files_, path, Require::Markers).text;
            });
        const Manifest manifest = parse_manifest(text, "MANIFEST sent by rank 0");
        const std::vector<Transfer> transfers = peer_transfers(manifest, settings_.nodes, link.size());
        make_transfers(files_, path, manifest, transfers, link);
        CopyReport report;
        report.directory = directory;
        std::string taken;
        const auto check = [&] {
            for (const Transfer& transfer : transfers) {
                if (transfer.to != link.rank()) continue;
                const ManifestFile& file = manifest.files[transfer.file];
                if (const auto problem = file_problem(files_, path, file)) fail(Exit::Resource, *problem);
                taken += file.name + "\n";
            }
            // Says what of this directory is a copy.
            if (!taken.empty()) write_durably(files_, path, fmt::format("PEERS-r{:05}", link.rank()), taken);
        };
        agree(link, check);
        for (const Transfer& transfer : transfers) report.bytes += manifest.files[transfer.file].bytes;
        return report;
    });
}

}  // namespace trainctl
