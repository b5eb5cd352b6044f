// The ceiling that MFU is measured against: a data sheet's where it is known, else a measured one.
#pragma once

#include <optional>
#include <string_view>

#include "trainctl/base/clock.h"
#include "trainctl/observe/step_record.h"
#include "trainctl/ops/ops.h"

namespace trainctl {

// FLOP/s of the best of a few products of smallest x smallest x smallest in the compute dtype on this rank,
// or of up to 8192 x 8192 x 8192 where one takes less than 0.4 ms; takes about 0.1 s, and hardly more than
// 0.5 s where a product is slow.
double measure_peak_flops(Device& device, MatmulOps& matmul, Stream& compute, DType dtype, Clock& clock,
                          std::int64_t smallest = 1024);

// Dense BF16 and F16 products of a GPU, FLOP/s, as its data sheet has them (sparse figures halved), by the
// name that the driver gives. nullopt: not listed, another kind of device, or another dtype.
std::optional<double> data_sheet_peak(std::string_view device_name, DType dtype);

struct DevicePeak {
    double flops_per_s = 0.0;  // of one rank: the data sheet's, else what was measured
    double measured_flops_per_s = 0.0;
    PeakSource source = PeakSource::Measured;
};
DevicePeak device_peak(std::string_view device_name, DType dtype, double measured_flops_per_s);

// The peak as records carry it. A step that is faster shows that the machine was busy when the peak was
// measured; a ratio to it would say nothing, so it is unknown (0) from then on.
class PeakRate {
  public:
    explicit PeakRate(double measured_flops_per_s) : flops_per_s_(measured_flops_per_s) {}

    // Whether `flops_per_s` shows for the first time that the peak was measured too low.
    bool refuted_by(double flops_per_s);
    [[nodiscard]] double flops_per_s() const { return flops_per_s_; }

  private:
    double flops_per_s_;
};

}  // namespace trainctl
