// Plans of matrix products, tuned and handed from rank to rank.
#pragma once

#include "cuda/products.h"
#include "trainctl/device/device.h"

namespace trainctl::cuda {

class CudaProductPlans final : public ProductPlans {
  public:
    // Both must outlive it.
    CudaProductPlans(Device& device, Products& products) : device_(device), products_(products) {}

    [[nodiscard]] std::string identity() const override;
    void prepare(const std::vector<Product>& products) override;
    TuningReport tune(const std::vector<Product>& products, Stream& stream, Clock& clock,
                      TuningLimits limits) override;
    [[nodiscard]] std::string algorithm(const Product& product) const override;
    [[nodiscard]] bool adopt(const Product& product, std::string_view algorithm) override;
    [[nodiscard]] std::uint64_t unannounced() const override { return products_.unannounced(); }

  private:
    void tune_one(const Product& product, Stream& stream, TuningReport& report);

    Device& device_;
    Products& products_;
};

}  // namespace trainctl::cuda
