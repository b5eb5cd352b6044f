#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "config/checks.h"
#include "trainctl/config/batch.h"

namespace trainctl {

namespace {

constexpr std::int64_t most_tokens = std::int64_t{1} << 62U;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

void require_dimensions(const JobSpec& job, std::vector<Finding>& findings) {
    struct Dimension {
        const char* name;
        std::int64_t value;
    };
    const std::array<Dimension, 4> dimensions{{{"model.layers", job.model.layers},
                                               {"model.hidden_size", job.model.hidden_size},
                                               {"model.heads", job.model.heads},
                                               {"model.vocab_size", job.model.vocab_size}}};
    std::vector<std::string> missing;
    for (const Dimension& dimension : dimensions)
        if (dimension.value == 0) missing.emplace_back(dimension.name);
    if (missing.empty()) return;
    const std::string text = fmt::format("missing {}", fmt::join(missing, ", "));
    missing.emplace_back("model.preset");
    findings.push_back(finding("missing", std::move(missing), text,
                               "give model.preset (`trainctl config explain model.preset` lists them) or all "
                               "dimensions"));
}

// Micro-batches of a data-parallel rank; where the number of ranks is unknown those of all together, which
// must be a multiple of the stages as well.
void check_interleaved(const JobSpec& job, const BatchPlan& plan, std::vector<std::string> involved,
                       std::vector<Finding>& findings) {
    if (plan.micro_batch_size == 0 || plan.global_batch_size == 0) return;
    const std::int64_t stages = job.parallel.pipeline_parallel_size;
    const std::int64_t ranks = std::max<std::int64_t>(plan.data_parallel_size, 1);
    const std::int64_t found = plan.global_batch_size / (plan.micro_batch_size * ranks);
    if (found % stages == 0) return;
    involved.insert(involved.end(), {"parallel.pipeline_schedule", "parallel.pipeline_parallel_size"});
    findings.push_back(finding(
        "divisibility", std::move(involved),
        fmt::format("the interleaved schedule needs a multiple of parallel.pipeline_parallel_size {} "
                    "micro-batches per step, found {} = global_batch_size {} / (micro_batch_size {} x "
                    "data-parallel ranks {})",
                    stages, found, plan.global_batch_size, plan.micro_batch_size, ranks),
        fmt::format("use a training.global_batch_size that is a multiple of {}, a smaller "
                    "training.micro_batch_size, or \"1f1b\" without virtual stages",
                    plan.micro_batch_size * ranks * stages)));
}

void resolve_batch(JobSpec& job, const CheckContext& context, std::vector<Finding>& findings) {
    // A broken key counts as unknown: the others must still fit each other.
    const bool layout_broken =
        context.broken("parallel.tensor_parallel_size") || context.broken("parallel.pipeline_parallel_size");
    std::int64_t ranks = job.parallel.data_parallel_size;
    if (context.world_size && !layout_broken) {
        const Result<std::int64_t> data = data_parallel_ranks(job.parallel, *context.world_size);
        if (!data.ok()) {
            findings.push_back(finding("layout",
                                       {"parallel.data_parallel_size", "parallel.tensor_parallel_size",
                                        "parallel.pipeline_parallel_size"},
                                       data.error().what(), {}));
            return;
        }
        ranks = data.value();
    }
    TrainingSpec& training = job.training;
    const bool sizes_broken =
        context.broken("training.global_batch_size") || context.broken("training.micro_batch_size");
    if (sizes_broken && training.global_batch_size == 0 && training.micro_batch_size == 0) return;
    const Result<BatchPlan> plan = solve_batch({.micro_batch_size = training.micro_batch_size,
                                                .data_parallel_size = ranks,
                                                .accumulation_steps = training.gradient_accumulation_steps,
                                                .global_batch_size = training.global_batch_size});
    std::vector<std::string> involved{"training.global_batch_size"};
    for (const char* term :
         {"training.micro_batch_size", "training.gradient_accumulation_steps", "parallel.data_parallel_size"})
        if (!context.broken(term)) involved.emplace_back(term);
    if (!plan.ok()) {
        findings.push_back(finding("batch", std::move(involved), plan.error().what(), {}));
        return;
    }
    training.micro_batch_size = plan.value().micro_batch_size;
    training.global_batch_size = plan.value().global_batch_size;
    if (job.parallel.pipeline_schedule == "interleaved")
        check_interleaved(job, plan.value(), std::move(involved), findings);
}

void resolve_steps(JobSpec& job, const CheckContext& context, std::vector<Finding>& findings) {
    const std::vector<std::string> involved{"job.steps", "job.tokens"};
    if (context.given("job.steps") && context.given("job.tokens")) {
        findings.push_back(
            finding("contradiction", involved,
                    fmt::format("job.steps = {} and job.tokens = {} are both given", job.steps, job.tokens),
                    "keep one of them"));
        return;
    }
    if (job.steps == 0 && job.tokens == 0) {
        findings.push_back(finding("missing", involved,
                                   "missing job.steps or job.tokens: the length of the run",
                                   "for example steps = 1000 in [job]"));
        return;
    }
    const TrainingSpec& training = job.training;
    if (training.global_batch_size == 0 || training.sequence_length == 0) return;
    const std::int64_t step_tokens = training.global_batch_size * training.sequence_length;
    if (job.tokens != 0) job.steps = (job.tokens - 1) / step_tokens + 1;
    if (job.steps > most_tokens / step_tokens)
        findings.push_back(
            finding("out_of_range", {"job.steps", "training.global_batch_size"},
                    fmt::format("{} steps of {} tokens are more than 2^62 tokens", job.steps, step_tokens),
                    "give fewer steps or a smaller batch"));
}

}  // namespace

Finding finding(std::string code, std::vector<std::string> involved, std::string what, std::string hint) {
    Problem problem = make_error(std::move(code), involved.front(), {}, std::move(what), std::move(hint));
    return {std::move(problem), std::move(involved)};
}

Finding warning(std::vector<std::string> involved, std::string what, std::string hint) {
    Finding result = finding("no_effect", std::move(involved), std::move(what), std::move(hint));
    result.problem.severity = Severity::Warning;
    return result;
}

void resolve_model(JobSpec& job, const CheckContext& context, std::vector<Finding>& findings) {
    require_dimensions(job, findings);
    ModelSpec& model = job.model;
    if (model.kv_heads == 0) model.kv_heads = model.heads;
    if (model.head_dim == 0 && model.heads > 0) {
        if (model.hidden_size % model.heads != 0)
            findings.push_back(finding("divisibility", {"model.heads", "model.hidden_size", "model.head_dim"},
                                       fmt::format("model.hidden_size {} is not a multiple of model.heads {}",
                                                   model.hidden_size, model.heads),
                                       "change one of them or give model.head_dim"));
        else
            model.head_dim = model.hidden_size / model.heads;
    }
    const bool gpt2 = model.architecture == Architecture::Gpt2;
    if (model.ffn_size == 0)
        model.ffn_size = gpt2 ? 4 * model.hidden_size : round_up((8 * model.hidden_size + 2) / 3, 256);
    if (!context.given("model.tie_embeddings")) model.tie_embeddings = gpt2;

    std::int64_t& sequence = job.training.sequence_length;
    if (sequence == 0 && model.max_sequence_length == 0)
        findings.push_back(finding("missing",
                                   {"training.sequence_length", "model.max_sequence_length", "model.preset"},
                                   "missing training.sequence_length",
                                   "for example sequence_length = 1024 in [training], or give model.preset"));
    if (sequence == 0) sequence = model.max_sequence_length;
    if (model.max_sequence_length == 0) model.max_sequence_length = sequence;
}

void resolve_training(JobSpec& job, const CheckContext& context, std::vector<Finding>& findings) {
    resolve_batch(job, context, findings);
    resolve_steps(job, context, findings);
}

}  // namespace trainctl
