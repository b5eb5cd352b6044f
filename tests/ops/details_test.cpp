// What the shared cases do not show: exact rules of masks, padding, rounding and order.
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/harness.h"
#include "support/catch.h"

namespace trainctl {

TEST_CASE("masked vocabulary columns have gradient exactly 0 and no say in the softmax", "[ops]") {
    for (const CpuIsa isa : isa_levels()) {
        CpuBench bench(2, isa);
        for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
            constexpr std::int64_t vocab = 97;
            constexpr std::int64_t padded = 128;
            const TensorView logits = bench.tensor(Shape{3, padded}, dtype);
            for (std::int64_t i = 0; i < logits.elements(); ++i) {
                // garbage in the padding, NaN included, must not matter
                const bool padding = i % padded >= vocab;
                set_element(logits, i,
                            padding ? (i % 2 == 0 ? 1e30 : std::nan("")) : 0.01 * static_cast<double>(i % 7));
            }
            const TensorView targets = bench.tensor(Shape{3}, DType::I32);
            targets.as<std::int32_t>()[0] = 96;
            targets.as<std::int32_t>()[1] = -100;
            targets.as<std::int32_t>()[2] = 0;
            const TensorView losses = bench.tensor(Shape{3}, DType::F32);
            bench.cpu().loss.cross_entropy(bench.stream(), losses, logits, targets,
                                           {vocab, 0.125F, LossPass::Train});
            CHECK(losses.as<float>()[0] == Approx(std::log(97.0)).epsilon(0.02));
            CHECK(losses.as<float>()[1] == 0.0F);
            for (std::int64_t row = 0; row < 3; ++row) {
                double sum = 0.0;
                for (std::int64_t c = 0; c < padded; ++c) {
                    const double gradient = element(logits, row * padded + c);
                    if (c >= vocab || row == 1) {
                        CHECK(gradient == 0.0);
                    } else {
                        CHECK((gradient < 0.0) == (c == targets.as<std::int32_t>()[row]));
                    }
                    sum += gradient;
                }
                CHECK(std::fabs(sum) < 1e-3);
            }
            CHECK(element(logits, 96) == Approx(0.125 * (1.0 / 97.0 - 1.0)).epsilon(0.01));
        }
    }
}

TEST_CASE("a loss from non-finite logits is not finite", "[ops]") {
    CpuBench bench(1, detect_cpu_isa());
    for (const double bad : {std::nan(""), static_cast<double>(std::numeric_limits<float>::infinity())}) {
        const TensorView logits = bench.tensor(Shape{1, 64}, DType::F32);
        set_element(logits, 41, bad);
        const TensorView targets = bench.tensor(Shape{1}, DType::I32);
        const TensorView losses = bench.tensor(Shape{1}, DType::F32);
        bench.cpu().loss.cross_entropy(bench.stream(), losses, logits, targets, {64, 1.0F, LossPass::Train});
        CHECK(!std::isfinite(losses.as<float>()[0]));
    }
}

TEST_CASE("a loss from another rank's non-finite logits is not finite", "[ops]") {
    CpuBench bench(1, detect_cpu_isa());
    LossOps& loss = bench.cpu().loss;
    for (const double bad : {std::nan(""), static_cast<double>(std::numeric_limits<float>::infinity())}) {
        // This rank has the target, the other one the bad logit.
        const TensorView mine = bench.tensor(Shape{1, 32}, DType::F32);
        const TensorView other = bench.tensor(Shape{1, 32}, DType::F32);
        set_element(other, 7, bad);
        const TensorView targets = bench.tensor(Shape{1}, DType::I32);
        const TensorView maxima = bench.tensor(Shape{2}, DType::F32);
        const TensorView sums = bench.tensor(Shape{2, 2}, DType::F32);
        const TensorView losses = bench.tensor(Shape{1}, DType::F32);
        const LossSettings here{64, 1.0F, LossPass::Train, 0};
        const LossSettings there{64, 1.0F, LossPass::Train, 32};
        loss.row_maxima(bench.stream(), maxima.flat(0, 1), mine, here);
        loss.row_maxima(bench.stream(), maxima.flat(1, 1), other, there);
        const float top = maxima.as<float>()[1] > 0.0F ? maxima.as<float>()[1] : maxima.as<float>()[0];
        maxima.as<float>()[0] = maxima.as<float>()[1] = top;
        loss.exponential_sums(bench.stream(), sums.rows(0, 1), mine, maxima.flat(0, 1), targets, here);
        loss.exponential_sums(bench.stream(), sums.rows(1, 1), other, maxima.flat(1, 1), targets, there);
        sums.as<float>()[0] += sums.as<float>()[2];
        sums.as<float>()[1] += sums.as<float>()[3];
        loss.finish_cross_entropy(bench.stream(), losses, mine, maxima.flat(0, 1), sums.rows(0, 1), targets,
                                  here);
        CHECK(!std::isfinite(losses.as<float>()[0]));
    }
}

TEST_CASE("logits of any size give a finite loss", "[ops]") {
    CpuBench bench(1, detect_cpu_isa());
    const TensorView logits = bench.tensor(Shape{1, 50}, DType::F32);
    for (std::int64_t c = 0; c < 50; ++c) set_element(logits, c, 1e4 * static_cast<double>(c) - 3e5);
    const TensorView targets = bench.tensor(Shape{1}, DType::I32);
    targets.as<std::int32_t>()[0] = 48;
    const TensorView losses = bench.tensor(Shape{1}, DType::F32);
    bench.cpu().loss.cross_entropy(bench.stream(), losses, logits, targets, {50, 1.0F, LossPass::Train});
    CHECK(losses.as<float>()[0] == Approx(1e4));
    CHECK(element(logits, 49) == 1.0);
    CHECK(element(logits, 48) == -1.0);
}

TEST_CASE("losses are summed in order, in double", "[ops]") {
    CpuBench bench(2, detect_cpu_isa());
    const TensorView losses = bench.tensor(Shape{1000}, DType::F32);
    double sum = 0.0;
    for (int i = 0; i < 1000; ++i) {
        losses.as<float>()[i] = 1.0F / static_cast<float>(i + 1);
        sum += static_cast<double>(losses.as<float>()[i]);
    }
    const TensorView total = bench.tensor(Shape{1}, DType::F64);
    *total.as<double>() = 5.0;
    bench.cpu().loss.sum_losses(bench.stream(), total, losses, Into::Accumulate);
    CHECK(*total.as<double>() == sum + 5.0);
    bench.cpu().loss.sum_losses(bench.stream(), total, losses, Into::Overwrite);
    CHECK(*total.as<double>() == sum);
}

TEST_CASE("casts between float types round to nearest even, as the scalar conversions do", "[ops]") {
    constexpr std::int64_t count = 20003;
    for (const CpuIsa isa : isa_levels()) {
        CpuBench bench(2, isa);
        const TensorView from = bench.tensor(Shape{count}, DType::F32);
        for (std::int64_t i = 0; i < count; ++i) {  // all kinds: subnormals, NaN, infinities, ties
            std::uint32_t bits = philox4x32(philox_key(3), static_cast<std::uint64_t>(i), 0)[0];
            if (i % 3 == 0) bits = (bits & 0xFFFF0000U) | 0x8000U;
            if (i % 17 == 0) bits &= 0x807FFFFFU;
            if (i % 19 == 0) bits |= 0x7F800000U;
            from.as<std::uint32_t>()[i] = bits;
        }
        from.as<float>()[1] = std::numeric_limits<float>::infinity();
        const TensorView bf16 = bench.tensor(Shape{count}, DType::BF16);
        const TensorView half = bench.tensor(Shape{count}, DType::F16);
        const TensorView back = bench.tensor(Shape{count}, DType::F32);
        bench.cpu().elementwise.cast(bench.stream(), bf16, from);
        bench.cpu().elementwise.cast(bench.stream(), half, from);
        bench.cpu().elementwise.cast(bench.stream(), back, bf16);
        int wrong = 0;
        for (std::int64_t i = 0; i < count; ++i) {
            const float value = from.as<float>()[i];
            wrong += bf16.as<BFloat16>()[i].bits != to_bfloat16(value).bits ? 1 : 0;
            const std::uint16_t found = half.as<Float16>()[i].bits;
            const bool both_nan = std::isnan(value) && (found & 0x7FFFU) > 0x7C00U;
            wrong += found != to_float16(value).bits && !both_nan ? 1 : 0;
            wrong +=
                back.as<std::uint32_t>()[i] != std::bit_cast<std::uint32_t>(to_float(bf16.as<BFloat16>()[i]))
                    ? 1
                    : 0;
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("fill_zero zeroes everything and nothing else", "[ops]") {
    CpuBench bench(2, detect_cpu_isa());
    const TensorView all = bench.tensor(Shape{3'000'000}, DType::U8);
    std::memset(all.data, 1, all.bytes());
    bench.cpu().elementwise.fill_zero(bench.stream(), all.flat(1, 2'999'997));
    CHECK(all.data[0] == std::byte{1});
    CHECK(all.data[2'999'998] == std::byte{1});
    std::size_t nonzero = 0;
    for (std::size_t i = 1; i < 2'999'998; ++i) nonzero += all.data[i] != std::byte{0} ? 1U : 0U;
    CHECK(nonzero == 0);
}

TEST_CASE("dropout keeps what the generator says, scaled, and is its own backward", "[ops]") {
    const Dropout site{0.3F, philox_key(9), 42, (1ULL << 40U) + 3};
    for (const CpuIsa isa : isa_levels()) {
        CpuBench bench(2, isa);
        const TensorView x = bench.tensor(Shape{2 * 5, 9}, DType::F32);
        for (std::int64_t i = 0; i < x.elements(); ++i) x.as<float>()[i] = 1.0F;
        bench.cpu().elementwise.dropout(bench.stream(), x, x, 5, site);
        int dropped = 0;
        for (std::int64_t i = 0; i < x.elements(); ++i) {
            const std::uint64_t sample = site.first_sample + static_cast<std::uint64_t>(i / 45);
            const auto e = static_cast<std::uint32_t>(i % 45);
            const PhiloxBlock block =
                philox4x32(site.key, PhiloxBlock{e / 4, site.site, static_cast<std::uint32_t>(sample),
                                                 static_cast<std::uint32_t>(sample >> 32U)});
            const bool kept = philox_uniform(block[e % 4]) >= 0.3F;
            dropped += kept ? 0 : 1;
            CHECK(x.as<float>()[i] == (kept ? 1.0F / (1.0F - 0.3F) : 0.0F));
        }
        CHECK(dropped > 10);
        CHECK(dropped < 50);
    }
}

TEST_CASE("weight gradients of many rows are sums of pieces of rows", "[ops]") {
    CpuBench bench(2, detect_cpu_isa());
    constexpr std::int64_t rows = 2500;
    const OpCase filler{
        "",
        {{"x", CaseRole::Activation, Shape{rows, 24}}, {"y", CaseRole::Activation, Shape{rows, 40}}},
        {},
        {}};
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
        CaseTensors t = filler.allocate(bench.device(), bench.cpu(), dtype, dtype, 1);
        const TensorView whole = bench.tensor(Shape{40, 24}, DType::F32);
        const TensorView pieces = bench.tensor(Shape{40, 24}, DType::F32);
        const TensorView wanted = bench.tensor(Shape{40, 24}, DType::F64);
        const TensorView scratch =
            bench.scratch(bench.cpu().matmul.scratch_bytes(MatmulKind::BackwardWeight, rows, 40, 24, dtype));
        bench.cpu().matmul.backward_weight(bench.stream(), whole, t["y"], t["x"], Into::Overwrite, scratch);
        for (std::int64_t begin = 0; begin < rows; begin += 1024) {
            const std::int64_t count = std::min<std::int64_t>(1024, rows - begin);
            const TensorView part_scratch = bench.scratch(
                bench.cpu().matmul.scratch_bytes(MatmulKind::BackwardWeight, count, 40, 24, dtype));
            bench.cpu().matmul.backward_weight(bench.stream(), pieces, t["y"].rows(begin, count),
                                               t["x"].rows(begin, count),
                                               begin == 0 ? Into::Overwrite : Into::Accumulate, part_scratch);
        }
        CHECK(std::memcmp(whole.data, pieces.data, whole.bytes()) == 0);
        bench.reference().matmul.backward_weight(bench.stream(), wanted, t["y"], t["x"], Into::Overwrite, {});
        for (std::int64_t i = 0; i < whole.elements(); ++i) {
            CHECK(std::fabs(element(whole, i) - element(wanted, i)) < 2e-3);
        }
    }
}

TEST_CASE("bf16 and f16 products may be kept in f32", "[ops]") {
    for (const CpuIsa isa : isa_levels()) {
        CpuBench bench(2, isa);
        const OpCase filler{
            "",
            {{"x", CaseRole::Activation, Shape{9, 40}}, {"w", CaseRole::Activation, Shape{33, 40}}},
            {},
            {}};
        for (const DType dtype : {DType::BF16, DType::F16}) {
            CaseTensors t = filler.allocate(bench.device(), bench.cpu(), dtype, dtype, 2);
            const TensorView found = bench.tensor(Shape{9, 33}, DType::F32);
            const TensorView wanted = bench.tensor(Shape{9, 33}, DType::F64);
            const TensorView scratch =
                bench.scratch(bench.cpu().matmul.scratch_bytes(MatmulKind::Forward, 9, 33, 40, dtype));
            bench.cpu().matmul.forward(bench.stream(), found, t["x"], t["w"], {}, scratch);
            bench.reference().matmul.forward(bench.stream(), wanted, t["x"], t["w"], {}, {});
            for (std::int64_t i = 0; i < found.elements(); ++i) {
                CHECK(std::fabs(element(found, i) - element(wanted, i)) < 1e-4);  // far below their ulps
            }
        }
    }
}

TEST_CASE("f16 gradients keep subnormals and show an overflow as infinity, down to the norm", "[ops]") {
    for (const CpuIsa isa : isa_levels()) {
        CpuBench bench(2, isa);
        const Ops ops = bench.cpu();
        const TensorView targets = bench.tensor(Shape{1}, DType::I32);
        targets.as<std::int32_t>()[0] = 3;
        const TensorView losses = bench.tensor(Shape{1}, DType::F32);
        // Every probability is 1/64: the scale decides what becomes of the gradient.
        const auto gradients = [&](float scale) {
            const TensorView logits = bench.tensor(Shape{1, 64}, DType::F16);
            ops.loss.cross_entropy(bench.stream(), losses, logits, targets, {64, scale, LossPass::Train});
            return logits;
        };
        CHECK(element(gradients(0x1.0p-16F), 0) == 0x1.0p-22);  // below the smallest normal number, 2^-14
        CHECK(element(gradients(0x1.0p-19F), 0) == 0.0);        // 2^-25 is half of the smallest
        const TensorView overflowed = gradients(0x1.0p+17F);    // 63/64 of it at the target
        CHECK(std::isinf(element(overflowed, 3)));
        CHECK(element(overflowed, 0) == 0x1.0p+11);

        const TensorView x = bench.tensor(Shape{1, 8}, DType::F16);
        set_element(x, 0, 1.0);
        const TensorView dw = bench.tensor(Shape{64, 8}, DType::F32);
        ops.matmul.backward_weight(
            bench.stream(), dw, overflowed, x, Into::Overwrite,
            bench.scratch(ops.matmul.scratch_bytes(MatmulKind::BackwardWeight, 1, 64, 8, DType::F16)));
        const TensorView bins = bench.tensor(Shape{norm_bins}, DType::I64);
        const TensorView scalars = bench.tensor(Shape{step_scalars}, DType::F64);
        ops.optimizer.sum_squares(bench.stream(), bins, dw.flat(0, dw.elements()), Into::Overwrite);
        ops.optimizer.finish_norm(bench.stream(), scalars, bins, 1.0, 0x1.0p-17);
        CHECK(std::isnan(element(scalars, scalar_grad_norm)));
        CHECK(element(scalars, scalar_apply) == 0.0);
    }
}

}  // namespace trainctl
