#include "checkpoint/dtype_names.h"

namespace trainctl {

std::string_view safetensors_dtype(DType dtype) {
    switch (dtype) {
        case DType::F64:
            return "F64";
        case DType::F32:
            return "F32";
        case DType::BF16:
            return "BF16";
        case DType::F16:
            return "F16";
        case DType::I64:
            return "I64";
        case DType::I32:
            return "I32";
        case DType::U32:
            return "U32";
        case DType::U16:
            return "U16";
        case DType::U8:
            return "U8";
    }
    return "";
}

std::optional<DType> parse_safetensors_dtype(std::string_view name) {
    for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16, DType::I64, DType::I32,
                              DType::U32, DType::U16, DType::U8}) {
        if (safetensors_dtype(dtype) == name) return dtype;
    }
    return std::nullopt;
}

}  // namespace trainctl
