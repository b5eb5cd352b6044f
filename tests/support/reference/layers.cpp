// Matmul, norms, elementwise ops and embedding of the reference backend.
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "support/reference/elements.h"
#include "support/reference/families.h"

namespace trainctl::reference {

void ReferenceMatmul::forward(Stream& stream, TensorView y, TensorView x, TensorView w, TensorView bias,
                              TensorView /*scratch*/) {
    host_stream(stream).run([=] {
        const std::int64_t rows = rows_of(x);
        const std::int64_t inner = columns_of(x);
        const std::int64_t columns = columns_of(y);
        for (std::int64_t row = 0; row < rows; ++row) {
            for (std::int64_t column = 0; column < columns; ++column) {
                double sum = bias.empty() ? 0.0 : element(bias, column);
                for (std::int64_t k = 0; k < inner; ++k) {
                    sum += element(x, row * inner + k) * element(w, column * inner + k);
                }
                set_element(y, row * columns + column, sum);
            }
        }
    });
}

void ReferenceMatmul::backward_input(Stream& stream, TensorView dx, TensorView dy, TensorView w, Into into,
                                     TensorView /*scratch*/) {
    host_stream(stream).run([=] {
        const std::int64_t rows = rows_of(dx);
        const std::int64_t inner = columns_of(dx);
        const std::int64_t columns = columns_of(dy);
        for (std::int64_t row = 0; row < rows; ++row) {
            for (std::int64_t k = 0; k < inner; ++k) {
                double sum = 0.0;
                for (std::int64_t column = 0; column < columns; ++column) {
                    sum += element(dy, row * columns + column) * element(w, column * inner + k);
                }
                put(dx, row * inner + k, sum, into);
            }
        }
    });
}

void ReferenceMatmul::backward_weight(Stream& stream, TensorView dw, TensorView dy, TensorView x, Into into,
                                      TensorView /*scratch*/) {
    host_stream(stream).run([=] {
        const std::int64_t rows = rows_of(x);
        const std::int64_t inner = columns_of(x);
        const std::int64_t columns = columns_of(dy);
        for (std::int64_t column = 0; column < columns; ++column) {
            for (std::int64_t k = 0; k < inner; ++k) {
                double sum = 0.0;
                for (std::int64_t row = 0; row < rows; ++row) {
                    sum += element(dy, row * columns + column) * element(x, row * inner + k);
                }
                put(dw, column * inner + k, sum, into);
            }
        }
    });
}

void ReferenceNorm::forward(Stream& stream, TensorView y, TensorView residual_out, TensorView statistics,
                            TensorView residual_in, TensorView branch, TensorView gain, TensorView bias,
                            NormSettings settings) {
    host_stream(stream).run([=] {
        const std::int64_t width = columns_of(residual_in);
        const auto count = static_cast<double>(width);
        for (std::int64_t row = 0; row < rows_of(residual_in); ++row) {
            std::vector<double> x;
            for (std::int64_t c = 0; c < width; ++c) {
                const std::int64_t at = row * width + c;
                if (branch.empty()) {
                    x.push_back(element(residual_in, at));
                } else {
                    set_element(residual_out, at, element(residual_in, at) + element(branch, at));
                    x.push_back(element(residual_out, at));  // what later layers will read
                }
            }
            double mean = 0.0;
            if (settings.kind == NormKind::LayerNorm) {
                for (const double value : x) mean += value / count;
            }
            double variance = 0.0;
            for (const double value : x) variance += (value - mean) * (value - mean) / count;
            const double inverse = 1.0 / std::sqrt(variance + static_cast<double>(settings.epsilon));
            set_element(statistics, row * 2, mean);
            set_element(statistics, row * 2 + 1, inverse);
            for (std::int64_t c = 0; c < width; ++c) {
                const double shift = bias.empty() ? 0.0 : element(bias, c);
                set_element(y, row * width + c,
                            (x[static_cast<std::size_t>(c)] - mean) * inverse * element(gain, c) + shift);
            }
        }
    });
}

// With n = (x - mean) / sigma and g = dy gain: dx = (g - mean(g) - n mean(g n)) / sigma; the RMS norm has no
// mean.
void ReferenceNorm::backward(Stream& stream, TensorView dresidual_in, TensorView dgain, TensorView dbias,
                             TensorView dy, TensorView dresidual_out, TensorView residual,
                             TensorView statistics, TensorView gain, Into into, NormSettings settings,
                             TensorView /*scratch*/) {
    host_stream(stream).run([=] {
        const std::int64_t width = columns_of(residual);
        const auto count = static_cast<double>(width);
        std::vector<double> gain_sum(static_cast<std::size_t>(width), 0.0);
        std::vector<double> bias_sum(static_cast<std::size_t>(width), 0.0);
        for (std::int64_t row = 0; row < rows_of(residual); ++row) {
            const double mean = settings.kind == NormKind::LayerNorm ? element(statistics, row * 2) : 0.0;
            const double inverse = element(statistics, row * 2 + 1);
            double mean_g = 0.0;
            double mean_gn = 0.0;
            for (std::int64_t c = 0; c < width; ++c) {
                const std::int64_t at = row * width + c;
                const double n = (element(residual, at) - mean) * inverse;
                const double g = element(dy, at) * element(gain, c);
                mean_g += g / count;
                mean_gn += g * n / count;
                gain_sum[static_cast<std::size_t>(c)] += element(dy, at) * n;
                bias_sum[static_cast<std::size_t>(c)] += element(dy, at);
            }
            if (settings.kind == NormKind::RmsNorm) mean_g = 0.0;
            for (std::int64_t c = 0; c < width; ++c) {
                const std::int64_t at = row * width + c;
                const double n = (element(residual, at) - mean) * inverse;
                const double g = element(dy, at) * element(gain, c);
                const double through = dresidual_out.empty() ? 0.0 : element(dresidual_out, at);
                set_element(dresidual_in, at, through + inverse * (g - mean_g - n * mean_gn));
            }
        }
        for (std::int64_t c = 0; c < width; ++c) {
            put(dgain, c, gain_sum[static_cast<std::size_t>(c)], into);
            if (!dbias.empty()) put(dbias, c, bias_sum[static_cast<std::size_t>(c)], into);
        }
    });
}

namespace {

double gelu(double x) {
    const double inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
    return 0.5 * x * (1.0 + std::tanh(inner));
}

double gelu_derivative(double x) {
    const double factor = std::sqrt(2.0 / std::numbers::pi);
    const double t = std::tanh(factor * (x + 0.044715 * x * x * x));
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * factor * (1.0 + 3.0 * 0.044715 * x * x);
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

}  // namespace

void ReferenceElementwise::bias_gelu_forward(Stream& stream, TensorView y, TensorView x, TensorView bias) {
    host_stream(stream).run([=] {
        const std::int64_t width = columns_of(x);
        for (std::int64_t i = 0; i < x.elements(); ++i)
            set_element(y, i, gelu(element(x, i) + element(bias, i % width)));
    });
}

void ReferenceElementwise::bias_gelu_backward(Stream& stream, TensorView dx, TensorView dbias, TensorView dy,
                                              TensorView x, TensorView bias, Into into,
                                              TensorView /*scratch*/) {
    host_stream(stream).run([=] {
        const std::int64_t width = columns_of(x);
        std::vector<double> sums(static_cast<std::size_t>(width), 0.0);
        for (std::int64_t i = 0; i < x.elements(); ++i) {
            const double gradient =
                element(dy, i) * gelu_derivative(element(x, i) + element(bias, i % width));
            set_element(dx, i, gradient);
            sums[static_cast<std::size_t>(i % width)] += gradient;
        }
        for (std::int64_t c = 0; c < width; ++c) put(dbias, c, sums[static_cast<std::size_t>(c)], into);
    });
}

void ReferenceElementwise::swiglu_forward(Stream& stream, TensorView y, TensorView gate_up) {
    host_stream(stream).run([=] {
        const std::int64_t width = columns_of(y);
        for (std::int64_t i = 0; i < y.elements(); ++i) {
            const std::int64_t at = (i / width) * 2 * width + i % width;
            const double gate = element(gate_up, at);
            set_element(y, i, gate * sigmoid(gate) * element(gate_up, at + width));
        }
    });
}

void ReferenceElementwise::swiglu_backward(Stream& stream, TensorView dgate_up, TensorView dy,
                                           TensorView gate_up) {
    host_stream(stream).run([=] {
        const std::int64_t width = columns_of(dy);
        for (std::int64_t i = 0; i < dy.elements(); ++i) {
            const std::int64_t at = (i / width) * 2 * width + i % width;
            const double gate = element(gate_up, at);
            const double up = element(gate_up, at + width);
            const double s = sigmoid(gate);
            const double gradient = element(dy, i);
            set_element(dgate_up, at, gradient * up * s * (1.0 + gate * (1.0 - s)));
            set_element(dgate_up, at + width, gradient * gate * s);
        }
    });
}

void ReferenceElementwise::bias_backward(Stream& stream, TensorView dbias, TensorView dy, Into into,
                                         TensorView /*scratch*/) {
    host_stream(stream).run([=] {
        const std::int64_t width = columns_of(dy);
        for (std::int64_t c = 0; c < width; ++c) {
            double sum = 0.0;
            for (std::int64_t row = 0; row < rows_of(dy); ++row) sum += element(dy, row * width + c);
            put(dbias, c, sum, into);
        }
    });
}

void ReferenceElementwise::add(Stream& stream, TensorView y, TensorView a, TensorView b) {
    host_stream(stream).run([=] {
        for (std::int64_t i = 0; i < y.elements(); ++i) set_element(y, i, element(a, i) + element(b, i));
    });
}

void ReferenceElementwise::dropout(Stream& stream, TensorView y, TensorView x, std::int64_t rows_per_sample,
                                   Dropout site) {
    host_stream(stream).run([=] {
        const std::int64_t block = rows_per_sample * columns_of(x);
        const std::int64_t first = site.first_row * columns_of(x);
        for (std::int64_t i = 0; i < x.elements(); ++i) {
            const std::int64_t place = first + i;
            set_element(y, i, element(x, i) * dropout_factor(site, place / block, place % block));
        }
    });
}

void ReferenceElementwise::cast(Stream& stream, TensorView to, TensorView from) {
    host_stream(stream).run([=] {
        for (std::int64_t i = 0; i < to.elements(); ++i) set_element(to, i, element(from, i));
    });
}

void ReferenceElementwise::fill_zero(Stream& stream, TensorView x) {
    host_stream(stream).run([=] { std::memset(x.data, 0, x.bytes()); });
}

void ReferenceEmbedding::forward(Stream& stream, TensorView x, TensorView tokens, TensorView table,
                                 TensorView positions, std::int64_t length, std::int64_t first_row) {
    host_stream(stream).run([=] {
        const std::int64_t width = columns_of(x);
        for (std::int64_t row = 0; row < rows_of(x); ++row) {
            const std::int64_t token = tokens.as<std::int32_t>()[row] - first_row;
            const bool here = token >= 0 && token < table.shape[0];
            for (std::int64_t c = 0; c < width; ++c) {
                double value = here ? element(table, token * width + c) : 0.0;
                if (!positions.empty()) value += element(positions, (row % length) * width + c);
                set_element(x, row * width + c, value);
            }
        }
    });
}

void ReferenceEmbedding::backward(Stream& stream, TensorView dtable, TensorView dpositions, TensorView dx,
                                  TensorView tokens, std::int64_t length, std::int64_t first_row,
                                  Into table_into, Into positions_into, TensorView /*scratch*/) {
    host_stream(stream).run([=] {
        const std::int64_t width = columns_of(dx);
        if (table_into == Into::Overwrite) std::memset(dtable.data, 0, dtable.bytes());
        if (!dpositions.empty() && positions_into == Into::Overwrite) {
            std::memset(dpositions.data, 0, dpositions.bytes());
        }
        for (std::int64_t row = 0; row < rows_of(dx); ++row) {
            const std::int64_t token = tokens.as<std::int32_t>()[row] - first_row;
            const bool here = token >= 0 && token < dtable.shape[0];
            for (std::int64_t c = 0; c < width; ++c) {
                const double gradient = element(dx, row * width + c);
                if (here) put(dtable, token * width + c, gradient, Into::Accumulate);
                if (!dpositions.empty()) {
                    put(dpositions, (row % length) * width + c, gradient, Into::Accumulate);
                }
            }
        }
    });
}

}  // namespace trainctl::reference
