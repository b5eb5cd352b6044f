#include "cuda/ops/attention.h"

#include <fmt/format.h>

#include "cuda/kernels/attention_backward.h"
#include "cuda/kernels/attention_forward.h"
#include "cuda/kernels/rope.h"
#include "cuda/ops/require.h"
#include "cuda/stream.h"
#include "trainctl/ops/contract.h"
#include "trainctl/tensor/kernel_limits.h"

namespace trainctl::cuda {
namespace {

void require_kernel(const char* op, DType dtype, const AttentionSettings& settings) {
    require_compute(op, dtype);
    if (settings.head_dim > cuda_largest_head) {
        fail(Exit::Usage,
             fmt::format("{}: the cuda backend has kernels for heads of up to {} elements, found head_dim = "
                         "{}; choose more heads (model.heads) or device.kind = \"cpu\"",
                         op, cuda_largest_head, settings.head_dim));
    }
    if (!(settings.scale > 0.0F)) {
        fail(Exit::Internal, fmt::format("{}: the scale must be positive, is {}", op, settings.scale));
    }
}

}  // namespace

void CudaAttention::forward(Stream& stream, TensorView out, TensorView lse, TensorView qkv,
                            AttentionSettings settings, TensorView /*scratch*/) {
    contract::attention_forward(out, lse, qkv, settings);
    require_kernel("attention.forward", qkv.dtype, settings);
    attention_forward(out.data, lse.as<float>(), qkv.data, qkv.dtype, settings, handle(stream));
}

void CudaAttention::backward(Stream& stream, TensorView dqkv, TensorView dout, TensorView out, TensorView lse,
                             TensorView qkv, AttentionSettings settings, TensorView scratch) {
    contract::attention_backward(dqkv, dout, out, lse, qkv, settings);
    require_kernel("attention.backward", qkv.dtype, settings);
    contract::scratch("attention.backward", scratch, backward_scratch_bytes(settings, qkv.dtype));
    attention_backward(dqkv.data, dout.data, out.data, lse.as<float>(), qkv.data, scratch.as<float>(),
                       qkv.dtype, settings, handle(stream));
}

std::size_t CudaAttention::forward_scratch_bytes(AttentionSettings /*settings*/, DType /*dtype*/) const {
    return 0;
}

std::size_t CudaAttention::backward_scratch_bytes(AttentionSettings settings, DType /*dtype*/) const {
    return storage_bytes(settings.batch * settings.heads * settings.length, DType::F32);
}

void CudaAttention::rope(Stream& stream, TensorView qkv, TensorView table, AttentionSettings settings,
                         RopeDirection direction) {
    contract::rope(qkv, table, settings);
    require_compute("attention.rope", qkv.dtype);
    cuda::rope({qkv.dtype, qkv.data, table.as<float>(), settings.batch * settings.length, settings.length,
                settings.heads, settings.kv_heads, settings.head_dim, direction},
               handle(stream));
}

}  // namespace trainctl::cuda
