// The ceiling of MFU.
#include "trainctl/train/device_peak.h"

#include "support/catch.h"

using namespace trainctl;

TEST_CASE("a step faster than the measured peak refutes it once and for all") {
    PeakRate peak(100.0);
    CHECK_FALSE(peak.refuted_by(99.0));
    CHECK_FALSE(peak.refuted_by(100.0));
    CHECK(peak.flops_per_s() == 100.0);
    CHECK(peak.refuted_by(101.0));
    CHECK(peak.flops_per_s() == 0.0);
    CHECK_FALSE(peak.refuted_by(200.0));  // said once
    CHECK_FALSE(peak.refuted_by(50.0));
    CHECK(peak.flops_per_s() == 0.0);
}
