#include "support/reference/elements.h"

namespace trainctl {

double element(const TensorView& tensor, std::int64_t index) {
    switch (tensor.dtype) {
        case DType::F64:
            return tensor.as<double>()[index];
        case DType::F32:
            return static_cast<double>(tensor.as<float>()[index]);
        case DType::BF16:
            return static_cast<double>(to_float(tensor.as<BFloat16>()[index]));
        case DType::F16:
            return static_cast<double>(to_float(tensor.as<Float16>()[index]));
        case DType::I32:
            return static_cast<double>(tensor.as<std::int32_t>()[index]);
        default:
            fail(Exit::Internal, "element: unexpected dtype");
    }
}

void set_element(const TensorView& tensor, std::int64_t index, double value) {
    switch (tensor.dtype) {
        case DType::F64:
            tensor.as<double>()[index] = value;
            return;
        case DType::F32:
            tensor.as<float>()[index] = static_cast<float>(value);
            return;
        case DType::BF16:
            tensor.as<BFloat16>()[index] = to_bfloat16(static_cast<float>(value));
            return;
        case DType::F16:
            tensor.as<Float16>()[index] = to_float16(static_cast<float>(value));
            return;
        default:
            fail(Exit::Internal, "set_element: unexpected dtype");
    }
}

namespace reference {

double dropout_factor(const Dropout& dropout, std::int64_t sample, std::int64_t element) {
    if (dropout.probability <= 0.0F) return 1.0;
    const std::uint64_t global = dropout.first_sample + static_cast<std::uint64_t>(sample);
    const PhiloxBlock block =
        philox4x32(dropout.key, PhiloxBlock{static_cast<std::uint32_t>(element / 4), dropout.site,
                                            static_cast<std::uint32_t>(global),
                                            static_cast<std::uint32_t>(global >> 32U)});
    const bool kept = philox_uniform(block[static_cast<std::size_t>(element % 4)]) >= dropout.probability;
    return kept ? 1.0 / (1.0 - static_cast<double>(dropout.probability)) : 0.0;
}

}  // namespace reference
}  // namespace trainctl
