#include "config/checks.h"

#include <fmt/format.h>

#include <cmath>

#include "trainctl/base/text.h"
#include "trainctl/config/device_fit.h"
#include "trainctl/config/model_math.h"
#include "trainctl/config/port_range.h"
#include "trainctl/config/tensor_size.h"

namespace trainctl {

void check_model(const JobSpec& job, std::vector<Finding>& findings) {
    const ModelSpec& model = job.model;
    if (model.kv_heads > 0 && model.heads % model.kv_heads != 0)
        findings.push_back(finding(
            "divisibility", {"model.kv_heads", "model.heads"},
            fmt::format("model.heads {} is not a multiple of model.kv_heads {}", model.heads, model.kv_heads),
            "each key/value head serves the same number of query heads"));
    if (model.architecture == Architecture::Llama && model.head_dim % 2 != 0)
        findings.push_back(finding(
            "divisibility", {"model.head_dim", "model.heads", "model.hidden_size"},
            fmt::format("rotary positions turn pairs: model.head_dim must be even, found {}", model.head_dim),
            "change model.heads or model.hidden_size, or give model.head_dim"));
    if (job.training.sequence_length > model.max_sequence_length)
        findings.push_back(
            finding("contradiction", {"training.sequence_length", "model.max_sequence_length"},
                    fmt::format("training.sequence_length {} exceeds model.max_sequence_length {}",
                                job.training.sequence_length, model.max_sequence_length),
                    "shorten the samples or give a larger model.max_sequence_length"));
    if (job.data.dtype == DType::U16 && model.vocab_size > 65536)
        findings.push_back(
            finding("contradiction", {"data.dtype", "model.vocab_size"},
                    fmt::format("uint16 tokens cannot hold ids of a vocabulary of {}; the most is 65536",
                                model.vocab_size),
                    "give data.dtype = \"uint32\" if the files hold that, else lower model.vocab_size"));
}

namespace {

void check_pipeline(const JobSpec& job, std::vector<Finding>& findings) {
    const ParallelSpec& parallel = job.parallel;
    const std::int64_t parts = parallel.pipeline_parallel_size * parallel.virtual_stages;
    if (job.model.layers > 0 && job.model.layers < parts)  // 0: not given, which has been said
        findings.push_back(finding(
            "contradiction", {"parallel.pipeline_parallel_size", "parallel.virtual_stages", "model.layers"},
            fmt::format("model.layers {} cannot fill parallel.pipeline_parallel_size {} x "
                        "parallel.virtual_stages {} = {} model parts of at least one block",
                        job.model.layers, parallel.pipeline_parallel_size, parallel.virtual_stages, parts),
            fmt::format("at most {}: use fewer stages or virtual stages, or a deeper model",
                        counted(job.model.layers, "part"))));
    const bool interleaved = parallel.pipeline_schedule == "interleaved";
    if (interleaved != (parallel.virtual_stages > 1) || (interleaved && parallel.pipeline_parallel_size == 1))
        findings.push_back(finding(
            "contradiction",
            {"parallel.virtual_stages", "parallel.pipeline_schedule", "parallel.pipeline_parallel_size"},
            fmt::format("parallel.pipeline_schedule = \"{}\" with {} on each of {}",
                        parallel.pipeline_schedule, counted(parallel.virtual_stages, "virtual stage"),
                        counted(parallel.pipeline_parallel_size, "pipeline stage")),
            "\"interleaved\" needs parallel.virtual_stages >= 2 and at least 2 stages, \"1f1b\" needs "
            "parallel.virtual_stages = 1"));
}

}  // namespace

void check_layout(const JobSpec& job, std::vector<Finding>& findings) {
    for (const TensorMisfit& misfit : tensor_misfits(job.model, job.parallel.tensor_parallel_size))
        findings.push_back(finding("divisibility", {"parallel.tensor_parallel_size", misfit.key}, misfit.what,
                                   tensor_size_hint(job.model)));
    check_pipeline(job, findings);
}

namespace {

double peak_lr(const JobSpec& job) {
    const OptimizerSpec& optimizer = job.optimizer;
    if (optimizer.scale_lr == LrScaling::None || optimizer.scale_lr_reference_batch == 0 ||
        job.training.global_batch_size == 0)
        return optimizer.lr;
    const double ratio = static_cast<double>(job.training.global_batch_size) /
                         static_cast<double>(optimizer.scale_lr_reference_batch);
    return optimizer.lr * (optimizer.scale_lr == LrScaling::Linear ? ratio : std::sqrt(ratio));
}

void check_decay(const JobSpec& job, std::vector<Finding>& findings) {
    const ScheduleSpec& schedule = job.schedule;
    const std::int64_t end = schedule.decay_steps != 0 ? schedule.decay_steps : job.steps;
    if (end == 0) return;  // tokens without a known batch
    const std::string end_key = schedule.decay_steps != 0 ? "schedule.decay_steps" : "job.steps";
    const std::string end_text = schedule.decay_steps == 0 && job.tokens != 0
                                     ? fmt::format("{} {} (from job.tokens {})", end_key, end, job.tokens)
                                     : fmt::format("{} {}", end_key, end);
    const std::vector<std::string> involved{"schedule.warmup_steps", end_key, "job.tokens", "schedule.kind"};
    switch (schedule.kind) {
        case ScheduleKind::Linear:
        case ScheduleKind::Cosine:
        case ScheduleKind::Polynomial:
            if (schedule.warmup_steps >= end)
                findings.push_back(
                    finding("contradiction", involved,
                            fmt::format("schedule.warmup_steps {} leaves no decay: the schedule ends at {}",
                                        schedule.warmup_steps, end_text),
                            "shorten the warm-up or lengthen the run"));
            break;
        case ScheduleKind::Constant:
        case ScheduleKind::InverseSqrt:
            if (schedule.warmup_steps > end)
                findings.push_back(
                    finding("contradiction", involved,
                            fmt::format("schedule.warmup_steps {} is longer than the schedule, {}",
                                        schedule.warmup_steps, end_text),
                            "shorten the warm-up or lengthen the run"));
            break;
        case ScheduleKind::Wsd:
            if (schedule.wsd_decay_steps != 0 && schedule.warmup_steps + schedule.wsd_decay_steps > end)
                findings.push_back(finding(
                    "contradiction",
                    {"schedule.wsd_decay_steps", "schedule.warmup_steps", end_key, "job.tokens"},
                    fmt::format(
                        "schedule.warmup_steps {} + schedule.wsd_decay_steps {} = {} is longer than the "
                        "schedule, {}",
                        schedule.warmup_steps, schedule.wsd_decay_steps,
                        schedule.warmup_steps + schedule.wsd_decay_steps, end_text),
                    "shorten the warm-up or the decay, or lengthen the run"));
            break;
    }
}

}  // namespace

void check_schedule(const JobSpec& job, const CheckContext& context, std::vector<Finding>& findings) {
    const ScheduleSpec& schedule = job.schedule;
    const OptimizerSpec& optimizer = job.optimizer;
    check_decay(job, findings);
    if (schedule.kind == ScheduleKind::Wsd && schedule.wsd_decay_steps == 0)
        findings.push_back(
            finding("missing", {"schedule.wsd_decay_steps"},
                    "schedule.kind = \"wsd\" needs schedule.wsd_decay_steps, the length of its decay",
                    "a tenth to a fifth of the run is usual"));
    if (schedule.kind != ScheduleKind::Wsd)
        for (const char* key : {"schedule.wsd_decay_steps", "schedule.wsd_shape"})
            if (context.given(key))
                findings.push_back(warning({key, "schedule.kind"},
                                           fmt::format("{} has no effect: schedule.kind is not \"wsd\"", key),
                                           "leave it out or set schedule.kind = \"wsd\""));
    if (schedule.kind != ScheduleKind::Polynomial && context.given("schedule.power"))
        findings.push_back(warning({"schedule.power", "schedule.kind"},
                                   "schedule.power has no effect: schedule.kind is not \"polynomial\"",
                                   "leave it out or set schedule.kind = \"polynomial\""));
    if (schedule.min_lr > peak_lr(job))
        findings.push_back(
            finding("contradiction", {"schedule.min_lr", "optimizer.lr", "optimizer.scale_lr"},
                    fmt::format("schedule.min_lr {} exceeds the peak learning rate {}", schedule.min_lr,
                                peak_lr(job)),
                    "lower schedule.min_lr (a tenth of the peak is usual) or raise optimizer.lr"));
    if (optimizer.scale_lr != LrScaling::None && optimizer.scale_lr_reference_batch == 0)
        findings.push_back(
            finding("missing", {"optimizer.scale_lr_reference_batch", "optimizer.scale_lr"},
                    "optimizer.scale_lr needs optimizer.scale_lr_reference_batch, the global batch at "
                    "which optimizer.lr was tuned",
                    "give it, or set optimizer.scale_lr = \"none\""));
    if (optimizer.scale_lr == LrScaling::None && context.given("optimizer.scale_lr_reference_batch"))
        findings.push_back(
            warning({"optimizer.scale_lr_reference_batch", "optimizer.scale_lr"},
                    "optimizer.scale_lr_reference_batch has no effect: optimizer.scale_lr is \"none\"",
                    "leave it out or set optimizer.scale_lr"));
}

void check_precision(const JobSpec& job, const CheckContext& context, std::vector<Finding>& findings) {
    const LossScaleSpec& scale = job.precision.loss_scale;
    if (scale.minimum > scale.initial)
        findings.push_back(
            finding("contradiction", {"precision.loss_scale.minimum", "precision.loss_scale.initial"},
                    fmt::format("precision.loss_scale.minimum {} exceeds precision.loss_scale.initial {}",
                                scale.minimum, scale.initial),
                    "lower the minimum (default 1) or raise the initial scale (default 65536)"));
    if (job.precision.tf32 && job.precision.compute != DType::F32)
        findings.push_back(finding(
            "contradiction", {"precision.tf32", "precision.compute"},
            "precision.tf32 = true rounds the products of fp32, but precision.compute is not \"fp32\"",
            "leave precision.tf32 out, or set precision.compute = \"fp32\""));
    if (job.precision.tf32 && job.device.kind == DeviceKind::Cpu)
        findings.push_back(finding("contradiction", {"precision.tf32", "device.kind"},
                                   "precision.tf32 = true needs a GPU, but device.kind is \"cpu\"",
                                   "leave precision.tf32 out, or set device.kind = \"cuda\""));
    if (job.precision.compute == DType::F16) return;
    for (const char* key : {"precision.loss_scale.initial", "precision.loss_scale.growth_interval",
                            "precision.loss_scale.hysteresis", "precision.loss_scale.minimum"})
        if (context.given(key))
            findings.push_back(
                warning({key, "precision.compute"},
                        fmt::format("{} has no effect: precision.compute is not \"fp16\"", key),
                        "leave it out: only fp16 scales its loss"));
}

void check_data_keys(const JobSpec& job, const CheckContext& context, std::vector<Finding>& findings) {
    const DataSpec& data = job.data;
    if (!data.validation.empty() && data.validation_split > 0)
        findings.push_back(finding("contradiction", {"data.validation_split", "data.validation"},
                                   "data.validation and data.validation_split are both given",
                                   "keep one of them"));
    if (job.training.eval_interval > 0 && data.validation.empty() && data.validation_split == 0)
        findings.push_back(finding(
            "missing", {"training.eval_interval", "data.validation", "data.validation_split"},
            fmt::format("training.eval_interval = {} needs validation data", job.training.eval_interval),
            "give data.validation or data.validation_split"));
    if (context.given("checkpoint.max_age") && context.given("checkpoint.interval") &&
        job.checkpoint.max_age_s < job.checkpoint.interval_s)
        findings.push_back(finding(
            "contradiction", {"checkpoint.max_age", "checkpoint.interval"},
            fmt::format("checkpoint.max_age {} s is shorter than checkpoint.interval {} s",
                        job.checkpoint.max_age_s, job.checkpoint.interval_s),
            "a longer checkpoint.max_age gives saving time to recover; three intervals are the default"));
}

void check_buckets(const JobSpec& job, std::vector<Finding>& findings) {
    const CommunicationSpec& communication = job.communication;
    if (communication.gradient_bucket_mb == 0 || !communication.overlap_comm) return;
    const double model_ranks =
        static_cast<double>(job.parallel.tensor_parallel_size * job.parallel.pipeline_parallel_size);
    const double gradients_mb = static_cast<double>(parameter_count(job.model)) *
                                static_cast<double>(dtype_size(communication.reduce_dtype)) / 1e6 /
                                model_ranks;
    if (communication.gradient_bucket_mb >= gradients_mb && gradients_mb > 0)
        findings.push_back(
            warning({"communication.gradient_bucket_mb", "communication.overlap_comm"},
                    fmt::format("communication.gradient_bucket_mb {} holds all gradients ({:.3g} MB): "
                                "one bucket overlaps with nothing",
                                communication.gradient_bucket_mb, gradients_mb),
                    "\"auto\" takes an eighth"));
}

void check_memory(const JobSpec& job, const CheckContext& context, std::vector<Finding>& findings) {
    if (job.memory.gradient_checkpointing != GradientCheckpointing::None) return;
    const char* blocks = "memory.checkpoint_every_blocks";
    if (context.given(blocks))
        findings.push_back(
            warning({blocks, "memory.gradient_checkpointing"},
                    fmt::format("{} has no effect: memory.gradient_checkpointing is \"none\"", blocks),
                    "leave it out or set memory.gradient_checkpointing"));
}

void check_kernels(const JobSpec& job, std::vector<Finding>& findings) {
    if (job.device.kind != DeviceKind::Cuda) return;  // auto: asked again when the device is known
    const auto misfit = cuda_misfit(job.model);
    if (misfit)
        findings.push_back(finding("contradiction",
                                   {misfit->key, "model.heads", "model.hidden_size", "device.kind"},
                                   misfit->what, misfit->hint));
}

void check_launch(const JobSpec& job, std::vector<Finding>& findings) {
    const std::string& ports = job.launch.port_range;
    if (ports.empty() || parse_port_range(ports)) return;
    findings.push_back(
        finding("out_of_range", {"launch.port_range"},
                fmt::format("launch.port_range must be \"FIRST-LAST\" with 1024 <= FIRST <= LAST <= 65535, "
                            "found \"{}\"",
                            ports),
                "for example launch.port_range = \"20000-20100\""));
}

void check_device(const JobSpec& job, std::vector<Finding>& findings) {
    if (job.device.kind == DeviceKind::Cpu && job.communication.backend == "nccl")
        findings.push_back(finding("contradiction", {"communication.backend", "device.kind"},
                                   "communication.backend = \"nccl\" with device.kind = \"cpu\": NCCL moves "
                                   "tensors between GPUs",
                                   "leave communication.backend out, or set device.kind = \"cuda\""));
    if (!job.device.cuda_graphs) return;
    if (job.device.kind == DeviceKind::Cpu)
        findings.push_back(finding("contradiction", {"device.cuda_graphs", "device.kind"},
                                   "device.cuda_graphs = true with device.kind = \"cpu\": only a GPU replays "
                                   "graphs",
                                   "leave device.cuda_graphs out, or set device.kind = \"cuda\""));
    if (job.model.dropout > 0)
        findings.push_back(finding(
            "contradiction", {"device.cuda_graphs", "model.dropout"},
            fmt::format("device.cuda_graphs = true with model.dropout = {}: every micro-batch draws other "
                        "masks, so that no work of a block would ever repeat",
                        job.model.dropout),
            "leave device.cuda_graphs out, or set model.dropout = 0"));
}

}  // namespace trainctl
