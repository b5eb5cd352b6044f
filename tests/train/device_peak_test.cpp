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

TEST_CASE("GPUs with a data sheet are known by the names that drivers give") {
    CHECK(data_sheet_peak("NVIDIA H100 80GB HBM3", DType::BF16) == 989e12);
    CHECK(data_sheet_peak("NVIDIA H100 PCIe", DType::BF16) == 756e12);
    CHECK(data_sheet_peak("NVIDIA H100 NVL", DType::F16) == 835e12);
    CHECK(data_sheet_peak("NVIDIA H200", DType::BF16) == 989e12);
    CHECK(data_sheet_peak("NVIDIA GB200", DType::BF16) == 2.5e15);
    CHECK(data_sheet_peak("NVIDIA B200", DType::BF16) == 2.25e15);
    CHECK(data_sheet_peak("NVIDIA A100-SXM4-80GB", DType::BF16) == 312e12);
    CHECK(data_sheet_peak("NVIDIA L40S", DType::BF16) == 362e12);
    CHECK(data_sheet_peak("NVIDIA L4", DType::BF16) == 121e12);
    // A part of a name is not the name.
    CHECK_FALSE(data_sheet_peak("NVIDIA L40", DType::BF16));
    CHECK_FALSE(data_sheet_peak("NVIDIA GH200 480GB", DType::BF16));
    CHECK_FALSE(data_sheet_peak("NVIDIA H100 80GB HBM3", DType::F32));
    CHECK_FALSE(data_sheet_peak("Intel(R) Xeon(R) Processor", DType::BF16));
}

TEST_CASE("without a data sheet the peak is what was measured, and says so") {
    const DevicePeak sheet = device_peak("NVIDIA H200", DType::BF16, 700e12);
    CHECK(sheet.flops_per_s == 989e12);
    CHECK(sheet.measured_flops_per_s == 700e12);
    CHECK(sheet.source == PeakSource::DataSheet);
    const DevicePeak measured = device_peak("NVIDIA GeForce RTX 3060", DType::BF16, 40e12);
    CHECK(measured.flops_per_s == 40e12);
    CHECK(measured.source == PeakSource::Measured);
}
