#include "cuda/ops/elementwise.h"

#include "cuda/check.h"
#include "cuda/kernels/column_sums.h"
#include "cuda/kernels/elementwise.h"
#include "cuda/ops/require.h"
#include "cuda/stream.h"
#include "trainctl/ops/contract.h"

namespace trainctl::cuda {

void CudaElementwise::bias_gelu_forward(Stream& stream, TensorView y, TensorView x, TensorView bias) {
    const auto [rows, width] = contract::bias_gelu_forward(y, x, bias);
    require_compute("bias_gelu_forward", x.dtype);
    cuda::bias_gelu_forward({x.dtype, x.data, bias.data, rows, width}, y.data, handle(stream));
}

void CudaElementwise::bias_gelu_backward(Stream& stream, TensorView dx, TensorView dbias, TensorView dy,
                                         TensorView x, TensorView bias, Into into, TensorView scratch) {
    const auto [rows, width] = contract::bias_gelu_backward(dx, dbias, dy, x, bias);
    require_compute("bias_gelu_backward", x.dtype);
    contract::scratch("bias_gelu_backward", scratch, column_sum_scratch_bytes(rows, width));
    cuda::bias_gelu_backward({x.dtype, x.data, bias.data, rows, width}, dx.data, dbias.as<float>(), dy.data,
                             scratch.as<float>(), into, handle(stream));
}

void CudaElementwise::swiglu_forward(Stream& stream, TensorView y, TensorView gate_up) {
    const auto [rows, width] = contract::swiglu_forward(y, gate_up);
    require_compute("swiglu_forward", y.dtype);
    cuda::swiglu_forward(y.dtype, y.data, gate_up.data, rows, width, handle(stream));
}

void CudaElementwise::swiglu_backward(Stream& stream, TensorView dgate_up, TensorView dy,
                                      TensorView gate_up) {
    const auto [rows, width] = contract::swiglu_backward(dgate_up, dy, gate_up);
    require_compute("swiglu_backward", dy.dtype);
    cuda::swiglu_backward(dy.dtype, dgate_up.data, dy.data, gate_up.data, rows, width, handle(stream));
}

void CudaElementwise::bias_backward(Stream& stream, TensorView dbias, TensorView dy, Into into,
                                    TensorView scratch) {
    const auto [rows, width] = contract::bias_backward(dbias, dy);
    require_compute("bias_backward", dy.dtype);
    contract::scratch("bias_backward", scratch, column_sum_scratch_bytes(rows, width));
    cuda::bias_backward(dy.dtype, dbias.as<float>(), dy.data, scratch.as<float>(), rows, width, into,
                        handle(stream));
}

std::size_t CudaElementwise::column_sum_scratch_bytes(std::int64_t m, std::int64_t n) const {
    return static_cast<std::size_t>(column_parts(m, n) * n) * sizeof(float);
}

void CudaElementwise::add(Stream& stream, TensorView y, TensorView a, TensorView b) {
    contract::add(y, a, b);
    require_compute("add", y.dtype);
    cuda::add(y.dtype, y.data, a.data, b.data, y.elements(), handle(stream));
}

void CudaElementwise::dropout(Stream& stream, TensorView y, TensorView x, std::int64_t rows_per_sample,
                              Dropout site) {
    const auto [rows, width] = contract::dropout(y, x, rows_per_sample, site);
    require_compute("dropout", x.dtype);
    cuda::dropout(x.dtype, y.data, x.data, rows, width, rows_per_sample, site, handle(stream));
}

void CudaElementwise::cast(Stream& stream, TensorView to, TensorView from) {
    contract::cast(to, from);
    require_compute("cast", to.dtype);
    require_compute("cast", from.dtype);
    cuda::cast(to.dtype, to.data, from.dtype, from.data, to.elements(), handle(stream));
}

void CudaElementwise::fill_zero(Stream& stream, TensorView x) {
    if (x.bytes() == 0) return;
    check(cudaMemsetAsync(x.data, 0, x.bytes(), handle(stream)), "fill_zero: cudaMemsetAsync");
}

}  // namespace trainctl::cuda
