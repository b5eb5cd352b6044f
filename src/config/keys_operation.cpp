// [checkpoint] [fault_tolerance] [launch] [monitoring] [device]
#include "config/key_tables.h"

namespace trainctl::config_tables {

namespace {

void add_checkpoint(std::vector<Key>& keys) {
    keys.push_back(bound_key("checkpoint.directory", Kind::Text,
                             {.absent = Absent::Derived,
                              .help = "Where checkpoints go. All nodes must see it.",
                              .derived = "job.run_dir + \"/checkpoints\"",
                              .aliases = {"folder", "checkpoints_path", "save"}},
                             &JobSpec::checkpoint, &CheckpointSpec::directory));
    keys.push_back(bound_key("checkpoint.interval_steps", Kind::Integer,
                             {.bounds = between(1, 1e15),
                              .absent = Absent::Optional,
                              .unit = "steps",
                              .help = "Also saves every so many steps. Off: by time only.",
                              .aliases = {"save_interval", "checkpoint_interval", "save_every"}},
                             &JobSpec::checkpoint, &CheckpointSpec::interval_steps));
    keys.push_back(
        bound_key("checkpoint.interval", Kind::Duration,
                  {.bounds = between(1, 1e9),
                   .absent = Absent::Auto,
                   .unit = "time",
                   .help = "Longest time between saves.",
                   .derived = "what saves cost and how often nodes fail (Young/Daly), 1 to 30 minutes",
                   .aliases = {"interval_minutes", "checkpoint_time_interval"}},
                  &JobSpec::checkpoint, &CheckpointSpec::interval_s));
    keys.push_back(
        bound_key("checkpoint.keep_latest", Kind::Integer,
                  {.bounds = between(2, 1e6),
                   .unit = "checkpoints",
                   .help = "Newest checkpoints that stay. At least two, so that a damaged one never is the "
                           "last.",
                   .aliases = {"keep_last", "keep_latest_k", "save_total_limit", "max_checkpoints",
                               "save_num_checkpoints_to_keep"}},
                  &JobSpec::checkpoint, &CheckpointSpec::keep_latest));
    keys.push_back(bound_key("checkpoint.keep_every", Kind::Integer,
                             {.bounds = between(1, 1e15),
                              .absent = Absent::Optional,
                              .unit = "steps",
                              .help = "Checkpoints at multiples of this stay for ever.",
                              .aliases = {"keep_every_steps"}},
                             &JobSpec::checkpoint, &CheckpointSpec::keep_every));
    keys.push_back(
        bound_key("checkpoint.async", Kind::Boolean,
                  {.help = "Writes behind the next steps: training stands still only while the state is "
                           "copied, which takes host memory of its size. false: until it is saved.",
                   .aliases = {"async_mode", "async_save"}},
                  &JobSpec::checkpoint, &CheckpointSpec::async));
    keys.push_back(bound_key(
        "checkpoint.tiers", Kind::TextList,
        {.absent = Absent::Derived,
         .help = "Places that hold the checkpoints, nearest first: \"local:/path\" (a disk of each node), "
                 "\"shared\" (checkpoint.directory), \"shared:/path\", \"s3://bucket/prefix\". Saves go to "
                 "the first; the others get copies behind the training.",
         .derived = "\"shared\" alone",
         .aliases = {"ephemeral"}},
        &JobSpec::checkpoint, &CheckpointSpec::tiers));
    keys.push_back(bound_key("checkpoint.durable_tier", Kind::Text,
                             {.absent = Absent::Derived,
                              .help = "The tier whose copy counts as saved.",
                              .derived = "the first tier that outlives a node"},
                             &JobSpec::checkpoint, &CheckpointSpec::durable_tier));
    keys.push_back(
        bound_key("checkpoint.peer_copies", Kind::Integer,
                  {.bounds = between(0, 1),
                   .unit = "copies",
                   .help = "Copies of each node's part of a local tier on the disk of the next node."},
                  &JobSpec::checkpoint, &CheckpointSpec::peer_copies));
    keys.push_back(
        bound_key("checkpoint.max_age", Kind::Duration,
                  {.bounds = between(1, 1e9),
                   .absent = Absent::Auto,
                   .unit = "time",
                   .help = "When saving fails, training goes on until the newest checkpoint is this old.",
                   .derived = "three times checkpoint.interval"},
                  &JobSpec::checkpoint, &CheckpointSpec::max_age_s));
    keys.push_back(
        bound_key("checkpoint.backup_to_object_storage", Kind::Text,
                  {.absent = Absent::Optional, .help = "Short for a last tier \"s3://bucket/prefix\"."},
                  &JobSpec::checkpoint, &CheckpointSpec::backup_to_object_storage));
    const auto object_storage = [&keys](const std::string& name, const std::string& help,
                                        const std::string& variables, const std::vector<std::string>& aliases,
                                        auto member) {
        keys.push_back(
            bound_key("checkpoint.object_storage." + name, Kind::Text,
                      {.absent = Absent::Derived, .help = help, .derived = variables, .aliases = aliases},
                      &JobSpec::checkpoint, &CheckpointSpec::object_storage, member));
    };
    object_storage("endpoint",
                   "Address of the S3-compatible store that \"s3://bucket/key\" paths go to: "
                   "\"https://host:port\", or http:// where that is meant.",
                   "AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, else Amazon's for the region",
                   {"endpoint_url", "s3_endpoint"}, &ObjectStorageSpec::endpoint);
    object_storage("region", "Region that requests are signed for.",
                   "AWS_REGION, AWS_DEFAULT_REGION, else us-east-1", {"region_name", "aws_region"},
                   &ObjectStorageSpec::region);
    object_storage(
        "credentials_file",
        "File of mode 0600 with aws_access_key_id and aws_secret_access_key, as the AWS tools write it.",
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the file of AWS_SHARED_CREDENTIALS_FILE",
        {"shared_credentials_file"}, &ObjectStorageSpec::credentials_file);
}

void add_fault_tolerance(std::vector<Key>& keys) {
    keys.push_back(
        planned_key("fault_tolerance.max_restarts", Kind::Integer, std::int64_t{0},
                    {.bounds = between(0, 1e6), .help = "Restarts by the launcher after a failure."}));
    keys.push_back(bound_key("fault_tolerance.hang_timeout_s", Kind::Number,
                             {.bounds = between(0, 1e7),
                              .unit = "seconds",
                              .help = "A step that takes longer counts as hung. 0: never.",
                              .availability = Availability::NotBuilt},
                             &JobSpec::fault_tolerance, &FaultToleranceSpec::hang_timeout_s));
    keys.push_back(choice_key<NonFinitePolicy>(
        "fault_tolerance.nonfinite",
        {{"skip", NonFinitePolicy::Skip},
         {"stop", NonFinitePolicy::Stop},
         {"rollback", NonFinitePolicy::Rollback, Availability::NotBuilt}},
        {.help =
             "After a non-finite loss or gradient the update is skipped on all ranks. skip: go on, and stop "
             "with "
             "exit 7 beyond the limits below. stop: at once. rollback: to the newest healthy checkpoint."},
        &JobSpec::fault_tolerance, &FaultToleranceSpec::nonfinite));
    keys.push_back(bound_key(
        "fault_tolerance.nonfinite_max_consecutive", Kind::Integer,
        {.bounds = between(0, 1e9), .unit = "steps", .help = "Skipped steps in a row that are tolerated."},
        &JobSpec::fault_tolerance, &FaultToleranceSpec::nonfinite_max_consecutive));
    keys.push_back(bound_key("fault_tolerance.nonfinite_max_per_1000", Kind::Integer,
                             {.bounds = between(0, 1000),
                              .unit = "steps",
                              .help = "Skipped steps among the last 1000 that are tolerated."},
                             &JobSpec::fault_tolerance, &FaultToleranceSpec::nonfinite_max_per_1000));
    keys.push_back(planned_key("fault_tolerance.spike", Kind::Table, {},
                               {.absent = Absent::Optional, .help = "What to do when the loss jumps."}));
    keys.push_back(planned_key("fault_tolerance.replica_hash_steps", Kind::Integer, std::int64_t{0},
                               {.bounds = between(0, 1e15),
                                .unit = "steps",
                                .help = "Steps between comparisons of replicated weights. 0: never."}));
}

void add_launch(std::vector<Key>& keys) {
    const auto planned = [&keys](std::string name, Kind kind, std::string help) {
        const bool list = kind == Kind::TextList;
        keys.push_back(
            planned_key(std::move(name), kind, list ? Value{std::vector<std::string>{}} : Value{},
                        {.absent = list ? Absent::Never : Absent::Optional, .help = std::move(help)}));
    };
    planned("launch.hosts", Kind::TextList, "Hosts to start ranks on.");
    planned("launch.hostfile", Kind::Text, "File with one host per line, instead of launch.hosts.");
    planned("launch.ranks_per_node", Kind::Integer, "Ranks on each host.");
    planned("launch.interfaces", Kind::TextList, "Network interfaces to use.");
    keys.push_back(bound_key(
        "launch.port_range", Kind::Text,
        {.absent = Absent::Optional,
         .unit = "TCP ports, \"20000-20100\"",
         .help =
             "Where the ranks listen for each other, for firewalls: one port per rank of a host. What the "
             "user tells OpenMPI himself wins. mpirun's own daemons need `mpirun --mca "
             "oob_tcp_dynamic_ipv4_ports 20101 --mca oob_tcp_dynamic_ipv6_ports 20102`, with other ports "
             "for each job on a host."},
        &JobSpec::launch, &LaunchSpec::port_range));
    planned("launch.mpirun_args", Kind::TextList, "Further arguments of mpirun.");
    planned("launch.env", Kind::Table, "Environment variables of the ranks.");
    keys.push_back(planned_key(
        "launch.spare_nodes", Kind::Integer, std::int64_t{0},
        {.bounds = between(0, 1e6), .unit = "nodes", .help = "Nodes kept idle to replace failed ones."}));
    keys.push_back(planned_key("launch.elastic", Kind::Boolean, false,
                               {.help = "Goes on with fewer nodes when no spare is left."}));
    planned("launch.bind", Kind::Text, "Binding of ranks to cores.");
    planned("launch.slurm.partition", Kind::Text, "Slurm partition.");
    planned("launch.slurm.account", Kind::Text, "Slurm account.");
    planned("launch.slurm.qos", Kind::Text, "Slurm quality of service.");
    planned("launch.slurm.time", Kind::Duration, "Time limit of one Slurm job.");
    planned("launch.slurm.nodes", Kind::Integer, "Nodes of the Slurm job.");
    planned("launch.slurm.signal_lead_s", Kind::Number,
            "Seconds before the time limit at which Slurm signals.");
}

void add_monitoring(std::vector<Key>& keys) {
    keys.push_back(bound_key("monitoring.log_interval", Kind::Integer,
                             {.bounds = between(1, 1e9),
                              .unit = "steps",
                              .help = "Steps between step lines when stderr is not a terminal.",
                              .aliases = {"log_freq", "logging_steps", "log_every"}},
                             &JobSpec::monitoring, &MonitoringSpec::log_interval));
    keys.push_back(bound_key("monitoring.plain_interval_s", Kind::Number,
                             {.bounds = {.low = 0, .high = 1e7, .ends = Bounds::Ends::OpenLow},
                              .unit = "seconds",
                              .help = "And at least one step line in this time."},
                             &JobSpec::monitoring, &MonitoringSpec::plain_interval_s));
    keys.push_back(
        bound_key("monitoring.gpu_interval_s", Kind::Number,
                  {.bounds = between(0, 1e7),
                   .unit = "seconds",
                   .help = "Between looks at the GPUs: load, power, heat, clocks, errors. 0: never."},
                  &JobSpec::monitoring, &MonitoringSpec::gpu_interval_s));
    const auto planned = [&keys](std::string name, std::string help) {
        keys.push_back(planned_key(std::move(name), Kind::Text, {},
                                   {.absent = Absent::Optional, .help = std::move(help)}));
    };
    planned("monitoring.listen", "Address of the metrics endpoint, \"127.0.0.1:9400\".");
    planned("monitoring.textfile", "File for the textfile collector of node_exporter.");
    planned("monitoring.tensorboard", "Directory for TensorBoard event files.");
}

void add_device(std::vector<Key>& keys) {
    keys.push_back(choice_key<DeviceKind>(
        "device.kind", {{"auto", DeviceKind::Auto}, {"cpu", DeviceKind::Cpu}, {"cuda", DeviceKind::Cuda}},
        {.help = "auto: cuda where this build has it and the host a GPU for each of its ranks, else cpu. "
                 "cuda never falls "
                 "back to cpu.",
         .aliases = {"accelerator", "device_type"}},
        &JobSpec::device, &DeviceSpec::kind));
    keys.push_back(bound_key("device.threads", Kind::Integer,
                             {.bounds = between(1, 4096),
                              .absent = Absent::Auto,
                              .unit = "threads per rank",
                              .help = "Compute threads of a rank. Results do not depend on it.",
                              .derived = "the rank's share of the cores allowed to the job",
                              .aliases = {"num_threads", "omp_num_threads"}},
                             &JobSpec::device, &DeviceSpec::threads));
    keys.push_back(
        word_key("device.cpu_isa", {{"auto"}, {"x86-64-v3"}, {"x86-64-v4"}, {"avx512_bf16"}},
                 {.help = "Instruction set of the CPU kernels; the same on all ranks for equal bits."},
                 &JobSpec::device, &DeviceSpec::cpu_isa));
    keys.push_back(
        bound_key("device.share_gpus", Kind::Boolean,
                  {.help = "Lets ranks of a host share GPUs if there are fewer of them. Slow; for tests."},
                  &JobSpec::device, &DeviceSpec::share_gpus));
    keys.push_back(bound_key(
        "device.tune_products", Kind::Boolean,
        {.resume = ResumeClass::Warn,
         .help = "Times the algorithms of cuBLASLt for each matrix product when a run starts on a GPU, and "
                 "keeps the choices in the run directory. Another algorithm may round differently.",
         .aliases = {"autotune"}},
        &JobSpec::device, &DeviceSpec::tune_products));
    keys.push_back(
        bound_key("device.cuda_graphs", Kind::Boolean,
                  {.help = "Replays the work of each block, once it repeats, as one CUDA graph: less "
                           "host time per step, the same bits. Needs cuda and model.dropout 0."},
                  &JobSpec::device, &DeviceSpec::cuda_graphs));
}

}  // namespace

void add_operation_keys(std::vector<Key>& keys) {
    add_checkpoint(keys);
    add_fault_tolerance(keys);
    add_launch(keys);
    add_monitoring(keys);
    add_device(keys);
}

}  // namespace trainctl::config_tables
