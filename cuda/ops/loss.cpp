#include "cuda/ops/loss.h"

#include <algorithm>

#include "cuda/kernels/loss.h"
#include "cuda/ops/require.h"
#include "cuda/stream.h"
#include "trainctl/ops/contract.h"

namespace trainctl::cuda {
namespace {

LogitRows rows_of(const TensorView& logits, const TensorView& targets, const LossSettings& settings,
                  contract::RowSizes sizes) {
    return {logits.dtype,
            logits.data,
            targets.as<std::int32_t>(),
            sizes.rows,
            sizes.columns,
            std::clamp<std::int64_t>(settings.vocab_size - settings.first_column, 0, sizes.columns),
            settings.first_column,
            settings.gradient_scale,
            settings.pass};
}

}  // namespace

void CudaLoss::cross_entropy(Stream& stream, TensorView losses, TensorView logits, TensorView targets,
                             LossSettings settings) {
    const contract::RowSizes sizes = contract::cross_entropy(losses, logits, targets, settings);
    require_compute("cross_entropy", logits.dtype);
    cuda::cross_entropy(rows_of(logits, targets, settings, sizes), losses.as<float>(), handle(stream));
}

void CudaLoss::row_maxima(Stream& stream, TensorView maxima, TensorView logits, LossSettings settings) {
    const contract::RowSizes sizes = contract::row_maxima(maxima, logits, settings);
    require_compute("row_maxima", logits.dtype);
    cuda::row_maxima(rows_of(logits, {}, settings, sizes), maxima.as<float>(), handle(stream));
}

void CudaLoss::exponential_sums(Stream& stream, TensorView sums, TensorView logits, TensorView maxima,
                                TensorView targets, LossSettings settings) {
    const contract::RowSizes sizes = contract::exponential_sums(sums, logits, maxima, targets, settings);
    require_compute("exponential_sums", logits.dtype);
    cuda::exponential_sums(rows_of(logits, targets, settings, sizes), sums.as<float>(), maxima.as<float>(),
                           handle(stream));
}

void CudaLoss::finish_cross_entropy(Stream& stream, TensorView losses, TensorView logits, TensorView maxima,
                                    TensorView sums, TensorView targets, LossSettings settings) {
    const contract::RowSizes sizes =
        contract::finish_cross_entropy(losses, logits, maxima, sums, targets, settings);
    require_compute("finish_cross_entropy", logits.dtype);
    cuda::finish_cross_entropy(rows_of(logits, targets, settings, sizes), losses.as<float>(),
                               maxima.as<float>(), sums.as<float>(), handle(stream));
}

void CudaLoss::sum_losses(Stream& stream, TensorView total, TensorView losses, Into into) {
    contract::sum_losses(total, losses);
    require_compute("sum_losses", losses.dtype);
    cuda::sum_losses(total.as<double>(), losses.as<float>(), losses.elements(), into, handle(stream));
}

}  // namespace trainctl::cuda
