// Results do not depend on the number of threads: to the bit.
#include <algorithm>
#include <map>
#include <sstream>

#include "ops/harness.h"
#include "support/catch.h"
#include "trainctl/base/hash.h"

namespace trainctl {
namespace {

std::string check_threads(const std::vector<int>& counts, CpuIsa isa) {
    std::ostringstream problems;
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
        std::map<std::string, std::vector<std::byte>> first;
        for (const int threads : counts) {
            CpuBench bench(threads, isa);
            for (const OpCase& op_case : op_cases()) {
                const CaseTensors tensors = run_case(op_case, bench, bench.cpu(), dtype, dtype);
                std::vector<std::byte> bytes = all_bytes(tensors);
                const auto [found, inserted] = first.emplace(op_case.name, bytes);
                if (!inserted && found->second != bytes) {
                    problems << op_case.name << " in " << dtype_name(dtype) << " with " << threads
                             << " threads differs from " << counts.front() << "\n";
                }
            }
        }
    }
    return problems.str();
}

struct Layer {
    std::int64_t outputs;
    std::int64_t inputs;
};

// Dense layers of a GPT-2 (width C, heads x head_dim = C) and of a Llama.
std::vector<Layer> gpt2_layers(std::int64_t c) {
    return {{3 * c, c}, {c, c}, {4 * c, c}, {c, 4 * c}, {50304, c}};
}
std::vector<Layer> llama_layers(std::int64_t c, std::int64_t kv, std::int64_t ffn) {
    return {{c + 2 * kv, c}, {c, c}, {2 * ffn, c}, {c, ffn}, {32000, c}};
}

// All three products of a layer, as one digest. The weight gradient has rows of its own: they are its inner
// dimension, while those of the others are not.
std::string layer_digest(CpuBench& bench, const Layer& layer, std::int64_t rows, std::int64_t weight_rows,
                         DType dtype) {
    const std::int64_t most = std::max(rows, weight_rows);
    const TensorView x = bench.tensor(Shape{most, layer.inputs}, dtype);
    const TensorView w = bench.tensor(Shape{layer.outputs, layer.inputs}, dtype);
    const TensorView dy = bench.tensor(Shape{most, layer.outputs}, dtype);
    const TensorView y = bench.tensor(Shape{rows, layer.outputs}, dtype);
    const TensorView dx = bench.tensor(Shape{rows, layer.inputs}, dtype);
    const TensorView dw = bench.tensor(w.shape, DType::F32);
    std::uint32_t state = 12345;
    for (const TensorView& view : {x, w, dy}) {
        for (std::int64_t i = 0; i < view.elements(); ++i) {
            state = state * 1664525U + 1013904223U;
            const float value = static_cast<float>(state >> 8U) * 0x1.0p-23F - 1.0F;
            set_element(view, i, static_cast<double>(value));
        }
    }
    const Ops ops = bench.cpu();
    const auto scratch = [&](MatmulKind kind, std::int64_t m) {
        return bench.scratch(ops.matmul.scratch_bytes(kind, m, layer.outputs, layer.inputs, dtype));
    };
    ops.matmul.forward(bench.stream(), y, x.rows(0, rows), w, {}, scratch(MatmulKind::Forward, rows));
    ops.matmul.backward_input(bench.stream(), dx, dy.rows(0, rows), w, Into::Overwrite,
                              scratch(MatmulKind::BackwardInput, rows));
    ops.matmul.backward_weight(bench.stream(), dw, dy.rows(0, weight_rows), x.rows(0, weight_rows),
                               Into::Overwrite, scratch(MatmulKind::BackwardWeight, weight_rows));
    bench.stream().synchronize();
    std::ostringstream digest;
    for (const TensorView& view : {y, dx, dw}) digest << hash64({view.data, view.bytes()}) << " ";
    return digest.str();
}

struct Rows {
    std::int64_t rows;
    std::int64_t weight_rows;
};

std::string check_layers(const std::vector<Layer>& layers, const std::vector<Rows>& rows,
                         const std::vector<int>& counts, const std::vector<DType>& dtypes) {
    std::ostringstream problems;
    for (const DType dtype : dtypes) {
        for (const Layer& layer : layers) {
            for (const Rows& m : rows) {
                std::string first;
                for (const int threads : counts) {
                    CpuBench bench(threads, detect_cpu_isa());
                    const std::string digest = layer_digest(bench, layer, m.rows, m.weight_rows, dtype);
                    if (first.empty()) first = digest;
                    if (digest != first) {
                        problems << "layer " << layer.outputs << "x" << layer.inputs << " with " << m.rows
                                 << "/" << m.weight_rows << " rows in " << dtype_name(dtype) << ": "
                                 << threads << " threads differ from " << counts.front() << "\n";
                    }
                }
            }
        }
    }
    return problems.str();
}

}  // namespace

TEST_CASE("every op gives the same bits on 1, 2 and 16 threads", "[ops]") {
    CHECK(check_threads({1, 2, 16}, detect_cpu_isa()) == "");
}

TEST_CASE("every op gives the same bits on any number of threads and level", "[ops][campaign]") {
    for (const CpuIsa isa : isa_levels()) CHECK(check_threads({1, 2, 3, 4, 8, 16}, isa) == "");
}

TEST_CASE("small dense layers give the same bits on 1, 2 and 16 threads", "[ops]") {
    const std::vector<Layer> layers = {{384, 128}, {128, 512}, {768, 256}, {256, 704}};
    CHECK(check_layers(layers, {{40, 1500}}, {1, 2, 16}, {DType::F32, DType::BF16, DType::F16}) == "");
}

TEST_CASE("the blocks of GPT-2 124M give the same bits on 1, 2 and 16 threads", "[ops]") {
    std::vector<Layer> layers = gpt2_layers(768);
    layers.pop_back();  // the head is in the campaign
    CHECK(check_layers(layers, {{512, 1024}}, {1, 2, 16}, {DType::BF16}) == "");
}

TEST_CASE("the layers of every preset give the same bits on any number of threads", "[ops][campaign]") {
    const std::vector<int> counts = {1, 2, 3, 4, 8, 16};
    for (const std::int64_t c : {768, 1024}) {
        CHECK(check_layers(gpt2_layers(c), {{1024, 2048}}, counts, {DType::BF16}) == "");
        CHECK(check_layers(gpt2_layers(c), {{192, 1024}}, {1, 2, 16}, {DType::F32}) == "");
    }
    const std::vector<Rows> rows = {{192, 2048}};
    for (const std::int64_t c : {1280, 1600})
        CHECK(check_layers(gpt2_layers(c), rows, counts, {DType::BF16}) == "");
    CHECK(check_layers(llama_layers(2048, 256, 5632), rows, counts, {DType::BF16}) == "");
    CHECK(check_layers(llama_layers(3200, 3200, 8640), rows, counts, {DType::BF16}) == "");
    CHECK(check_layers(llama_layers(4096, 4096, 11008), rows, counts, {DType::BF16}) == "");
    CHECK(check_layers(llama_layers(5120, 5120, 13824), {{64, 1024}}, counts, {DType::BF16}) == "");
    CHECK(check_layers(llama_layers(8192, 1024, 28672), {{64, 1024}}, counts, {DType::BF16}) == "");
}

}  // namespace trainctl
