// Sim ops: what is counted, and that wrong calls are refused before any backend sees them.
#include "ops/harness.h"
#include "support/catch.h"

namespace trainctl {
namespace {

struct SimBench {
    SimBench()
        : bench(2, detect_cpu_isa()), device(make_sim_device({})), ops(make_sim_ops(*device, bench.cpu())) {
        stream = device->make_stream("compute", StreamRole::Compute);
    }
    TensorView tensor(const Shape& shape, DType dtype) {
        TensorView view{nullptr, shape, dtype};
        buffers.push_back(device->allocate(view.bytes(), Memory::Device, "test"));
        view.data = buffers.back().data();
        return view;
    }
    TensorView scratch(std::size_t bytes) {
        return bytes == 0 ? TensorView{} : tensor(Shape{static_cast<std::int64_t>(bytes)}, DType::U8);
    }

    CpuBench bench;
    std::unique_ptr<SimDevice> device;
    std::unique_ptr<OpsBackend> ops;
    std::unique_ptr<Stream> stream;
    std::vector<Buffer> buffers;
};

template <class Call>
Exit exit_of(Call call) {
    try {
        call();
    } catch (const Error& error) {
        return error.code();
    }
    return Exit::Ok;
}

}  // namespace

TEST_CASE("sim ops count 2 M N K per product and its operands' bytes", "[ops]") {
    SimBench sim;
    Ops ops = sim.ops->ops();
    const TensorView x = sim.tensor(Shape{19, 24}, DType::BF16);
    const TensorView w = sim.tensor(Shape{33, 24}, DType::BF16);
    const TensorView y = sim.tensor(Shape{19, 33}, DType::BF16);
    const TensorView dw = sim.tensor(Shape{33, 24}, DType::F32);
    ops.matmul.forward(*sim.stream, y, x, w, {},
                       sim.scratch(ops.matmul.scratch_bytes(MatmulKind::Forward, 19, 33, 24, DType::BF16)));
    CHECK(sim.device->counters().flops == 2.0 * 19 * 33 * 24);
    CHECK(sim.device->counters().bytes_moved == 2.0 * (19 * 24 + 33 * 24 + 19 * 33));
    ops.matmul.backward_weight(
        *sim.stream, dw, y, x, Into::Accumulate,
        sim.scratch(ops.matmul.scratch_bytes(MatmulKind::BackwardWeight, 19, 33, 24, DType::BF16)));
    CHECK(sim.device->counters().flops == 2 * 2.0 * 19 * 33 * 24);
    CHECK(sim.device->counters().ops == 2);
}

TEST_CASE("sim ops count the causal half of attention", "[ops]") {
    SimBench sim;
    Ops ops = sim.ops->ops();
    AttentionSettings s;
    s.batch = 3;
    s.length = 19;
    s.heads = 6;
    s.kv_heads = 2;
    s.head_dim = 8;
    s.scale = 1.0F;
    const TensorView qkv = sim.tensor(Shape{57, 80}, DType::F32);
    const TensorView out = sim.tensor(Shape{57, 48}, DType::F32);
    const TensorView lse = sim.tensor(Shape{3, 6, 19}, DType::F32);
    ops.attention.forward(*sim.stream, out, lse, qkv, s,
                          sim.scratch(ops.attention.forward_scratch_bytes(s, DType::F32)));
    const double forward = 3.0 * 6 * (19 * 20 / 2) * 4 * 8;
    CHECK(sim.device->counters().flops == forward);
    ops.attention.backward(*sim.stream, qkv, out, out, lse, qkv, s,
                           sim.scratch(ops.attention.backward_scratch_bytes(s, DType::F32)));
    CHECK(sim.device->counters().flops == 3.0 * forward);
}

TEST_CASE("every case passes on the sim device, with the planned backend's scratch", "[ops]") {
    SimBench sim;
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
        for (const OpCase& op_case : op_cases()) {
            CHECK(op_case.scratch_bytes(sim.ops->ops(), dtype) ==
                  op_case.scratch_bytes(sim.bench.cpu(), dtype));
            // Views of real tensors serve as well: nothing is read.
            CaseTensors t = op_case.allocate(sim.bench.device(), sim.ops->ops(), dtype, dtype, 1);
            const std::vector<std::byte> before = all_bytes(t);
            op_case.forward(sim.ops->ops(), *sim.stream, t);
            op_case.backward(sim.ops->ops(), *sim.stream, t);
            CHECK(all_bytes(t) == before);
        }
    }
}

TEST_CASE("wrong shapes, dtypes and scratch are refused as our defect", "[ops]") {
    SimBench sim;
    Ops ops = sim.ops->ops();
    const TensorView x = sim.tensor(Shape{19, 24}, DType::BF16);
    const TensorView w = sim.tensor(Shape{33, 24}, DType::BF16);
    const TensorView y = sim.tensor(Shape{19, 33}, DType::BF16);
    const TensorView scratch =
        sim.scratch(ops.matmul.scratch_bytes(MatmulKind::Forward, 19, 33, 24, DType::BF16) + 64);
    const auto forward = [&](TensorView a, TensorView b, TensorView c, TensorView bias) {
        return exit_of([&] { ops.matmul.forward(*sim.stream, a, b, c, bias, scratch); });
    };
    CHECK(forward(y, x, w, {}) == Exit::Ok);
    CHECK(forward(y, x, w.rows(0, 32), {}) == Exit::Internal);
    CHECK(forward(y, x, sim.tensor(Shape{33, 24}, DType::F32), {}) == Exit::Internal);
    CHECK(forward(y, x, w, sim.tensor(Shape{32}, DType::BF16)) == Exit::Internal);
    CHECK(forward({}, x, w, {}) == Exit::Internal);

    const TensorView losses = sim.tensor(Shape{19}, DType::F32);
    const TensorView targets = sim.tensor(Shape{19}, DType::I32);
    const auto loss = [&](TensorView l, TensorView t, std::int64_t vocab) {
        return exit_of([&] { ops.loss.cross_entropy(*sim.stream, l, x, t, {vocab, 1.0F, LossPass::Train}); });
    };
    CHECK(loss(losses, targets, 24) == Exit::Ok);
    CHECK(loss(losses, targets, 25) == Exit::Internal);
    CHECK(loss(losses, losses, 24) == Exit::Internal);

    const auto column_sum = [&](TensorView part) {
        return exit_of([&] {
            ops.elementwise.bias_backward(*sim.stream, sim.tensor(Shape{24}, DType::F32), x, Into::Overwrite,
                                          part);
        });
    };
    const std::size_t needed = ops.elementwise.column_sum_scratch_bytes(19, 24);
    REQUIRE(needed > 0);
    CHECK(column_sum(sim.scratch(needed)) == Exit::Ok);
    CHECK(column_sum(sim.scratch(needed - 4)) == Exit::Internal);
    CHECK(column_sum({}) == Exit::Internal);
}

TEST_CASE("the cpu backend refuses what it has no kernels for", "[ops]") {
    CpuBench bench(1, detect_cpu_isa());
    const TensorView a = bench.tensor(Shape{4, 4}, DType::F64);
    CHECK(exit_of([&] { bench.cpu().elementwise.add(bench.stream(), a, a, a); }) == Exit::Internal);
    CHECK(exit_of([&] { bench.cpu().matmul.forward(bench.stream(), a, a, a, {}, {}); }) == Exit::Internal);
}

}  // namespace trainctl
