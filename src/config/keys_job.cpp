// [job] [model] [data]
#include "config/key_tables.h"
#include "trainctl/config/presets.h"

namespace trainctl::config_tables {

namespace {

void add_job(std::vector<Key>& keys) {
    keys.push_back(bound_key("job.name", Kind::Text, {.help = "Name of the run, shown in logs and metrics."},
                             &JobSpec::name));
    keys.push_back(bound_key(
        "job.run_dir", Kind::Text,
        {.absent = Absent::Required,
         .help =
             "Directory of this run: resolved job, journal, metrics, checkpoints. One run per directory. All "
             "nodes must see it for checkpoints to be loadable from each of them.",
         .aliases = {"output_dir", "out_dir", "save", "dump_folder", "save_folder"}},
        &JobSpec::run_dir));
    keys.push_back(
        bound_key("job.seed", Kind::Integer,
                  {.bounds = at_least(0),
                   .resume = ResumeClass::Refuse,
                   .help = "Seed of initial weights, data order and dropout. The same seed gives the "
                           "same run for every layout."},
                  &JobSpec::seed));
    keys.push_back(bound_key(
        "job.steps", Kind::Integer,
        {.bounds = between(1, 1e15),
         .absent = Absent::Derived,
         .unit = "optimizer steps",
         .resume = ResumeClass::Warn,
         .help = "Length of the run. Give steps or tokens, not both.",
         .derived = "job.tokens / (training.global_batch_size x training.sequence_length), rounded up",
         .aliases = {"train_iters", "max_iters", "train_steps", "max_steps", "num_iterations"}},
        &JobSpec::steps));
    keys.push_back(bound_key("job.tokens", Kind::Integer,
                             {.bounds = between(1, 4e18),
                              .absent = Absent::Optional,
                              .unit = "tokens",
                              .resume = ResumeClass::Warn,
                              .help = "Length of the run in training tokens, instead of job.steps.",
                              .aliases = {"train_tokens", "max_tokens"}},
                             &JobSpec::tokens));
}

void add_model(std::vector<Key>& keys) {
    std::vector<Choice> names;
    for (std::string& name : preset_names()) names.push_back({std::move(name)});
    // The name itself may change on resume: what counts are the dimensions below.
    keys.push_back(
        word_key("model.preset", std::move(names),
                 {.absent = Absent::Optional,
                  .help = "A published shape; every other key of [model] may still be given and wins."},
                 &JobSpec::model, &ModelSpec::preset));
    keys.push_back(choice_key<Architecture>(
        "model.architecture", {{"gpt2", Architecture::Gpt2}, {"llama", Architecture::Llama}},
        {.resume = ResumeClass::Refuse,
         .help =
             "gpt2: learned positions, LayerNorm, GELU, biases. llama: rotary positions, RMSNorm, SwiGLU, no "
             "biases.",
         .aliases = {"model_type", "family"}},
        &JobSpec::model, &ModelSpec::architecture));
    const auto dimension = [&keys](const std::string& name, double high, Absent absent,
                                   const std::string& help, const std::string& derived,
                                   const std::vector<std::string>& aliases, auto member) {
        keys.push_back(bound_key(name, Kind::Integer,
                                 {.bounds = between(1, high),
                                  .absent = absent,
                                  .resume = ResumeClass::Refuse,
                                  .help = help,
                                  .derived = derived,
                                  .aliases = aliases},
                                 &JobSpec::model, member));
    };
    const std::string preset = "model.preset";
    dimension("model.layers", 10000, Absent::Derived, "Transformer blocks.", preset,
              {"num_layers", "n_layer", "num_hidden_layers"}, &ModelSpec::layers);
    dimension("model.hidden_size", 1 << 20, Absent::Derived, "Width of the residual stream.", preset,
              {"n_embd", "d_model", "dim", "embedding_dim"}, &ModelSpec::hidden_size);
    dimension("model.heads", 8192, Absent::Derived, "Query heads.", preset,
              {"num_attention_heads", "n_head", "n_heads", "num_heads"}, &ModelSpec::heads);
    dimension("model.kv_heads", 8192, Absent::Derived,
              "Key and value heads; fewer than model.heads is grouped-query attention.",
              "model.preset, else model.heads", {"num_key_value_heads", "n_kv_heads", "num_query_groups"},
              &ModelSpec::kv_heads);
    dimension("model.head_dim", 8192, Absent::Derived, "Width of one head.",
              "model.preset, else model.hidden_size / model.heads", {"kv_channels"}, &ModelSpec::head_dim);
    dimension("model.ffn_size", 1 << 22, Absent::Derived, "Inner width of the MLP.",
              "model.preset, else 4 x hidden_size (gpt2) or 8/3 x hidden_size rounded up to 256 (llama)",
              {"ffn_hidden_size", "intermediate_size", "n_inner"}, &ModelSpec::ffn_size);
    dimension("model.vocab_size", 1 << 26, Absent::Derived,
              "Token ids are below this. Matrices are padded to a multiple of 128; padding is never trained.",
              preset, {"vocabulary_size", "padded_vocab_size"}, &ModelSpec::vocab_size);
    dimension("model.max_sequence_length", 1 << 24, Absent::Derived,
              "Rows of the position table (gpt2); longest sequence (llama).",
              "model.preset, else training.sequence_length",
              {"max_position_embeddings", "n_positions", "n_ctx"}, &ModelSpec::max_sequence_length);
    keys.push_back(bound_key("model.tie_embeddings", Kind::Boolean,
                             {.absent = Absent::Derived,
                              .resume = ResumeClass::Refuse,
                              .help = "The head uses the embedding matrix.",
                              .derived = "model.preset, else true for gpt2 and false for llama",
                              .aliases = {"tie_word_embeddings", "untie_embeddings_and_output_weights"}},
                             &JobSpec::model, &ModelSpec::tie_embeddings));
    keys.push_back(
        bound_key("model.norm_epsilon", Kind::Number,
                  {.bounds = open(0, 1),
                   .resume = ResumeClass::Refuse,
                   .help = "Added to the variance inside LayerNorm and RMSNorm.",
                   .aliases = {"norm_eps", "rms_norm_eps", "layernorm_epsilon", "layer_norm_epsilon"}},
                  &JobSpec::model, &ModelSpec::norm_epsilon));
    keys.push_back(bound_key("model.rope_theta", Kind::Number,
                             {.bounds = above(1),
                              .resume = ResumeClass::Refuse,
                              .help = "Base of the rotary wavelengths (llama).",
                              .aliases = {"rotary_base", "rotary_emb_base"}},
                             &JobSpec::model, &ModelSpec::rope_theta));
    keys.push_back(
        bound_key("model.dropout", Kind::Number,
                  {.bounds = between(0, 0.999),
                   .resume = ResumeClass::Refuse,
                   .help = "Probability at embedding, attention probabilities, attention output and MLP "
                           "output.",
                   .aliases = {"hidden_dropout", "attention_dropout"}},
                  &JobSpec::model, &ModelSpec::dropout));
    keys.push_back(
        bound_key("model.init_from", Kind::Text,
                  {.absent = Absent::Optional,
                   .help = "Weights to start from instead of a random draw: another run's directory, "
                           "directory of checkpoints (the newest complete one) or one checkpoint. "
                           "Moments are zero, nothing is counted yet. A resumed run ignores it.",
                   .aliases = {"initial_load_path", "finetune"}},
                  &JobSpec::model, &ModelSpec::init_from));
}

void add_data(std::vector<Key>& keys) {
    keys.push_back(
        bound_key("data.train", Kind::Sources,
                  {.absent = Absent::Required,
                   .resume = ResumeClass::Refuse,
                   .help = "Token files: prefix of a .bin/.idx pair, or a .bin file. Weights are relative "
                           "to each other. Directories may change on resume, contents may not.",
                   .aliases = {"data_path", "train_data_path", "dataset_path", "train_files"}},
                  &JobSpec::data, &DataSpec::train));
    keys.push_back(bound_key("data.validation", Kind::Sources,
                             {.absent = Absent::Optional,
                              .resume = ResumeClass::Warn,
                              .help = "Token files for validation.",
                              .aliases = {"valid_data_path", "val", "valid", "validation_files"}},
                             &JobSpec::data, &DataSpec::validation));
    keys.push_back(
        bound_key("data.validation_split", Kind::Number,
                  {.bounds = half_open(0, 1),
                   .resume = ResumeClass::Refuse,
                   .help = "Fraction of the windows of data.train, from the end, kept for validation "
                           "when data.validation is not given.",
                   .aliases = {"split"}},
                  &JobSpec::data, &DataSpec::validation_split));
    keys.push_back(choice_key<TokenFormat>(
        "data.format",
        {{"auto", TokenFormat::Auto},
         {"megatron", TokenFormat::Megatron},
         {"nanogpt", TokenFormat::NanoGpt},
         {"llmc", TokenFormat::LlmC}},
        {.resume = ResumeClass::Refuse, .help = "Layout of the token files; auto looks at them."},
        &JobSpec::data, &DataSpec::format));
    keys.push_back(
        choice_key<DType>("data.dtype", {{"uint16", DType::U16}, {"uint32", DType::U32}},
                          {.absent = Absent::Optional,
                           .resume = ResumeClass::Refuse,
                           .help = "Width of one token in headerless (nanogpt) files, which cannot say it "
                                   "themselves. Where there are none it must agree with the headers."},
                          &JobSpec::data, &DataSpec::dtype));
    keys.push_back(bound_key("data.prefetch_batches", Kind::Integer,
                             {.bounds = between(1, 1024),
                              .unit = "batches",
                              .help = "Batches read ahead by the loader thread.",
                              .aliases = {"prefetch_factor", "num_workers"}},
                             &JobSpec::data, &DataSpec::prefetch_batches));
}

}  // namespace

void add_job_keys(std::vector<Key>& keys) {
    add_job(keys);
    add_model(keys);
    add_data(keys);
}

}  // namespace trainctl::config_tables
