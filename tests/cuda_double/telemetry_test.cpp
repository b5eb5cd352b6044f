// Telemetry by NVML, from a library that answers what a test wants.
#include <dlfcn.h>

#include <condition_variable>
#include <mutex>

#include "cuda_double/fake_nvml/state.h"
#include "support/catch.h"
#include "trainctl/base/error.h"
#include "trainctl/device/gpu_telemetry.h"
#include "trainctl/train/gpu_sampler.h"

namespace trainctl::cuda_test {
namespace {

constexpr const char* bus = "0000:17:00.0";

// A fake library while it is held, its GPU as it is after loading.
class FakeNvml {
  public:
    explicit FakeNvml(const char* path) : handle_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
        invariant(handle_ != nullptr, "the fake library was not built");
        gpu_ = reinterpret_cast<decltype(&fake_nvml_gpu)>(dlsym(handle_, "fake_nvml_gpu"))();
        *gpu_ = {};
    }
    ~FakeNvml() { dlclose(handle_); }
    FakeNvml(const FakeNvml&) = delete;
    FakeNvml& operator=(const FakeNvml&) = delete;
    test::FakeGpu* operator->() const { return gpu_; }

  private:
    void* handle_;
    test::FakeGpu* gpu_;
};

const char* const newer = TRAINCTL_FAKE_NVML;
const char* const older = TRAINCTL_FAKE_NVML_OLDER;

std::unique_ptr<GpuTelemetry> telemetry_of(const char* library) {
    std::string why;
    auto telemetry = make_gpu_telemetry(bus, &why, library);
    INFO(why);
    REQUIRE(telemetry);
    return telemetry;
}

// Alarms as they come, from the sampler's thread.
class Heard {
  public:
    void operator()(const GpuAlarm& alarm) {
        const std::scoped_lock lock(mutex_);
        texts_.push_back(alarm.text);
        changed_.notify_all();
    }
    std::vector<std::string> await(std::size_t count) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return texts_.size() >= count; });
        return texts_;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::string> texts_;
};

}  // namespace

TEST_CASE("nvml: every reading is the GPU's", "[cuda]") {
    const FakeNvml gpu(newer);
    const auto telemetry = telemetry_of(newer);
    gpu->remap_failed = 1;
    gpu->uncorrected = 7;
    const GpuSample sample = telemetry->sample();
    CHECK(sample.utilisation_percent == 97);
    CHECK(sample.memory_utilisation_percent == 41);
    CHECK(sample.memory_used_bytes == 61ULL << 30U);
    CHECK(sample.memory_total_bytes == 80ULL << 30U);
    CHECK(sample.power_w.value() == Approx(654.321));
    CHECK(sample.power_limit_w.value() == Approx(700.0));
    CHECK(sample.temperature_c == 63);
    CHECK(sample.slowdown_temperature_c == 87);
    CHECK(sample.sm_clock_mhz == 1755);
    CHECK(sample.memory_clock_mhz == 2619);
    CHECK(sample.ecc_corrected == 5U);
    CHECK(sample.ecc_uncorrected == 7U);
    CHECK(sample.row_remap_pending == false);
    CHECK(sample.row_remap_failed == true);
    REQUIRE(sample.throttle);
    CHECK_FALSE(sample.throttle->power_cap);
    CHECK_FALSE(sample.lost);
    CHECK(sample.xids.empty());
    CHECK(nvidia_driver_version(newer) == "580.65.06");
}

TEST_CASE("nvml: what holds the clocks down is told apart", "[cuda]") {
    const FakeNvml gpu(newer);
    const auto telemetry = telemetry_of(newer);
    struct Case {
        std::uint64_t bits;
        bool power_cap, thermal, power_brake, hardware;
    };
    for (const Case& expected : {Case{0x1, false, false, false, false}, Case{0x4, true, false, false, false},
                                 Case{0x20, false, true, false, false}, Case{0x48, false, true, false, false},
                                 Case{0x88, false, false, true, false}, Case{0x8, false, false, false, true},
                                 Case{0xEC, true, true, true, false}}) {
        gpu->clock_reasons = expected.bits;
        const GpuThrottle found = telemetry->sample().throttle.value();
        CAPTURE(expected.bits);
        CHECK(found.power_cap == expected.power_cap);
        CHECK(found.thermal == expected.thermal);
        CHECK(found.power_brake == expected.power_brake);
        CHECK(found.hardware == expected.hardware);
    }
}

TEST_CASE("nvml: what a GPU does not support is absent", "[cuda]") {
    const FakeNvml gpu(newer);
    gpu->unsupported = {"nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetPowerUsage",
                        "nvmlDeviceRegisterEvents"};
    const auto telemetry = telemetry_of(newer);
    CHECK(gpu->event_sets == 0);  // nobody would listen
    gpu->xids = {79};
    const GpuSample sample = telemetry->sample();
    CHECK_FALSE(sample.ecc_corrected);
    CHECK_FALSE(sample.ecc_uncorrected);
    CHECK_FALSE(sample.row_remap_pending);
    CHECK_FALSE(sample.row_remap_failed);
    CHECK_FALSE(sample.power_w);
    CHECK(sample.power_limit_w);
    CHECK(sample.temperature_c == 63);
    CHECK(sample.xids.empty());
    CHECK_FALSE(sample.lost);
}

TEST_CASE("nvml: an older library is asked under its own names", "[cuda]") {
    const FakeNvml gpu(older);
    const auto telemetry = telemetry_of(older);
    gpu->clock_reasons = 0x20;
    gpu->xids = {31, 43};
    const GpuSample sample = telemetry->sample();
    CHECK(sample.throttle.value().thermal);
    CHECK(sample.xids == std::vector<std::int64_t>{31, 43});
    CHECK_FALSE(sample.row_remap_pending);
    CHECK(sample.temperature_c == 63);
}

TEST_CASE("nvml: without library, driver or GPU there is a reason", "[cuda]") {
    std::string why;
    CHECK_FALSE(make_gpu_telemetry(bus, &why, "libno-such-library.so.1"));
    CHECK_THAT(why, Catch::Contains("libno-such-library.so.1"));
    CHECK_FALSE(make_gpu_telemetry(bus, nullptr, "libno-such-library.so.1"));
    CHECK(nvidia_driver_version("libno-such-library.so.1").empty());
    CHECK_FALSE(make_gpu_telemetry(bus, &why, "libm.so.6"));
    CHECK_THAT(why, Catch::Contains("is not NVIDIA's management library"));
    const FakeNvml gpu(newer);
    gpu->driver_status = 9;
    CHECK_FALSE(make_gpu_telemetry(bus, &why, newer));
    CHECK(why == "Driver Not Loaded");
    CHECK(nvidia_driver_version(newer).empty());
    gpu->driver_status = 0;
    CHECK_FALSE(make_gpu_telemetry("0000:99:00.0", &why, newer));
    CHECK(why == "Not Found");
    CHECK(gpu->started == 0);
}

TEST_CASE("nvml: what was started is ended", "[cuda]") {
    const FakeNvml gpu(newer);
    {
        const auto one = telemetry_of(newer);
        const auto two = telemetry_of(newer);
        CHECK(gpu->started == 2);
        CHECK(gpu->event_sets == 2);
    }
    CHECK(gpu->started == 0);
    CHECK(gpu->event_sets == 0);
}

TEST_CASE("nvml: a GPU that is lost tells only that, and why", "[cuda]") {
    const FakeNvml gpu(newer);
    const auto telemetry = telemetry_of(newer);
    for (const int status : {15, 16}) {  // lost, or out of order until it is reset
        gpu->status = status;
        gpu->xids = {79};
        const GpuSample sample = telemetry->sample();
        CHECK(sample.lost);
        CHECK(sample.xids == std::vector<std::int64_t>{79});
        CHECK_FALSE(sample.temperature_c);
        gpu->status = 0;
        CHECK_FALSE(telemetry->sample().lost);  // it has come back
    }
}

TEST_CASE("nvml: a sampler says once that its GPU is lost, and why", "[cuda]") {
    const FakeNvml gpu(newer);
    Heard heard;
    {
        auto telemetry = telemetry_of(newer);
        CHECK(telemetry->sample().temperature_c == 63);
        gpu->xids = {79};
        gpu->status = 15;
        const GpuSampler sampler(std::move(telemetry), 1e-6, std::ref(heard));
        const auto texts = heard.await(2);
        CHECK_THAT(texts[0], Catch::Contains("Xid 79: the GPU has fallen off the bus"));
        CHECK_THAT(texts[1], Catch::Contains("the driver does not reach the GPU any more"));
        while (!sampler.newest()) {
        }
        CHECK(sampler.newest()->lost);
        CHECK_FALSE(sampler.newest()->temperature_c);
    }
    CHECK(heard.await(0).size() == 2);
}

TEST_CASE("nvml: a sampler reports Xids and ends at once, however long its interval", "[cuda]") {
    const FakeNvml gpu(newer);
    gpu->xids = {48, 94};
    Heard heard;
    const GpuSampler sampler(telemetry_of(newer), 1e6, std::ref(heard));
    const auto texts = heard.await(2);
    CHECK_THAT(texts[0], Catch::Contains("Xid 48: memory error that ECC could not correct"));
    CHECK_THAT(texts[1], Catch::Contains("Xid 94"));
    while (!sampler.newest()) {
    }
    CHECK(sampler.last_xid() == 94);
    CHECK(sampler.newest()->temperature_c == 63);
}

}  // namespace trainctl::cuda_test
