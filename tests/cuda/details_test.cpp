// What the shared cases do not show: exact rules of masks, padding, rounding and order, on the cuda backend.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "cuda/mirrors.h"
#include "support/catch.h"

namespace trainctl::cuda_test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

std::vector<float> floats(const TensorView& host) {
    return {host.as<float>(), host.as<float>() + host.elements()};
}

}  // namespace

TEST_CASE("cuda: masked vocabulary columns have gradient exactly 0 and no say in the softmax", "[cuda]") {
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
        for (const std::int64_t padded : {128, 101}) {  // in packs, and element by element
            constexpr std::int64_t vocab = 97;
            CudaBench bench(1);
            Mirrors mirrors(bench);
            const Mirror logits = mirrors.make(Shape{3, padded}, dtype);
            for (std::int64_t i = 0; i < logits.host.elements(); ++i) {
                const bool padding = i % padded >= vocab;
                set_element(logits.host, i,
                            padding ? (i % 2 == 0 ? 1e30 : std::nan("")) : 0.01 * static_cast<double>(i % 7));
            }
            mirrors.up(logits);
            const Mirror targets = mirrors.make(Shape{3}, DType::I32);
            targets.host.as<std::int32_t>()[0] = 96;
            targets.host.as<std::int32_t>()[1] = -100;
            mirrors.up(targets);
            const Mirror losses = mirrors.make(Shape{3}, DType::F32);
            bench.ops().loss.cross_entropy(bench.stream(), losses.device, logits.device, targets.device,
                                           {vocab, 0.125F, LossPass::Train});
            mirrors.down(losses);
            mirrors.down(logits);
            CHECK(losses.host.as<float>()[0] == Approx(std::log(97.0)).epsilon(0.02));
            CHECK(losses.host.as<float>()[1] == 0.0F);
            for (std::int64_t row = 0; row < 3; ++row) {
                double sum = 0.0;
                for (std::int64_t c = 0; c < padded; ++c) {
                    const double gradient = element(logits.host, row * padded + c);
                    if (c >= vocab || row == 1) {
                        CHECK(gradient == 0.0);
                    } else {
                        CHECK((gradient < 0.0) == (c == targets.host.as<std::int32_t>()[row]));
                    }
                    sum += gradient;
                }
                CHECK(std::fabs(sum) < 1e-3);
            }
            CHECK(element(logits.host, 96) == Approx(0.125 * (1.0 / 97.0 - 1.0)).epsilon(0.01));
        }
    }
}

TEST_CASE("cuda: a loss from non-finite logits is not finite, also another rank's", "[cuda]") {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), infinity}) {
        CudaBench bench(2);
        Mirrors mirrors(bench);
        LossOps& loss = bench.ops().loss;
        std::vector<double> values(64, 0.0);
        values[41] = static_cast<double>(bad);
        const Mirror whole = mirrors.filled(Shape{1, 64}, DType::F32, values);
        const Mirror targets = mirrors.filled(Shape{1}, DType::F32, {0.0});
        const TensorView target{targets.device.data, Shape{1}, DType::I32};  // 0 in both
        const Mirror losses = mirrors.make(Shape{1}, DType::F32);
        loss.cross_entropy(bench.stream(), losses.device, whole.device, target, {64, 1.0F, LossPass::Train});
        mirrors.down(losses);
        CHECK(!std::isfinite(losses.host.as<float>()[0]));

        // This rank has the target, the other one the bad logit.
        const Mirror mine = mirrors.filled(Shape{1, 32}, DType::F32, {});
        const Mirror other = mirrors.filled(Shape{1, 32}, DType::F32, {values.begin() + 32, values.end()});
        const Mirror maxima = mirrors.make(Shape{2}, DType::F32);
        const Mirror sums = mirrors.make(Shape{2, 2}, DType::F32);
        const LossSettings here{64, 1.0F, LossPass::Train, 0};
        const LossSettings there{64, 1.0F, LossPass::Train, 32};
        loss.row_maxima(bench.stream(), maxima.device.flat(0, 1), mine.device, here);
        loss.row_maxima(bench.stream(), maxima.device.flat(1, 1), other.device, there);
        mirrors.down(maxima);
        auto* top = maxima.host.as<float>();
        top[0] = top[1] = std::fmax(top[0], top[1]);
        mirrors.up(maxima);
        loss.exponential_sums(bench.stream(), sums.device.rows(0, 1), mine.device, maxima.device.flat(0, 1),
                              target, here);
        loss.exponential_sums(bench.stream(), sums.device.rows(1, 1), other.device, maxima.device.flat(1, 1),
                              target, there);
        mirrors.down(sums);
        auto* sum = sums.host.as<float>();
        sum[0] += sum[2];
        sum[1] += sum[3];
        mirrors.up(sums);
        loss.finish_cross_entropy(bench.stream(), losses.device, mine.device, maxima.device.flat(0, 1),
                                  sums.device.rows(0, 1), target, here);
        mirrors.down(losses);
        CHECK(!std::isfinite(losses.host.as<float>()[0]));
    }
}

TEST_CASE("cuda: logits of any size give a finite loss", "[cuda]") {
    CudaBench bench(3);
    Mirrors mirrors(bench);
    std::vector<double> values;
    values.reserve(50);
    for (int c = 0; c < 50; ++c) values.push_back(1e4 * c - 3e5);
    const Mirror logits = mirrors.filled(Shape{1, 50}, DType::F32, values);
    const Mirror targets = mirrors.make(Shape{1}, DType::I32);
    targets.host.as<std::int32_t>()[0] = 48;
    mirrors.up(targets);
    const Mirror losses = mirrors.make(Shape{1}, DType::F32);
    bench.ops().loss.cross_entropy(bench.stream(), losses.device, logits.device, targets.device,
                                   {50, 1.0F, LossPass::Train});
    mirrors.down(losses);
    mirrors.down(logits);
    CHECK(losses.host.as<float>()[0] == Approx(1e4));
    CHECK(element(logits.host, 49) == 1.0);
    CHECK(element(logits.host, 48) == -1.0);
}

TEST_CASE("cuda: a rank without logical columns has no say", "[cuda]") {
    CudaBench bench(4);
    Mirrors mirrors(bench);
    const Mirror logits = mirrors.filled(Shape{1, 32}, DType::F32, std::vector<double>(32, 7.0));
    const Mirror maxima = mirrors.make(Shape{1}, DType::F32);
    const Mirror sums = mirrors.make(Shape{1, 2}, DType::F32);
    const Mirror targets = mirrors.make(Shape{1}, DType::I32);
    mirrors.up(targets);
    const LossSettings settings{50, 1.0F, LossPass::Train, 64};
    bench.ops().loss.row_maxima(bench.stream(), maxima.device, logits.device, settings);
    mirrors.down(maxima);
    CHECK(maxima.host.as<float>()[0] == -infinity);
    maxima.host.as<float>()[0] = 1.0F;
    mirrors.up(maxima);
    bench.ops().loss.exponential_sums(bench.stream(), sums.device, logits.device, maxima.device,
                                      targets.device, settings);
    mirrors.down(sums);
    CHECK(floats(sums.host) == std::vector<float>{0.0F, 0.0F});
}

TEST_CASE("cuda: losses are summed in double", "[cuda]") {
    CudaBench bench(5);
    Mirrors mirrors(bench);
    const Mirror losses = mirrors.make(Shape{3000}, DType::F32);
    double sum = 0.0;
    for (int i = 0; i < 3000; ++i) {
        losses.host.as<float>()[i] = 1.0F / static_cast<float>(i + 1);
        sum += static_cast<double>(losses.host.as<float>()[i]);
    }
    mirrors.up(losses);
    const Mirror total = mirrors.filled(Shape{1}, DType::F64, {5.0});
    bench.ops().loss.sum_losses(bench.stream(), total.device, losses.device, Into::Accumulate);
    mirrors.down(total);
    CHECK(*total.host.as<double>() == Approx(sum + 5.0).epsilon(1e-14));
    bench.ops().loss.sum_losses(bench.stream(), total.device, losses.device, Into::Overwrite);
    mirrors.down(total);
    CHECK(*total.host.as<double>() == Approx(sum).epsilon(1e-14));
}

TEST_CASE("cuda: casts round to nearest even, as the scalar conversions do", "[cuda]") {
    for (const std::int64_t count : {20003, 20000}) {  // element by element, and in packs
        CudaBench bench(6);
        Mirrors mirrors(bench);
        const Mirror from = mirrors.make(Shape{count}, DType::F32);
        for (std::int64_t i = 0; i < count; ++i) {  // all kinds: subnormals, NaN, infinities, ties
            std::uint32_t bits = philox4x32(philox_key(3), static_cast<std::uint64_t>(i), 0)[0];
            if (i % 3 == 0) bits = (bits & 0xFFFF0000U) | 0x8000U;
            if (i % 17 == 0) bits &= 0x807FFFFFU;
            if (i % 19 == 0) bits |= 0x7F800000U;
            from.host.as<std::uint32_t>()[i] = bits;
        }
        mirrors.up(from);
        const Mirror bf16 = mirrors.make(Shape{count}, DType::BF16);
        const Mirror half = mirrors.make(Shape{count}, DType::F16);
        const Mirror back = mirrors.make(Shape{count}, DType::F32);
        const Mirror across = mirrors.make(Shape{count}, DType::F16);
        ElementwiseOps& elementwise = bench.ops().elementwise;
        elementwise.cast(bench.stream(), bf16.device, from.device);
        elementwise.cast(bench.stream(), half.device, from.device);
        elementwise.cast(bench.stream(), back.device, bf16.device);
        elementwise.cast(bench.stream(), across.device, bf16.device);
        for (const Mirror& mirror : {bf16, half, back, across}) mirrors.down(mirror);
        int wrong = 0;
        for (std::int64_t i = 0; i < count; ++i) {
            const float value = from.host.as<float>()[i];
            const BFloat16 narrow = to_bfloat16(value);
            const auto same = [](float found, float wanted) {
                return std::bit_cast<std::uint32_t>(found) == std::bit_cast<std::uint32_t>(wanted) ||
                       (std::isnan(found) && std::isnan(wanted));
            };
            wrong += same(to_float(bf16.host.as<BFloat16>()[i]), to_float(narrow)) ? 0 : 1;
            wrong += same(to_float(half.host.as<Float16>()[i]), to_float(to_float16(value))) ? 0 : 1;
            wrong += same(back.host.as<float>()[i], to_float(narrow)) ? 0 : 1;
            wrong +=
                same(to_float(across.host.as<Float16>()[i]), to_float(to_float16(to_float(narrow)))) ? 0 : 1;
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("cuda: a new buffer is zero to every stream", "[cuda]") {
    CudaBench bench(11);
    Mirrors mirrors(bench);
    const Mirror fresh = mirrors.make(Shape{1000}, DType::U8);
    std::memset(fresh.host.data, 1, fresh.host.bytes());
    mirrors.down(fresh);
    CHECK(std::vector<std::byte>(fresh.host.data, fresh.host.data + fresh.host.bytes()) ==
          std::vector<std::byte>(fresh.host.bytes()));
}

TEST_CASE("cuda: fill_zero zeroes everything and nothing else", "[cuda]") {
    CudaBench bench(7);
    Mirrors mirrors(bench);
    const Mirror all = mirrors.make(Shape{5000}, DType::U8);
    std::memset(all.host.data, 1, all.host.bytes());
    mirrors.up(all);
    bench.ops().elementwise.fill_zero(bench.stream(), all.device.flat(1, 4997));
    mirrors.down(all);
    CHECK(all.host.data[0] == std::byte{1});
    CHECK(all.host.data[4998] == std::byte{1});
    int nonzero = 0;
    for (std::size_t i = 1; i < 4998; ++i) nonzero += all.host.data[i] != std::byte{0} ? 1 : 0;
    CHECK(nonzero == 0);
}

TEST_CASE("cuda: dropout keeps what the cpu keeps", "[cuda]") {
    const auto cpu_device = make_cpu_device({1, CpuIsa::V3});
    const auto cpu_stream = cpu_device->make_stream("compute", StreamRole::Compute);
    const auto cpu = make_cpu_ops(*cpu_device);
    for (const std::int64_t width : {9, 264}) {
        CudaBench bench(8);
        Mirrors mirrors(bench);
        const Mirror x = mirrors.filled(Shape{43, width}, DType::F32,
                                        std::vector<double>(static_cast<std::size_t>(43 * width), 1.0));
        for (const std::int64_t rows_per_sample : {1, 7, 50}) {
            const Dropout site{0.3F, philox_key(9), 42, (1ULL << 40U) + 3, 11};
            const Mirror y = mirrors.make(x.host.shape, DType::F32);
            bench.ops().elementwise.dropout(bench.stream(), y.device, x.device, rows_per_sample, site);
            cpu->ops().elementwise.dropout(*cpu_stream, y.host, x.host, rows_per_sample, site);
            const std::vector<float> wanted = floats(y.host);
            mirrors.down(y);
            CHECK(floats(y.host) == wanted);
        }
    }
}

TEST_CASE("cuda: embedding gradients are the cpu's to the bit, in any order of blocks", "[cuda]") {
    const auto cpu_device = make_cpu_device({1, CpuIsa::V3});
    const auto cpu_stream = cpu_device->make_stream("compute", StreamRole::Compute);
    const auto cpu = make_cpu_ops(*cpu_device);
    constexpr std::int64_t rows = 900;
    constexpr std::int64_t table_rows = 300;
    constexpr std::int64_t first_row = 20;
    for (const std::int64_t width : {40, 33}) {
        for (std::uint64_t seed = 0; seed < 4; ++seed) {
            CudaBench bench(seed);
            Mirrors mirrors(bench);
            const Mirror dx = mirrors.make(Shape{rows, width}, DType::F32);
            for (std::int64_t i = 0; i < dx.host.elements(); ++i) {
                const PhiloxBlock block = philox4x32(philox_key(1), static_cast<std::uint64_t>(i), 0);
                dx.host.as<float>()[i] = philox_uniform(block[0]) - 0.5F;
            }
            const Mirror tokens = mirrors.make(Shape{rows}, DType::I32);
            for (std::int64_t row = 0; row < rows; ++row) {  // a third is one token, some are elsewhere
                const PhiloxBlock block = philox4x32(philox_key(2), static_cast<std::uint64_t>(row), 0);
                tokens.host.as<std::int32_t>()[row] =
                    row % 3 == 0 ? 77 : static_cast<std::int32_t>(block[0] % 340);
            }
            const Mirror dtable = mirrors.make(Shape{table_rows, width}, DType::F32);
            const Mirror dpositions = mirrors.make(Shape{128, width}, DType::F32);
            for (const Mirror& mirror : {dx, tokens, dtable, dpositions}) mirrors.up(mirror);
            const auto run = [&](Ops ops, Stream& stream, Device& device, TensorView Mirror::*side) {
                const std::size_t bytes = ops.embedding.backward_scratch_bytes(rows, table_rows);
                const Buffer scratch = device.allocate(bytes, Memory::Device, "scratch");
                const TensorView view = scratch.view(Shape{static_cast<std::int64_t>(bytes)}, DType::U8);
                for (const Into into : {Into::Overwrite, Into::Accumulate}) {
                    ops.embedding.backward(stream, dtable.*side, dpositions.*side, dx.*side, tokens.*side,
                                           100, first_row, into, into, view);
                }
                stream.synchronize();
            };
            run(bench.ops(), bench.stream(), bench.device(), &Mirror::device);
            run(cpu->ops(), *cpu_stream, *cpu_device, &Mirror::host);
            for (const Mirror& result : {dtable, dpositions}) {
                const std::vector<float> wanted = floats(result.host);
                mirrors.down(result);
                CHECK(floats(result.host) == wanted);
            }
        }
    }
}

TEST_CASE("cuda: f16 gradients keep subnormals and show an overflow as infinity", "[cuda]") {
    CudaBench bench(9);
    Mirrors mirrors(bench);
    const Mirror targets = mirrors.make(Shape{1}, DType::I32);
    targets.host.as<std::int32_t>()[0] = 3;
    mirrors.up(targets);
    const Mirror losses = mirrors.make(Shape{1}, DType::F32);
    // Every probability is 1/64: the scale decides what becomes of the gradient.
    const auto gradients = [&](float scale) {
        const Mirror logits = mirrors.filled(Shape{1, 64}, DType::F16, {});
        bench.ops().loss.cross_entropy(bench.stream(), losses.device, logits.device, targets.device,
                                       {64, scale, LossPass::Train});
        mirrors.down(logits);
        return logits.host;
    };
    CHECK(element(gradients(0x1.0p-16F), 0) == 0x1.0p-22);  // below the smallest normal number, 2^-14
    CHECK(element(gradients(0x1.0p-19F), 0) == 0.0);        // 2^-25 is half of the smallest
    const TensorView overflowed = gradients(0x1.0p+17F);    // 63/64 of it at the target
    CHECK(std::isinf(element(overflowed, 3)));
    CHECK(element(overflowed, 0) == 0x1.0p+11);
}

TEST_CASE("cuda: ops on no rows leave zero sums and start nothing", "[cuda]") {
    CudaBench bench(10);
    Mirrors mirrors(bench);
    const Mirror x = mirrors.make(Shape{4, 16}, DType::BF16);
    const TensorView none = x.device.rows(0, 0);
    const Mirror statistics = mirrors.make(Shape{1, 2}, DType::F32);
    const TensorView no_statistics = statistics.device.rows(0, 0);
    const Mirror gain = mirrors.make(Shape{16}, DType::BF16);
    const Mirror sums = mirrors.make(Shape{16}, DType::F32);
    const Mirror tokens = mirrors.make(Shape{1}, DType::I32);
    const TensorView no_tokens = tokens.device.flat(0, 0);
    const Mirror table = mirrors.filled(Shape{8, 16}, DType::F32, std::vector<double>(128, 3.0));
    const Mirror scratch = mirrors.make(Shape{4096}, DType::U8);
    const Ops ops = bench.ops();
    Stream& s = bench.stream();
    const TensorView absent;
    ops.norm.forward(s, none, absent, no_statistics, none, absent, gain.device, absent, {});
    ops.norm.backward(s, none, sums.device, absent, none, absent, none, no_statistics, gain.device,
                      Into::Overwrite, {}, scratch.device);
    mirrors.down(sums);
    CHECK(floats(sums.host) == std::vector<float>(16, 0.0F));
    ops.elementwise.bias_gelu_forward(s, none, none, gain.device);
    ops.elementwise.bias_gelu_backward(s, none, sums.device, none, none, gain.device, Into::Overwrite,
                                       scratch.device);
    ops.elementwise.bias_backward(s, sums.device, none, Into::Accumulate, scratch.device);
    mirrors.down(sums);
    CHECK(floats(sums.host) == std::vector<float>(16, 0.0F));
    ops.elementwise.swiglu_forward(s, none, none);
    ops.elementwise.add(s, none, none, none);
    ops.elementwise.cast(s, none, none);
    ops.elementwise.dropout(s, none, none, 4, {0.5F, {}, 0, 0, 0});
    ops.elementwise.fill_zero(s, none);
    ops.embedding.forward(s, none, no_tokens, x.device, absent, 4, 0);
    ops.embedding.backward(s, table.device, absent, none, no_tokens, 4, 0, Into::Overwrite, Into::Overwrite,
                           scratch.device);
    mirrors.down(table);
    CHECK(floats(table.host) == std::vector<float>(128, 0.0F));
    ops.loss.cross_entropy(s, statistics.device.flat(0, 0), none, no_tokens, {16, 1.0F, LossPass::Train});
    s.synchronize();
}

}  // namespace trainctl::cuda_test
