#include "cuda/ops/optimizer.h"

#include <cmath>

#include "cuda/kernels/optimizer.h"
#include "cuda/ops/require.h"
#include "cuda/stream.h"
#include "trainctl/ops/contract.h"

namespace trainctl::cuda {

void CudaOptimizer::sum_squares(Stream& stream, TensorView bins, TensorView gradient, Into into) {
    contract::sum_squares(bins, gradient);
    require_compute("sum_squares", gradient.dtype);
    cuda::sum_squares(bins.as<std::int64_t>(), gradient.as<float>(), gradient.elements(), into,
                      handle(stream));
}

void CudaOptimizer::finish_norm(Stream& stream, TensorView scalars, TensorView bins, double max_norm,
                                double inverse_loss_scale) {
    contract::finish_norm(scalars, bins);
    cuda::finish_norm(scalars.as<double>(), bins.as<std::int64_t>(), max_norm, inverse_loss_scale,
                      handle(stream));
}

void CudaOptimizer::adamw(Stream& stream, TensorView weights, TensorView master, TensorView m, TensorView v,
                          TensorView gradient, TensorView flags, TensorView scalars, AdamwSettings settings) {
    contract::adamw(weights, master, m, v, gradient, flags, scalars);
    require_compute("adamw", master.dtype);
    if (!weights.empty()) require_compute("adamw", weights.dtype);
    const auto t = static_cast<double>(settings.step);
    const double bias1 = 1.0 - std::pow(settings.beta1, t);
    const double bias2 = 1.0 - std::pow(settings.beta2, t);
    cuda::adamw(
        {weights.dtype, weights.data, master.as<float>(), m.as<float>(), v.as<float>(), gradient.as<float>(),
         flags.as<std::uint8_t>(), scalars.as<double>(), master.elements(),
         static_cast<float>(settings.beta1), static_cast<float>(1.0 - settings.beta1),
         static_cast<float>(settings.beta2), static_cast<float>(1.0 - settings.beta2),
         static_cast<float>(settings.lr / bias1), static_cast<float>(1.0 / std::sqrt(bias2)),
         static_cast<float>(settings.epsilon), static_cast<float>(settings.lr * settings.weight_decay)},
        handle(stream));
}

}  // namespace trainctl::cuda
