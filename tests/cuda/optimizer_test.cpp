// Gradient norm and AdamW of the cuda backend: the very bits of the cpu backend.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "cuda/mirrors.h"
#include "support/catch.h"
#include "support/reference_ops.h"

namespace trainctl::cuda_test {
namespace {

using Bins = std::vector<std::int64_t>;

// The cpu backend whose order of additions the kernels have; without AVX-512 here, the reference, whose block
// sums differ in their last bit.
struct CpuSide {
    std::unique_ptr<CpuDevice> device =
        make_cpu_device({1, detect_cpu_isa() >= CpuIsa::V4 ? CpuIsa::V4 : CpuIsa::V3});
    std::unique_ptr<Stream> stream = device->make_stream("compute", StreamRole::Compute);
    std::unique_ptr<OpsBackend> backend = make_cpu_ops(*device);
    OptimizerOps& optimizer = backend->ops().optimizer;
};

float random_float(std::int64_t i, std::uint64_t stream) {
    const PhiloxBlock block = philox4x32(philox_key(5), static_cast<std::uint64_t>(i), stream);
    return philox_uniform(block[0]) - 0.5F;
}

enum class Magnitudes { Wild, ByBlock, Alike };

// Wild: over the whole range of floats, subnormals included. ByBlock: the same, but one for each block.
void fill(const TensorView& gradient, Magnitudes magnitudes) {
    for (std::int64_t i = 0; i < gradient.elements(); ++i) {
        const auto block = static_cast<std::uint64_t>(i / norm_block);
        std::uint32_t bits = philox4x32(philox_key(5), static_cast<std::uint64_t>(i), 0)[0];
        if ((bits & 0x7F800000U) == 0x7F800000U) bits ^= 0x40000000U;  // finite
        switch (magnitudes) {
            case Magnitudes::Wild:
                gradient.as<float>()[i] = std::bit_cast<float>(bits);
                break;
            case Magnitudes::ByBlock:
                gradient.as<float>()[i] = std::ldexp(
                    random_float(i, 1), static_cast<int>(philox4x32(philox_key(5), block, 2)[0] % 270) - 145);
                break;
            case Magnitudes::Alike:
                gradient.as<float>()[i] = random_float(i, 1);
                break;
        }
    }
}

Bins bins_of(Mirrors& mirrors, CudaBench& bench, const std::vector<TensorView>& parts) {
    const Mirror bins = mirrors.make(Shape{norm_bins}, DType::I64);
    Into into = Into::Overwrite;  // what an allocation holds must not matter
    for (const TensorView& part : parts) {
        bench.ops().optimizer.sum_squares(bench.stream(), bins.device, part, into);
        into = Into::Accumulate;
    }
    mirrors.down(bins);
    return {bins.host.as<std::int64_t>(), bins.host.as<std::int64_t>() + norm_bins};
}
Bins cpu_bins_of(CpuSide& cpu, const TensorView& gradient) {
    Bins bins(norm_bins);
    const TensorView view{reinterpret_cast<std::byte*>(bins.data()), Shape{norm_bins}, DType::I64};
    cpu.optimizer.sum_squares(*cpu.stream, view, gradient, Into::Overwrite);
    return bins;
}

}  // namespace

TEST_CASE("cuda sums of squares are the cpu's bins, however a range is split", "[cuda]") {
    constexpr std::int64_t blocks = 700;
    constexpr std::int64_t count = blocks * norm_block - 37;  // a short tail block
    CudaBench bench(3);
    Mirrors mirrors(bench);
    CpuSide cpu;
    for (const Magnitudes magnitudes : {Magnitudes::Wild, Magnitudes::ByBlock, Magnitudes::Alike}) {
        const Mirror gradient = mirrors.make(Shape{count}, DType::F32);
        fill(gradient.host, magnitudes);
        mirrors.up(gradient);
        const Bins whole = bins_of(mirrors, bench, {gradient.device});
        if (detect_cpu_isa() >= CpuIsa::V4) {
            CHECK(whole == cpu_bins_of(cpu, gradient.host));
        } else {
            CHECK(whole[norm_digit_bins] == cpu_bins_of(cpu, gradient.host)[norm_digit_bins]);
        }
        for (const std::int64_t cut : {1, 16, 333, 699}) {
            const std::int64_t at = cut * norm_block;
            CHECK(whole == bins_of(mirrors, bench,
                                   {gradient.device.flat(at, count - at), gradient.device.flat(0, at)}));
        }
    }
}

TEST_CASE("cuda sums of squares count blocks that are not finite", "[cuda]") {
    const float infinity = std::numeric_limits<float>::infinity();
    CudaBench bench(4);
    Mirrors mirrors(bench);
    const Mirror gradient = mirrors.make(Shape{40 * norm_block}, DType::F32);
    gradient.host.as<float>()[5] = infinity;
    gradient.host.as<float>()[17 * norm_block] = -infinity;
    gradient.host.as<float>()[17 * norm_block + 1] = infinity;
    gradient.host.as<float>()[40 * norm_block - 1] = std::numeric_limits<float>::quiet_NaN();
    mirrors.up(gradient);
    Bins wanted(norm_bins, 0);
    wanted[norm_digit_bins] = 3;
    CHECK(bins_of(mirrors, bench, {gradient.device}) == wanted);
}

TEST_CASE("cuda norm, clip coefficient and decision are the cpu's", "[cuda]") {
    CudaBench bench(5);
    Mirrors mirrors(bench);
    CpuSide cpu;
    const Mirror gradient = mirrors.make(Shape{9 * norm_block}, DType::F32);
    for (const float magnitude : {0.0F, 1e-45F, 3e-39F, 1e-20F, 0.37F, 123.0F, 3e20F, 3e38F}) {
        for (std::int64_t i = 0; i < gradient.host.elements(); ++i)
            gradient.host.as<float>()[i] = magnitude * random_float(i, 2);
        if (magnitude == 123.0F) gradient.host.as<float>()[8] = std::numeric_limits<float>::infinity();
        const Mirror bins = mirrors.make(Shape{norm_bins}, DType::I64);
        const Bins values = cpu_bins_of(cpu, gradient.host);
        std::memcpy(bins.host.data, values.data(), bins.host.bytes());
        mirrors.up(bins);
        for (const double loss : {2.0, std::nan(""), static_cast<double>(INFINITY)}) {
            for (const double max_norm : {0.0, 1.0, 1e30}) {
                const Mirror scalars = mirrors.make(Shape{step_scalars}, DType::F64);
                scalars.host.as<double>()[scalar_loss_sum] = loss;
                mirrors.up(scalars);
                bench.ops().optimizer.finish_norm(bench.stream(), scalars.device, bins.device, max_norm,
                                                  0.125);
                cpu.optimizer.finish_norm(*cpu.stream, scalars.host, bins.host, max_norm, 0.125);
                std::vector<double> wanted(scalars.host.as<double>(),
                                           scalars.host.as<double>() + step_scalars);
                mirrors.down(scalars);
                for (const StepScalar which : {scalar_grad_norm, scalar_clip, scalar_apply}) {
                    const double found = scalars.host.as<double>()[which];
                    const double right = wanted[static_cast<std::size_t>(which)];
                    CHECK((found == right || (std::isnan(found) && std::isnan(right))));
                }
            }
        }
    }
}

namespace {

// Weights (`shift` elements into their memory), master, m, v, gradient, flags, scalars.
struct State {
    State(Mirrors& mirrors, std::int64_t count, DType dtype, std::int64_t shift)
        : memory(mirrors.make(Shape{count + shift + 8}, dtype)),
          weights{memory.host.flat(shift, count), memory.device.flat(shift, count)},
          master(mirrors.make(Shape{count}, DType::F32)),
          m(mirrors.make(Shape{count}, DType::F32)),
          v(mirrors.make(Shape{count}, DType::F32)),
          gradient(mirrors.make(Shape{count}, DType::F32)),
          flags(mirrors.make(Shape{(count + norm_block - 1) / norm_block}, DType::U8)),
          scalars(mirrors.make(Shape{step_scalars}, DType::F64)) {
        for (std::int64_t i = 0; i < count; ++i) {
            master.host.as<float>()[i] = random_float(i, 3);
            gradient.host.as<float>()[i] = random_float(i, 4);
        }
        // Moments that the next update makes subnormal: both backends keep none.
        for (std::int64_t i = 0; i < count; i += 7) {
            gradient.host.as<float>()[i] = 0.0F;
            m.host.as<float>()[i] = std::numeric_limits<float>::min();
            v.host.as<float>()[i] = std::numeric_limits<float>::denorm_min();
        }
        std::memset(flags.host.data, block_decays, flags.host.bytes());
        flags.host.as<std::uint8_t>()[1] = 0;  // a bias: not decayed
        scalars.host.as<double>()[scalar_clip] = 0.37;
        scalars.host.as<double>()[scalar_apply] = 1.0;
    }
    [[nodiscard]] std::vector<Mirror> all() const { return {memory, master, m, v, gradient, flags, scalars}; }

    Mirror memory;
    Mirror weights;
    Mirror master;
    Mirror m;
    Mirror v;
    Mirror gradient;
    Mirror flags;
    Mirror scalars;
};

enum class Weights { Separate, None };

void update(OptimizerOps& optimizer, Stream& stream, const State& state, TensorView Mirror::*side,
            Weights weights, std::int64_t step) {
    optimizer.adamw(stream, weights == Weights::Separate ? state.weights.*side : TensorView{},
                    state.master.*side, state.m.*side, state.v.*side, state.gradient.*side, state.flags.*side,
                    state.scalars.*side, {3e-2, 0.9, 0.999, 1e-8, 0.1, step});
}

}  // namespace

TEST_CASE("cuda AdamW is the cpu's to the bit, in every dtype and wherever the weights lie", "[cuda]") {
    CpuSide cpu;
    for (const std::int64_t count : {3 * norm_block + 45, 20 * norm_block}) {
        for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
            for (const std::int64_t shift : {0, 1, 4}) {
                const Weights weights = dtype == DType::F32 && shift == 0 ? Weights::None : Weights::Separate;
                CudaBench bench(6);
                Mirrors mirrors(bench);
                const State state(mirrors, count, dtype, shift);
                for (const Mirror& mirror : state.all()) mirrors.up(mirror);
                for (std::int64_t step = 1; step <= 3; ++step) {
                    update(bench.ops().optimizer, bench.stream(), state, &Mirror::device, weights, step);
                    update(cpu.optimizer, *cpu.stream, state, &Mirror::host, weights, step);
                }
                for (const Mirror& mirror : state.all()) {
                    const std::vector<std::byte> wanted(mirror.host.data,
                                                        mirror.host.data + mirror.host.bytes());
                    mirrors.down(mirror);
                    CHECK(std::memcmp(mirror.host.data, wanted.data(), wanted.size()) == 0);
                }
            }
        }
    }
}

TEST_CASE("cuda AdamW leaves every bit where the step is not applied", "[cuda]") {
    CudaBench bench(7);
    Mirrors mirrors(bench);
    const State state(mirrors, 5 * norm_block, DType::BF16, 0);
    state.scalars.host.as<double>()[scalar_apply] = 0.0;
    state.scalars.host.as<double>()[scalar_clip] = std::nan("");
    state.gradient.host.as<float>()[3] = std::numeric_limits<float>::quiet_NaN();
    std::memset(state.memory.host.data, 0x3A, state.memory.host.bytes());
    for (const Mirror& mirror : state.all()) mirrors.up(mirror);
    update(bench.ops().optimizer, bench.stream(), state, &Mirror::device, Weights::Separate, 3);
    for (const Mirror& mirror : state.all()) {
        const std::vector<std::byte> wanted(mirror.host.data, mirror.host.data + mirror.host.bytes());
        mirrors.down(mirror);
        CHECK(std::memcmp(mirror.host.data, wanted.data(), wanted.size()) == 0);
    }
}

}  // namespace trainctl::cuda_test
