#include "cuda/ops/product_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "cuda/check.h"
#include "cuda/product_trial.h"

namespace trainctl::cuda {
namespace {

// An algorithm is 64 bytes that the library's documentation allows to store and to restore with the same
// version of it: eight numbers of 16 hexadecimal digits.
constexpr std::size_t words = std::size(cublasLtMatmulAlgo_t{}.data);
constexpr std::size_t digits = 16;

std::string to_text(const cublasLtMatmulAlgo_t& algorithm) {
    std::string text;
    for (const std::uint64_t word : algorithm.data) text += fmt::format("{:016x}", word);
    return text;
}

std::optional<cublasLtMatmulAlgo_t> parse_algorithm(std::string_view text) {
    if (text.size() != words * digits) return std::nullopt;
    cublasLtMatmulAlgo_t algorithm{};
    for (std::size_t i = 0; i < words; ++i) {
        const char* begin = text.data() + i * digits;
        const auto [end, error] = std::from_chars(begin, begin + digits, algorithm.data[i], 16);
        if (error != std::errc{} || end != begin + digits) return std::nullopt;
    }
    return algorithm;
}

double flops(const Product& p) {
    return 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
}

}  // namespace

std::string CudaProductPlans::identity() const {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    return fmt::format("{}, {} multiprocessors, cuBLASLt {}, f32 {}", properties.name,
                       properties.multiProcessorCount, cublasLtGetVersion(),
                       products_.f32() == F32Products::Tf32 ? "as tf32" : "exact");
}

void CudaProductPlans::prepare(const std::vector<Product>& products) {
    for (const Product& product : products) products_.prepare({product});
}

TuningReport CudaProductPlans::tune(const std::vector<Product>& products, Stream& stream, Clock& clock,
                                    TuningLimits limits) {
    const double began = clock.monotonic_s();
    std::vector<Product> by_size = products;
    std::stable_sort(by_size.begin(), by_size.end(),
                     [](const Product& a, const Product& b) { return flops(a) > flops(b); });
    TuningReport report;
    for (const Product& product : by_size) {
        products_.prepare({product});
        if (clock.monotonic_s() - began >= limits.seconds) {
            ++report.not_reached;
        } else {
            tune_one(product, stream, report);
        }
    }
    report.seconds = clock.monotonic_s() - began;
    return report;
}

void CudaProductPlans::tune_one(const Product& product, Stream& stream, TuningReport& report) {
    // One that is this much faster is so in the next run too; less is noise.
    constexpr float clearly_faster = 0.99F;
    const ProductKey key{product};
    ProductPlan plan(key, products_.f32());
    const std::vector<cublasLtMatmulAlgo_t> candidates = plan.candidates(products_.library());
    std::optional<ProductTrial> trial;
    try {
        trial.emplace(device_, stream, product);
    } catch (const Error& error) {
        if (error.code() != Exit::Resource) throw;
        ++report.without_memory;
        return;
    }
    const std::vector<bool> repeats = trial->repeatable(products_.library(), plan, candidates);
    std::vector<cublasLtMatmulAlgo_t> usable;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
        if (repeats[i]) {
            usable.push_back(candidates[i]);
        } else {
            report.discarded.push_back(
                fmt::format("{}: algorithm {} of {} fails, or does not give the same bits three times",
                            to_string(product), i + 1, candidates.size()));
        }
    }
    if (usable.empty()) {
        report.discarded.push_back(fmt::format(
            "{}: no algorithm gives the same bits three times; it runs by the library's first, and results "
            "of this run will not repeat to the bit",
            to_string(product)));
        return;
    }
    ++report.compared;
    const std::vector<float> times = trial->measure(products_.library(), plan, usable);
    const auto fastest =
        static_cast<std::size_t>(std::min_element(times.begin(), times.end()) - times.begin());
    const bool first_repeats = repeats.front();
    const bool changes = !first_repeats || times[fastest] < clearly_faster * times.front();
    if (!changes) return;
    ++report.changed;
    if (first_repeats)
        report.best_gain =
            std::max(report.best_gain, 1.0 - static_cast<double>(times[fastest] / times.front()));
    invariant(products_.adopt(key, usable[fastest]), "cuBLASLt refuses an algorithm that it just ran");
}

std::string CudaProductPlans::algorithm(const Product& product) const {
    const ProductPlan* plan = products_.find({product});
    invariant(plan != nullptr, "the algorithm of a product was asked for that is not prepared");
    return to_text(plan->algorithm());
}

bool CudaProductPlans::adopt(const Product& product, std::string_view algorithm) {
    const auto parsed = parse_algorithm(algorithm);
    return parsed && products_.adopt({product}, *parsed);
}

}  // namespace trainctl::cuda
