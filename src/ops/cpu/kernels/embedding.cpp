// Rows of tables: gathered forward, added up backward in the order of rows.
#include "ops/cpu/loops.h"

namespace trainctl::cpu {
namespace {

using simd::F;

void forward(const EmbeddingForwardArgs& a) {
    with_storage(a.dtype, [&]<class T>(T*) {
        parallel_for(a.threads, a.rows, [&](std::int64_t row) {
            const std::int64_t token = a.tokens[row] - a.first_row;
            const bool here = token >= 0 && token < a.table_rows;
            const T* from = static_cast<const T*>(a.table) + (here ? token * a.width : 0);
            const T* position = a.positions != nullptr
                                    ? static_cast<const T*>(a.positions) + (row % a.length) * a.width
                                    : nullptr;
            T* x = static_cast<T*>(a.x) + row * a.width;
            for_vectors(a.width, [&](std::int64_t i, auto lanes) {
                F value = here ? load(from + i, lanes) : F(0.0F);
                if (position != nullptr) value = value + load(position + i, lanes);
                store(x + i, value, lanes);
            });
        });
    });
}

void zero_row(float* row, std::int64_t width) {
    for_vectors(width, [&](std::int64_t i, auto lanes) { store(row + i, F(0.0F), lanes); });
}

void backward(const EmbeddingBackwardArgs& a) {
    with_storage(a.dtype, [&]<class T>(T*) {
        const T* dx = static_cast<const T*>(a.dx);
        const auto add_row = [&](float* to, std::int64_t row) {
            for_vectors(a.width, [&](std::int64_t i, auto lanes) {
                store(to + i, load(to + i, lanes) + load(dx + row * a.width + i, lanes), lanes);
            });
        };
        constexpr std::int64_t group = 64;  // table rows, most of which have nothing to add
        parallel_for(a.threads, (a.table_rows + group - 1) / group, [&](std::int64_t index) {
            const std::int64_t begin = index * group;
            const std::int64_t end = begin + group < a.table_rows ? begin + group : a.table_rows;
            for (std::int64_t token = begin; token < end; ++token) {
                float* to = a.dtable + token * a.width;
                if (!a.table_accumulate) zero_row(to, a.width);
                for (std::int64_t at = a.first[token]; at < a.first[token + 1]; ++at)
                    add_row(to, a.order[at]);
            }
        });
        if (a.dpositions == nullptr) return;
        const std::int64_t used = a.length < a.rows ? a.length : a.rows;
        parallel_for(a.threads, a.position_rows, [&](std::int64_t position) {
            float* to = a.dpositions + position * a.width;
            if (!a.positions_accumulate) zero_row(to, a.width);
            if (position >= used) return;
            for (std::int64_t row = position; row < a.rows; row += a.length) add_row(to, row);
        });
    });
}

}  // namespace

template <>
EmbeddingKernels embedding_kernels<Level>() {
    return {&forward, &backward};
}

}  // namespace trainctl::cpu
