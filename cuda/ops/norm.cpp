#include "cuda/ops/norm.h"

#include "cuda/kernels/norm.h"
#include "cuda/ops/require.h"
#include "cuda/stream.h"
#include "trainctl/ops/contract.h"

namespace trainctl::cuda {

void CudaNorm::forward(Stream& stream, TensorView y, TensorView residual_out, TensorView statistics,
                       TensorView residual_in, TensorView branch, TensorView gain, TensorView bias,
                       NormSettings settings) {
    const auto [rows, width] =
        contract::norm_forward(y, residual_out, statistics, residual_in, branch, gain, bias);
    require_compute("norm.forward", y.dtype);
    norm_forward({y.dtype, y.data, residual_out.data, statistics.as<float>(), residual_in.data, branch.data,
                  gain.data, bias.data, rows, width, settings},
                 handle(stream));
}

void CudaNorm::backward(Stream& stream, TensorView dresidual_in, TensorView dgain, TensorView dbias,
                        TensorView dy, TensorView dresidual_out, TensorView residual, TensorView statistics,
                        TensorView gain, Into into, NormSettings settings, TensorView scratch) {
    const auto [rows, width] =
        contract::norm_backward(dresidual_in, dgain, dbias, dy, dresidual_out, residual, statistics, gain);
    require_compute("norm.backward", dy.dtype);
    contract::scratch("norm.backward", scratch, backward_scratch_bytes(rows, width, dy.dtype));
    norm_backward({dy.dtype, dresidual_in.data, dgain.as<float>(), dbias.as<float>(), dy.data,
                   dresidual_out.data, residual.data, statistics.as<float>(), gain.data, scratch.as<float>(),
                   rows, width, settings.kind, into},
                  handle(stream));
}

std::size_t CudaNorm::backward_scratch_bytes(std::int64_t m, std::int64_t c, DType /*dtype*/) const {
    return static_cast<std::size_t>(norm_partials(m) * 2 * c) * sizeof(float);
}

}  // namespace trainctl::cuda
