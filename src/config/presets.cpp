#include "trainctl/config/presets.h"

namespace trainctl {

namespace {

// One token per byte plus the end-of-document token: what `data prepare --tokenizer byte` writes.
constexpr std::int64_t byte_vocabulary = 257;

struct LlamaShape {
    std::int64_t layers = 0;
    std::int64_t hidden = 0;
    std::int64_t ffn = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t vocabulary = 0;
    std::int64_t context = 0;
    double norm_epsilon = 1e-5;
    double rope_theta = 10000.0;
    bool tied = false;
};

ModelSpec llama(std::string name, const LlamaShape& shape) {
    ModelSpec model;
    model.preset = std::move(name);
    model.architecture = Architecture::Llama;
    model.layers = shape.layers;
    model.hidden_size = shape.hidden;
    model.heads = shape.heads;
    model.kv_heads = shape.kv_heads;
    model.head_dim = shape.hidden / shape.heads;
    model.ffn_size = shape.ffn;
    model.vocab_size = shape.vocabulary;
    model.max_sequence_length = shape.context;
    model.tie_embeddings = shape.tied;
    model.norm_epsilon = shape.norm_epsilon;
    model.rope_theta = shape.rope_theta;
    return model;
}

ModelSpec gpt2(std::string name, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
               std::int64_t vocabulary = 50257, std::int64_t context = 1024) {
    ModelSpec model;
    model.preset = std::move(name);
    model.architecture = Architecture::Gpt2;
    model.layers = layers;
    model.hidden_size = hidden;
    model.heads = heads;
    model.kv_heads = heads;
    model.head_dim = hidden / heads;
    model.ffn_size = 4 * hidden;
    model.vocab_size = vocabulary;
    model.max_sequence_length = context;
    model.tie_embeddings = true;
    return model;
}

}  // namespace

// Shapes: GPT-2 (Radford et al. 2019), Llama 2 (arXiv:2307.09288), Llama 3 (arXiv:2407.21783), TinyLlama
// (arXiv:2401.02385), OpenLLaMA. Recipes: the GPT-3 table (arXiv:2005.14165) and the papers above.
std::vector<Preset> presets() {
    constexpr double theta3 = 500000.0;
    return {
        {llama("tiny", {4, 64, 192, 4, 2, byte_vocabulary, 256}),
         "smoke tests and unit tests, byte tokens",
         {16, 8, 3e-3, 3e-4, 20, 200}},
        {gpt2("tiny-gpt2", 4, 64, 4, byte_vocabulary, 256),
         "smoke tests and unit tests, byte tokens",
         {16, 8, 3e-3, 3e-4, 20, 200}},
        {llama("llama-4m", {5, 256, 768, 4, 2, byte_vocabulary, 512}),
         "a few minutes on a few CPU cores, byte tokens",
         {32, 8, 1e-3, 1e-4, 100, 2000}},
        {llama("llama-15m", {8, 384, 1088, 6, 6, byte_vocabulary, 512}),
         "readable English after an hour on a CPU server, byte tokens",
         {64, 8, 8e-4, 8e-5, 200, 5000}},
        {llama("llama-110m", {12, 768, 2048, 12, 12, 32000, 1024, 1e-5, 10000.0, true}),
         "GPT-2 small in the Llama shape, tied",
         {512, 16, 6e-4, 6e-5, 700, 19000}},
        {llama("llama-1b", {22, 2048, 5632, 32, 4, 32000, 2048}),
         "TinyLlama",
         {1024, 8, 4e-4, 4e-5, 2000, 480000}},
        {llama("llama-3b", {26, 3200, 8640, 32, 32, 32000, 2048, 1e-6}),
         "OpenLLaMA 3B",
         {2048, 4, 3e-4, 3e-5, 2000, 240000}},
        {llama("llama-7b", {32, 4096, 11008, 32, 32, 32000, 4096}),
         "Llama 2 7B",
         {1024, 2, 3e-4, 3e-5, 2000, 500000}},
        {llama("llama-13b", {40, 5120, 13824, 40, 40, 32000, 4096}),
         "Llama 2 13B",
         {1024, 1, 3e-4, 3e-5, 2000, 500000}},
        {llama("llama-70b", {80, 8192, 28672, 64, 8, 32000, 4096}),
         "Llama 2 70B",
         {1024, 1, 1.5e-4, 1.5e-5, 2000, 500000}},
        {llama("llama3-8b", {32, 4096, 14336, 32, 8, 128256, 8192, 1e-5, theta3}),
         "Llama 3 8B",
         {512, 1, 3e-4, 3e-6, 8000, 1200000}},
        {llama("llama3-70b", {80, 8192, 28672, 64, 8, 128256, 8192, 1e-5, theta3}),
         "Llama 3 70B",
         {512, 1, 1.5e-4, 1.5e-6, 8000, 1200000}},
        {llama("llama3.2-1b", {16, 2048, 8192, 32, 8, 128256, 8192, 1e-5, theta3, true}),
         "Llama 3.2 1B, tied",
         {256, 2, 3e-4, 3e-5, 2000, 480000}},
        {llama("llama3.2-3b", {28, 3072, 8192, 24, 8, 128256, 8192, 1e-5, theta3, true}),
         "Llama 3.2 3B, tied",
         {256, 1, 3e-4, 3e-5, 2000, 480000}},
        {gpt2("gpt2-124m", 12, 768, 12), "GPT-2 small", {512, 16, 6e-4, 0.0, 700, 18865}},
        {gpt2("gpt2-350m", 24, 1024, 16), "GPT-2 medium", {512, 8, 3e-4, 3e-5, 700, 57000}},
        {gpt2("gpt2-774m", 36, 1280, 20), "GPT-2 large", {512, 4, 2.5e-4, 2.5e-5, 700, 57000}},
        {gpt2("gpt2-1558m", 48, 1600, 25), "GPT-2 XL", {1024, 2, 2e-4, 2e-5, 700, 32000}},
    };
}

std::optional<Preset> find_preset(std::string_view name) {
    for (Preset& preset : presets())
        if (preset.model.preset == name) return std::move(preset);
    return std::nullopt;
}

std::vector<std::string> preset_names() {
    std::vector<std::string> names;
    for (const Preset& preset : presets()) names.push_back(preset.model.preset);
    return names;
}

}  // namespace trainctl
