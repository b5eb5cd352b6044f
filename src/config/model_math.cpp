#include "trainctl/config/model_math.h"

namespace trainctl {

namespace {

std::int64_t block_parameters(const ModelSpec& model) {
    const std::int64_t hidden = model.hidden_size;
    const std::int64_t queries = model.heads * model.head_dim;
    const std::int64_t keys = model.kv_heads * model.head_dim;
    const std::int64_t attention = hidden * queries + 2 * hidden * keys + queries * hidden;
    switch (model.architecture) {
        case Architecture::Llama:  // gate, up, down; two RMSNorm gains
            return attention + 3 * hidden * model.ffn_size + 2 * hidden;
        case Architecture::Gpt2: {  // biases everywhere; two LayerNorms with gain and bias
            const std::int64_t attention_biases = queries + 2 * keys + hidden;
            const std::int64_t mlp = 2 * hidden * model.ffn_size + model.ffn_size + hidden;
            return attention + attention_biases + mlp + 4 * hidden;
        }
    }
    return 0;
}

double attention_unit(const ModelSpec& model, std::int64_t sequence_length) {
    return static_cast<double>(model.layers) * static_cast<double>(model.heads * model.head_dim) *
           static_cast<double>(sequence_length);
}

}  // namespace

std::int64_t position_parameters(const ModelSpec& model) {
    return model.architecture == Architecture::Gpt2 ? model.max_sequence_length * model.hidden_size : 0;
}

std::int64_t parameter_count(const ModelSpec& model) {
    const std::int64_t embedding = model.vocab_size * model.hidden_size;
    const std::int64_t head = model.tie_embeddings ? 0 : embedding;
    const std::int64_t final_norm = model.hidden_size * (model.architecture == Architecture::Gpt2 ? 2 : 1);
    return embedding + position_parameters(model) + model.layers * block_parameters(model) + final_norm +
           head;
}

std::int64_t active_parameters(const ModelSpec& model) {
    const std::int64_t lookup = model.tie_embeddings ? 0 : model.vocab_size * model.hidden_size;
    return parameter_count(model) - position_parameters(model) - lookup;
}

double flops_per_token(const ModelSpec& model, std::int64_t sequence_length) {
    return 6.0 * static_cast<double>(active_parameters(model)) + 6.0 * attention_unit(model, sequence_length);
}

double palm_flops_per_token(const ModelSpec& model, std::int64_t sequence_length) {
    return 6.0 * static_cast<double>(active_parameters(model)) +
           12.0 * attention_unit(model, sequence_length);
}

}  // namespace trainctl
