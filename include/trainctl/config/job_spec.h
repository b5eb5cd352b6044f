// The resolved job: every key of the job file with its final value. Produced only by config (load_job), plain
// data for everyone else. Names equal the keys of the TOML tables; units are in the names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainctl/tensor/dtype.h"

namespace trainctl {

enum class Architecture { Gpt2, Llama };

struct ModelSpec {
    std::string preset;  // empty: dimensions given one by one
    Architecture architecture = Architecture::Llama;
    std::int64_t layers = 0;
    std::int64_t hidden_size = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t ffn_size = 0;
    std::int64_t vocab_size = 0;           // logical; padded_vocab_size() is what is allocated
    std::int64_t max_sequence_length = 0;  // rows of the position table (gpt2); an upper bound (llama)
    bool tie_embeddings = false;
    double norm_epsilon = 1e-5;
    double rope_theta = 10000.0;
    double dropout = 0.0;
    std::string init_from;  // empty: a random draw

    // Multiple of 128, independent of the layout.
    [[nodiscard]] std::int64_t padded_vocab_size() const { return (vocab_size + 127) / 128 * 128; }

    bool operator==(const ModelSpec& other) const = default;
};

struct DataSource {
    std::string path;     // Megatron prefix or file
    double weight = 1.0;  // relative to the other sources

    bool operator==(const DataSource& other) const = default;
};

enum class TokenFormat { Auto, Megatron, NanoGpt, LlmC };

struct DataSpec {
    std::vector<DataSource> train;
    std::vector<DataSource> validation;
    double validation_split =
        0.0;  // fraction of the windows of `train`, from the end, when `validation` is empty
    TokenFormat format = TokenFormat::Auto;
    std::optional<DType> dtype;  // headerless files only: U16 or U32
    std::int64_t prefetch_batches = 2;

    bool operator==(const DataSpec& other) const = default;
};

struct TrainingSpec {
    std::int64_t micro_batch_size = 0;             // samples per rank and micro-batch
    std::int64_t global_batch_size = 0;            // samples per step
    std::int64_t gradient_accumulation_steps = 0;  // 0: derived, see plan_batch()
    std::int64_t sequence_length = 0;              // tokens per sample
    double gradient_clip = 1.0;                    // 0: no clipping
    std::int64_t eval_interval = 0;                // steps; 0: never
    std::int64_t eval_batches = 0;  // global batches per evaluation; 0: the whole validation set

    bool operator==(const TrainingSpec& other) const = default;
};

enum class LrScaling { None, Linear, Sqrt };

struct OptimizerSpec {
    std::string name = "adamw";
    double lr = 3e-4;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    double weight_decay = 0.1;
    LrScaling scale_lr = LrScaling::None;
    std::int64_t scale_lr_reference_batch = 0;  // samples; required when scaling

    bool operator==(const OptimizerSpec& other) const = default;
};

enum class ScheduleKind { Constant, Linear, Cosine, Polynomial, InverseSqrt, Wsd };
enum class WsdShape { Linear, Exponential, MinusSqrt };

struct ScheduleSpec {
    ScheduleKind kind = ScheduleKind::Cosine;
    std::int64_t warmup_steps = 0;
    double min_lr = 0.0;
    std::int64_t decay_steps = 0;  // step at which min_lr is reached; 0: job.steps
    double power = 1.0;            // polynomial
    std::int64_t wsd_decay_steps = 0;
    WsdShape wsd_shape = WsdShape::Linear;

    bool operator==(const ScheduleSpec& other) const = default;
};

struct LossScaleSpec {
    double initial = 65536.0;
    std::int64_t growth_interval = 2000;
    std::int64_t hysteresis = 2;
    double minimum = 1.0;

    bool operator==(const LossScaleSpec& other) const = default;
};

struct PrecisionSpec {
    DType compute = DType::BF16;
    DType gradient = DType::F32;
    bool tf32 = false;  // products of fp32 on a GPU
    LossScaleSpec loss_scale;

    bool operator==(const PrecisionSpec& other) const = default;
};

struct ParallelSpec {
    std::int64_t tensor_parallel_size = 1;
    std::int64_t pipeline_parallel_size = 1;
    std::int64_t data_parallel_size = 0;  // 0: "auto", world / (tensor * pipeline)
    bool sequence_parallel = true;        // of no effect with one tensor-parallel rank
    bool tensor_across_hosts = false;
    std::string pipeline_schedule = "1f1b";
    std::int64_t virtual_stages = 1;

    bool operator==(const ParallelSpec& other) const = default;
};

enum class GradientCheckpointing { None, Selective, Full };

struct MemorySpec {
    int zero_stage = 1;
    GradientCheckpointing gradient_checkpointing = GradientCheckpointing::None;
    std::int64_t checkpoint_every_blocks = 1;

    bool operator==(const MemorySpec& other) const = default;
};

struct CommunicationSpec {
    double gradient_bucket_mb = 0.0;  // MB (1e6 bytes) of reduce_dtype; 0: "auto"
    bool overlap_comm = true;
    DType reduce_dtype = DType::F32;
    std::string backend = "auto";
    bool deterministic = true;
    double timeout_s = 600.0;

    bool operator==(const CommunicationSpec& other) const = default;
};

// No secrets: they come from the environment or the file that is named here.
struct ObjectStorageSpec {
    std::string endpoint;          // empty: from the environment
    std::string region;            // empty: from the environment
    std::string credentials_file;  // empty: from the environment

    bool operator==(const ObjectStorageSpec& other) const = default;
};

struct CheckpointSpec {
    std::string directory;            // empty: <run_dir>/checkpoints
    std::int64_t interval_steps = 0;  // 0: by time only
    double interval_s = 0.0;          // 0: "auto"
    std::int64_t keep_latest = 3;     // >= 2
    std::int64_t keep_every = 0;      // steps; 0: none
    bool async = true;
    double max_age_s = 0.0;                // 0: three intervals
    std::vector<std::string> tiers;        // tiers.h; empty: "shared"
    std::string durable_tier;              // one of them; empty: see durable_tier()
    std::int64_t peer_copies = 0;          // of a local tier
    std::string backup_to_object_storage;  // "s3://..."
    ObjectStorageSpec object_storage;

    bool operator==(const CheckpointSpec& other) const = default;
};

enum class NonFinitePolicy { Skip, Stop, Rollback };

struct FaultToleranceSpec {
    NonFinitePolicy nonfinite = NonFinitePolicy::Skip;
    std::int64_t nonfinite_max_consecutive = 5;
    std::int64_t nonfinite_max_per_1000 = 20;
    double hang_timeout_s = 0.0;

    bool operator==(const FaultToleranceSpec& other) const = default;
};

struct MonitoringSpec {
    std::int64_t log_interval = 1;   // steps between step lines off a terminal
    double plain_interval_s = 60.0;  // and at least one line in this time
    double gpu_interval_s = 10.0;    // between samples of a GPU's telemetry; 0: none

    bool operator==(const MonitoringSpec& other) const = default;
};

struct LaunchSpec {
    std::string port_range;  // see parse_port_range(); empty: any

    bool operator==(const LaunchSpec& other) const = default;
};

enum class DeviceKind { Auto, Cuda, Cpu };

struct DeviceSpec {
    DeviceKind kind = DeviceKind::Auto;
    std::int64_t threads = 0;      // per rank; 0: the rank's share of the job's cores
    std::string cpu_isa = "auto";  // "auto" | "x86-64-v3" | "x86-64-v4" | "avx512_bf16"
    bool share_gpus = false;       // several ranks on one GPU
    bool tune_products = true;     // on a GPU, at the start
    bool cuda_graphs = false;      // replay what repeats on the compute stream

    bool operator==(const DeviceSpec& other) const = default;
};

struct JobSpec {
    std::string name = "run";
    std::string run_dir;
    std::uint64_t seed = 1234;
    std::int64_t steps = 0;
    std::int64_t tokens = 0;  // alternative to steps; steps is derived from it

    ModelSpec model;
    DataSpec data;
    TrainingSpec training;
    OptimizerSpec optimizer;
    ScheduleSpec schedule;
    PrecisionSpec precision;
    ParallelSpec parallel;
    MemorySpec memory;
    CommunicationSpec communication;
    CheckpointSpec checkpoint;
    FaultToleranceSpec fault_tolerance;
    LaunchSpec launch;
    MonitoringSpec monitoring;
    DeviceSpec device;

    bool operator==(const JobSpec& other) const = default;
};

}  // namespace trainctl
