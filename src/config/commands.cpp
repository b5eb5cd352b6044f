#include "trainctl/config/commands.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/failed.h"
#include "config/json_value.h"
#include "config/value_text.h"
#include "trainctl/base/text.h"
#include "trainctl/config/batch.h"
#include "trainctl/config/model_math.h"
#include "trainctl/config/presets.h"
#include "trainctl/config/reference.h"
#include "trainctl/config/registry.h"
#include "trainctl/config/write.h"

namespace trainctl {

namespace {

Exit exit_of(const std::vector<Problem>& problems, Strictness strictness) {
    for (const Problem& problem : problems)
        if (problem.severity == Severity::Error) return problem.exit;
    if (strictness == Strictness::Strict)
        for (const Problem& problem : problems)
            if (problem.severity == Severity::Unchecked) return problem.exit;
    return Exit::Ok;
}

std::vector<Problem> external_problems(const ExternalCheck& check, const LoadedJob& job) {
    if (!check) {
        Problem unchecked = make_error("not_checked", "data.train", {},
                                       "token files, their vocabulary, and disk space for checkpoints");
        unchecked.severity = Severity::Unchecked;
        unchecked.exit = Exit::BadInput;
        return {std::move(unchecked)};
    }
    std::vector<Problem> problems = check(job);
    for (Problem& problem : problems)
        if (const auto origin = job.origins.find(problem.key); origin != job.origins.end())
            if (origin->second.source == Source::File || origin->second.source == Source::CommandLine)
                problem.at = origin->second.at;
    return problems;
}

JsonDoc json_problems(const std::vector<Problem>& problems) {
    JsonDoc list = JsonDoc::array();
    for (const Problem& problem : problems) list.push_back(json_problem(problem));
    return list;
}

// "gpt2-124m: 124439808 parameters, 798543360 FLOP/token; global batch 512 x 1024 tokens"
std::string summary(const JobSpec& job) {
    const ModelSpec& model = job.model;
    std::string text = fmt::format("{}: {} parameters, {:.0f} FLOP/token at {}",
                                   model.preset.empty() ? job.name : model.preset, parameter_count(model),
                                   flops_per_token(model, job.training.sequence_length),
                                   counted(job.training.sequence_length, "token"));
    if (job.training.global_batch_size != 0)
        text += fmt::format("; global batch {} = {}", counted(job.training.global_batch_size, "sample"),
                            counted(job.training.global_batch_size * job.training.sequence_length, "token"));
    if (job.steps != 0) text += fmt::format("; {}", counted(job.steps, "step"));
    return text;
}

JsonDoc summary_json(const JobSpec& job) {
    return {{"parameters", parameter_count(job.model)},
            {"flops_per_token", flops_per_token(job.model, job.training.sequence_length)},
            {"palm_flops_per_token", palm_flops_per_token(job.model, job.training.sequence_length)},
            {"global_batch_size", job.training.global_batch_size},
            {"micro_batch_size", job.training.micro_batch_size},
            {"sequence_length", job.training.sequence_length},
            {"steps", job.steps}};
}

}  // namespace

CommandResult config_failed(const std::vector<Problem>& problems, OutputFormat output) {
    CommandResult result;
    result.exit = exit_of(problems, Strictness::Normal);
    result.err = format_problems(problems);
    if (output == OutputFormat::Json)
        result.out = json_text(
            {{"ok", false}, {"exit", static_cast<int>(result.exit)}, {"problems", json_problems(problems)}});
    return result;
}

CommandResult config_check(FileSystem& files, const ConfigCheckOptions& options) {
    LoadedJob job = load_job(files, options.path, options.load);
    const std::vector<Problem> more = external_problems(options.external, job);
    job.problems.insert(job.problems.end(), more.begin(), more.end());
    CommandResult result;
    result.exit = exit_of(job.problems, options.strictness);
    const bool ok = result.exit == Exit::Ok;
    if (options.output == OutputFormat::Json) {
        JsonDoc json = {
            {"ok", ok}, {"exit", static_cast<int>(result.exit)}, {"problems", json_problems(job.problems)}};
        if (job.ok()) json["summary"] = summary_json(job.spec);
        result.out = json_text(json);
    }
    result.err = format_problems(job.problems);
    if (ok) {
        if (options.output == OutputFormat::Text)
            result.out = fmt::format("{}: ok\n{}\n", options.path, summary(job.spec));
    } else {
        const auto errors =
            std::count_if(job.problems.begin(), job.problems.end(),
                          [](const Problem& problem) { return problem.severity == Severity::Error; });
        result.err += errors > 0
                          ? fmt::format("{}: {}\n", options.path, counted(errors, "error"))
                          : fmt::format("{}: --strict, and not everything could be checked\n", options.path);
    }
    return result;
}

CommandResult config_show(FileSystem& files, const ConfigShowOptions& options) {
    const LoadedJob job = load_job(files, options.path, options.load);
    if (!job.ok()) return config_failed(job.problems, options.output);
    CommandResult result;
    result.err = format_problems(job.problems);
    const bool json = options.format == ShowFormat::Json || options.output == OutputFormat::Json;
    const bool origin = options.origin == ShowOrigin::Yes;
    if (!json) {
        result.out = origin ? to_toml(job.spec, job.origins) : to_toml(job.spec);
    } else if (!origin) {
        result.out = to_json(job.spec);
    } else {
        const Registry registry;
        JsonDoc list = JsonDoc::object();
        for (const Key& key : registry.keys()) {
            const auto from = job.origins.find(key.name);
            if (from == job.origins.end() || !key.binding) continue;
            list[key.name] = {{"value", json_value(key, key.current(job.spec))},
                              {"origin", to_string(from->second)}};
        }
        result.out = json_text(list);
    }
    return result;
}

CommandResult config_schema() { return {Exit::Ok, config_schema_json(), {}}; }

CommandResult config_reference(OutputFormat output) {
    if (output == OutputFormat::Json) return config_explain("", output);
    return {Exit::Ok, config_reference_markdown(), {}};
}

CommandResult config_init(const std::string& preset, OutputFormat output) {
    if (const auto text = config_template_toml(preset)) {
        CommandResult result;
        result.out = output == OutputFormat::Json ? json_text({{"preset", preset}, {"toml", *text}}) : *text;
        return result;
    }
    const std::vector<std::string> names = preset_names();
    const auto near = nearest_name(preset, names);
    return config_failed({make_error("unknown_preset", "model.preset", {},
                                     fmt::format("there is no preset {}", toml_quote(preset)),
                                     near ? fmt::format("did you mean {}?", *near)
                                          : fmt::format("presets: {}", fmt::join(names, ", ")))},
                         output);
}

}  // namespace trainctl
