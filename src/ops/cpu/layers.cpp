// Norms, elementwise ops and embedding of the cpu backend.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ops/cpu/families.h"
#include "trainctl/device/host_stream.h"
#include "trainctl/ops/contract.h"

namespace trainctl::cpu {

void require_compute(const char* op, DType dtype) {
    if (dtype != DType::F32 && dtype != DType::BF16 && dtype != DType::F16) {
        fail(Exit::Internal,
             fmt::format("{}: the cpu backend computes in f32, bf16 and f16, not in {}; choose "
                         "precision.compute accordingly",
                         op, dtype_name(dtype)));
    }
}

MaskArgs mask_args(const Dropout& dropout) {
    return {dropout.probability, 1.0F / (1.0F - dropout.probability), dropout.key, dropout.site,
            dropout.first_sample};
}

void CpuNorm::forward(Stream& stream, TensorView y, TensorView residual_out, TensorView statistics,
                      TensorView residual_in, TensorView branch, TensorView gain, TensorView bias,
                      NormSettings settings) {
    const auto [rows, width] =
        contract::norm_forward(y, residual_out, statistics, residual_in, branch, gain, bias);
    require_compute("norm.forward", y.dtype);
    const NormForwardArgs args{y.dtype,
                               y.data,
                               residual_out.data,
                               statistics.as<float>(),
                               residual_in.data,
                               branch.data,
                               gain.data,
                               bias.data,
                               rows,
                               width,
                               settings.epsilon,
                               settings.kind == NormKind::LayerNorm,
                               threads_};
    host_stream(stream).run([kernel = kernels_.forward, args] { kernel(args); });
}

void CpuNorm::backward(Stream& stream, TensorView dresidual_in, TensorView dgain, TensorView dbias,
                       TensorView dy, TensorView dresidual_out, TensorView residual, TensorView statistics,
                       TensorView gain, Into into, NormSettings settings, TensorView scratch) {
    const auto [rows, width] =
        contract::norm_backward(dresidual_in, dgain, dbias, dy, dresidual_out, residual, statistics, gain);
    require_compute("norm.backward", dy.dtype);
    contract::scratch("norm.backward", scratch, backward_scratch_bytes(rows, width, dy.dtype));
    const NormBackwardArgs args{dy.dtype,
                                dresidual_in.data,
                                dgain.as<float>(),
                                dbias.as<float>(),
                                dy.data,
                                dresidual_out.data,
                                residual.data,
                                statistics.as<float>(),
                                gain.data,
                                scratch.as<float>(),
                                rows,
                                width,
                                settings.kind == NormKind::LayerNorm,
                                into == Into::Accumulate,
                                threads_};
    host_stream(stream).run([kernel = kernels_.backward, args] { kernel(args); });
}

std::size_t CpuNorm::backward_scratch_bytes(std::int64_t m, std::int64_t c, DType /*dtype*/) const {
    return static_cast<std::size_t>(row_chunks(m) * 2 * c) * sizeof(float);
}

void CpuElementwise::bias_gelu_forward(Stream& stream, TensorView y, TensorView x, TensorView bias) {
    const auto [rows, width] = contract::bias_gelu_forward(y, x, bias);
    require_compute("bias_gelu_forward", x.dtype);
    const BiasGeluArgs args{x.dtype, y.data, nullptr, x.data, bias.data, nullptr,
                            nullptr, rows,   width,   false,  threads_};
    host_stream(stream).run([kernel = kernels_.bias_gelu_forward, args] { kernel(args); });
}

void CpuElementwise::bias_gelu_backward(Stream& stream, TensorView dx, TensorView dbias, TensorView dy,
                                        TensorView x, TensorView bias, Into into, TensorView scratch) {
    const auto [rows, width] = contract::bias_gelu_backward(dx, dbias, dy, x, bias);
    require_compute("bias_gelu_backward", x.dtype);
    contract::scratch("bias_gelu_backward", scratch, column_sum_scratch_bytes(rows, width));
    const BiasGeluArgs args{x.dtype,
                            dx.data,
                            dy.data,
                            x.data,
                            bias.data,
                            dbias.as<float>(),
                            scratch.as<float>(),
                            rows,
                            width,
                            into == Into::Accumulate,
                            threads_};
    host_stream(stream).run([kernel = kernels_.bias_gelu_backward, args] { kernel(args); });
}

void CpuElementwise::swiglu_forward(Stream& stream, TensorView y, TensorView gate_up) {
    const auto [rows, width] = contract::swiglu_forward(y, gate_up);
    require_compute("swiglu_forward", y.dtype);
    const SwigluArgs args{y.dtype, y.data, nullptr, gate_up.data, rows, width, threads_};
    host_stream(stream).run([kernel = kernels_.swiglu_forward, args] { kernel(args); });
}

void CpuElementwise::swiglu_backward(Stream& stream, TensorView dgate_up, TensorView dy, TensorView gate_up) {
    const auto [rows, width] = contract::swiglu_backward(dgate_up, dy, gate_up);
    require_compute("swiglu_backward", dy.dtype);
    const SwigluArgs args{dy.dtype, dgate_up.data, dy.data, gate_up.data, rows, width, threads_};
    host_stream(stream).run([kernel = kernels_.swiglu_backward, args] { kernel(args); });
}

void CpuElementwise::bias_backward(Stream& stream, TensorView dbias, TensorView dy, Into into,
                                   TensorView scratch) {
    const auto [rows, width] = contract::bias_backward(dbias, dy);
    require_compute("bias_backward", dy.dtype);
    contract::scratch("bias_backward", scratch, column_sum_scratch_bytes(rows, width));
    const BiasBackwardArgs args{dy.dtype, dbias.as<float>(),        dy.data, scratch.as<float>(), rows,
                                width,    into == Into::Accumulate, threads_};
    host_stream(stream).run([kernel = kernels_.bias_backward, args] { kernel(args); });
}

std::size_t CpuElementwise::column_sum_scratch_bytes(std::int64_t m, std::int64_t n) const {
    return static_cast<std::size_t>(row_chunks(m) * n) * sizeof(float);
}

void CpuElementwise::add(Stream& stream, TensorView y, TensorView a, TensorView b) {
    contract::add(y, a, b);
    require_compute("add", y.dtype);
    const AddArgs args{y.dtype, y.data, a.data, b.data, y.elements(), threads_};
    host_stream(stream).run([kernel = kernels_.add, args] { kernel(args); });
}

void CpuElementwise::dropout(Stream& stream, TensorView y, TensorView x, std::int64_t rows_per_sample,
                             Dropout site) {
    const auto [rows, width] = contract::dropout(y, x, rows_per_sample, site);
    require_compute("dropout", x.dtype);
    const DropoutArgs args{
        x.dtype,         y.data,  x.data, rows * width, rows_per_sample * width, site.first_row * width,
        mask_args(site), threads_};
    host_stream(stream).run([kernel = kernels_.dropout, args] { kernel(args); });
}

void CpuElementwise::cast(Stream& stream, TensorView to, TensorView from) {
    contract::cast(to, from);
    if (to.dtype == DType::F64 || from.dtype == DType::F64) {
        fail(Exit::Internal, "cast: the cpu backend has no f64; correct the caller");
    }
    const CastArgs args{to.dtype, from.dtype, to.data, from.data, to.elements(), threads_};
    host_stream(stream).run([kernel = kernels_.cast, args] { kernel(args); });
}

void CpuElementwise::fill_zero(Stream& stream, TensorView x) {
    host_stream(stream).run([x, threads = threads_] {
        constexpr std::size_t piece = 1U << 20U;
        const auto pieces = static_cast<std::int64_t>((x.bytes() + piece - 1) / piece);
#pragma omp parallel for num_threads(threads) schedule(static) if (pieces > 1 && threads > 1)
        for (std::int64_t i = 0; i < pieces; ++i) {
            const std::size_t begin = static_cast<std::size_t>(i) * piece;
            std::memset(x.data + begin, 0, std::min(piece, x.bytes() - begin));
        }
    });
}

void CpuEmbedding::forward(Stream& stream, TensorView x, TensorView tokens, TensorView table,
                           TensorView positions, std::int64_t length, std::int64_t first_row) {
    const auto [rows, width] = contract::embedding_forward(x, tokens, table, positions, length);
    require_compute("embedding.forward", x.dtype);
    const EmbeddingForwardArgs args{
        x.dtype, x.data,    tokens.as<std::int32_t>(), table.data, positions.data, rows, width,
        length,  first_row, table.elements() / width,  threads_};
    host_stream(stream).run([kernel = kernels_.forward, args] { kernel(args); });
}

// Scratch: where each table row's entries begin [rows + 1], then the rows of dx sorted by token (stably, so
// that those of one token stay in row order).
void CpuEmbedding::backward(Stream& stream, TensorView dtable, TensorView dpositions, TensorView dx,
                            TensorView tokens, std::int64_t length, std::int64_t first_row, Into table_into,
                            Into positions_into, TensorView scratch) {
    const auto [rows, width] = contract::embedding_backward(dtable, dpositions, dx, tokens, length);
    require_compute("embedding.backward", dx.dtype);
    const std::int64_t table_rows = dtable.elements() / width;
    contract::scratch("embedding.backward", scratch, backward_scratch_bytes(rows, table_rows));
    auto* first = scratch.as<std::int64_t>();
    std::int64_t* order = first + table_rows + 1;
    const EmbeddingBackwardArgs args{dx.dtype,
                                     dtable.as<float>(),
                                     dpositions.as<float>(),
                                     dx.data,
                                     first,
                                     order,
                                     rows,
                                     width,
                                     length,
                                     table_rows,
                                     dpositions.empty() ? 0 : dpositions.elements() / width,
                                     table_into == Into::Accumulate,
                                     positions_into == Into::Accumulate,
                                     threads_};
    host_stream(stream).run(
        [kernel = kernels_.backward, args, first, order, first_row, token = tokens.as<std::int32_t>()] {
            std::memset(first, 0, static_cast<std::size_t>(args.table_rows + 1) * sizeof(std::int64_t));
            const auto here = [&](std::int64_t row) {
                const std::int64_t at = token[row] - first_row;
                return at >= 0 && at < args.table_rows ? at : -1;
            };
            for (std::int64_t row = 0; row < args.rows; ++row) {
                if (here(row) >= 0) ++first[here(row)];
            }
            // Running ends; filling backwards turns them into beginnings.
            for (std::int64_t i = 1; i <= args.table_rows; ++i) first[i] += first[i - 1];
            for (std::int64_t row = args.rows - 1; row >= 0; --row) {
                if (here(row) >= 0) order[--first[here(row)]] = row;
            }
            kernel(args);
        });
}

std::size_t CpuEmbedding::backward_scratch_bytes(std::int64_t m, std::int64_t rows) const {
    return static_cast<std::size_t>(rows + 1 + m) * sizeof(std::int64_t);
}

}  // namespace trainctl::cpu
