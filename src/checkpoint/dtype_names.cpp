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

}  // namespace trainctl
