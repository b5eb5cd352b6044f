// How a backend runs matrix products whose library has several algorithms for each: which one is fastest on
// a device is found out by trying.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainctl/base/clock.h"
#include "trainctl/ops/ops.h"

namespace trainctl {

// F32 operands: multiplied as they are, or rounded to TF32 on tensor cores (10 bits of mantissa, about 8
// times faster).
enum class F32Products : std::uint8_t { Exact, Tf32 };

// One kind of matrix product: all that its plan depends on. Sizes as MatmulOps has them.
struct Product {
    MatmulKind kind = MatmulKind::Forward;
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    DType operands = DType::BF16;
    DType result = DType::BF16;
    bool bias = false;
    // clang-tidy takes the 0 that comparisons of members are compared with for a pointer.
    auto operator<=>(const Product&) const = default;  // NOLINT(modernize-use-nullptr)
};

// "forward 8192 2304 768 bf16 bf16 bias": kind, M, N, K, operands, result. One line; exact both ways.
std::string to_string(const Product& product);
std::optional<Product> parse_product(std::string_view text);

struct TuningLimits {
    double seconds = 20.0;  // for all products together; those not reached keep the library's first
};

struct TuningReport {
    int compared = 0;        // products whose algorithms were timed against each other
    int changed = 0;         // of them, those that run by another than the library's first
    int not_reached = 0;     // when the time was over
    int without_memory = 0;  // operands of real size did not fit
    double best_gain = 0.0;  // largest share of time saved against the library's first, 0 to 1
    double seconds = 0.0;
    std::vector<std::string> discarded;  // one line for each algorithm that may not be used, and why
};

// Thread rule: the rank's compute thread, like the ops.
class ProductPlans {
  public:
    virtual ~ProductPlans() = default;
    // Device and library, one line: a choice is good wherever this is the same, and nowhere else.
    [[nodiscard]] virtual std::string identity() const = 0;
    // Makes the plans that are not there yet, by the library's first choice. Exit::Resource naming the sizes
    // if it has none.
    virtual void prepare(const std::vector<Product>& products) = 0;
    // Finds the fastest algorithm that gives the same bits three times, on operands of real size in memory
    // that is free now (and free again afterwards), largest products first. What cannot be compared runs by
    // the library's first. Waits for the stream.
    virtual TuningReport tune(const std::vector<Product>& products, Stream& stream, Clock& clock,
                              TuningLimits limits) = 0;
    // What a prepared product runs by: one word, for adopt().
    [[nodiscard]] virtual std::string algorithm(const Product& product) const = 0;
    // Lets a product run by what algorithm() gave elsewhere; measures nothing. False, with nothing changed,
    // if it is no algorithm for this product here.
    [[nodiscard]] virtual bool adopt(const Product& product, std::string_view algorithm) = 0;
    // Plans that had to be made at a product's first call, because nobody had announced it.
    [[nodiscard]] virtual std::uint64_t unannounced() const = 0;
};

}  // namespace trainctl
