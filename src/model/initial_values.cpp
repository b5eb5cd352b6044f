// Initial weights. Compiled with -ffp-contract=off and free of libm's transcendental functions: only IEEE
// additions, multiplications, divisions and square roots, so that every machine draws the same bits.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "trainctl/base/error.h"
#include "trainctl/base/hash.h"
#include "trainctl/base/philox.h"
#include "trainctl/model/param.h"

namespace trainctl {
namespace {

constexpr double ln_2 = 0.693147180559945309417;
constexpr double two_pi = 6.28318530717958647693;

// Counter blocks drawn together, so that the compiler computes several lanes at once.
constexpr std::int64_t batch_blocks = 16;
constexpr std::size_t pairs = 2 * batch_blocks;

double select(bool condition, double yes, double no) { return condition ? yes : no; }

// An integer below 2^52 as a double, with operations that every vector unit has.
double to_double(std::uint64_t value) {
    return std::bit_cast<double>(value | 0x4330000000000000U) - 0x1.0p52;
}

// Strictly inside (0, 1): the logarithm is finite.
double open_uniform(std::uint32_t bits) { return (to_double(bits) + 0.5) * 0x1.0p-32; }

// Natural logarithm of a positive normal number: exponent * ln 2 + 2 atanh((m - 1) / (m + 1)) with the
// mantissa m in [sqrt(1/2), sqrt(2)); the series ends below 2^-55.
double logarithm(double x) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const double exponent = to_double(bits >> 52U) - 1023.0;
    const double mantissa = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFU) | 0x3FF0000000000000U);
    const bool upper = mantissa > 1.4142135623730951;
    const double m = select(upper, 0.5 * mantissa, mantissa);
    const double s = (m - 1.0) / (m + 1.0);
    const double square = s * s;
    double series = 0.0;
    for (int odd = 23; odd >= 1; odd -= 2) series = series * square + 1.0 / odd;
    return select(upper, exponent + 1.0, exponent) * ln_2 + 2.0 * s * series;
}

struct SineCosine {
    double sine;
    double cosine;
};

// Sine and cosine of 2 pi u, u = open_uniform(bits): Taylor series around the nearest quarter turn.
SineCosine turn(std::uint32_t bits) {
    const std::uint32_t quarter = ((bits >> 29U) + 1U) >> 1U;  // 0..4
    const double a = two_pi * (open_uniform(bits) - 0.25 * to_double(quarter));
    const double square = a * a;
    double sine = 1.0;
    for (int n = 18; n >= 2; n -= 2) sine = 1.0 - sine * square * (1.0 / (n * (n + 1)));
    sine *= a;
    double cosine = 1.0;
    for (int n = 17; n >= 1; n -= 2) cosine = 1.0 - cosine * square * (1.0 / (n * (n + 1)));
    const bool odd = (quarter & 1U) != 0;
    const double sine_sign = select((quarter & 2U) != 0, -1.0, 1.0);
    const double cosine_sign = select(((quarter + 1U) & 2U) != 0, -1.0, 1.0);
    return {sine_sign * select(odd, cosine, sine), cosine_sign * select(odd, sine, cosine)};
}

// Normals of the counter blocks [first, first + batch_blocks) (Box, Muller 1958), four per block: words (0,
// 1) give elements 0 and 1, words (2, 3) the others.
void batch_normals(PhiloxKey key, std::uint64_t stream, std::uint64_t first,
                   std::array<double, 2 * pairs>& normals) {
    std::array<std::uint32_t, pairs> radius_bits;
    std::array<std::uint32_t, pairs> angle_bits;
    for (std::size_t block = 0; block < batch_blocks; ++block) {
        const PhiloxBlock words = philox4x32(key, first + block, stream);
        radius_bits[2 * block] = words[0];
        angle_bits[2 * block] = words[1];
        radius_bits[2 * block + 1] = words[2];
        angle_bits[2 * block + 1] = words[3];
    }
    for (std::size_t pair = 0; pair < pairs; ++pair) {
        const double radius = std::sqrt(-2.0 * logarithm(open_uniform(radius_bits[pair])));
        const SineCosine angle = turn(angle_bits[pair]);
        normals[2 * pair] = radius * angle.cosine;
        normals[2 * pair + 1] = radius * angle.sine;
    }
}

void fill_normal(const ParamSpec& param, std::uint64_t seed, std::int64_t begin, std::span<float> out) {
    const PhiloxKey key = philox_key(seed);
    const std::uint64_t stream = name_hash(param.name);
    const std::int64_t end = begin + static_cast<std::int64_t>(out.size());
    std::array<double, 2 * pairs> normals;
    for (std::int64_t block = begin / 4; block * 4 < end; block += batch_blocks) {
        batch_normals(key, stream, static_cast<std::uint64_t>(block), normals);
        const std::int64_t from = std::max(begin, block * 4);
        const std::int64_t to = std::min(end, (block + batch_blocks) * 4);
        for (std::int64_t element = from; element < to; ++element) {
            const double normal = normals[static_cast<std::size_t>(element - block * 4)];
            out[static_cast<std::size_t>(element - begin)] = static_cast<float>(param.init_std * normal);
        }
    }
}

// Elements [begin, begin + out.size()) of the local part, in runs that are neighbours in the whole tensor.
void fill_normal_part(const ParamSpec& param, std::uint64_t seed, std::int64_t begin, std::span<float> out) {
    const Box box = local_box(param);
    const int rank = param.global.rank();
    // Rows of a matrix that is split by columns lie apart; every other part is one run.
    const bool apart = rank == 2 && box.extent[1] != param.global[1];
    const std::int64_t run = apart ? box.extent[1] : std::max<std::int64_t>(box.extent.elements(), 1);
    const std::int64_t stride = apart ? param.global[1] : run;
    std::int64_t first = rank == 0 ? 0 : box.offset[0];
    if (rank == 2) first = first * param.global[1] + box.offset[1];
    const auto count = static_cast<std::int64_t>(out.size());
    for (std::int64_t done = 0; done < count;) {
        const std::int64_t element = begin + done;
        const std::int64_t here = std::min(count - done, run - element % run);
        fill_normal(param, seed, first + element / run * stride + element % run,
                    out.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(here)));
        done += here;
    }
}

}  // namespace

void initial_values(const ParamSpec& param, std::uint64_t seed, std::int64_t begin, std::span<float> out) {
    const auto count = static_cast<std::int64_t>(out.size());
    invariant(begin >= 0 && begin + count <= param.padded.elements(), "initial_values: beyond the tensor");
    // Only the first dimension is ever padded, so the padding is one tail of the flattened tensor.
    const std::int64_t logical = local_box(param).extent.elements();
    const auto drawn = static_cast<std::size_t>(std::min(std::max(logical - begin, std::int64_t{0}), count));
    switch (param.init) {
        case InitKind::Zero:
            std::fill(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(drawn), 0.0F);
            break;
        case InitKind::One:
            std::fill(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(drawn), 1.0F);
            break;
        case InitKind::Normal:
            fill_normal_part(param, seed, begin, out.first(drawn));
            break;
    }
    std::fill(out.begin() + static_cast<std::ptrdiff_t>(drawn), out.end(), 0.0F);
}

}  // namespace trainctl
