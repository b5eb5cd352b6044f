// One block per row. The gradient pass reads the row a second time, from the L2 cache as long as the rows of
// all blocks at work fit it: two blocks of 512 threads to a multiprocessor.
#include <cfloat>

#include "cuda/kernels/loss.h"
#include "cuda/lanes.h"
#include "cuda/launch.h"
#include "cuda/reduce.h"
#include "cuda/storage.h"

namespace trainctl::cuda {
namespace {

constexpr int warps = 16;
constexpr int threads = warps * warp_size;
constexpr std::size_t shared_bytes = 2 * warps * sizeof(float);
constexpr int at_once = 4;  // runs of n logits that a thread asks for together

constexpr float log2_e = 1.44269504F;
__device__ float minus_infinity() { return std::bit_cast<float>(0xFF800000U); }
// The difference is taken first: it is exact where it matters, however large the logits are.
__device__ float exp_difference(float x, float top) { return exp2_approximate((x - top) * log2_e); }

// body(n values from column on) over the logical columns of a row, with -infinity beyond them.
template <int n, class T, class Body>
__device__ void for_logits(const T* row, std::int64_t vocab, const Body& body) {
    constexpr std::int64_t step = static_cast<std::int64_t>(threads) * n;
    for (std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * n; first < vocab;
         first += at_once * step) {
        Lanes<T, n> raw[at_once];
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
            if (first + i * step < vocab) raw[i] = load<n>(row + first + i * step);
        }
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
            const std::int64_t column = first + i * step;
            if (column >= vocab) break;
            float x[n];
            widen(raw[i], x);
            if (column + n > vocab) {
#pragma unroll
                for (int c = 0; c < n; ++c) x[c] = column + c < vocab ? x[c] : minus_infinity();
            }
            body(x);
        }
    }
}

template <int n>
__device__ float largest_of(const float (&x)[n], float top) {
#pragma unroll
    for (int c = 0; c < n; ++c) top = fmaxf(top, x[c]);
    return top;
}

// Writes (softmax - one_hot) gradient_scale over the row; `target` is a column at hand or -1. Every thread
// writes what it has read itself, in this pass.
template <int n, class T>
__device__ void write_gradients(const LogitRows& a, T* row, std::int64_t target, float top, float sum) {
    constexpr std::int64_t step = static_cast<std::int64_t>(threads) * n;
    const float inverse = divide(1.0F, sum);
    const float scale = divide(a.gradient_scale, sum);
    for (std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * n; first < a.width;
         first += at_once * step) {
        Lanes<T, n> raw[at_once];
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
            if (first + i * step < a.width) raw[i] = load<n>(row + first + i * step);
        }
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
            const std::int64_t column = first + i * step;
            if (column >= a.width) break;
            float x[n];
            widen(raw[i], x);
            float gradient[n];
#pragma unroll
            for (int c = 0; c < n; ++c) gradient[c] = exp_difference(x[c], top) * scale;
            if (column + n > a.vocab || (target >= column && target < column + n)) {
#pragma unroll
                for (int c = 0; c < n; ++c) {
                    if (column + c == target) {
                        gradient[c] = (exp_difference(x[c], top) * inverse - 1.0F) * a.gradient_scale;
                    }
                    if (column + c >= a.vocab) gradient[c] = 0.0F;
                }
            }
            store(row + column, gradient);
        }
    }
}

template <int n, class T>
__device__ void write_zeros(T* row, std::int64_t width) {
    const float zeros[n] = {};
    for (std::int64_t column = static_cast<std::int64_t>(threadIdx.x) * n; column < width;
         column += threads * n) {
        store(row + column, zeros);
    }
}

template <class T>
__device__ T* row_of(const LogitRows& a) {
    return static_cast<T*>(a.logits) + static_cast<std::int64_t>(blockIdx.x) * a.width;
}
// Column of the row's target, or -1: ignored, or another rank's.
__device__ std::int64_t target_column(const LogitRows& a) {
    const std::int64_t token = a.targets[blockIdx.x];
    const std::int64_t column = token - a.first_column;
    return token >= 0 && column >= 0 && column < a.vocab ? column : -1;
}

// Maximum and sum of exponentials in one pass: a thread scales its sum down when it meets a larger logit.
template <class T, int n>
__global__ void __launch_bounds__(threads, 2) whole_rows(LogitRows a, float* losses) {
    auto* shared = shared_memory<float>();
    T* row = row_of<T>(a);
    if (a.targets[blockIdx.x] < 0) {
        if (threadIdx.x == 0) losses[blockIdx.x] = 0.0F;
        if (a.pass == LossPass::Train) write_zeros<n>(row, a.width);
        return;
    }
    const std::int64_t target = target_column(a);
    float top = -FLT_MAX;  // not infinity: differences of two stay numbers
    float sum = 0.0F;
    for_logits<n>(row, a.vocab, [&](const float(&x)[n]) {
        const float higher = largest_of(x, top);
        sum *= exp_difference(top, higher);
        top = higher;
#pragma unroll
        for (int c = 0; c < n; ++c) sum += exp_difference(x[c], top);
    });
    const float at_target = target >= 0 ? widen(row[target]) : 0.0F;
    const float row_top = block_max<warps>(top, shared);
    sum = block_sum<warps>(sum * exp_difference(top, row_top), shared + warps);
    if (threadIdx.x == 0) losses[blockIdx.x] = log_accurate(sum) - (at_target - row_top);
    if (a.pass == LossPass::Train) write_gradients<n>(a, row, target, row_top, sum);
}

template <class T, int n>
__global__ void __launch_bounds__(threads, 2) maxima_of_rows(LogitRows a, float* maxima) {
    float top = minus_infinity();
    for_logits<n>(row_of<T>(a), a.vocab, [&](const float(&x)[n]) { top = largest_of(x, top); });
    top = block_max<warps>(top, shared_memory<float>());
    if (threadIdx.x == 0) maxima[blockIdx.x] = top;
}

template <class T, int n>
__global__ void __launch_bounds__(threads, 2) sums_of_rows(LogitRows a, float* sums, const float* maxima) {
    const T* row = row_of<T>(a);
    const float top = maxima[blockIdx.x];
    float sum = 0.0F;
    for_logits<n>(row, a.vocab, [&](const float(&x)[n]) {
#pragma unroll
        for (int c = 0; c < n; ++c) sum += exp_difference(x[c], top);
    });
    sum = block_sum<warps>(sum, shared_memory<float>());
    if (threadIdx.x > 0) return;
    const std::int64_t target = target_column(a);
    sums[2 * blockIdx.x] = sum;
    sums[2 * blockIdx.x + 1] = target < 0 ? 0.0F : widen(row[target]) - top;
}

template <class T, int n>
__global__ void __launch_bounds__(threads, 2)
    finish_rows(LogitRows a, float* losses, const float* maxima, const float* sums) {
    T* row = row_of<T>(a);
    if (a.targets[blockIdx.x] < 0) {
        if (threadIdx.x == 0) losses[blockIdx.x] = 0.0F;
        if (a.pass == LossPass::Train) write_zeros<n>(row, a.width);
        return;
    }
    const float sum = sums[2 * blockIdx.x];
    if (threadIdx.x == 0) losses[blockIdx.x] = log_accurate(sum) - sums[2 * blockIdx.x + 1];
    if (a.pass == LossPass::Train) write_gradients<n>(a, row, target_column(a), maxima[blockIdx.x], sum);
}

__global__ void __launch_bounds__(threads)
    add_losses(double* total, const float* losses, std::int64_t count, Into into) {
    double sum = 0.0;
    for (std::int64_t i = threadIdx.x; i < count; i += threads) sum += static_cast<double>(losses[i]);
    sum = block_sum<warps>(sum, shared_memory<double>());
    if (threadIdx.x == 0) *total = into == Into::Accumulate ? *total + sum : sum;
}

// body(type tag, width of accesses as a constant, launch shape)
template <class Body>
void for_rows(const LogitRows& a, cudaStream_t stream, const Body& body) {
    if (a.rows == 0) return;
    const LaunchShape shape{dim3(blocks_for(a.rows, 1)), dim3(threads), shared_bytes, stream};
    with_storage(a.dtype, [&]<class T>(T* tag) {
        if (packable<T>(a.width, {a.logits})) {
            body(tag, std::integral_constant<int, Pack<T>::size>{}, shape);
        } else {
            body(tag, std::integral_constant<int, 1>{}, shape);
        }
    });
}

}  // namespace

void cross_entropy(const LogitRows& a, float* losses, cudaStream_t stream) {
    for_rows(a, stream, [&]<class T, int n>(T*, std::integral_constant<int, n>, const LaunchShape& shape) {
        launch("cross_entropy", shape, &whole_rows<T, n>, a, losses);
    });
}

void row_maxima(const LogitRows& a, float* maxima, cudaStream_t stream) {
    for_rows(a, stream, [&]<class T, int n>(T*, std::integral_constant<int, n>, const LaunchShape& shape) {
        launch("row_maxima", shape, &maxima_of_rows<T, n>, a, maxima);
    });
}

void exponential_sums(const LogitRows& a, float* sums, const float* maxima, cudaStream_t stream) {
    for_rows(a, stream, [&]<class T, int n>(T*, std::integral_constant<int, n>, const LaunchShape& shape) {
        launch("exponential_sums", shape, &sums_of_rows<T, n>, a, sums, maxima);
    });
}

void finish_cross_entropy(const LogitRows& a, float* losses, const float* maxima, const float* sums,
                          cudaStream_t stream) {
    for_rows(a, stream, [&]<class T, int n>(T*, std::integral_constant<int, n>, const LaunchShape& shape) {
        launch("finish_cross_entropy", shape, &finish_rows<T, n>, a, losses, maxima, sums);
    });
}

void sum_losses(double* total, const float* losses, std::int64_t count, Into into, cudaStream_t stream) {
    launch("sum_losses", {dim3(1), dim3(threads), warps * sizeof(double), stream}, &add_losses, total, losses,
           count, into);
}

}  // namespace trainctl::cuda
