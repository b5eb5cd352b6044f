#include "checkpoint/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "trainctl/base/error.h"
#include "trainctl/base/hash.h"
#include "trainctl/checkpoint/agree.h"
#include "trainctl/checkpoint/suspicion.h"

namespace trainctl {
namespace {

using nlohmann::json;

// What one node has of one checkpoint, committed there or not.
struct NodePart {
    std::string sha256;                          // of MANIFEST; empty: this node has no valid COMMIT
    std::map<std::string, std::uint64_t> bytes;  // of every file
    bool healthy = false;
    std::optional<std::string> suspect;
};
using NodeListing = std::map<std::string, NodePart>;  // by directory name

std::string sha256_of(const std::string& text) { return sha256_hex(std::as_bytes(std::span(text))); }

NodeListing list_node(FileSystem& files, const std::string& root, const std::string& run_id) {
    NodeListing listing;
    if (!files.status(root)) return listing;
    const CheckpointScan scan = scan_checkpoints(files, root, run_id, Require::Markers);
    for (const CompleteCheckpoint& found : scan.complete) {
        NodePart& part = listing[found.manifest.directory];
        part.sha256 = sha256_of(found.manifest_text);
        part.healthy = found.manifest.health == Health::Good;
        part.suspect = found.suspect;
    }
    for (const RejectedCheckpoint& found : scan.rejected) {
        if (found.reason != RejectReason::Foreign) listing[checkpoint_directory_name(found.name)];
    }
    for (auto& [directory, part] : listing) {
        const std::string path = join_path(root, directory);
        for (const std::string& name : files.list(path)) {
            if (const auto status = files.status(join_path(path, name))) part.bytes[name] = status->size;
        }
    }
    return listing;
}

std::string listing_text(const NodeListing& listing) {
    json text = json::object();
    for (const auto& [directory, part] : listing) {
        json entry{{"sha256", part.sha256}, {"bytes", part.bytes}, {"healthy", part.healthy}};
        if (part.suspect) entry["suspect"] = *part.suspect;
        text[directory] = std::move(entry);
    }
    return text.dump(-1, ' ', false, json::error_handler_t::replace);
}

NodeListing parse_listing(const std::string& text) {
    NodeListing listing;
    const json entries = json::parse(text);
    for (const auto& [directory, entry] : entries.items()) {
        NodePart& part = listing[directory];
        part.sha256 = entry.at("sha256").get<std::string>();
        part.bytes = entry.at("bytes").get<std::map<std::string, std::uint64_t>>();
        part.healthy = entry.at("healthy").get<bool>();
        if (entry.contains("suspect")) part.suspect = entry.at("suspect").get<std::string>();
    }
    return listing;
}

// Checkpoints by directory while they are put together.
class Assembly {
  public:
    void add_place(std::size_t index, const Place& place, CheckpointScan scan) {
        for (CompleteCheckpoint& found : scan.complete) {
            const std::string directory = found.manifest.directory;
            const auto known = complete_.find(directory);
            if (known == complete_.end()) {
                complete_.emplace(directory, std::pair(std::move(found), Replicas{{index}, {}}));
            } else if (known->second.first.manifest_text != found.manifest_text) {
                damage_.push_back(fmt::format("{} ({}): MANIFEST is not that of {}", found.path, place.name,
                                              known->second.first.path));
            } else {
                known->second.second.places.push_back(index);
            }
        }
        std::move(scan.rejected.begin(), scan.rejected.end(), std::back_inserter(rejected_));
    }

    // What the nodes have together, by the rank that leads each.
    void add_nodes(std::size_t index, const Place& place, const std::map<int, NodeListing>& nodes) {
        for (auto& [directory, entry] : complete_) {
            auto& [found, replicas] = entry;
            add_holders(directory, nodes, found, replicas);
            auto& places = replicas.places;
            const bool here = std::find(places.begin(), places.end(), index) != places.end();
            if (replicas.holders.empty()) {
                if (here) places.erase(std::find(places.begin(), places.end(), index));
            } else if (!here) {
                places.insert(std::upper_bound(places.begin(), places.end(), index), index);
            }
        }
        reject_incomplete(index, place);
    }

    // Checkpoints that nodes have committed and that are not known here, each with one rank that has it.
    [[nodiscard]] std::map<std::string, int> unknown(const std::map<int, NodeListing>& nodes) const {
        std::map<std::string, int> wanted;
        for (const auto& [rank, listing] : nodes) {
            for (const auto& [directory, part] : listing) {
                if (!part.sha256.empty() && complete_.count(directory) == 0) wanted.emplace(directory, rank);
            }
        }
        return wanted;
    }

    void add_manifest(const Place& place, const std::string& directory, const std::string& text) {
        CompleteCheckpoint found;
        found.name = parse_checkpoint_directory_name(directory).value();
        found.path = join_path(place.root, directory);
        found.manifest = parse_manifest(text, found.path);
        found.manifest_text = text;
        complete_.emplace(directory, std::pair(std::move(found), Replicas{}));
    }

    void add_damage(std::string text) { damage_.push_back(std::move(text)); }

    Catalogue take() {
        Catalogue catalogue;
        std::vector<std::pair<CompleteCheckpoint, Replicas>> sorted;
        for (auto& [directory, entry] : complete_) sorted.push_back(std::move(entry));
        const auto newest_first = [](const CheckpointName& a, const CheckpointName& b) {
            return std::tie(a.step, a.attempt, a.nonce) > std::tie(b.step, b.attempt, b.nonce);
        };
        std::sort(sorted.begin(), sorted.end(),
                  [&](const auto& a, const auto& b) { return newest_first(a.first.name, b.first.name); });
        std::set<std::string> told;
        for (RejectedCheckpoint& found : rejected_) {
            const std::string directory = checkpoint_directory_name(found.name);
            if (complete_.count(directory) != 0) {
                if (found.reason == RejectReason::Damaged) damage_.push_back(found.text);
            } else {
                catalogue.scan.rejected.push_back(std::move(found));
            }
        }
        std::sort(catalogue.scan.rejected.begin(), catalogue.scan.rejected.end(),
                  [&](const RejectedCheckpoint& a, const RejectedCheckpoint& b) {
                      return newest_first(a.name, b.name);
                  });
        for (auto& [found, replicas] : sorted) {
            catalogue.scan.complete.push_back(std::move(found));
            catalogue.replicas.push_back(std::move(replicas));
        }
        catalogue.damage = std::move(damage_);
        return catalogue;
    }

  private:
    void add_holders(const std::string& directory, const std::map<int, NodeListing>& nodes,
                     CompleteCheckpoint& found, Replicas& replicas) {
        const std::string sha256 = sha256_of(found.manifest_text);
        for (const auto& [rank, listing] : nodes) {
            const auto part = listing.find(directory);
            if (part == listing.end()) continue;
            if (!part->second.sha256.empty() && part->second.sha256 != sha256) {
                damage_.push_back(
                    fmt::format("{}: MANIFEST on the node of rank {} is another one", directory, rank));
                continue;
            }
            if (part->second.healthy) found.manifest.health = Health::Good;
            if (part->second.suspect) found.suspect = part->second.suspect;
            for (const ManifestFile& file : found.manifest.files) {
                const auto size = part->second.bytes.find(file.name);
                if (size != part->second.bytes.end() && size->second == file.bytes)
                    replicas.holders[file.name].push_back(rank);
            }
        }
    }

    // A checkpoint that only nodes have, and of which they lack a file, is no checkpoint any more.
    void reject_incomplete(std::size_t index, const Place& place) {
        for (auto entry = complete_.begin(); entry != complete_.end();) {
            auto& [found, replicas] = entry->second;
            const bool elsewhere = std::any_of(replicas.places.begin(), replicas.places.end(),
                                               [&](std::size_t other) { return other != index; });
            const auto lacking = std::find_if(found.manifest.files.begin(), found.manifest.files.end(),
                                              [&, &held = replicas.holders](const ManifestFile& file) {
                                                  return held.count(file.name) == 0;
                                              });
            if (elsewhere || lacking == found.manifest.files.end()) {
                ++entry;
                continue;
            }
            rejected_.push_back(
                {found.name, found.path, RejectReason::Damaged,
                 fmt::format(
                     "{} ({}): no node of this start has {}; was the node that wrote it replaced? Its "
                     "disk, a copy on another node (checkpoint.peer_copies) or a shared tier is needed",
                     found.path, place.name, lacking->name)});
            entry = complete_.erase(entry);
        }
    }

    std::map<std::string, std::pair<CompleteCheckpoint, Replicas>> complete_;
    std::vector<RejectedCheckpoint> rejected_;
    std::vector<std::string> damage_;
};

Assembly assemble(FileSystem& files, const std::vector<Place>& places, const std::string& run_id) {
    Assembly assembly;
    for (std::size_t index = 0; index < places.size(); ++index) {
        const Place& place = places[index];
        const Require require = place.reach == Reach::Node ? Require::Markers : Require::AllFiles;
        try {
            assembly.add_place(index, place, scan_checkpoints(files, place.root, run_id, require));
        } catch (const Error& error) {
            if (index == 0) throw;
            assembly.add_damage(fmt::format("{} cannot be searched: {}", place.name, error.what()));
        }
    }
    return assembly;
}

}  // namespace

Catalogue visible_checkpoints(FileSystem& files, const std::vector<Place>& places,
                              const std::string& run_id) {
    return assemble(files, places, run_id).take();
}

CheckpointScan scan_places(FileSystem& files, const std::vector<Place>& places, const std::string& run_id) {
    return visible_checkpoints(files, places, run_id).scan;
}

Catalogue gather_checkpoints(FileSystem& files, const std::vector<Place>& places, const Nodes& nodes,
                             const std::string& run_id, RankLink& link) {
    const auto own = std::find_if(places.begin(), places.end(),
                                  [](const Place& place) { return place.reach == Reach::Node; });
    Assembly assembly;  // rank 0
    const auto search = [&] { assembly = assemble(files, places, run_id); };
    if (own == places.end()) {
        at_rank_0(link, search);
        return assembly.take();
    }
    const auto index = static_cast<std::size_t>(own - places.begin());
    std::map<int, NodeListing> listings;  // rank 0
    const auto list = [&] {
        const bool leads = nodes.leader_of(link.rank()) == link.rank();
        return leads ? listing_text(list_node(files, own->root, run_id)) : std::string();
    };
    const std::string wanted = agree(link, list, [&](const std::vector<std::string>& answers) {
        search();
        for (std::size_t rank = 0; rank < answers.size(); ++rank) {
            if (!answers[rank].empty()) listings[static_cast<int>(rank)] = parse_listing(answers[rank]);
        }
        return json(assembly.unknown(listings)).dump();
    });
    const auto send_manifests = [&] {
        json texts = json::object();
        const json orders = json::parse(wanted);
        for (const auto& [directory, rank] : orders.items()) {
            if (rank.get<int>() == link.rank())
                texts[directory] =
                    read_committed(files, join_path(own->root, directory), Require::Markers).text;
        }
        return texts.dump(-1, ' ', false, json::error_handler_t::replace);
    };
    agree(link, send_manifests, [&](const std::vector<std::string>& answers) {
        for (const std::string& answer : answers) {
            const json texts = json::parse(answer);
            for (const auto& [directory, text] : texts.items())
                assembly.add_manifest(*own, directory, text.get<std::string>());
        }
        assembly.add_nodes(index, *own, listings);
        return std::string();
    });
    return assembly.take();
}

}  // namespace trainctl
