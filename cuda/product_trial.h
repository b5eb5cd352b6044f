// Candidates for one matrix product against each other, on operands of real size.
#pragma once

#include <string>
#include <vector>

#include "cuda/product_plan.h"
#include "trainctl/device/device.h"

namespace trainctl::cuda {

// Thread rule: the rank's compute thread. The stream must outlive it.
class ProductTrial {
  public:
    // Allocates operands, filled with small numbers of both signs, and two results. Exit::Resource if they do
    // not fit; they are freed again with this object.
    ProductTrial(Device& device, Stream& stream, const Product& product);

    // For each candidate whether it may be used: it runs, and gives the same bits three times.
    std::vector<bool> repeatable(cublasLtHandle_t library, ProductPlan& plan,
                                 const std::vector<cublasLtMatmulAlgo_t>& candidates);
    // Milliseconds of one product by each of them: medians of rounds in which all take turns.
    std::vector<float> measure(cublasLtHandle_t library, ProductPlan& plan,
                               const std::vector<cublasLtMatmulAlgo_t>& candidates);

  private:
    void fill(const Buffer& operand, DType dtype, std::uint64_t seed);
    [[nodiscard]] cublasStatus_t run(cublasLtHandle_t library, ProductPlan& plan, void* result);

    Device& device_;
    Stream& stream_;
    Buffer left_;
    Buffer right_;
    Buffer bias_;
    Buffer result_;
    Buffer again_;
    Buffer workspace_;
    std::size_t result_bytes_;
};

}  // namespace trainctl::cuda
