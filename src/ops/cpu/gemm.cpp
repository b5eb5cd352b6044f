#include "ops/cpu/gemm.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu/families.h"
#include "trainctl/device/host_stream.h"
#include "trainctl/ops/contract.h"

namespace trainctl::cpu {
namespace {

std::size_t float_bytes(std::int64_t count) {
    return (static_cast<std::size_t>(count) * sizeof(float) + 63) / 64 * 64;
}

enum class Bias { Absent, Present };

// A layer of M rows, N outputs and K inputs as a product.
Product product(MatmulKind kind, std::int64_t m, std::int64_t n, std::int64_t k, DType in, DType out,
                Bias bias, Into into) {
    Product p;
    p.in = in;
    p.out = out;
    p.bias = bias == Bias::Present;
    p.accumulate = into == Into::Accumulate;
    switch (kind) {
        case MatmulKind::Forward:  // y[m, n] = x[m, k] w[n, k]^T
            p.m = m;
            p.n = n;
            p.k = k;
            p.b_transposed = true;
            break;
        case MatmulKind::BackwardInput:  // dx[m, k] = dy[m, n] w[n, k]
            p.m = m;
            p.n = k;
            p.k = n;
            break;
        case MatmulKind::BackwardWeight:  // dw[n, k] = dy[m, n]^T x[m, k]
            p.m = n;
            p.n = k;
            p.k = m;
            p.a_transposed = true;
            break;
    }
    p.a_stride = p.a_transposed ? p.m : p.k;
    p.b_stride = p.b_transposed ? p.k : p.n;
    p.out_stride = p.n;
    return p;
}

}  // namespace

CpuMatmul::CpuMatmul(int threads, CpuIsa isa, ElementwiseKernels elementwise)
    : threads_(threads),
      native_bf16_(isa == CpuIsa::Avx512Bf16 && onednn_has_bf16()),
      piece_rows_(native_bf16_ && onednn_has_amx() ? weight_gradient_rows_amx : weight_gradient_rows),
      elementwise_(elementwise),
      products_(threads) {}

bool CpuMatmul::native(DType dtype) const {
    return dtype == DType::F32 || (dtype == DType::BF16 && native_bf16_);
}

std::size_t CpuMatmul::pad_bytes(MatmulKind kind, std::int64_t m, std::int64_t n, std::int64_t k,
                                 DType in) const {
    std::size_t most = 0;
    const auto consider = [&](DType out, Bias bias, Into into) {
        most = std::max(most, products_.scratch_bytes(product(kind, m, n, k, in, out, bias, into)));
    };
    if (kind == MatmulKind::Forward) {
        for (const DType out : {in, DType::F32}) {
            consider(out, Bias::Absent, Into::Overwrite);
            consider(out, Bias::Present, Into::Overwrite);
        }
    } else {
        const DType out = kind == MatmulKind::BackwardWeight ? DType::F32 : in;
        consider(out, Bias::Absent, Into::Overwrite);
        consider(out, Bias::Absent, Into::Accumulate);
    }
    return most;
}

std::size_t CpuMatmul::scratch_bytes(MatmulKind kind, std::int64_t m, std::int64_t n, std::int64_t k,
                                     DType dtype) const {
    const bool direct = native(dtype);
    const DType in = direct ? dtype : DType::F32;
    if (kind == MatmulKind::BackwardWeight) {
        const std::int64_t rows = std::min(m, piece_rows_);
        std::size_t pad = pad_bytes(kind, rows, n, k, in);
        if (m > rows && m % rows != 0) pad = std::max(pad, pad_bytes(kind, m % rows, n, k, in));
        return pad + (direct ? 0 : float_bytes(rows * n) + float_bytes(rows * k));
    }
    const std::size_t pad = pad_bytes(kind, m, n, k, in);
    if (direct) return pad;
    const std::size_t converted = float_bytes(m * n) + float_bytes(m * k) + float_bytes(n * k);
    return pad + converted + (kind == MatmulKind::Forward ? float_bytes(n) : 0);
}

const std::byte* CpuMatmul::widen(std::byte*& scratch, const std::byte* from, std::int64_t count,
                                  DType dtype) const {
    std::byte* to = scratch;
    elementwise_.cast({DType::F32, dtype, to, from, count, threads_});
    scratch += float_bytes(count);
    return to;
}

void CpuMatmul::forward(Stream& stream, TensorView y, TensorView x, TensorView w, TensorView bias,
                        TensorView scratch) {
    const auto [m, n, k] = contract::matmul_forward(y, x, w, bias);
    require_compute("matmul.forward", x.dtype);
    contract::scratch("matmul.forward", scratch, scratch_bytes(MatmulKind::Forward, m, n, k, x.dtype));
    const Bias with = bias.empty() ? Bias::Absent : Bias::Present;
    host_stream(stream).run([=, this, m = m, n = n, k = k] {
        std::byte* free = scratch.data;
        if (native(x.dtype)) {
            products_.run(product(MatmulKind::Forward, m, n, k, x.dtype, y.dtype, with, Into::Overwrite),
                          {y.data, x.data, w.data, bias.data}, free);
            return;
        }
        ProductOperands wide;
        wide.a = widen(free, x.data, m * k, x.dtype);
        wide.b = widen(free, w.data, n * k, w.dtype);
        if (!bias.empty()) wide.bias = widen(free, bias.data, n, bias.dtype);
        wide.out = y.data;
        if (y.dtype != DType::F32) {
            wide.out = free;
            free += float_bytes(m * n);
        }
        products_.run(product(MatmulKind::Forward, m, n, k, DType::F32, DType::F32, with, Into::Overwrite),
                      wide, free);
        if (y.dtype != DType::F32) {
            elementwise_.cast({y.dtype, DType::F32, y.data, wide.out, m * n, threads_});
        }
    });
}

void CpuMatmul::backward_input(Stream& stream, TensorView dx, TensorView dy, TensorView w, Into into,
                               TensorView scratch) {
    const auto [m, n, k] = contract::matmul_backward_input(dx, dy, w);
    require_compute("matmul.backward_input", dy.dtype);
    contract::scratch("matmul.backward_input", scratch,
                      scratch_bytes(MatmulKind::BackwardInput, m, n, k, dy.dtype));
    host_stream(stream).run([=, this, m = m, n = n, k = k] {
        const MatmulKind kind = MatmulKind::BackwardInput;
        std::byte* free = scratch.data;
        if (native(dy.dtype)) {
            products_.run(product(kind, m, n, k, dy.dtype, dx.dtype, Bias::Absent, into),
                          {dx.data, dy.data, w.data, nullptr}, free);
            return;
        }
        ProductOperands wide;
        wide.a = widen(free, dy.data, m * n, dy.dtype);
        wide.b = widen(free, w.data, n * k, w.dtype);
        wide.out = free;
        if (into == Into::Accumulate) {
            widen(free, dx.data, m * k, dx.dtype);
        } else {
            free += float_bytes(m * k);
        }
        products_.run(product(kind, m, n, k, DType::F32, DType::F32, Bias::Absent, into), wide, free);
        elementwise_.cast({dx.dtype, DType::F32, dx.data, wide.out, m * k, threads_});
    });
}

void CpuMatmul::backward_weight(Stream& stream, TensorView dw, TensorView dy, TensorView x, Into into,
                                TensorView scratch) {
    const auto [m, n, k] = contract::matmul_backward_weight(dw, dy, x);
    require_compute("matmul.backward_weight", dy.dtype);
    contract::scratch("matmul.backward_weight", scratch,
                      scratch_bytes(MatmulKind::BackwardWeight, m, n, k, dy.dtype));
    host_stream(stream).run([=, this, m = m, n = n, k = k] {
        const auto element = static_cast<std::int64_t>(dtype_size(dy.dtype));
        if (m == 0 && into == Into::Overwrite) std::memset(dw.data, 0, dw.bytes());
        for (std::int64_t begin = 0; begin < m; begin += piece_rows_) {
            const std::int64_t rows = std::min(m - begin, piece_rows_);
            const Into piece_into = begin > 0 ? Into::Accumulate : into;
            ProductOperands operands{dw.data, dy.data + begin * n * element, x.data + begin * k * element,
                                     nullptr};
            std::byte* free = scratch.data;
            DType in = dy.dtype;
            if (!native(in)) {
                operands.a = widen(free, operands.a, rows * n, in);
                operands.b = widen(free, operands.b, rows * k, in);
                in = DType::F32;
            }
            products_.run(
                product(MatmulKind::BackwardWeight, rows, n, k, in, DType::F32, Bias::Absent, piece_into),
                operands, free);
        }
    });
}

}  // namespace trainctl::cpu
