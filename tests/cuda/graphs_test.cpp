// Sections of calls that come again are replayed as graphs, and nothing else is.
#include <cstring>

#include "cuda/cuda_bench.h"
#include "cuda/cuda_training.h"
#include "support/catch.h"
#include "trainctl/base/error.h"
#include "trainctl/ops/backends.h"
#include "trainctl/ops/product_plans.h"

namespace trainctl::cuda_test {
namespace {

constexpr std::int64_t count = 4096;

// A device that gathers, its ops, a stream and some vectors.
struct Gathering {
    explicit Gathering(std::uint64_t seed) {
        start_cuda_machine(seed);
        device = make_cuda_device(0, CudaGraphs::On);
        backend = make_cuda_ops(*device, F32Products::Exact);
        stream = device->make_stream("compute", StreamRole::Compute);
        host = device->allocate(count * sizeof(float), Memory::Pinned, "host");
    }

    Buffer vector() { return device->allocate(count * sizeof(float), Memory::Device, "vector"); }
    Buffer vector(float value) {
        Buffer made = vector();
        for (std::int64_t i = 0; i < count; ++i) reinterpret_cast<float*>(host.data())[i] = value;
        device->copy(*stream, made.data(), host.data(), made.bytes());
        stream->synchronize();
        return made;
    }
    // The value of all elements; a failed check if they differ.
    float value(const Buffer& buffer) {
        device->copy(*stream, host.data(), buffer.data(), buffer.bytes());
        stream->synchronize();
        const auto* values = reinterpret_cast<const float*>(host.data());
        for (std::int64_t i = 0; i < count; ++i) CHECK(values[i] == values[0]);
        return values[0];
    }
    static TensorView all(const Buffer& buffer) { return buffer.view(Shape{count}, DType::F32); }
    void add(const Buffer& y, const Buffer& a, const Buffer& b) {
        backend->ops().elementwise.add(*stream, all(y), all(a), all(b));
    }
    // y = x + 2 x + 2 x, in three calls.
    void fivefold(const Buffer& y, const Buffer& twice, const Buffer& x) {
        add(twice, x, x);
        add(y, twice, x);
        add(y, y, twice);
        stream->flush();
    }
    CudaGraphUse use() const { return device->graph_use(); }

    std::unique_ptr<CudaDevice> device;
    std::unique_ptr<OpsBackend> backend;
    std::unique_ptr<Stream> stream;
    Buffer host;
};

}  // namespace

TEST_CASE("cuda graphs: a section is issued, then captured, then replayed", "[cuda]") {
    Gathering on(1);
    const Buffer x = on.vector(3.0F);
    const Buffer twice = on.vector();
    const Buffer y = on.vector();
    for (std::uint64_t round = 1; round <= 5; ++round) {
        on.fivefold(y, twice, x);
        CHECK(on.use().issued == round);  // the first, and what comes below
        CHECK(on.use().replayed == round - 1);
        CHECK(on.use().captured == (round > 1 ? 1 : 0));
        CHECK(on.value(y) == 15.0F);
        on.backend->ops().elementwise.fill_zero(*on.stream, Gathering::all(y));
        on.stream->synchronize();  // a section of its own, too short for a graph
        CHECK(on.value(y) == 0.0F);
    }
}

TEST_CASE("cuda graphs: another address, shape or setting is another section", "[cuda]") {
    Gathering on(2);
    const Buffer x = on.vector(3.0F);
    const Buffer twice = on.vector();
    const Buffer y = on.vector();
    const Buffer other_x = on.vector(-7.0F);
    const Buffer other_y = on.vector();
    for (int round = 0; round < 3; ++round) on.fivefold(y, twice, x);
    CHECK(on.use().replayed == 2);
    on.fivefold(other_y, twice, x);
    CHECK(on.value(other_y) == 15.0F);
    on.fivefold(y, twice, other_x);
    CHECK(on.value(y) == -35.0F);
    CHECK(on.use().replayed == 2);
    on.fivefold(y, twice, x);
    CHECK(on.value(y) == 15.0F);
    CHECK(on.use().replayed == 3);

    // Shapes and settings, on the same memory.
    LossOps& loss = on.backend->ops().loss;
    const Buffer targets = on.device->allocate(64 * sizeof(std::int32_t), Memory::Device, "targets");
    const auto losses = [&](std::int64_t rows, float scale) {
        LossSettings settings;
        settings.vocab_size = 64;
        settings.gradient_scale = scale;
        for (int call = 0; call < 3; ++call)
            loss.cross_entropy(*on.stream, twice.view(Shape{rows}, DType::F32),
                               y.view(Shape{rows, 64}, DType::F32), targets.view(Shape{rows}, DType::I32),
                               settings);
        on.stream->flush();
        return on.use().replayed;
    };
    losses(64, 1.0F);
    CHECK(losses(64, 1.0F) == 4);
    CHECK(losses(63, 1.0F) == 4);
    CHECK(losses(64, 0.5F) == 4);
    CHECK(losses(64, 1.0F) == 5);
    on.stream->synchronize();
}

TEST_CASE("cuda graphs: a product that runs by another plan is another section", "[cuda]") {
    Gathering on(5);
    const Buffer x = on.vector(3.0F);
    const Buffer w = on.vector(0.5F);
    const Buffer y = on.vector();
    const Buffer scratch = on.device->allocate(
        on.backend->ops().matmul.scratch_bytes(MatmulKind::Forward, 64, 64, 64, DType::F32), Memory::Device,
        "workspace");
    const TensorView workspace = scratch.view(Shape{static_cast<std::int64_t>(scratch.bytes())}, DType::U8);
    const auto matrix = [](const Buffer& buffer) { return buffer.view(Shape{64, 64}, DType::F32); };
    const auto replayed = [&] {
        for (int call = 0; call < 3; ++call)
            on.backend->ops().matmul.forward(*on.stream, matrix(y), matrix(x), matrix(w), {}, workspace);
        on.stream->flush();
        return on.use().replayed;
    };
    replayed();
    CHECK(replayed() == 1);
    CHECK(replayed() == 2);
    ProductPlans& plans = *on.backend->product_plans();
    const Product product{MatmulKind::Forward, 64, 64, 64, DType::F32, DType::F32};
    REQUIRE(plans.adopt(product, plans.algorithm(product)));
    CHECK(replayed() == 2);
    CHECK(replayed() == 3);
    CHECK(on.value(y) == 96.0F);
}

TEST_CASE("cuda graphs: what was gathered comes before copies, events and memory that goes away", "[cuda]") {
    for (int round = 0; round < 3; ++round) {
        Gathering on(3);
        const auto other = on.device->make_stream("other", StreamRole::Communication);
        const auto done = on.device->make_event();
        const Buffer y = on.vector(1.0F);
        const Buffer seen = on.vector();
        for (int repeat = 0; repeat < 3; ++repeat) {
            on.add(y, y, y);
            on.add(y, y, y);
            on.add(y, y, y);
            on.stream->record(*done);
            other->wait(*done);
            on.device->copy(*other, seen.data(), y.data(), y.bytes());
            other->record(*done);
            on.stream->wait(*done);
        }
        CHECK(on.value(seen) == 512.0F);
        {
            const Buffer passing = on.vector(5.0F);
            on.add(y, passing, passing);
        }
        CHECK(on.value(y) == 10.0F);
        on.add(y, y, y);
        CHECK(on.value(y) == 20.0F);
    }
}

TEST_CASE("cuda graphs: a call that breaks its contract is named, and the stream goes on", "[cuda]") {
    Gathering on(4);
    const Buffer x = on.vector(3.0F);
    const Buffer twice = on.vector();
    const Buffer y = on.vector();
    on.add(twice, x, x);
    on.backend->ops().elementwise.add(*on.stream, Gathering::all(y), Gathering::all(x),
                                      x.view(Shape{count / 2}, DType::F32));
    on.add(y, x, x);
    try {
        on.stream->synchronize();
        FAIL("tensors of different shapes were added");
    } catch (const Error& error) {
        CHECK_THAT(error.what(), Catch::Contains("add"));
    }
    for (int round = 0; round < 3; ++round) on.fivefold(y, twice, x);
    CHECK(on.value(y) == 15.0F);
    // Found where nothing may be thrown: told at the next occasion.
    {
        const Buffer passing = on.vector();
        on.backend->ops().elementwise.add(*on.stream, Gathering::all(y), Gathering::all(x),
                                          passing.view(Shape{count / 2}, DType::F32));
    }
    CHECK_THROWS_WITH(on.stream->synchronize(), Catch::Contains("add"));
    on.fivefold(y, twice, x);
    CHECK(on.value(y) == 15.0F);
}

}  // namespace trainctl::cuda_test
