// Rows of tables: gathered forward, added up backward in the order of rows, as in EmbeddingOps
// (trainctl/ops/ops.h). Asynchronous on `stream`.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "trainctl/ops/ops.h"

namespace trainctl::cuda {

struct EmbeddingForward {
    DType dtype;
    void* x;  // [rows, width]
    const std::int32_t* tokens;
    const void* table;      // [table_rows, width]
    const void* positions;  // [>= length, width] or null
    std::int64_t rows;
    std::int64_t width;
    std::int64_t length;
    std::int64_t first_row;
    std::int64_t table_rows;
};
void embedding_forward(const EmbeddingForward& a, cudaStream_t stream);

struct EmbeddingBackward {
    DType dtype;
    float* dtable;      // [table_rows, width]
    float* dpositions;  // [position_rows, width] or null
    const void* dx;     // [rows, width]
    const std::int32_t* tokens;
    std::int64_t rows;  // below 2^31
    std::int64_t width;
    std::int64_t length;
    std::int64_t first_row;
    std::int64_t table_rows;  // below 2^31
    std::int64_t position_rows;
    Into table_into;
    Into positions_into;
    std::int32_t* scratch;  // embedding_scratch(rows, table_rows) elements
};
void embedding_backward(const EmbeddingBackward& a, cudaStream_t stream);
std::int64_t embedding_scratch(std::int64_t rows, std::int64_t table_rows);

}  // namespace trainctl::cuda
