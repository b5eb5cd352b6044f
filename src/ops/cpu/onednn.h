// Matrix products by oneDNN: primitives cached by problem, scratchpad from the caller, any number of threads
// with the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>

#include "trainctl/tensor/dtype.h"

namespace trainctl::cpu {

// What oneDNN has found this processor (and its environment variables) to allow.
bool onednn_has_bf16();
bool onednn_has_amx();

// out[m, n] (=, +=) a[m, k] b[k, n] (+ bias[n]).
struct Product {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    DType in = DType::F32;      // F32 or BF16: a, b, bias
    DType out = DType::F32;     // F32 or BF16
    bool a_transposed = false;  // a is stored as [k, m]
    bool b_transposed = false;  // b is stored as [n, k]
    bool bias = false;
    bool accumulate = false;
    std::int64_t a_stride = 0;  // elements between rows as stored
    std::int64_t b_stride = 0;
    std::int64_t out_stride = 0;

    [[nodiscard]] auto key() const {
        return std::make_tuple(m, n, k, in, out, a_transposed, b_transposed, bias, accumulate, a_stride,
                               b_stride, out_stride);
    }
    bool operator<(const Product& other) const { return key() < other.key(); }
};

struct ProductOperands {
    std::byte* out = nullptr;
    const std::byte* a = nullptr;
    const std::byte* b = nullptr;
    const std::byte* bias = nullptr;
};

// Thread-safe; calls on one object run one after the other.
class ProductCache {
  public:
    explicit ProductCache(int threads);
    ~ProductCache();
    ProductCache(const ProductCache&) = delete;
    ProductCache& operator=(const ProductCache&) = delete;

    // Bytes of scratch that run() needs, a multiple of 64.
    [[nodiscard]] std::size_t scratch_bytes(const Product& product);
    void run(const Product& product, const ProductOperands& operands, std::byte* scratch);

  private:
    struct Entry;

    [[nodiscard]] int threads_for(const Product& product) const;
    Entry& entry(const Product& product);

    int threads_;
    dnnl::engine engine_;
    dnnl::stream stream_;
    std::mutex mutex_;
    std::map<Product, std::unique_ptr<Entry>> entries_;
};

}  // namespace trainctl::cpu
