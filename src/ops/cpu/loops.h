// Loops that the kernels are written in. Everything is internal to the including source, so that nothing
// compiled for one level can be linked into another.
#pragma once

#include <omp.h>

#include <cstdint>

#include "level.h"
#include "ops/cpu/kernels.h"
#include "simd.h"

namespace trainctl::cpu {
namespace {  // NOLINT: see above

// body(i) for i in [0, count), shared out among `threads`; every i is independent of the others.
template <class Body>
void parallel_for(int threads, std::int64_t count, const Body& body) {
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && count > 1)
    for (std::int64_t i = 0; i < count; ++i) body(i);
}

// Like parallel_for, for pieces of unequal cost; body(i, worker) with worker in [0, threads).
template <class Body>
void parallel_for_dynamic(int threads, std::int64_t count, const Body& body) {
#pragma omp parallel num_threads(threads) if (threads > 1 && count > 1)
    {
        const int worker = omp_get_thread_num();
#pragma omp for schedule(dynamic)
        for (std::int64_t i = 0; i < count; ++i) body(i, worker);
    }
}

// body(i, width) over [0, n) in steps of one vector; width is simd::Full, or simd::Part for the last few
// elements.
template <class Body>
inline void for_vectors(std::int64_t n, const Body& body) {
    std::int64_t i = 0;
    for (; i + simd::lanes <= n; i += simd::lanes) body(i, simd::Full{});
    if (i < n) body(i, simd::Part{n - i});
}

// As for_vectors, with an index 0..3 that changes from vector to vector: body(i, width, which). For sums,
// whose four running totals hide the latency of additions; which element goes where depends on n alone.
template <class Body>
inline void for_vectors_by_four(std::int64_t n, const Body& body) {
    constexpr std::int64_t lanes = simd::lanes;
    std::int64_t i = 0;
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
        body(i, simd::Full{}, 0);
        body(i + lanes, simd::Full{}, 1);
        body(i + 2 * lanes, simd::Full{}, 2);
        body(i + 3 * lanes, simd::Full{}, 3);
    }
    for (; i + lanes <= n; i += lanes) body(i, simd::Full{}, 0);
    if (i < n) body(i, simd::Part{n - i}, 1);
}

// Four running totals of one sum.
struct Totals {
    simd::F part[4] = {simd::F(0.0F), simd::F(0.0F), simd::F(0.0F), simd::F(0.0F)};
    [[nodiscard]] float total() const { return simd::sum((part[0] + part[1]) + (part[2] + part[3])); }
};

// x with `beyond` in the lanes that lie beyond the row's end.
inline simd::F keep(simd::F x, simd::Full, simd::F /*beyond*/ = simd::F(0.0F)) { return x; }
inline simd::F keep(simd::F x, simd::Part part, simd::F beyond = simd::F(0.0F)) {
    return simd::select(simd::first_lanes(part.count), x, beyond);
}
inline simd::F minus_infinity() { return simd::bits_to_float(simd::I(0xFF800000U)); }

// body(pointer type tag) for the storage types that models compute in.
template <class Body>
void with_storage(DType dtype, const Body& body) {
    if (dtype == DType::BF16) {
        body(static_cast<BFloat16*>(nullptr));
    } else if (dtype == DType::F16) {
        body(static_cast<Float16*>(nullptr));
    } else {
        body(static_cast<float*>(nullptr));
    }
}

// Second stage of a column sum: result (=, +=) partials[chunk * stride], added in the order of chunks.
inline void add_partials(float* result, const float* partials, std::int64_t chunks, std::int64_t stride,
                         std::int64_t width, bool accumulate, int threads) {
    constexpr std::int64_t columns = 256;
    parallel_for(threads, (width + columns - 1) / columns, [=](std::int64_t block) {
        const std::int64_t begin = block * columns;
        const std::int64_t count = width - begin < columns ? width - begin : columns;
        for_vectors(count, [=](std::int64_t i, auto lanes) {
            simd::F total(0.0F);
            for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
                total = total + simd::load(partials + chunk * stride + begin + i, lanes);
            }
            if (accumulate) total = total + simd::load(result + begin + i, lanes);
            simd::store(result + begin + i, total, lanes);
        });
    });
}

}  // namespace
}  // namespace trainctl::cpu
