#include "trainctl/config/resume.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/value_text.h"
#include "trainctl/base/error.h"
#include "trainctl/base/text.h"
#include "trainctl/config/registry.h"

namespace trainctl {

namespace {

std::string shown(const Key& key, const Value& value) {
    if (std::holds_alternative<std::monostate>(value) && key.absent != Absent::Auto) return "off";
    return toml_value(key, value);
}

std::string file_name(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? path : path.substr(slash + 1);
}

// The same files with the same weights under other directories: a move. Contents are compared by the data's
// fingerprint, not here.
bool only_moved(const Value& stored, const Value& wanted) {
    const auto* before = std::get_if<std::vector<DataSource>>(&stored);
    const auto* after = std::get_if<std::vector<DataSource>>(&wanted);
    if (before == nullptr || after == nullptr) return false;
    return std::equal(before->begin(), before->end(), after->begin(), after->end(),
                      [](const DataSource& a, const DataSource& b) {
                          return a.weight == b.weight && file_name(a.path) == file_name(b.path);
                      });
}

std::string describe(const KeyChange& change) {
    return fmt::format("  {}: {} -> {}\n", change.key, change.stored, change.wanted);
}

}  // namespace

std::vector<KeyChange> compare_for_resume(const JobSpec& stored, const JobSpec& wanted) {
    const Registry registry;
    std::vector<KeyChange> changes;
    for (const Key& key : registry.keys()) {
        const Value before = key.current(stored);
        const Value after = key.current(wanted);
        if (before == after) continue;
        const ResumeClass resume = only_moved(before, after) ? ResumeClass::Free : key.resume;
        changes.push_back({key.name, shown(key, before), shown(key, after), resume});
    }
    return changes;
}

void require_resumable(std::span<const KeyChange> changes, std::span<const std::string> allowed) {
    const Registry registry;
    for (const std::string& name : allowed) {
        const Key* key = registry.find(name);
        if (key == nullptr) {
            const std::vector<std::string> near = registry.suggestions(name);
            fail(Exit::Usage, fmt::format("--allow-change {}: there is no such key{}", name,
                                          near.empty() ? "; `trainctl config explain` lists all keys"
                                                       : "; did you mean " + near.front() + "?"));
        }
        if (key->resume == ResumeClass::Refuse)
            fail(Exit::Usage,
                 fmt::format("--allow-change {}: this key must not change within a run; start a new run "
                             "(another job.run_dir)",
                             name));
    }
    std::string refused;
    std::string unconfirmed;
    std::string options;
    for (const KeyChange& change : changes) {
        if (change.resume == ResumeClass::Refuse) refused += describe(change);
        if (change.resume != ResumeClass::Warn) continue;
        if (std::find(allowed.begin(), allowed.end(), change.key) != allowed.end()) continue;
        unconfirmed += describe(change);
        options += " --allow-change " + change.key;
    }
    std::string text;
    if (!refused.empty())
        text +=
            "the stored run cannot be continued with these changes, which are never allowed; undo them, or "
            "start a new run (another job.run_dir):\n" +
            refused;
    if (!unconfirmed.empty())
        text += fmt::format("{}these changes alter the rest of the run; confirm them with{}:\n{}",
                            refused.empty() ? "" : "once those are undone: ", options, unconfirmed);
    if (!text.empty()) {
        text.pop_back();
        fail(Exit::Usage, text);
    }
}

}  // namespace trainctl
