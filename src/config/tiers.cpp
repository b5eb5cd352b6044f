#include "trainctl/config/tiers.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "config/checks.h"
#include "trainctl/base/error.h"

namespace trainctl {
namespace {

constexpr std::string_view object_scheme = "s3://";

Finding tier_finding(std::string what, std::string hint) {
    return finding("checkpoint tiers", {"checkpoint.tiers"}, std::move(what), std::move(hint));
}

// Each entry for itself; the ones that can be read.
std::vector<Tier> check_entries(const CheckpointSpec& checkpoint, std::vector<Finding>& findings) {
    std::vector<Tier> tiers;
    for (const std::string& text : checkpoint.tiers) {
        if (auto tier = parse_tier(text)) {
            tiers.push_back(*tier);
        } else {
            findings.push_back(tier_finding(
                fmt::format("checkpoint.tiers: \"{}\" is no place for checkpoints", text),
                R"(write "local:/absolute/path", "shared", "shared:/absolute/path" or "s3://bucket/prefix")"));
        }
    }
    return tiers;
}

void check_order(const std::vector<Tier>& tiers, std::vector<Finding>& findings) {
    if (tiers.empty()) return;
    std::set<std::string> seen;
    for (const Tier& tier : tiers) {
        if (!seen.insert(tier.text).second)
            findings.push_back(tier_finding(fmt::format("checkpoint.tiers names \"{}\" twice", tier.text),
                                            "name every place once"));
    }
    for (std::size_t i = 1; i < tiers.size(); ++i) {
        if (tiers[i].kind == TierKind::Local)
            findings.push_back(tier_finding(
                fmt::format(
                    "\"{}\" is not the first of checkpoint.tiers: nothing is copied back to the disks "
                    "of the nodes",
                    tiers[i].text),
                "put the local tier first, or leave it out"));
    }
}

}  // namespace

std::optional<Tier> parse_tier(std::string_view text) {
    const auto directory = [&](std::string_view scheme, TierKind kind) -> std::optional<Tier> {
        if (!text.starts_with(scheme) || text.size() <= scheme.size() || text[scheme.size()] != '/')
            return std::nullopt;
        return Tier{std::string(text), kind, std::string(text.substr(scheme.size()))};
    };
    if (text == "shared") return Tier{"shared", TierKind::Shared, ""};
    if (auto tier = directory("shared:", TierKind::Shared)) return tier;
    if (auto tier = directory("local:", TierKind::Local)) return tier;
    if (text.starts_with(object_scheme) && text.size() > object_scheme.size() &&
        text[object_scheme.size()] != '/')
        return Tier{std::string(text), TierKind::Object, std::string(text)};
    return std::nullopt;
}

std::vector<Tier> checkpoint_tiers(const CheckpointSpec& checkpoint) {
    std::vector<Tier> tiers;
    const auto add = [&](const std::string& text) {
        if (auto tier = parse_tier(text)) tiers.push_back(std::move(*tier));
    };
    for (const std::string& text : checkpoint.tiers) add(text);
    if (tiers.empty()) add("shared");
    add(checkpoint.backup_to_object_storage);
    return tiers;
}

std::size_t durable_tier(const CheckpointSpec& checkpoint, const std::vector<Tier>& tiers) {
    const auto found = std::find_if(tiers.begin(), tiers.end(), [&](const Tier& tier) {
        return checkpoint.durable_tier.empty() ? tier.kind != TierKind::Local
                                               : tier.text == checkpoint.durable_tier;
    });
    return found == tiers.end() ? 0 : static_cast<std::size_t>(found - tiers.begin());
}

void check_tiers(const JobSpec& job, std::vector<Finding>& findings) {
    const CheckpointSpec& checkpoint = job.checkpoint;
    const std::size_t before = findings.size();
    check_order(check_entries(checkpoint, findings), findings);
    const std::string& backup = checkpoint.backup_to_object_storage;
    if (!backup.empty() && (!parse_tier(backup) || parse_tier(backup)->kind != TierKind::Object))
        findings.push_back(
            finding("checkpoint tiers", {"checkpoint.backup_to_object_storage"},
                    fmt::format("checkpoint.backup_to_object_storage = \"{}\" is no object storage", backup),
                    "write \"s3://bucket/prefix\""));
    if (findings.size() != before) return;

    const std::vector<Tier> tiers = checkpoint_tiers(checkpoint);
    const bool named = std::any_of(tiers.begin(), tiers.end(),
                                   [&](const Tier& tier) { return tier.text == checkpoint.durable_tier; });
    if (!checkpoint.durable_tier.empty() && !named) {
        std::vector<std::string> texts;
        texts.reserve(tiers.size());
        for (const Tier& tier : tiers) texts.push_back(fmt::format("\"{}\"", tier.text));
        findings.push_back(finding("checkpoint tiers", {"checkpoint.durable_tier", "checkpoint.tiers"},
                                   fmt::format("checkpoint.durable_tier = \"{}\" is not among the tiers {}",
                                               checkpoint.durable_tier, fmt::join(texts, ", ")),
                                   "give one of them"));
        return;
    }
    const bool local = tiers.front().kind == TierKind::Local;
    if (checkpoint.peer_copies > 0 && !local)
        findings.push_back(
            finding("checkpoint tiers", {"checkpoint.peer_copies", "checkpoint.tiers"},
                    "checkpoint.peer_copies copies what lies on the disks of the nodes, and no "
                    "tier is local",
                    "put \"local:/path\" first in checkpoint.tiers, or leave peer_copies out"));
    if (local && checkpoint.peer_copies == 0 && durable_tier(checkpoint, tiers) == 0)
        findings.push_back(
            warning({"checkpoint.durable_tier", "checkpoint.tiers", "checkpoint.peer_copies"},
                    fmt::format("checkpoints count as saved when they are in \"{}\": a lost node takes its "
                                "part of all of them with it",
                                tiers.front().text),
                    "add \"shared\" or \"s3://bucket/prefix\" to checkpoint.tiers, or set "
                    "checkpoint.peer_copies = 1"));
}

}  // namespace trainctl
