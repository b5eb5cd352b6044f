#include "cuda/ops/embedding.h"

#include <limits>

#include "cuda/kernels/embedding.h"
#include "cuda/ops/require.h"
#include "cuda/stream.h"
#include "trainctl/ops/contract.h"

namespace trainctl::cuda {

void CudaEmbedding::forward(Stream& stream, TensorView x, TensorView tokens, TensorView table,
                            TensorView positions, std::int64_t length, std::int64_t first_row) {
    const auto [rows, width] = contract::embedding_forward(x, tokens, table, positions, length);
    require_compute("embedding.forward", x.dtype);
    embedding_forward({x.dtype, x.data, tokens.as<std::int32_t>(), table.data, positions.data, rows, width,
                       length, first_row, table.elements() / width},
                      handle(stream));
}

void CudaEmbedding::backward(Stream& stream, TensorView dtable, TensorView dpositions, TensorView dx,
                             TensorView tokens, std::int64_t length, std::int64_t first_row, Into table_into,
                             Into positions_into, TensorView scratch) {
    const auto [rows, width] = contract::embedding_backward(dtable, dpositions, dx, tokens, length);
    require_compute("embedding.backward", dx.dtype);
    const std::int64_t table_rows = dtable.elements() / width;
    contract::scratch("embedding.backward", scratch, backward_scratch_bytes(rows, table_rows));
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
    invariant(rows <= most && table_rows <= most, "embedding.backward: rows are counted in 32 bits");
    embedding_backward(
        {dx.dtype, dtable.as<float>(), dpositions.as<float>(), dx.data, tokens.as<std::int32_t>(), rows,
         width, length, first_row, table_rows, dpositions.empty() ? 0 : dpositions.elements() / width,
         table_into, positions_into, scratch.as<std::int32_t>()},
        handle(stream));
}

std::size_t CudaEmbedding::backward_scratch_bytes(std::int64_t m, std::int64_t rows) const {
    return static_cast<std::size_t>(embedding_scratch(m, rows)) * sizeof(std::int32_t);
}

}  // namespace trainctl::cuda
