// The ranks that share every matrix of a model (tensor parallel).
#pragma once

#include <cstdint>

#include "trainctl/comm/communicator.h"

namespace trainctl {

// What a rank keeps of the residual stream between the matrix products.
enum class ResidualRows : std::uint8_t {
    All,      // the same on every rank
    Sharded,  // its share of the rows (sequence parallel)
};

// One rank's place among them. Pure data.
struct TensorPart {
    int size = 1;
    int rank = 0;
    ResidualRows residual = ResidualRows::Sharded;

    // Of `rows` rows of the residual stream those on one rank; the last ranks' may be padding.
    [[nodiscard]] constexpr std::int64_t residual_rows(std::int64_t rows) const {
        return residual == ResidualRows::Sharded ? (rows + size - 1) / size : rows;
    }
};

// How a model reaches them. What is pointed to outlives the model.
struct TensorAxis {
    Communicator* ranks = nullptr;  // nullptr: nobody else
    Stream* stream = nullptr;       // a communication stream for these messages alone; unused without others
    ResidualRows residual = ResidualRows::Sharded;

    [[nodiscard]] TensorPart part() const {
        return ranks == nullptr ? TensorPart{1, 0, residual}
                                : TensorPart{ranks->size(), ranks->rank(), residual};
    }
};

}  // namespace trainctl
