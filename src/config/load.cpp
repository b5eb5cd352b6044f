#include "trainctl/config/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "config/assignment.h"
#include "config/checks.h"
#include "config/convert.h"
#include "config/document.h"
#include "trainctl/base/error.h"
#include "trainctl/base/text.h"
#include "trainctl/config/presets.h"
#include "trainctl/config/registry.h"

namespace trainctl {

namespace {

// One load: collects given values and problems, then resolves. Later values of a key win.
class JobReader {
  public:
    void read_text(std::string_view text, const std::string& file_name);
    void read_assignment(const std::string& assignment);
    LoadedJob finish(std::optional<std::int64_t> world_size);

  private:
    struct Given {
        Value value;
        Origin origin;
    };

    void walk(const std::string& prefix, const Node& table, Source source);
    void place(const Key& key, const Node& node, Source source);
    void unknown(const std::string& name, const Position& at, const Node& node);
    void prefer_command_line(const std::string& one, const std::string& other);
    [[nodiscard]] bool rederived(std::string_view name) const;
    void apply();
    void report(std::vector<Finding> findings);
    void require_keys();
    [[nodiscard]] bool given(std::string_view name) const { return given_.find(name) != given_.end(); }

    Registry registry_;
    std::map<std::string, Given, std::less<>> given_;
    std::set<std::string, std::less<>> broken_;  // keys with a problem of their own
    LoadedJob job_;
    bool unreadable_ = false;
};

void JobReader::read_text(std::string_view text, const std::string& file_name) {
    Parsed parsed = parse_toml(text, file_name);
    if (parsed.problem) {
        // Nothing is known about the keys: whatever else would be said is noise.
        unreadable_ = true;
        job_.problems.push_back(std::move(*parsed.problem));
        return;
    }
    walk("", parsed.root, Source::File);
}

void JobReader::read_assignment(const std::string& assignment) {
    const Assignment parsed = parse_assignment(assignment, [&](const std::string& name) {
        const Key* key = registry_.find(name);
        return key != nullptr && (key->kind == Kind::Text || key->kind == Kind::Choice);
    });
    if (parsed.problem) {
        job_.problems.push_back(*parsed.problem);
        return;
    }
    Node table;
    table.members.push_back({parsed.name, parsed.value.at, parsed.value});
    walk("", table, Source::CommandLine);
}

void JobReader::walk(const std::string& prefix, const Node& table, Source source) {
    for (const Node::Member& member : table.members) {
        const std::string name = prefix + member.key;
        // A quoted key with dots in it is one TOML key, not a path: it names nothing of ours.
        const bool dotted = source == Source::File && member.key.find('.') != std::string::npos;
        const Key* key = dotted ? nullptr : registry_.find(name);
        if (key != nullptr) {
            place(*key, member.value, source);
        } else if (dotted || !registry_.is_section(name)) {
            unknown(name, member.at, member.value);
        } else if (member.value.type == Node::Type::Table) {
            walk(name + ".", member.value, source);
        } else {
            job_.problems.push_back(
                make_error("wrong_type", name, member.value.at,
                           fmt::format("{} is a section, found {}", name, type_text(member.value.type)),
                           fmt::format("write [{}] and its keys below", name)));
        }
    }
}

void JobReader::place(const Key& key, const Node& node, Source source) {
    Converted converted = convert_value(key, node);
    given_.erase(key.name);  // an earlier value is not what is meant, even if this one is refused
    if (!converted.value) {
        broken_.insert(key.name);
        job_.problems.push_back(
            make_error("wrong_type", key.name, converted.at, converted.what, converted.hint));
        return;
    }
    if (const auto refused = refusal(key, *converted.value)) {
        broken_.insert(key.name);
        job_.problems.push_back(
            make_error(refused->code, key.name, node.at, refused->what,
                       fmt::format("`trainctl config explain {}` tells what it takes", key.name)));
        return;
    }
    given_.insert_or_assign(key.name, Given{std::move(*converted.value), {source, node.at}});
}

void JobReader::unknown(const std::string& name, const Position& at, const Node& node) {
    const bool table = node.type == Node::Type::Table;
    Problem problem =
        make_error("unknown_key", name, at, fmt::format("unknown {} {}", table ? "section" : "key", name));
    const auto section = table ? nearest_name(name, registry_.sections()) : std::nullopt;
    const std::vector<std::string> near =
        section ? std::vector<std::string>{*section} : registry_.suggestions(name);
    if (near.empty()) {
        problem.hint = "`trainctl config explain` lists all keys";
    } else {
        const Key* key = registry_.find(near.front());
        const std::string leaf = name.substr(name.rfind('.') + 1);
        if (key != nullptr && key->leaf() == leaf) {
            problem.code = "wrong_section";
            problem.hint = fmt::format("{} belongs in [{}]", leaf, key->section());
            for (std::size_t i = 1; i < near.size(); ++i)
                problem.hint += fmt::format(" or [{}]", registry_.find(near[i])->section());
        } else {
            problem.hint = fmt::format("did you mean {}?", fmt::join(near, ", or "));
        }
        broken_.insert(near.begin(), near.end());
    }
    if (section)
        for (const Key& key : registry_.keys())
            if (key.name.rfind(*section + ".", 0) == 0) broken_.insert(key.name);
    job_.problems.push_back(std::move(problem));
}

// Of two keys that exclude each other, the one on the command line replaces the other of the file.
void JobReader::prefer_command_line(const std::string& one, const std::string& other) {
    const auto a = given_.find(one);
    const auto b = given_.find(other);
    if (a == given_.end() || b == given_.end()) return;
    const bool a_wins = a->second.origin.source == Source::CommandLine;
    const bool b_wins = b->second.origin.source == Source::CommandLine;
    if (a_wins != b_wins) given_.erase(a_wins ? b : a);
}

// Dimensions of a preset that follow from others follow from what the user put in their place.
bool JobReader::rederived(std::string_view name) const {
    const auto by_user = [this](std::string_view key) {
        const auto found = given_.find(key);
        return found != given_.end() && found->second.origin.source != Source::Preset;
    };
    if (name == "model.head_dim") return by_user("model.hidden_size") || by_user("model.heads");
    if (name == "model.ffn_size") return by_user("model.hidden_size");
    return false;
}

void JobReader::apply() {
    if (const auto name = given_.find("model.preset"); name != given_.end()) {
        const auto preset = find_preset(std::get<std::string>(name->second.value));
        invariant(preset.has_value(), "model.preset accepts only names of presets");
        JobSpec shape;
        shape.model = preset->model;
        for (const Key& key : registry_.keys()) {
            if (key.section() != "model" || !key.binding || given(key.name) || rederived(key.name)) continue;
            Origin origin{Source::Preset, {preset->model.preset, 0, 0}};
            given_.emplace(key.name, Given{key.current(shape), std::move(origin)});
        }
    }
    for (const Key& key : registry_.keys()) {
        const auto found = given_.find(key.name);
        if (found == given_.end()) continue;
        if (key.binding) key.binding->write(job_.spec, found->second.value);
        job_.origins[key.name] = found->second.origin;
    }
}

void JobReader::report(std::vector<Finding> findings) {
    for (Finding& found : findings) {
        const auto& involved = found.involved;
        if (std::any_of(involved.begin(), involved.end(),
                        [&](const auto& key) { return broken_.count(key) > 0; }))
            continue;
        for (const std::string& key : involved) {
            const auto origin = job_.origins.find(key);
            if (origin == job_.origins.end() || origin->second.source == Source::Preset) continue;
            if (found.problem.at.file.empty()) {
                found.problem.at = origin->second.at;
            } else {
                found.problem.also.push_back(origin->second.at);
            }
        }
        if (found.problem.severity == Severity::Error) job_.wrong.insert(involved.begin(), involved.end());
        job_.problems.push_back(std::move(found.problem));
    }
}

void JobReader::require_keys() {
    for (const Key& key : registry_.keys()) {
        if (key.absent != Absent::Required || broken_.count(key.name) > 0) continue;
        if (!std::holds_alternative<std::monostate>(key.current(job_.spec))) continue;
        broken_.insert(key.name);
        const auto found = given_.find(key.name);
        job_.problems.push_back(
            found == given_.end()
                ? make_error("missing", key.name, {}, fmt::format("missing {}", key.name),
                             fmt::format("write {} = VALUE in [{}]: {}", key.leaf(), key.section(), key.help))
                : make_error("empty", key.name, found->second.origin.at,
                             fmt::format("{} must be {}, found an empty one", key.name, expected_text(key)),
                             key.help));
    }
}

LoadedJob JobReader::finish(std::optional<std::int64_t> world_size) {
    if (unreadable_) return std::move(job_);
    prefer_command_line("job.steps", "job.tokens");
    prefer_command_line("data.validation", "data.validation_split");
    apply();
    require_keys();

    job_.wrong = broken_;
    const CheckContext context{world_size, [this](std::string_view name) { return given(name); },
                               [this](std::string_view name) { return broken_.count(name) > 0; }};
    std::vector<Finding> findings;
    resolve_model(job_.spec, context, findings);
    resolve_training(job_.spec, context, findings);
    check_model(job_.spec, findings);
    check_layout(job_.spec, findings);
    check_schedule(job_.spec, context, findings);
    check_precision(job_.spec, context, findings);
    check_data_keys(job_.spec, context, findings);
    check_tiers(job_.spec, findings);
    check_buckets(job_.spec, findings);
    check_memory(job_.spec, context, findings);
    check_kernels(job_.spec, findings);
    check_launch(job_.spec, findings);
    check_device(job_.spec, findings);
    report(std::move(findings));

    for (const Key& key : registry_.keys()) {
        if (!key.binding || job_.origins.count(key.name) > 0) continue;
        const Value value = key.current(job_.spec);
        if (std::holds_alternative<std::monostate>(value) && key.absent != Absent::Auto) continue;
        job_.origins[key.name] = {key.absent == Absent::Derived ? Source::Derived : Source::Default, {}};
    }
    // What has a place comes in the order of the text; --set and what has none after it.
    std::stable_sort(job_.problems.begin(), job_.problems.end(), [](const Problem& a, const Problem& b) {
        if ((a.at.line == 0) != (b.at.line == 0)) return b.at.line == 0;
        return std::pair{a.at.line, a.at.column} < std::pair{b.at.line, b.at.column};
    });
    return std::move(job_);
}

}  // namespace

std::string to_string(const Origin& origin) {
    switch (origin.source) {
        case Source::Default:
            return "default";
        case Source::Derived:
            return "derived";
        case Source::Preset:
            return "preset " + origin.at.file;
        case Source::File:
        case Source::CommandLine:
            return to_string(origin.at);
    }
    return {};
}

LoadedJob load_job_text(std::string_view text, const std::string& file_name, const LoadOptions& options) {
    JobReader reader;
    reader.read_text(text, file_name);
    for (const std::string& assignment : options.set) reader.read_assignment(assignment);
    LoadedJob job = reader.finish(options.world_size);
    job.file = file_name;
    return job;
}

LoadedJob load_job(FileSystem& files, const std::string& path, const LoadOptions& options) {
    std::string text;
    try {
        text = read_text(files, path, max_toml_bytes);
    } catch (const Error& error) {
        LoadedJob job;
        job.file = path;
        job.problems.push_back(make_error(
            "unreadable", {}, {path, 0, 0}, fmt::format("cannot read the job file: {}", error.what()),
            "`trainctl config init --preset tiny > JOB.toml` writes one to start from"));
        return job;
    }
    return load_job_text(text, path, options);
}

bool LoadedJob::usable(std::initializer_list<std::string_view> keys) const {
    return std::none_of(keys.begin(), keys.end(),
                        [this](std::string_view key) { return wrong.count(key) > 0; });
}

JobSpec job_or_fail(const LoadedJob& job) {
    if (job.ok()) return job.spec;
    std::vector<Problem> errors;
    for (const Problem& problem : job.problems)
        if (problem.severity == Severity::Error) errors.push_back(problem);
    if (errors.size() == 1) {
        const Problem& only = errors.front();
        std::string text = only.at.file.empty() ? job.file : to_string(only.at);
        for (const Position& place : only.also) text += ", " + to_string(place);
        text += ": " + only.what;
        if (!only.hint.empty()) text += "; " + only.hint;
        fail(Exit::Usage, text);
    }
    fail(Exit::Usage,
         fmt::format("{}: the job has {} problems\n{}", job.file, errors.size(), format_problems(errors)));
}

}  // namespace trainctl
