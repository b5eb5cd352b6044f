// Which device a rank takes, for every mixture of request and host.
#include "cli/rank_device.h"

#include "cli/gpu_watch.h"
#include "support/catch.h"
#include "trainctl/base/error.h"

namespace trainctl {
namespace {

HostDevices host(int gpus, int local_size, int local_rank = 0) {
    HostDevices here;
    for (int i = 0; i < gpus; ++i)
        here.devices.push_back(
            {i, "GPU " + std::to_string(i), "bus " + std::to_string(i), 90, 132, 1U << 30U});
    here.why_none = "there is no NVIDIA driver";
    here.local_rank = local_rank;
    here.local_size = local_size;
    here.world_size = local_size;
    return here;
}

DeviceSpec wants(DeviceKind kind, bool share = false) {
    DeviceSpec device;
    device.kind = kind;
    device.share_gpus = share;
    return device;
}

// What a refusal says; empty if it was none of this code.
std::string refusal(const DeviceSpec& device, const std::string& backend, const HostDevices& here,
                    Exit code) {
    try {
        choose_device(device, backend, here);
    } catch (const Error& error) {
        return error.code() == code ? error.what() : "";
    }
    return "";
}

}  // namespace

TEST_CASE("auto takes cuda if every rank of the host gets a GPU, and says why it takes the cpu", "[cli]") {
    const DeviceSpec automatic = wants(DeviceKind::Auto);
    for (int rank = 0; rank < 4; ++rank) {
        const DeviceChoice choice = choose_device(automatic, "auto", host(4, 4, rank));
        CHECK(choice.cuda);
        CHECK(choice.nccl);
        CHECK(choice.ordinal == rank);
    }
    CHECK_FALSE(choose_device(automatic, "auto", host(1, 1)).nccl);  // nobody to talk to
    const DeviceChoice without = choose_device(automatic, "auto", host(0, 2));
    CHECK_FALSE(without.cuda);
    CHECK_THAT(without.text, Catch::Contains("takes the cpu: there is no NVIDIA driver"));
    const DeviceChoice too_few = choose_device(automatic, "auto", host(1, 2));
    CHECK_FALSE(too_few.cuda);
    CHECK_THAT(too_few.text, Catch::Contains("1 GPU for 2 ranks"));
}

TEST_CASE("cuda never falls back, and ranks share a GPU only when told to", "[cli]") {
    CHECK_THAT(refusal(wants(DeviceKind::Cuda), "auto", host(0, 1), Exit::Resource),
               Catch::Contains("there is no NVIDIA driver"));
    CHECK_THAT(refusal(wants(DeviceKind::Cuda), "auto", host(1, 2), Exit::Resource),
               Catch::Contains("each of the 2 ranks") && Catch::Contains("device.share_gpus"));
    const DeviceChoice shared = choose_device(wants(DeviceKind::Cuda, true), "auto", host(2, 3, 2));
    CHECK(shared.cuda);
    CHECK_FALSE(shared.nccl);
    CHECK(shared.ordinal == 0);
    CHECK_THAT(refusal(wants(DeviceKind::Cuda, true), "nccl", host(1, 2), Exit::Usage),
               Catch::Contains("\"host\""));
    CHECK(
        choose_device(wants(DeviceKind::Cuda, true), "auto", host(2, 2)).nccl);  // enough: nothing is shared
}

TEST_CASE("precision.tf32 reaches a GPU or is refused", "[cli]") {
    PrecisionSpec precision;
    CHECK(f32_products(precision) == F32Products::Exact);
    precision.tf32 = true;
    CHECK(f32_products(precision) == F32Products::Tf32);
    CHECK(choose_device(wants(DeviceKind::Auto), "auto", host(1, 1), F32Products::Tf32).cuda);
    for (const DeviceKind kind : {DeviceKind::Auto, DeviceKind::Cpu}) {
        try {
            choose_device(wants(kind), "auto", host(0, 1), F32Products::Tf32);
            FAIL("TF32 on the cpu");
        } catch (const Error& error) {
            CHECK(error.code() == Exit::Usage);
            CHECK_THAT(error.what(), Catch::Contains("precision.tf32"));
            if (kind == DeviceKind::Auto)
                CHECK_THAT(error.what(), Catch::Contains("there is no NVIDIA driver"));
        }
    }
}

TEST_CASE("communication.backend is honoured or refused", "[cli]") {
    CHECK_FALSE(choose_device(wants(DeviceKind::Cuda), "host", host(2, 2)).nccl);
    CHECK(choose_device(wants(DeviceKind::Cuda), "nccl", host(1, 1)).nccl);
    CHECK_THAT(refusal(wants(DeviceKind::Cpu), "nccl", host(2, 2), Exit::Usage),
               Catch::Contains("on the cpu"));
    CHECK_FALSE(choose_device(wants(DeviceKind::Cpu), "auto", host(2, 2)).cuda);
}

TEST_CASE("CUDA graphs are honoured or refused", "[cli]") {
    DeviceSpec device = wants(DeviceKind::Auto);
    device.cuda_graphs = true;
    CHECK(choose_device(device, "auto", host(1, 1)).cuda);
    CHECK_THAT(refusal(device, "auto", host(0, 1), Exit::Usage),
               Catch::Contains("device.cuda_graphs") && Catch::Contains("there is no NVIDIA driver"));
    device.kind = DeviceKind::Cpu;
    CHECK_THAT(refusal(device, "auto", host(1, 1), Exit::Usage), Catch::Contains("device.cuda_graphs"));
}

TEST_CASE("a model without kernels on the chosen device is refused, whoever chose it", "[cli]") {
    ModelSpec model;
    model.head_dim = 257;
    for (const DeviceKind kind : {DeviceKind::Auto, DeviceKind::Cuda}) {
        try {
            require_kernels(choose_device(wants(kind), "auto", host(1, 1)), model);
            FAIL("heads of 257 elements were taken");
        } catch (const Error& error) {
            CHECK(error.code() == Exit::Usage);
            CHECK_THAT(error.what(), Catch::Contains("model.head_dim is 257"));
        }
    }
    CHECK_NOTHROW(require_kernels(choose_device(wants(DeviceKind::Auto), "auto", host(0, 1)), model));
    model.head_dim = 256;
    CHECK_NOTHROW(require_kernels(choose_device(wants(DeviceKind::Cuda), "auto", host(1, 1)), model));
}

TEST_CASE("the GPUs of a host's ranks are known before the ranks meet", "[cli]") {
    using Buses = std::vector<std::string>;
    const auto of = [](const DeviceSpec& device, const std::string& backend, const HostDevices& here) {
        return gpus_of_local_ranks(device, backend, here);
    };
    CHECK(of(wants(DeviceKind::Cuda), "auto", host(4, 3)) == Buses{"bus 0", "bus 1", "bus 2"});
    CHECK(of(wants(DeviceKind::Cuda, true), "auto", host(2, 3)) == Buses{"bus 0", "bus 1", "bus 0"});
    CHECK(of(wants(DeviceKind::Auto), "auto", host(1, 2)).empty());  // takes the cpu
    CHECK(of(wants(DeviceKind::Cpu), "auto", host(2, 2)).empty());
    CHECK(of(wants(DeviceKind::Cuda), "auto", host(1, 2)).empty());  // will be refused
    for (int rank = 0; rank < 3; ++rank) {
        const HostDevices here = host(2, 3, rank);
        const DeviceChoice choice = choose_device(wants(DeviceKind::Cuda, true), "auto", here);
        CHECK(choice.pci_bus ==
              of(wants(DeviceKind::Cuda, true), "auto", here)[static_cast<std::size_t>(rank)]);
    }
}

TEST_CASE("a GPU that cannot be watched is one line by one rank, a cpu none", "[cli]") {
    class Lines final : public Log {
      public:
        void write(LogLevel level, std::string_view text) override {
            CHECK(level == LogLevel::Info);
            all.emplace_back(text);
        }
        std::vector<std::string> all;
    };
    Lines lines;
    const char* const missing = "libno-such-library.so.1";
    CHECK_FALSE(watch_gpu("", 10.0, lines, Speaks::Yes, missing));
    CHECK_FALSE(watch_gpu("0000:17:00.0", 0.0, lines, Speaks::Yes, missing));
    CHECK_FALSE(watch_gpu("0000:17:00.0", 10.0, lines, Speaks::No, missing));
    CHECK(lines.all.empty());
    CHECK_FALSE(watch_gpu("0000:17:00.0", 10.0, lines, Speaks::Yes, missing));
    REQUIRE(lines.all.size() == 1);
    CHECK_THAT(lines.all[0], Catch::StartsWith("GPUs are not watched"));
    const GpuRecord record = gpu_record(nullptr);
    CHECK_FALSE(record.temperature_c);
    CHECK_FALSE(record.last_xid);
}

}  // namespace trainctl
