// Which part of the parameters a tensor-parallel rank holds.
#include "trainctl/model/tensor_partition.h"

#include <algorithm>
#include <map>
#include <vector>

#include "model/tiny_model.h"
#include "support/catch.h"
#include "trainctl/model/unit_layout.h"

namespace trainctl {
namespace {

ModelSpec llama(std::int64_t heads, std::int64_t kv_heads, std::int64_t vocabulary) {
    ModelSpec model = tiny_llama(2, kv_heads, false);
    model.heads = heads;
    model.kv_heads = kv_heads;
    model.head_dim = 4;
    model.hidden_size = 24;
    model.ffn_size = 48;
    model.vocab_size = vocabulary;
    return model;
}

struct Split {
    ModelSpec model;
    int size;
};

std::vector<Split> splits() {
    ModelSpec gpt2 = tiny_gpt2(2, true);
    gpt2.heads = 4;
    gpt2.kv_heads = 4;
    gpt2.ffn_size = 96;
    return {{gpt2, 1},
            {gpt2, 2},
            {gpt2, 4},
            {llama(6, 6, 300), 3},
            {llama(8, 2, 97), 2},
            {llama(8, 2, 97), 8},  // four ranks to a key/value head; the last ranks' vocabulary is padding
            {llama(4, 1, 97), 4}};
}

// Index in the flattened whole tensor of element `e` of the flattened box.
std::int64_t whole_index(const Box& box, const Shape& global, std::int64_t e) {
    if (global.rank() == 1) return box.offset[0] + e;
    return (box.offset[0] + e / box.extent[1]) * global[1] + box.offset[1] + e % box.extent[1];
}

}  // namespace

TEST_CASE("every element is counted and saved by one rank, and held by as many as it says") {
    for (const Split& split : splits()) {
        const std::vector<ParamSpec> whole = model_parameters(split.model);
        std::vector<std::vector<int>> held;
        std::vector<std::vector<int>> counted;
        for (const ParamSpec& param : whole) {
            held.emplace_back(static_cast<std::size_t>(param.global.elements()), 0);
            counted.push_back(held.back());
        }
        for (int rank = 0; rank < split.size; ++rank) {
            const auto params = tensor_parameters(split.model, {split.size, rank});
            REQUIRE(params.size() == whole.size());
            for (std::size_t p = 0; p < params.size(); ++p) {
                INFO(params[p].name << " on rank " << rank << " of " << split.size);
                CHECK(params[p].name == whole[p].name);
                CHECK(params[p].global == whole[p].global);
                const Box box = local_box(params[p]);
                for (std::int64_t e = 0; e < box.extent.elements(); ++e) {
                    const auto at = static_cast<std::size_t>(whole_index(box, params[p].global, e));
                    ++held[p][at];
                    counted[p][at] += params[p].primary ? 1 : 0;
                }
            }
        }
        const auto first = tensor_parameters(split.model, {split.size, 0});
        for (std::size_t p = 0; p < whole.size(); ++p) {
            INFO(whole[p].name << " on " << split.size);
            CHECK(std::count(counted[p].begin(), counted[p].end(), 1) ==
                  static_cast<std::ptrdiff_t>(counted[p].size()));
            CHECK(std::count(held[p].begin(), held[p].end(), first[p].tensor_replicas) ==
                  static_cast<std::ptrdiff_t>(held[p].size()));
        }
    }
}

TEST_CASE("all ranks have the same layout of units") {
    for (const Split& split : splits()) {
        const auto first = unit_layouts(tensor_parameters(split.model, {split.size, 0}), 2);
        for (int rank = 1; rank < split.size; ++rank) {
            const auto layouts = unit_layouts(tensor_parameters(split.model, {split.size, rank}), 2);
            REQUIRE(layouts.size() == first.size());
            for (std::size_t unit = 0; unit < first.size(); ++unit) {
                CHECK(layouts[unit].padded == first[unit].padded);
                for (std::size_t i = 0; i < first[unit].places.size(); ++i)
                    CHECK(layouts[unit].places[i].offset == first[unit].places[i].offset);
            }
        }
    }
}

TEST_CASE("a rank draws its part of the same initial values, and zero in padded rows") {
    for (const Split& split : splits()) {
        const std::vector<ParamSpec> whole = model_parameters(split.model);
        for (int rank = 0; rank < split.size; ++rank) {
            const auto params = tensor_parameters(split.model, {split.size, rank});
            for (std::size_t p = 0; p < params.size(); ++p) {
                INFO(params[p].name << " on rank " << rank << " of " << split.size);
                std::vector<float> all(static_cast<std::size_t>(whole[p].global.elements()));
                initial_values(whole[p], 3, 0, all);
                const std::int64_t elements = params[p].padded.elements();
                const Box box = local_box(params[p]);
                std::vector<float> wanted(static_cast<std::size_t>(elements), 0.0F);
                for (std::int64_t e = 0; e < box.extent.elements(); ++e)
                    wanted[static_cast<std::size_t>(e)] =
                        all[static_cast<std::size_t>(whole_index(box, params[p].global, e))];
                // In two pieces, as ZeRO ranks draw them.
                std::vector<float> drawn(wanted.size(), -1.0F);
                const std::size_t cut = wanted.size() / 3;
                initial_values(params[p], 3, 0, std::span(drawn).first(cut));
                initial_values(params[p], 3, static_cast<std::int64_t>(cut), std::span(drawn).subspan(cut));
                CHECK(drawn == wanted);
            }
        }
    }
}

TEST_CASE("query heads stay with their key/value head") {
    for (const Split& split : splits()) {
        const ModelSpec& model = split.model;
        const std::int64_t group = model.heads / model.kv_heads;
        for (int rank = 0; rank < split.size; ++rank) {
            const HeadPart part = head_part(model, {split.size, rank});
            std::int64_t first_kv = -1;
            for (const ParamSpec& param : tensor_parameters(model, {split.size, rank})) {
                if (param.name == "blocks.0.attention.k.weight") {
                    first_kv = param.tensor_begin / model.head_dim;
                    CHECK(param.padded[0] == part.kv_heads * model.head_dim);
                }
                if (param.name == "blocks.0.attention.q.weight")
                    CHECK(param.tensor_begin == part.first_head * model.head_dim);
            }
            for (std::int64_t head = 0; head < part.heads; ++head)
                CHECK((part.first_head + head) / group == first_kv + head / (part.heads / part.kv_heads));
        }
    }
}

TEST_CASE("partial gradients are those of replicas whose ranks see different rows or heads") {
    const auto partial = [](const ModelSpec& model, ResidualRows rows) {
        std::vector<std::string> names;
        for (const ParamSpec& param : tensor_parameters(model, {4, 1, rows}))
            if (param.grad_partial_over_tensor && param.unit < 2) names.push_back(param.name);
        return names;
    };
    const std::vector<std::string> norms{"blocks.0.mlp_norm.weight", "blocks.0.attention_norm.weight"};
    CHECK(partial(llama(8, 4, 97), ResidualRows::Sharded) == norms);
    CHECK(partial(llama(8, 4, 97), ResidualRows::All).empty());
    CHECK(partial(llama(8, 2, 97), ResidualRows::All) ==
          std::vector<std::string>{"blocks.0.attention.k.weight", "blocks.0.attention.v.weight"});
}

TEST_CASE("sizes that do not divide the model are refused with the numbers") {
    const auto refusal = [](const ModelSpec& model, int size) -> std::string {
        try {
            check_tensor_size(model, size);
        } catch (const Error& error) {
            CHECK(error.code() == Exit::Usage);
            return error.what();
        }
        return {};
    };
    CHECK_THAT(refusal(llama(6, 6, 300), 4),
               Catch::Contains("model.heads 6 is not a multiple of parallel.tensor_parallel_size 4"));
    CHECK_THAT(refusal(llama(6, 2, 300), 3), Catch::Contains("model.kv_heads 2 is neither"));
    CHECK_THAT(refusal(llama(6, 6, 97), 3), Catch::Contains("padded to 128, is not"));
    ModelSpec narrow = llama(4, 4, 97);
    narrow.ffn_size = 50;
    CHECK_THAT(refusal(narrow, 4), Catch::Contains("model.ffn_size"));
    CHECK(refusal(llama(6, 2, 97), 2).empty());
}

}  // namespace trainctl
