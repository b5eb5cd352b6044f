// Device, memory, streams, events and communicators of the cuda backend.
#include <cstring>

#include "cuda/cuda_bench.h"
#include "support/catch.h"
#include "support/run_ranks.h"
#include "trainctl/base/error.h"
#include "trainctl/comm/cuda_comm.h"

namespace trainctl::cuda_test {
namespace {

std::vector<std::byte> pattern(std::size_t bytes, int seed) {
    std::vector<std::byte> values(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
        values[i] = static_cast<std::byte>((i * 131 + static_cast<std::size_t>(seed)) % 253);
    return values;
}

std::vector<std::byte> bytes_of(const Buffer& pinned, std::size_t bytes) {
    return {pinned.data(), pinned.data() + bytes};
}

}  // namespace

TEST_CASE("cuda devices are listed with what decides whether they fit", "[cuda]") {
    start_cuda_machine(1);
    const std::vector<CudaDeviceEntry> devices = list_cuda_devices();
    REQUIRE(!devices.empty());
    for (const CudaDeviceEntry& entry : devices) {
        CHECK(!entry.name.empty());
        CHECK(!entry.pci_bus.empty());
        CHECK(entry.compute_capability >= 80);
        CHECK(entry.multiprocessors > 0);
        CHECK(entry.memory_bytes > 0);
    }
    const auto device = make_cuda_device(0);
    CHECK(device->info().kind == "cuda");
    CHECK(device->info().memory == DeviceMemoryKind::Own);
    try {
        make_cuda_device(static_cast<int>(devices.size()));
        FAIL("a device that is not there was made");
    } catch (const Error& error) {
        CHECK(error.code() == Exit::Resource);
    }
}

TEST_CASE("cuda memory begins as zeros, is counted, and runs out with a text", "[cuda]") {
    CudaBench bench(2);
    Device& device = bench.device();
    const MemoryUse before = device.memory_use();
    constexpr std::size_t bytes = std::size_t{256} * 39;
    {
        const Buffer fresh = device.allocate(bytes, Memory::Device, "fresh");
        CHECK(reinterpret_cast<std::uintptr_t>(fresh.data()) % 256 == 0);
        CHECK(device.memory_use().device_bytes >= before.device_bytes + bytes);
        const Buffer pinned = device.allocate(bytes, Memory::Pinned, "pinned");
        std::memset(pinned.data(), 1, bytes);
        device.copy(bench.stream(), pinned.data(), fresh.data(), bytes);
        bench.stream().synchronize();
        CHECK(bytes_of(pinned, bytes) == std::vector<std::byte>(bytes));
    }
    CHECK(device.memory_use().device_bytes == before.device_bytes);
    try {
        const Buffer endless = device.allocate(std::size_t{1} << 46U, Memory::Device, "endless table");
        FAIL("64 TiB were allocated");
    } catch (const Error& error) {
        CHECK(error.code() == Exit::Resource);
        CHECK(std::string(error.what()).find("endless table") != std::string::npos);
    }
}

TEST_CASE("cuda events order the work of two streams", "[cuda]") {
    CudaBench bench(3);
    Device& device = bench.device();
    const auto other = device.make_stream("other", StreamRole::Communication);
    const auto written = device.make_event();
    const auto read = device.make_event();
    CHECK(written->complete());  // never recorded
    constexpr std::size_t bytes = std::size_t{1} << 22U;
    const Buffer up = device.allocate(bytes, Memory::Pinned, "up");
    const Buffer down = device.allocate(bytes, Memory::Pinned, "down");
    const Buffer shared = device.allocate(bytes, Memory::Device, "shared");
    for (int round = 0; round < 4; ++round) {
        const std::vector<std::byte> sent = pattern(bytes, round);
        if (round > 0) read->synchronize();
        std::memcpy(up.data(), sent.data(), bytes);
        bench.stream().wait(*read);
        device.copy(bench.stream(), shared.data(), up.data(), bytes);
        bench.stream().record(*written);
        other->wait(*written);
        device.copy(*other, down.data(), shared.data(), bytes);
        other->record(*read);
        read->synchronize();
        CHECK(read->complete());
        CHECK(written->complete());
        CHECK(bytes_of(down, bytes) == sent);
    }
    bench.stream().synchronize();
}

TEST_CASE("cuda communicators of one rank give back what they were given", "[cuda]") {
    for (const CudaTransport transport : {CudaTransport::Nccl, CudaTransport::Host}) {
        start_cuda_machine(4);
        // Per rank: the elements of all_reduce, reduce_scatter and all_gather, one after the other.
        const auto results = test::collect_ranks<std::vector<float>>(1, [&](World& world, CpuDevice& host) {
            const auto device = make_cuda_device(world.local_rank());
            const Mesh mesh =
                make_cuda_mesh(make_mesh(world, MeshShape{}), *device, host, {transport, 30.0, {}});
            const auto stream = device->make_stream("messages", StreamRole::Communication);
            HostCopies copies(*device, *stream);
            std::vector<float> values = {1.5F, -2.0F, 3.25F, 1e-30F};
            const TensorView given{reinterpret_cast<std::byte*>(values.data()), Shape{4}, DType::F32};
            const Buffer one = device->allocate(given.bytes(), Memory::Device, "one");
            const Buffer two = device->allocate(given.bytes(), Memory::Device, "two");
            const TensorView first = one.view(Shape{4}, DType::F32);
            const TensorView second = two.view(Shape{4}, DType::F32);
            copies.upload(first, given);
            mesh.data->all_reduce(first, Reduce::Sum, *stream);
            mesh.data->reduce_scatter(second, first, Into::Overwrite, *stream);
            mesh.data->all_gather(first, second, *stream);
            std::vector<float> found(4);
            copies.download({reinterpret_cast<std::byte*>(found.data()), Shape{4}, DType::F32}, first);
            return found;
        });
        CHECK(results.front() == std::vector<float>{1.5F, -2.0F, 3.25F, 1e-30F});
    }
}

}  // namespace trainctl::cuda_test
