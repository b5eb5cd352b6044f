// Algorithms of matrix products: tried, compared, handed on.
#include <cstring>

#include "cuda/kernels/compare.h"
#include "cuda/mirrors.h"
#include "cuda/stream.h"
#include "support/catch.h"
#include "trainctl/base/clock.h"

namespace trainctl::cuda_test {
namespace {

const std::vector<Product> some_products = {
    {MatmulKind::Forward, 24, 40, 32, DType::BF16, DType::BF16, true},
    {MatmulKind::Forward, 24, 40, 32, DType::F32, DType::F32, false},
    {MatmulKind::BackwardInput, 24, 40, 32, DType::F16, DType::F16, false},
    {MatmulKind::BackwardWeight, 24, 40, 32, DType::BF16, DType::F32, false}};

// What the product gives for numbers that depend on the place only.
std::vector<std::byte> result_of(CudaBench& bench, const Product& p) {
    Mirrors mirrors(bench);
    const auto filled = [&](const Shape& shape, DType dtype) {
        std::vector<double> values;
        for (std::int64_t i = 0; i < shape.elements(); ++i)
            values.push_back(static_cast<double>(i * 37 % 101) / 101.0 - 0.4);
        return mirrors.filled(shape, dtype, values).device;
    };
    MatmulOps& matmul = bench.ops().matmul;
    const Buffer scratch = bench.device().allocate(matmul.scratch_bytes(p.kind, p.m, p.n, p.k, p.operands),
                                                   Memory::Device, "scratch");
    const TensorView room = scratch.view(Shape{static_cast<std::int64_t>(scratch.bytes())}, DType::U8);
    Mirror result;
    switch (p.kind) {
        case MatmulKind::Forward:
            result = mirrors.make(Shape{p.m, p.n}, p.result);
            matmul.forward(bench.stream(), result.device, filled(Shape{p.m, p.k}, p.operands),
                           filled(Shape{p.n, p.k}, p.operands),
                           p.bias ? filled(Shape{p.n}, p.operands) : TensorView{}, room);
            break;
        case MatmulKind::BackwardInput:
            result = mirrors.make(Shape{p.m, p.k}, p.result);
            matmul.backward_input(bench.stream(), result.device, filled(Shape{p.m, p.n}, p.operands),
                                  filled(Shape{p.n, p.k}, p.operands), Into::Overwrite, room);
            break;
        case MatmulKind::BackwardWeight:
            result = mirrors.make(Shape{p.n, p.k}, p.result);
            matmul.backward_weight(bench.stream(), result.device, filled(Shape{p.m, p.n}, p.operands),
                                   filled(Shape{p.m, p.k}, p.operands), Into::Overwrite, room);
            break;
    }
    mirrors.down(result);
    return {result.host.data, result.host.data + result.host.bytes()};
}

}  // namespace

TEST_CASE("cuda: a difference of one bit is seen wherever it lies", "[cuda]") {
    CudaBench bench(1);
    Mirrors mirrors(bench);
    for (const std::int64_t elements : {1, 255, 2049, 5000}) {
        const Mirror a = mirrors.make(Shape{elements}, DType::BF16);
        const Mirror b = mirrors.make(Shape{elements}, DType::BF16);
        const Mirror flag = mirrors.make(Shape{1}, DType::U32);
        const auto differs = [&](std::int64_t place) {
            std::memset(b.host.data, 0, b.host.bytes());
            if (place >= 0) b.host.as<std::uint16_t>()[place] = 0x8000;  // -0: equal as a number
            mirrors.up(a);
            mirrors.up(b);
            flag.host.as<std::uint32_t>()[0] = 0;
            mirrors.up(flag);
            cuda::mark_difference(cuda::handle(bench.stream()), flag.device.as<std::uint32_t>(),
                                  a.device.data, b.device.data, a.device.bytes());
            mirrors.down(flag);
            return flag.host.as<std::uint32_t>()[0] == 1;
        };
        CHECK_FALSE(differs(-1));
        for (const std::int64_t place : {std::int64_t{0}, elements / 2, elements - 1}) CHECK(differs(place));
    }
}

TEST_CASE("cuda: tuned products agree with the library's first choice and repeat to the bit", "[cuda]") {
    for (const Product& product : some_products) {
        CudaBench bench(1);
        const std::vector<std::byte> wanted = result_of(bench, product);
        SystemClock clock;
        ProductPlans& plans = bench.plans();
        const std::uint64_t held = bench.device().memory_use().device_bytes;
        const TuningReport report = plans.tune({product}, bench.stream(), clock, {});
        CHECK(report.compared == 1);
        CHECK(bench.device().memory_use().device_bytes == held);
        const std::vector<std::byte> found = result_of(bench, product);
        CHECK(found == result_of(bench, product));
        CHECK(plans.unannounced() == 1);  // the first call
        const TensorView a{const_cast<std::byte*>(wanted.data()), Shape{24}, product.result};
        const TensorView b{const_cast<std::byte*>(found.data()), Shape{24}, product.result};
        for (std::int64_t i = 0; i < 24; ++i)
            CHECK(element(b, i) == Approx(element(a, i)).margin(product.result == DType::F32 ? 1e-5 : 2e-2));
        // Another device of the kind takes the choice over and gives the same bits.
        CudaBench other(F32Products::Exact);
        REQUIRE(other.plans().adopt(product, plans.algorithm(product)));
        CHECK(result_of(other, product) == found);
        CHECK(other.plans().unannounced() == 0);
    }
}

TEST_CASE("cuda: what is no algorithm is refused, and changes nothing", "[cuda]") {
    CudaBench bench(1);
    ProductPlans& plans = bench.plans();
    const Product product = some_products.front();
    plans.prepare({product});
    const std::string chosen = plans.algorithm(product);
    for (const std::string& wrong : {std::string(), std::string("algorithm"), chosen.substr(1), chosen + "0",
                                     std::string(chosen.size(), 'x')}) {
        INFO(wrong);
        CHECK_FALSE(plans.adopt(product, wrong));
    }
    CHECK(plans.algorithm(product) == chosen);
}

}  // namespace trainctl::cuda_test
