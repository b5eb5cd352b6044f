// The double must see faults: each planted one is found with every seed, or with almost every seed where only
// an order shows it, and the healthy kernel passes with all.
#include <cmath>
#include <vector>

#include "cuda/shared_memory_limit.h"
#include "cuda/stream.h"
#include "cuda_double/faulty_kernels.h"
#include "cuda_double/machine.h"
#include "support/catch.h"
#include "trainctl/base/error.h"
#include "trainctl/device/cuda_device.h"

namespace trainctl::cuda_double {
namespace {

constexpr int blocks = 5;
constexpr std::size_t count = 64 * blocks;

struct Outcome {
    bool right = true;
    std::string fault;  // what a host wait threw
};

Outcome try_reverse(Planted fault, std::uint64_t seed) {
    start_machine({.devices = 1, .seed = seed});
    Outcome outcome;
    try {
        const auto device = make_cuda_device(0);
        const auto stream = device->make_stream("compute", StreamRole::Compute);
        Buffer in = device->allocate(count * sizeof(float), Memory::Device, "in");
        Buffer out = device->allocate(count * sizeof(float), Memory::Device, "out");
        Buffer host = device->allocate(count * sizeof(float), Memory::Pinned, "host");
        auto* values = reinterpret_cast<float*>(host.data());
        for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
        device->copy(*stream, in.data(), host.data(), in.bytes());
        reverse_blocks(reinterpret_cast<float*>(out.data()), reinterpret_cast<const float*>(in.data()),
                       blocks, fault, cuda::handle(*stream));
        stream->synchronize();
        device->copy(*stream, host.data(), out.data(), out.bytes());
        stream->synchronize();
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t mirrored = i / 64 * 64 + 63 - i % 64;
            outcome.right = outcome.right && values[i] == static_cast<float>(mirrored);
        }
    } catch (const Error& error) {
        outcome.fault = error.what();
    }
    return outcome;
}

}  // namespace

TEST_CASE("a healthy kernel computes the right thing in every order", "[cuda]") {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const Outcome outcome = try_reverse(Planted::None, seed);
        CHECK(outcome.fault == "");
        CHECK(outcome.right);
    }
}

TEST_CASE("faults of kernels are named with the kernel, block and thread", "[cuda]") {
    const auto text = [](Planted fault, std::uint64_t seed) { return try_reverse(fault, seed).fault; };
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        CHECK_THAT(text(Planted::BarrierNotForAll, seed),
                   Catch::Contains("kernel reverse, block (") &&
                       Catch::Contains("waits in sync_block for thread 3"));
        CHECK_THAT(text(Planted::ShuffleNotForAll, seed), Catch::Contains("waits in shuffle_xor for lane"));
        CHECK_THAT(text(Planted::DifferentFunctions, seed), Catch::Contains("sync_warp"));
        CHECK_THAT(text(Planted::OffByOne, seed), Catch::Contains("thread (63, 0, 0) touches") &&
                                                      Catch::Contains("not memory it may touch"));
        CHECK_THAT(text(Planted::FarOutside, seed), Catch::Contains("thread (9, 0, 0) touches"));
        CHECK_THAT(text(Planted::SharedOutside, seed), Catch::Contains("thread (63, 0, 0) touches"));
    }
}

TEST_CASE("what only an order or garbage shows is a wrong number", "[cuda]") {
    int barrier = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        barrier += try_reverse(Planted::MissingBarrier, seed).right ? 0 : 1;
        CHECK_FALSE(try_reverse(Planted::UnwrittenShared, seed).right);
        CHECK_FALSE(try_reverse(Planted::FetchNotWaitedFor, seed).right);
    }
    CHECK(barrier == 20);
}

TEST_CASE("much shared memory is announced once per kernel and device", "[cuda]") {
    start_machine({.devices = 2});
    int kernel = 0;  // addresses that no other test uses
    int other_kernel = 0;
    const std::uint64_t before = attributes_set();
    const auto announced = [&] { return attributes_set() - before; };
    const auto allow = [&](std::size_t kib) { cuda::allow_shared_memory(&kernel, kib << 10U, "kernel"); };
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    CHECK(require_shared_memory(&kernel, std::size_t{100} << 10U) == cudaErrorInvalidValue);
    allow(48);
    CHECK(announced() == 0);
    for (int round = 0; round < 3; ++round) allow(100);
    CHECK(announced() == 1);
    CHECK(require_shared_memory(&kernel, std::size_t{100} << 10U) == cudaSuccess);
    CHECK(require_shared_memory(&other_kernel, std::size_t{100} << 10U) == cudaErrorInvalidValue);
    allow(120);
    allow(60);
    CHECK(announced() == 2);
    CHECK(require_shared_memory(&kernel, std::size_t{120} << 10U) == cudaSuccess);
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    CHECK(require_shared_memory(&kernel, std::size_t{60} << 10U) == cudaErrorInvalidValue);
    allow(120);
    CHECK(announced() == 3);
    cuda::allow_shared_memory(&other_kernel, std::size_t{60} << 10U, "other kernel");
    CHECK(require_shared_memory(&other_kernel, std::size_t{60} << 10U) == cudaSuccess);
    CHECK_THROWS_AS(allow(300), Error);
}

TEST_CASE("what a device may allocate is what other processes leave", "[cuda]") {
    constexpr std::uint64_t mib = std::uint64_t{1} << 20U;
    start_machine({.devices = 1, .memory_bytes = 64 * mib, .taken_bytes = 24 * mib});
    const auto device = make_cuda_device(0);
    CHECK(device->info().memory_bytes == 40 * mib);
    const Buffer own = device->allocate(8 * mib, Memory::Device, "own");
    CHECK(device->info().memory_bytes == 40 * mib);
}

}  // namespace trainctl::cuda_double
