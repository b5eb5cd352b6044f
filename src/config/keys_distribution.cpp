// [parallel] [memory] [communication]
#include "config/key_tables.h"

namespace trainctl::config_tables {

namespace {

void add_parallel(std::vector<Key>& keys) {
    keys.push_back(bound_key(
        "parallel.tensor_parallel_size", Kind::Integer,
        {.bounds = between(1, 1024),
         .unit = "ranks",
         .help = "Ranks that share every matrix; they exchange activations in every block.",
         .aliases = {"tensor_model_parallel_size", "tensor_parallel_degree", "tp", "model_parallel_size"}},
        &JobSpec::parallel, &ParallelSpec::tensor_parallel_size));
    keys.push_back(bound_key(
        "parallel.pipeline_parallel_size", Kind::Integer,
        {.bounds = between(1, 1024),
         .unit = "stages",
         .help = "Stages that share the blocks.",
         .aliases = {"pipeline_model_parallel_size", "pipeline_parallel_degree", "pp", "pipe_parallel_size"}},
        &JobSpec::parallel, &ParallelSpec::pipeline_parallel_size));
    keys.push_back(
        bound_key("parallel.data_parallel_size", Kind::Integer,
                  {.bounds = between(1, 1 << 20),
                   .absent = Absent::Auto,
                   .unit = "ranks",
                   .help = "Ranks that share the samples of a step. A number is checked against the ranks "
                           "that were started.",
                   .derived = "ranks / (tensor_parallel_size x pipeline_parallel_size)",
                   .aliases = {"dp", "data_parallel_replicate_degree", "data_parallel_shard_degree"}},
                  &JobSpec::parallel, &ParallelSpec::data_parallel_size));
    keys.push_back(
        bound_key("parallel.sequence_parallel", Kind::Boolean,
                  {.help = "Splits norms and residuals by rows (samples x positions) among tensor-parallel "
                           "ranks; of no effect with one."},
                  &JobSpec::parallel, &ParallelSpec::sequence_parallel));
    keys.push_back(bound_key("parallel.tensor_across_hosts", Kind::Boolean,
                             {.help = "Allows ranks that share matrices to be on different hosts."},
                             &JobSpec::parallel, &ParallelSpec::tensor_across_hosts));
    keys.push_back(word_key("parallel.pipeline_schedule", {{"1f1b"}, {"interleaved"}},
                            {.help = "Order of forward and backward micro-batches in a pipeline. interleaved "
                                     "idles less, sends more and needs virtual_stages >= 2.",
                             .aliases = {"pp_engine", "pipeline_parallel_schedule"}},
                            &JobSpec::parallel, &ParallelSpec::pipeline_schedule));
    keys.push_back(bound_key("parallel.virtual_stages", Kind::Integer,
                             {.bounds = between(1, 1024),
                              .unit = "stages per rank",
                              .help = "Model parts per pipeline rank (interleaved schedule).",
                              .aliases = {"virtual_pipeline_model_parallel_size"}},
                             &JobSpec::parallel, &ParallelSpec::virtual_stages));
}

void add_memory(std::vector<Key>& keys) {
    keys.push_back(
        bound_key("memory.zero_stage", Kind::Integer,
                  {.bounds = between(0, 3),
                   .help = "What data-parallel ranks share instead of each holding all of it: 1 optimizer "
                           "state, 2 also gradients, 3 also weights.",
                   .aliases = {"stage", "zero_optimization", "use_distributed_optimizer",
                               "data_parallel_sharding_strategy"}},
                  &JobSpec::memory, &MemorySpec::zero_stage));
    keys.push_back(choice_key<GradientCheckpointing>(
        "memory.gradient_checkpointing",
        {{"none", GradientCheckpointing::None},
         {"selective", GradientCheckpointing::Selective},
         {"full", GradientCheckpointing::Full}},
        {.help = "Activations computed again in backward, to the same bits: selective those of norms and MLP "
                 "activations (about a third less memory, hardly slower), full all of a block but its input "
                 "(a third more arithmetic).",
         .aliases = {"activation_checkpointing", "recompute_granularity", "checkpoint_activations",
                     "activation_checkpoint"}},
        &JobSpec::memory, &MemorySpec::gradient_checkpointing));
    keys.push_back(bound_key("memory.checkpoint_every_blocks", Kind::Integer,
                             {.bounds = between(1, 10000),
                              .unit = "blocks",
                              .help = "Every n-th block follows gradient_checkpointing; the others keep all.",
                              .aliases = {"recompute_num_layers"}},
                             &JobSpec::memory, &MemorySpec::checkpoint_every_blocks));
}

void add_communication(std::vector<Key>& keys) {
    keys.push_back(bound_key(
        "communication.gradient_bucket_mb", Kind::Number,
        {.bounds = {.low = 0, .high = 100000, .ends = Bounds::Ends::OpenLow},
         .absent = Absent::Auto,
         .unit = "MB (1e6 bytes) of reduce_dtype",
         .help = "Gradients that travel together. Never changes who owns what, nor any result.",
         .derived = "the smaller of 400 and an eighth of the gradients",
         .aliases = {"reduce_bucket_size", "ddp_bucket_cap_mb", "bucket_size", "allgather_bucket_size"}},
        &JobSpec::communication, &CommunicationSpec::gradient_bucket_mb));
    keys.push_back(bound_key("communication.overlap_comm", Kind::Boolean,
                             {.help = "Reduces gradients while the rest of backward is computed.",
                              .aliases = {"overlap_grad_reduce", "overlap_param_gather"}},
                             &JobSpec::communication, &CommunicationSpec::overlap_comm));
    keys.push_back(choice_key<DType>(
        "communication.reduce_dtype", {{"fp32", DType::F32}, {"bf16", DType::BF16}},
        {.resume = ResumeClass::Warn,
         .help = "Type in which gradients travel and are added.",
         .aliases = {"mixed_precision_reduce", "communication_data_type", "grad_reduce_in_fp32"}},
        &JobSpec::communication, &CommunicationSpec::reduce_dtype));
    keys.push_back(word_key(
        "communication.backend", {{"auto"}, {"host"}, {"nccl"}},
        {.help =
             "host: MPI, or threads within one process. nccl: between GPUs. auto: nccl on cuda, host on cpu.",
         .aliases = {"distributed_backend"}},
        &JobSpec::communication, &CommunicationSpec::backend));
    keys.push_back(bound_key("communication.deterministic", Kind::Boolean,
                             {.help = "The same bits from run to run at the same layout. The CPU always is.",
                              .aliases = {"deterministic_mode"}},
                             &JobSpec::communication, &CommunicationSpec::deterministic));
    keys.push_back(
        bound_key("communication.timeout_s", Kind::Number,
                  {.bounds = {.low = 0, .high = 1e7, .ends = Bounds::Ends::OpenLow},
                   .unit = "seconds",
                   .help = "A collective that takes longer ends the run with exit 6 and names the peers "
                           "that are missing.",
                   .aliases = {"distributed_timeout_minutes", "train_timeout_seconds", "dist_timeout"}},
                  &JobSpec::communication, &CommunicationSpec::timeout_s));
}

}  // namespace

void add_distribution_keys(std::vector<Key>& keys) {
    add_parallel(keys);
    add_memory(keys);
    add_communication(keys);
}

}  // namespace trainctl::config_tables
