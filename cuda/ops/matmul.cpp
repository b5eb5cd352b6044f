#include "cuda/ops/matmul.h"

#include <cstdint>

#include "cuda/stream.h"
#include "trainctl/ops/contract.h"

namespace trainctl::cuda {
namespace {

bool aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

ProductKey key_of(MatmulKind kind, const contract::MatmulSizes& sizes, DType operands, DType result,
                  const ProductTensors& t) {
    return {{kind, sizes.m, sizes.n, sizes.k, operands, result, t.bias != nullptr},
            aligned(t.left) && aligned(t.right) && aligned(t.result) && aligned(t.bias)};
}

}  // namespace

void CudaMatmul::forward(Stream& stream, TensorView y, TensorView x, TensorView w, TensorView bias,
                         TensorView scratch) {
    const contract::MatmulSizes sizes = contract::matmul_forward(y, x, w, bias);
    contract::scratch("matmul.forward", scratch, product_workspace_bytes);
    if (sizes.m == 0) return;
    const ProductTensors tensors{x.data, w.data, y.data, bias.empty() ? nullptr : bias.data};
    invariant(bias.empty() || bias.dtype == y.dtype,
              "cuda: a bias is added to results of its own dtype only");
    products_.run(handle(stream), key_of(MatmulKind::Forward, sizes, x.dtype, y.dtype, tensors), tensors,
                  Into::Overwrite, scratch.data);
}

void CudaMatmul::backward_input(Stream& stream, TensorView dx, TensorView dy, TensorView w, Into into,
                                TensorView scratch) {
    const contract::MatmulSizes sizes = contract::matmul_backward_input(dx, dy, w);
    contract::scratch("matmul.backward_input", scratch, product_workspace_bytes);
    if (sizes.m == 0) return;
    const ProductTensors tensors{dy.data, w.data, dx.data};
    products_.run(handle(stream), key_of(MatmulKind::BackwardInput, sizes, dy.dtype, dx.dtype, tensors),
                  tensors, into, scratch.data);
}

void CudaMatmul::backward_weight(Stream& stream, TensorView dw, TensorView dy, TensorView x, Into into,
                                 TensorView scratch) {
    const contract::MatmulSizes sizes = contract::matmul_backward_weight(dw, dy, x);
    contract::scratch("matmul.backward_weight", scratch, product_workspace_bytes);
    const ProductTensors tensors{dy.data, x.data, dw.data};
    products_.run(handle(stream), key_of(MatmulKind::BackwardWeight, sizes, dy.dtype, dw.dtype, tensors),
                  tensors, into, scratch.data);
}

std::size_t CudaMatmul::scratch_bytes(MatmulKind /*kind*/, std::int64_t /*m*/, std::int64_t /*n*/,
                                      std::int64_t /*k*/, DType /*dtype*/) const {
    return product_workspace_bytes;
}

}  // namespace trainctl::cuda
