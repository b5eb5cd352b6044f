// One op on buffers of its own: how to run it, and how to recompute sampled results independently.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainctl/bench/op_bench.h"

namespace trainctl {

struct BenchedOp {
    std::string name;
    double flops = 0.0;
    double bytes = 0.0;
    double tolerance = 0.0;
    std::function<void()> run;
    // Largest |found - expected| / (1 + |expected|) over the samples, after one run.
    std::function<double()> worst_error;
};

// Buffers of the rank's device with random contents, a pure function of (tensor number, index), and what the
// host sees of them.
class OpWorkspace {
  public:
    OpWorkspace(Rank& on, const OpBenchOptions& chosen)
        : rank(on), options(chosen), memory_(on.device.info().memory) {}

    // Uniform in (-scale, scale).
    TensorView random(const Shape& shape, DType dtype, double scale = 1.0);
    TensorView zeros(const Shape& shape, DType dtype);
    TensorView scratch(std::size_t bytes);
    // Fills a tensor of the device with the host memory `from`, of its size; waits.
    void upload(const TensorView& to, const void* from);
    // The tensor where the host can read it: itself, or a copy made when it was first asked for since
    // forget_copies().
    [[nodiscard]] TensorView on_host(const TensorView& tensor);
    [[nodiscard]] double value_at(const TensorView& tensor, std::int64_t index);
    // What the device has computed since shows again.
    void forget_copies() { copies_.clear(); }
    [[nodiscard]] std::int64_t rows() const { return options.batch * options.length; }

    Rank& rank;
    const OpBenchOptions& options;

  private:
    DeviceMemoryKind memory_;
    std::vector<Buffer> buffers_;
    std::map<const std::byte*, Buffer> copies_;
};

// `count` places spread over [0, size).
std::vector<std::int64_t> sampled(std::int64_t size, std::int64_t count = 48);

// Keeps the largest relative difference.
class WorstError {
  public:
    void add(double found, double expected) {
        const double error = std::abs(found - expected) / (1.0 + std::abs(expected));
        worst_ = std::isfinite(error) ? std::max(worst_, error) : INFINITY;
    }
    [[nodiscard]] double value() const { return worst_; }

  private:
    double worst_ = 0.0;
};

void add_product_cases(OpWorkspace& workspace, std::vector<BenchedOp>& cases);  // dense layers, attention
void add_streaming_cases(OpWorkspace& workspace,
                         std::vector<BenchedOp>& cases);  // norms, activations, loss, optimizer

}  // namespace trainctl
