#include "trainctl/tensor/shape.h"

namespace trainctl {

std::string to_string(const Shape& shape) {
    std::string text = "[";
    for (int dim = 0; dim < shape.rank(); ++dim) {
        if (dim > 0) text += ", ";
        text += std::to_string(shape[dim]);
    }
    return text + "]";
}

}  // namespace trainctl
