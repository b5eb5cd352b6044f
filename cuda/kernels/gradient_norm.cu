// Sums of squares in integer bins, and what a step makes of them.
#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>

#include "cuda/intrinsics.h"
#include "cuda/kernels/optimizer.h"
#include "cuda/launch.h"

namespace trainctl::cuda {
namespace {

constexpr int threads = 256;
// Half a warp sums a block of 128 elements, lane l those with numbers l, l + 16, ...: the order of the cpu
// backend's widest vectors, so that its bins are these, to the bit.
constexpr int half_warp = 16;
constexpr int rounds = static_cast<int>(norm_block) / half_warp;
constexpr unsigned most_blocks = 1024;  // some full waves of any device; more would only add to the same bins

// Digits of the sums of one thread's blocks: three neighbouring bins in registers, written out when the
// magnitude leaves them. A digit is below 2^32, so 2^31 of them fit.
class Digits {
  public:
    __device__ explicit Digits(std::int64_t* bins) : bins_(bins) {}

    // A finite double >= 0, as the digits of its bits: bin b weighs 2^(32 (b - norm_zero_bin)).
    __device__ void add(double sum) {
        const auto bits = std::bit_cast<std::uint64_t>(sum);
        const int exponent = static_cast<int>(bits >> 52U);
        if (exponent == 0) return;  // 0: the smallest possible sum of a non-zero element is normal
        // sum = mantissa 2^(exponent - 1075); counted from the lowest bin the mantissa starts at bit
        // `position`
        const std::uint64_t mantissa = (bits & ((std::uint64_t{1} << 52U) - 1U)) | (std::uint64_t{1} << 52U);
        const int position = exponent - 1075 + 32 * norm_zero_bin;
        const int bin = position / 32;
        const int shift = position % 32;
        const std::uint64_t low = (mantissa & 0xFFFFFFFFU) << shift;  // below 2^63
        const std::uint64_t high = (mantissa >> 32U) << shift;        // below 2^52, counts from bin + 1
        const std::uint64_t middle = (low >> 32U) + (high & 0xFFFFFFFFU);
        if (bin != bin_) {
            flush();
            bin_ = bin;
        }
        digit_[0] += static_cast<std::int64_t>(low & 0xFFFFFFFFU);
        digit_[1] += static_cast<std::int64_t>(middle & 0xFFFFFFFFU);
        digit_[2] += static_cast<std::int64_t>((high >> 32U) + (middle >> 32U));
    }
    __device__ void flush() {
#pragma unroll
        for (int i = 0; i < 3; ++i) {
            if (digit_[i] != 0) atomic_add(bins_ + bin_ + i, digit_[i]);
            digit_[i] = 0;
        }
    }

  private:
    std::int64_t* bins_;
    int bin_ = 0;
    std::int64_t digit_[3] = {0, 0, 0};
};

__global__ void __launch_bounds__(threads)
    add_squares(std::int64_t* bins, const float* gradient, std::int64_t count) {
    auto* shared = shared_memory<std::int64_t>();
    if (threadIdx.x < norm_bins) shared[threadIdx.x] = 0;
    sync_block();

    const int lane = static_cast<int>(threadIdx.x) % half_warp;
    constexpr int at_once = threads / half_warp;
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * at_once;
    const std::int64_t blocks = (count + norm_block - 1) / norm_block;
    Digits digits(shared);
    // Both halves of a warp turn equally often: a warp sums together.
    for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * at_once; first < blocks;
         first += step) {
        const std::int64_t begin = (first + static_cast<int>(threadIdx.x) / half_warp) * norm_block + lane;
        float x[rounds];
#pragma unroll
        for (int i = 0; i < rounds; ++i) {
            x[i] = begin + i * half_warp < count ? gradient[begin + i * half_warp] : 0.0F;
        }
        double sum = 0.0;
#pragma unroll
        for (int i = 0; i < rounds; ++i) {
            const auto wide = static_cast<double>(x[i]);
            sum += wide * wide;  // the square is exact
        }
        for (int mask = half_warp / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
        if (lane != 0) continue;
        // Squares of finite floats cannot overflow a double, so only inf and NaN fail this.
        if (sum <= DBL_MAX) {
            digits.add(sum);
        } else {
            atomic_add(shared + norm_digit_bins, 1);
        }
    }
    digits.flush();
    sync_block();
    if (threadIdx.x < norm_bins && shared[threadIdx.x] != 0)
        atomic_add(bins + threadIdx.x, shared[threadIdx.x]);
}

__device__ double power_of_two(int exponent) {  // of a normal double
    return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52U);
}

// The number that the bins stand for: digits are first made proper (0 <= digit < 2^32), so that the result
// depends on the number alone and not on how it was summed.
__device__ double sum_of_bins(const std::int64_t* bins) {
    std::int64_t carry = 0;
    double sum = 0.0;
    for (int bin = 0; bin < norm_digit_bins; ++bin) {  // small ones first
        const std::int64_t value = bins[bin] + carry;
        sum += static_cast<double>(value & 0xFFFFFFFF) * power_of_two(32 * (bin - norm_zero_bin));
        carry = value >> 32U;
    }
    return sum + static_cast<double>(carry) * power_of_two(32 * (norm_digit_bins - norm_zero_bin));
}

__global__ void decide(double* scalars, const std::int64_t* bins, double max_norm,
                       double inverse_loss_scale) {
    const bool summable = bins[norm_digit_bins] == 0;
    const double norm = summable ? std::sqrt(sum_of_bins(bins)) * inverse_loss_scale
                                 : std::bit_cast<double>(std::uint64_t{0x7FF8} << 48U);  // NaN
    double clip = inverse_loss_scale;
    const double ratio = max_norm / (norm + 1e-6);
    if (max_norm > 0.0 && ratio < 1.0) clip *= ratio;
    scalars[scalar_grad_norm] = norm;
    scalars[scalar_clip] = clip;
    const bool finite = norm <= DBL_MAX && std::fabs(scalars[scalar_loss_sum]) <= DBL_MAX;  // false for NaN
    scalars[scalar_apply] = finite ? 1.0 : 0.0;
}

}  // namespace

void sum_squares(std::int64_t* bins, const float* gradient, std::int64_t count, Into into,
                 cudaStream_t stream) {
    if (into == Into::Overwrite) {
        check(cudaMemsetAsync(bins, 0, norm_bins * sizeof(std::int64_t), stream),
              "sum_squares: cudaMemsetAsync");
    }
    if (count == 0) return;
    constexpr std::int64_t each = 4;  // blocks of each half warp, before there are more of them
    constexpr std::int64_t per_block = norm_block * (threads / half_warp) * each;
    const unsigned blocks = std::min(blocks_for(count, per_block), most_blocks);
    launch("sum_squares", {dim3(blocks), dim3(threads), norm_bins * sizeof(std::int64_t), stream},
           &add_squares, bins, gradient, count);
}

void finish_norm(double* scalars, const std::int64_t* bins, double max_norm, double inverse_loss_scale,
                 cudaStream_t stream) {
    launch("finish_norm", {dim3(1), dim3(1), 0, stream}, &decide, scalars, bins, max_norm,
           inverse_loss_scale);
}

}  // namespace trainctl::cuda
