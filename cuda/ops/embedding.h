#pragma once

#include "trainctl/ops/ops.h"

namespace trainctl::cuda {

class CudaEmbedding final : public EmbeddingOps {
  public:
    void forward(Stream& stream, TensorView x, TensorView tokens, TensorView table, TensorView positions,
                 std::int64_t length, std::int64_t first_row) override;
    void backward(Stream& stream, TensorView dtable, TensorView dpositions, TensorView dx, TensorView tokens,
                  std::int64_t length, std::int64_t first_row, Into table_into, Into positions_into,
                  TensorView scratch) override;
    [[nodiscard]] std::size_t backward_scratch_bytes(std::int64_t m, std::int64_t rows) const override;
};

}  // namespace trainctl::cuda
