// Global gradient norm and AdamW of the cpu backend.
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ops/harness.h"
#include "support/catch.h"

namespace trainctl {
namespace {

std::vector<std::int64_t> bins_of(CpuBench& bench, Ops ops, const TensorView& gradient) {
    const TensorView bins = bench.tensor(Shape{norm_bins}, DType::I64);
    ops.optimizer.sum_squares(bench.stream(), bins, gradient, Into::Overwrite);
    return {bins.as<std::int64_t>(), bins.as<std::int64_t>() + norm_bins};
}

struct Finished {
    double norm;
    double clip;
    double apply;
};

Finished finish(CpuBench& bench, Ops ops, const std::vector<std::int64_t>& bins, double loss, double max_norm,
                double inverse_loss_scale) {
    const TensorView scalars = bench.tensor(Shape{step_scalars}, DType::F64);
    const TensorView view = bench.tensor(Shape{norm_bins}, DType::I64);
    std::memcpy(view.data, bins.data(), view.bytes());
    scalars.as<double>()[scalar_loss_sum] = loss;
    ops.optimizer.finish_norm(bench.stream(), scalars, view, max_norm, inverse_loss_scale);
    const auto* s = scalars.as<double>();
    return {s[scalar_grad_norm], s[scalar_clip], s[scalar_apply]};
}

// Gradients whose magnitudes span the whole range of floats, subnormals included.
TensorView wild_gradient(CpuBench& bench, std::int64_t count) {
    const TensorView gradient = bench.tensor(Shape{count}, DType::F32);
    for (std::int64_t i = 0; i < count; ++i) {
        const PhiloxBlock block = philox4x32(philox_key(5), static_cast<std::uint64_t>(i), 0);
        std::uint32_t bits = block[0];
        if ((bits & 0x7F800000U) == 0x7F800000U) bits ^= 0x40000000U;  // finite
        gradient.as<float>()[i] = std::bit_cast<float>(bits);
    }
    return gradient;
}

TensorView all_flags(CpuBench& bench, std::int64_t count, std::uint8_t value) {
    const TensorView flags = bench.tensor(Shape{(count + norm_block - 1) / norm_block}, DType::U8);
    std::memset(flags.data, value, flags.bytes());
    return flags;
}

}  // namespace

TEST_CASE("sums of squares do not depend on how a range is split", "[ops]") {
    constexpr std::int64_t blocks = 1500;
    const std::int64_t count = blocks * norm_block - 37;  // a short tail block
    for (const CpuIsa isa : isa_levels()) {
        for (const int threads : {1, 3}) {
            CpuBench bench(threads, isa);
            const TensorView gradient = wild_gradient(bench, count);
            const auto whole = bins_of(bench, bench.cpu(), gradient);
            for (const std::int64_t cut : {1, 7, 512, 777, 1499}) {
                const TensorView bins = bench.tensor(Shape{norm_bins}, DType::I64);
                const auto part = [&](std::int64_t begin, std::int64_t end, Into into) {
                    const std::int64_t last = std::min(end * norm_block, count);
                    bench.cpu().optimizer.sum_squares(
                        bench.stream(), bins, gradient.flat(begin * norm_block, last - begin * norm_block),
                        into);
                };
                part(cut, blocks, Into::Overwrite);
                part(0, cut, Into::Accumulate);
                CHECK(std::memcmp(bins.data, whole.data(), bins.bytes()) == 0);
            }
        }
    }
}

TEST_CASE("the norm is the square root of the sum of squares, over the whole range of floats", "[ops]") {
    CpuBench bench(2, detect_cpu_isa());
    for (const float magnitude : {1e-45F, 3e-39F, 1e-20F, 0.37F, 123.0F, 3e20F, 3e38F}) {
        constexpr std::int64_t count = 1000;
        const TensorView gradient = bench.tensor(Shape{count}, DType::F32);
        long double squares = 0.0L;
        for (std::int64_t i = 0; i < count; ++i) {
            gradient.as<float>()[i] = i % 3 == 0 ? -magnitude : magnitude * 0.75F;
            squares += static_cast<long double>(gradient.as<float>()[i]) * gradient.as<float>()[i];
        }
        const auto bins = bins_of(bench, bench.cpu(), gradient);
        const double wanted = static_cast<double>(std::sqrt(squares));
        CHECK(finish(bench, bench.cpu(), bins, 1.0, 0.0, 1.0).norm == Approx(wanted).epsilon(1e-14));
        const auto reference = bins_of(bench, bench.reference(), gradient);
        CHECK(finish(bench, bench.reference(), reference, 1.0, 0.0, 1.0).norm ==
              Approx(wanted).epsilon(1e-14));
    }
}

TEST_CASE("clipping: coefficient max / (norm + 1e-6) if below 1, in units of unscaled gradients", "[ops]") {
    CpuBench bench(1, detect_cpu_isa());
    const TensorView gradient = bench.tensor(Shape{norm_block}, DType::F32);
    gradient.as<float>()[5] = 8.0F;
    const auto bins = bins_of(bench, bench.cpu(), gradient);
    for (const Ops& ops : {bench.cpu(), bench.reference()}) {
        CHECK(finish(bench, ops, bins, 1.0, 1.0, 1.0).clip == Approx(1.0 / (8.0 + 1e-6)).epsilon(1e-14));
        CHECK(finish(bench, ops, bins, 1.0, 10.0, 1.0).clip == 1.0);
        CHECK(finish(bench, ops, bins, 1.0, 0.0, 1.0).clip == 1.0);
        const Finished scaled = finish(bench, ops, bins, 1.0, 1.0, 0.25);  // true norm 2
        CHECK(scaled.norm == 2.0);
        CHECK(scaled.clip == Approx(0.25 / (2.0 + 1e-6)).epsilon(1e-14));
    }
}

TEST_CASE("a non-finite loss or gradient turns the update off, and then every bit stays", "[ops]") {
    const float infinity = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const CpuIsa isa : isa_levels()) {
        CpuBench bench(2, isa);
        constexpr std::int64_t count = 5 * norm_block;
        for (const float bad : {infinity, -infinity, nan}) {
            const TensorView gradient = bench.tensor(Shape{count}, DType::F32);
            gradient.as<float>()[count - 3] = bad;
            const auto bins = bins_of(bench, bench.cpu(), gradient);
            CHECK(bins[norm_digit_bins] == 1);
            CHECK(finish(bench, bench.cpu(), bins, 1.0, 1.0, 1.0).apply == 0.0);
        }
        const std::vector<std::int64_t> zero(norm_bins, 0);
        CHECK(finish(bench, bench.cpu(), zero, 1.0, 1.0, 1.0).apply == 1.0);
        CHECK(finish(bench, bench.cpu(), zero, static_cast<double>(nan), 1.0, 1.0).apply == 0.0);
        CHECK(finish(bench, bench.cpu(), zero, static_cast<double>(infinity), 1.0, 1.0).apply == 0.0);

        std::vector<TensorView> state;
        for (int i = 0; i < 4; ++i) {
            state.push_back(bench.tensor(Shape{count}, i == 0 ? DType::BF16 : DType::F32));
            std::memset(state.back().data, 0x3A + i, state.back().bytes());
        }
        const TensorView gradient = bench.tensor(Shape{count}, DType::F32);
        for (std::int64_t i = 0; i < count; ++i) gradient.as<float>()[i] = nan;
        const TensorView scalars = bench.tensor(Shape{step_scalars}, DType::F64);  // apply 0
        scalars.as<double>()[scalar_clip] = static_cast<double>(nan);
        bench.cpu().optimizer.adamw(bench.stream(), state[0], state[1], state[2], state[3], gradient,
                                    all_flags(bench, count, block_decays), scalars,
                                    {0.1, 0.9, 0.95, 1e-8, 0.1, 3});
        for (int i = 0; i < 4; ++i) {
            const auto& view = state[static_cast<std::size_t>(i)];
            const std::vector<std::byte> wanted(view.bytes(), static_cast<std::byte>(0x3A + i));
            CHECK(std::memcmp(view.data, wanted.data(), wanted.size()) == 0);
        }
    }
}

namespace {

// Scalars of a step whose update is applied.
TensorView applying_scalars(CpuBench& bench, double clip) {
    const TensorView scalars = bench.tensor(Shape{step_scalars}, DType::F64);
    scalars.as<double>()[scalar_clip] = clip;
    scalars.as<double>()[scalar_apply] = 1.0;
    return scalars;
}

// Runs `steps` updates from one seed; returns master, m, v, weights as doubles.
std::vector<std::vector<double>> run_adamw(CpuBench& bench, Ops ops, DType wide, DType compute, int steps) {
    constexpr std::int64_t count = 3 * norm_block + 45;
    const TensorView master = bench.tensor(Shape{count}, wide);
    const TensorView m = bench.tensor(Shape{count}, wide);
    const TensorView v = bench.tensor(Shape{count}, wide);
    const TensorView gradient = bench.tensor(Shape{count}, wide);
    const TensorView weights = bench.tensor(Shape{count}, compute);
    const TensorView flags = all_flags(bench, count, block_decays);
    flags.as<std::uint8_t>()[2] = 0;  // a bias: not decayed
    const TensorView scalars = applying_scalars(bench, 0.5);
    const auto number = [](int step, std::int64_t i) {
        const PhiloxBlock block =
            philox4x32(philox_key(8), static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(step));
        return static_cast<double>(philox_uniform(block[0])) - 0.5;
    };
    for (std::int64_t i = 0; i < count; ++i) set_element(master, i, number(0, i));
    for (int step = 1; step <= steps; ++step) {
        for (std::int64_t i = 0; i < count; ++i) set_element(gradient, i, number(step, i));
        ops.optimizer.adamw(bench.stream(), weights, master, m, v, gradient, flags, scalars,
                            {3e-2, 0.9, 0.999, 1e-8, 0.1, step});
    }
    std::vector<std::vector<double>> result;
    for (const TensorView& view : {master, m, v, weights}) {
        result.emplace_back();
        for (std::int64_t i = 0; i < count; ++i) result.back().push_back(element(view, i));
    }
    return result;
}

}  // namespace

TEST_CASE("AdamW follows the double-precision reference over ten steps", "[ops]") {
    CpuBench other(1, CpuIsa::V3);
    const auto wanted = run_adamw(other, other.reference(), DType::F64, DType::F64, 10);
    for (const CpuIsa isa : isa_levels()) {
        CpuBench bench(2, isa);
        const auto found = run_adamw(bench, bench.cpu(), DType::F32, DType::BF16, 10);
        for (std::size_t i = 0; i < wanted[0].size(); ++i) {
            CHECK(std::fabs(found[0][i] - wanted[0][i]) < 1e-6);
            CHECK(std::fabs(found[1][i] - wanted[1][i]) < 1e-7);
            CHECK(std::fabs(found[2][i] - wanted[2][i]) < 1e-8);
            CHECK(found[3][i] == static_cast<double>(to_float(to_bfloat16(static_cast<float>(found[0][i])))));
        }
    }
}

TEST_CASE("AdamW rounds its weights alike wherever they lie", "[ops]") {
    constexpr std::int64_t count = 3 * norm_block + 45;
    for (const CpuIsa isa : isa_levels()) {
        CpuBench bench(2, isa);
        const TensorView gradient = bench.tensor(Shape{count}, DType::F32);
        for (std::int64_t i = 0; i < count; ++i) gradient.as<float>()[i] = static_cast<float>(i) - 100.0F;
        const TensorView scalars = applying_scalars(bench, 1.0);
        for (const std::int64_t shift : {0, 1, 7, 8, 16}) {  // elements: aligned for vectors, and not
            const TensorView memory = bench.tensor(Shape{count + 32}, DType::BF16);
            const TensorView weights = memory.flat(shift, count);
            const TensorView master = bench.tensor(Shape{count}, DType::F32);
            bench.cpu().optimizer.adamw(
                bench.stream(), weights, master, bench.tensor(Shape{count}, DType::F32),
                bench.tensor(Shape{count}, DType::F32), gradient, all_flags(bench, count, block_decays),
                scalars, {1e-3, 0.9, 0.95, 1e-8, 0.1, 1});
            for (std::int64_t i = 0; i < count; ++i)
                CHECK(weights.as<BFloat16>()[i].bits == to_bfloat16(master.as<float>()[i]).bits);
            CHECK(memory.as<BFloat16>()[shift + count].bits == 0);
            if (shift > 0) CHECK(memory.as<BFloat16>()[shift - 1].bits == 0);
        }
    }
}

TEST_CASE("AdamW leaves no subnormal moments, and the thread's arithmetic as it was", "[ops]") {
    constexpr std::int64_t count = 2 * norm_block + 3;
    for (const CpuIsa isa : isa_levels()) {
        CpuBench bench(1, isa);
        const TensorView master = bench.tensor(Shape{count}, DType::F32);
        const TensorView m = bench.tensor(Shape{count}, DType::F32);
        const TensorView v = bench.tensor(Shape{count}, DType::F32);
        const TensorView gradient = bench.tensor(Shape{count}, DType::F32);
        for (std::int64_t i = 0; i < count; ++i) {
            master.as<float>()[i] = 0.5F;
            m.as<float>()[i] = std::numeric_limits<float>::min();  // the next update makes it subnormal
            v.as<float>()[i] = std::numeric_limits<float>::denorm_min();
        }
        const TensorView scalars = applying_scalars(bench, 1.0);
        bench.cpu().optimizer.adamw(bench.stream(), TensorView{}, master, m, v, gradient,
                                    all_flags(bench, count, block_decays), scalars,
                                    {1e-3, 0.9, 0.95, 1e-8, 0.0, 2000});
        for (std::int64_t i = 0; i < count; ++i) {
            CHECK(m.as<float>()[i] == 0.0F);
            CHECK(v.as<float>()[i] == 0.0F);
            CHECK(master.as<float>()[i] == 0.5F);
        }
        volatile float least = std::numeric_limits<float>::min();
        least = least * 0.5F;
        CHECK(std::fpclassify(least) == FP_SUBNORMAL);
    }
}

TEST_CASE("AdamW without separate weights gives the same master", "[ops]") {
    CpuBench bench(2, detect_cpu_isa());
    constexpr std::int64_t count = 2 * norm_block;
    std::vector<TensorView> masters;
    for (const bool separate : {true, false}) {
        const TensorView master = bench.tensor(Shape{count}, DType::F32);
        const TensorView m = bench.tensor(Shape{count}, DType::F32);
        const TensorView v = bench.tensor(Shape{count}, DType::F32);
        const TensorView gradient = bench.tensor(Shape{count}, DType::F32);
        for (std::int64_t i = 0; i < count; ++i) gradient.as<float>()[i] = static_cast<float>(i) - 100.0F;
        const TensorView scalars = applying_scalars(bench, 1.0);
        const TensorView weights = separate ? bench.tensor(Shape{count}, DType::BF16) : TensorView{};
        bench.cpu().optimizer.adamw(bench.stream(), weights, master, m, v, gradient,
                                    all_flags(bench, count, block_decays), scalars,
                                    {1e-3, 0.9, 0.95, 1e-8, 0.1, 1});
        masters.push_back(master);
    }
    CHECK(std::memcmp(masters[0].data, masters[1].data, masters[0].bytes()) == 0);
}

}  // namespace trainctl
