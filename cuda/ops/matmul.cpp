#include "cuda/ops/matmul.h"

#include <cstdint>

#include "cuda/stream.h"
#include "trainctl/ops/contract.h"

namespace trainctl::cuda {
namespace {

bool aligned(const TensorView& tensor) { return reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0; }

ProductKey key_of(ProductKey::Kind kind, const contract::MatmulSizes& sizes, const TensorView& result,
                  const TensorView& left, const TensorView& right) {
    return {kind,       sizes.m,      sizes.n, sizes.k,
            left.dtype, result.dtype, false,   aligned(result) && aligned(left) && aligned(right)};
}

}  // namespace

void CudaMatmul::forward(Stream& stream, TensorView y, TensorView x, TensorView w, TensorView bias,
                         TensorView scratch) {
    const contract::MatmulSizes sizes = contract::matmul_forward(y, x, w, bias);
    contract::scratch("matmul.forward", scratch, product_workspace_bytes);
    if (sizes.m == 0) return;
    ProductKey key = key_of(ProductKey::Kind::Forward, sizes, y, x, w);
    key.bias = !bias.empty();
    invariant(!key.bias || bias.dtype == y.dtype, "cuda: a bias is added to results of its own dtype only");
    products_.run(handle(stream), key, {x.data, w.data, y.data, bias.data}, Into::Overwrite, scratch.data);
}

void CudaMatmul::backward_input(Stream& stream, TensorView dx, TensorView dy, TensorView w, Into into,
                                TensorView scratch) {
    const contract::MatmulSizes sizes = contract::matmul_backward_input(dx, dy, w);
    contract::scratch("matmul.backward_input", scratch, product_workspace_bytes);
    if (sizes.m == 0) return;
    products_.run(handle(stream), key_of(ProductKey::Kind::BackwardInput, sizes, dx, dy, w),
                  {dy.data, w.data, dx.data}, into, scratch.data);
}

void CudaMatmul::backward_weight(Stream& stream, TensorView dw, TensorView dy, TensorView x, Into into,
                                 TensorView scratch) {
    const contract::MatmulSizes sizes = contract::matmul_backward_weight(dw, dy, x);
    contract::scratch("matmul.backward_weight", scratch, product_workspace_bytes);
    products_.run(handle(stream), key_of(ProductKey::Kind::BackwardWeight, sizes, dw, dy, x),
                  {dy.data, x.data, dw.data}, into, scratch.data);
}

std::size_t CudaMatmul::scratch_bytes(MatmulKind kind, std::int64_t m, std::int64_t n, std::int64_t k,
                                      DType dtype) const {
    switch (kind) {
        case MatmulKind::Forward:
            products_.prepare({ProductKey::Kind::Forward, m, n, k, dtype, dtype, false, true});
            break;
        case MatmulKind::BackwardInput:
            products_.prepare({ProductKey::Kind::BackwardInput, m, n, k, dtype, dtype, false, true});
            break;
        case MatmulKind::BackwardWeight:
            products_.prepare({ProductKey::Kind::BackwardWeight, m, n, k, dtype, DType::F32, false, true});
            break;
    }
    return product_workspace_bytes;
}

}  // namespace trainctl::cuda
