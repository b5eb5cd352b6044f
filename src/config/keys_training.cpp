// [training] [optimizer] [schedule] [precision]
#include "config/key_tables.h"

namespace trainctl::config_tables {

namespace {

void add_training(std::vector<Key>& keys) {
    keys.push_back(bound_key(
        "training.micro_batch_size", Kind::Integer,
        {.bounds = between(1, 1 << 20),
         .absent = Absent::Derived,
         .unit = "samples per rank and micro-batch",
         .help =
             "Samples that one rank computes at once. micro x data-parallel ranks x accumulation = global.",
         .derived = "global_batch_size / (data-parallel ranks x gradient_accumulation_steps)",
         .aliases = {"train_micro_batch_size_per_gpu", "device_train_microbatch_size", "batch_size"}},
        &JobSpec::training, &TrainingSpec::micro_batch_size));
    keys.push_back(
        bound_key("training.global_batch_size", Kind::Integer,
                  {.bounds = between(1, 1 << 30),
                   .absent = Absent::Derived,
                   .unit = "samples per step",
                   .resume = ResumeClass::Refuse,
                   .help = "Samples of one optimizer step over all ranks and micro-batches.",
                   .derived = "micro_batch_size x data-parallel ranks x gradient_accumulation_steps",
                   .aliases = {"train_batch_size", "global_train_batch_size", "total_batch_size"}},
                  &JobSpec::training, &TrainingSpec::global_batch_size));
    keys.push_back(bound_key("training.gradient_accumulation_steps", Kind::Integer,
                             {.bounds = between(1, 1 << 20),
                              .absent = Absent::Derived,
                              .unit = "micro-batches per step",
                              .help = "Micro-batches that one rank adds up before the optimizer step.",
                              .derived = "global_batch_size / (micro_batch_size x data-parallel ranks)",
                              .aliases = {"batch_accumulation_per_replica", "accumulate_grad_batches"}},
                             &JobSpec::training, &TrainingSpec::gradient_accumulation_steps));
    keys.push_back(
        bound_key("training.sequence_length", Kind::Integer,
                  {.bounds = between(1, 1 << 24),
                   .absent = Absent::Derived,
                   .unit = "tokens per sample",
                   .resume = ResumeClass::Refuse,
                   .help = "Tokens of one sample.",
                   .derived = "model.max_sequence_length",
                   .aliases = {"seq_length", "seq_len", "block_size", "max_seq_len", "context_length"}},
                  &JobSpec::training, &TrainingSpec::sequence_length));
    keys.push_back(
        bound_key("training.gradient_clip", Kind::Number,
                  {.bounds = at_least(0),
                   .resume = ResumeClass::Warn,
                   .help = "Largest global gradient norm; larger gradients are scaled down. 0: no clipping.",
                   .aliases = {"clip_grad", "grad_clip", "max_norm", "gradient_clipping", "max_grad_norm"}},
                  &JobSpec::training, &TrainingSpec::gradient_clip));
    keys.push_back(bound_key("training.eval_interval", Kind::Integer,
                             {.bounds = at_least(0),
                              .unit = "steps",
                              .help = "Steps between evaluations on the validation data. 0: never.",
                              .aliases = {"eval_every", "val_check_interval"}},
                             &JobSpec::training, &TrainingSpec::eval_interval));
    keys.push_back(
        bound_key("training.eval_batches", Kind::Integer,
                  {.bounds = at_least(0),
                   .unit = "global batches",
                   .help = "Batches of one evaluation, always the same ones. 0: the whole validation set.",
                   .aliases = {"eval_iters", "val_max_steps", "limit_val_batches"}},
                  &JobSpec::training, &TrainingSpec::eval_batches));
}

void add_optimizer(std::vector<Key>& keys) {
    keys.push_back(word_key("optimizer.name", {{"adamw"}},
                            {.resume = ResumeClass::Refuse,
                             .help = "AdamW with decoupled weight decay.",
                             .aliases = {"type", "optimizer"}},
                            &JobSpec::optimizer, &OptimizerSpec::name));
    const auto number = [&keys](const std::string& name, const Bounds& bounds, const std::string& help,
                                const std::vector<std::string>& aliases, auto member) {
        keys.push_back(
            bound_key(name, Kind::Number,
                      {.bounds = bounds, .resume = ResumeClass::Warn, .help = help, .aliases = aliases},
                      &JobSpec::optimizer, member));
    };
    number("optimizer.lr", above(0), "Peak learning rate, reached at the end of the warm-up.",
           {"learning_rate", "max_lr"}, &OptimizerSpec::lr);
    number("optimizer.beta1", half_open(0, 1), "Decay of the first moment.", {"adam_beta1"},
           &OptimizerSpec::beta1);
    number("optimizer.beta2", half_open(0, 1), "Decay of the second moment.", {"adam_beta2"},
           &OptimizerSpec::beta2);
    number("optimizer.epsilon", above(0), "Added outside the root.", {"eps", "adam_eps"},
           &OptimizerSpec::epsilon);
    number("optimizer.weight_decay", at_least(0),
           "Decoupled decay of matrices and embeddings; norms and biases are not decayed.", {"wd"},
           &OptimizerSpec::weight_decay);
    keys.push_back(choice_key<LrScaling>(
        "optimizer.scale_lr",
        {{"none", LrScaling::None}, {"linear", LrScaling::Linear}, {"sqrt", LrScaling::Sqrt}},
        {.resume = ResumeClass::Warn,
         .help = "Multiplies optimizer.lr by global_batch_size / scale_lr_reference_batch, or by its square "
                 "root."},
        &JobSpec::optimizer, &OptimizerSpec::scale_lr));
    keys.push_back(bound_key("optimizer.scale_lr_reference_batch", Kind::Integer,
                             {.bounds = between(1, 1 << 30),
                              .absent = Absent::Optional,
                              .unit = "samples",
                              .resume = ResumeClass::Warn,
                              .help = "Global batch at which optimizer.lr was tuned; required by scale_lr."},
                             &JobSpec::optimizer, &OptimizerSpec::scale_lr_reference_batch));
}

void add_schedule(std::vector<Key>& keys) {
    keys.push_back(
        choice_key<ScheduleKind>("schedule.kind",
                                 {{"constant", ScheduleKind::Constant},
                                  {"linear", ScheduleKind::Linear},
                                  {"cosine", ScheduleKind::Cosine},
                                  {"polynomial", ScheduleKind::Polynomial},
                                  {"inverse_sqrt", ScheduleKind::InverseSqrt},
                                  {"wsd", ScheduleKind::Wsd}},
                                 {.resume = ResumeClass::Warn,
                                  .help = "Shape of the learning rate after the warm-up. wsd: warm-up, "
                                          "stable, decay.",
                                  .aliases = {"lr_decay_style", "lr_scheduler_type", "decay_type"}},
                                 &JobSpec::schedule, &ScheduleSpec::kind));
    keys.push_back(bound_key(
        "schedule.warmup_steps", Kind::Integer,
        {.bounds = between(0, 1e15),
         .unit = "steps",
         .resume = ResumeClass::Warn,
         .help = "Steps of linear warm-up; the first step uses lr / warmup_steps.",
         .aliases = {"warmup", "lr_warmup_iters", "lr_warmup_steps", "warmup_iters", "num_warmup_steps"}},
        &JobSpec::schedule, &ScheduleSpec::warmup_steps));
    keys.push_back(bound_key("schedule.min_lr", Kind::Number,
                             {.bounds = at_least(0),
                              .resume = ResumeClass::Warn,
                              .help = "Learning rate at the end of the decay; floor of inverse_sqrt.",
                              .aliases = {"min_decay_lr"}},
                             &JobSpec::schedule, &ScheduleSpec::min_lr));
    keys.push_back(bound_key("schedule.decay_steps", Kind::Integer,
                             {.bounds = between(1, 1e15),
                              .absent = Absent::Optional,
                              .unit = "steps",
                              .resume = ResumeClass::Warn,
                              .help = "Step at which min_lr is reached. Off: the last step of the run.",
                              .aliases = {"lr_decay_iters", "lr_decay_steps"}},
                             &JobSpec::schedule, &ScheduleSpec::decay_steps));
    keys.push_back(
        bound_key("schedule.power", Kind::Number,
                  {.bounds = above(0), .resume = ResumeClass::Warn, .help = "Exponent of polynomial."},
                  &JobSpec::schedule, &ScheduleSpec::power));
    keys.push_back(bound_key("schedule.wsd_decay_steps", Kind::Integer,
                             {.bounds = between(1, 1e15),
                              .absent = Absent::Optional,
                              .unit = "steps",
                              .resume = ResumeClass::Warn,
                              .help = "Length of the final decay of wsd; required by it.",
                              .aliases = {"lr_wsd_decay_iters"}},
                             &JobSpec::schedule, &ScheduleSpec::wsd_decay_steps));
    keys.push_back(choice_key<WsdShape>("schedule.wsd_shape",
                                        {{"linear", WsdShape::Linear},
                                         {"exponential", WsdShape::Exponential},
                                         {"minus_sqrt", WsdShape::MinusSqrt}},
                                        {.resume = ResumeClass::Warn,
                                         .help = "Shape of the final decay of wsd.",
                                         .aliases = {"lr_wsd_decay_style"}},
                                        &JobSpec::schedule, &ScheduleSpec::wsd_shape));
}

void add_precision(std::vector<Key>& keys) {
    keys.push_back(choice_key<DType>(
        "precision.compute", {{"bf16", DType::BF16}, {"fp32", DType::F32}, {"fp16", DType::F16}},
        {.resume = ResumeClass::Refuse,
         .help = "Type of weights and activations in matrix products. Master weights and moments are always "
                 "fp32.",
         .aliases = {"dtype", "bf16", "fp16"}},
        &JobSpec::precision, &PrecisionSpec::compute));
    keys.push_back(choice_key<DType>("precision.gradient",
                                     {{"fp32", DType::F32}, {"bf16", DType::BF16, Availability::NotBuilt}},
                                     {.resume = ResumeClass::Refuse,
                                      .help = "Type in which gradients are accumulated.",
                                      .aliases = {"grad_accum_dtype", "accumulate_grad_in_fp32"}},
                                     &JobSpec::precision, &PrecisionSpec::gradient));
    keys.push_back(bound_key(
        "precision.tf32", Kind::Boolean,
        {.resume = ResumeClass::Refuse,
         .help = "Rounds the operands of fp32 products on a GPU to TF32 (10 bits of mantissa): about 8 times "
                 "faster. Needs precision.compute = \"fp32\" and a GPU.",
         .aliases = {"allow_tf32"}},
        &JobSpec::precision, &PrecisionSpec::tf32));
    const auto loss_scale = [&keys](const std::string& name, Kind kind, const Bounds& bounds,
                                    const std::string& unit, const std::string& help,
                                    const std::vector<std::string>& aliases, auto member) {
        keys.push_back(bound_key(
            name, kind,
            {.bounds = bounds, .unit = unit, .resume = ResumeClass::Warn, .help = help, .aliases = aliases},
            &JobSpec::precision, &PrecisionSpec::loss_scale, member));
    };
    loss_scale("precision.loss_scale.initial", Kind::Number, at_least(1), "", "First loss scale of fp16.",
               {"initial_loss_scale", "init_scale"}, &LossScaleSpec::initial);
    loss_scale("precision.loss_scale.growth_interval", Kind::Integer, between(1, 1e9), "steps",
               "Finite steps before the scale doubles.", {"loss_scale_window"},
               &LossScaleSpec::growth_interval);
    loss_scale("precision.loss_scale.hysteresis", Kind::Integer, between(1, 1e6), "steps",
               "Overflows since the scale last grew before it halves.", {}, &LossScaleSpec::hysteresis);
    loss_scale("precision.loss_scale.minimum", Kind::Number, above(0), "",
               "Smallest loss scale. Overflows above it are not counted by fault_tolerance.nonfinite_max_*.",
               {"min_loss_scale"}, &LossScaleSpec::minimum);
}

}  // namespace

void add_training_keys(std::vector<Key>& keys) {
    add_training(keys);
    add_optimizer(keys);
    add_schedule(keys);
    add_precision(keys);
}

}  // namespace trainctl::config_tables
