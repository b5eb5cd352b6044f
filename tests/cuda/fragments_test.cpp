// What lanes hold, against plain loops. The numbers are such that every sum is exact: the double and a GPU
// must give the same bits, and a wrong index cannot hide in rounding.
#include "cuda/fragments.h"

#include <cstring>

#include "cuda/mirrors.h"
#include "cuda/stream.h"
#include "support/catch.h"

namespace trainctl::cuda_test {
namespace {

// Small whole numbers without symmetry: i, j, and i and j exchanged differ.
double whole_number(std::int64_t i, std::int64_t j) {
    return static_cast<double>((i * 37 + j * 11) % 23 - 9);
}

std::vector<double> whole_numbers(std::int64_t rows, std::int64_t columns) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j) values.push_back(whole_number(i, j));
    return values;
}

std::vector<double> all_elements(const TensorView& view) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < view.elements(); ++i) values.push_back(element(view, i));
    return values;
}

template <class T>
std::vector<double> product_on_device(const std::vector<double>& a, const std::vector<double>& b,
                                      const std::vector<double>& d, DType dtype) {
    CudaBench bench(1);
    Mirrors mirrors(bench);
    const Mirror left = mirrors.filled(Shape{16, 16}, dtype, a);
    const Mirror right = mirrors.filled(Shape{8, 16}, dtype, b);
    const Mirror sums = mirrors.filled(Shape{16, 8}, DType::F32, d);
    one_product(sums.device.as<float>(), left.device.as<T>(), right.device.as<T>(),
                cuda::handle(bench.stream()));
    mirrors.down(sums);
    return all_elements(sums.host);
}

// b by columns.
std::vector<double> product_by_loops(const std::vector<double>& a, const std::vector<double>& b,
                                     std::vector<double> d) {
    for (std::size_t i = 0; i < 16; ++i)
        for (std::size_t j = 0; j < 8; ++j)
            for (std::size_t k = 0; k < 16; ++k) d[i * 8 + j] += a[i * 16 + k] * b[j * 16 + k];
    return d;
}

}  // namespace

TEST_CASE("golden fragments: mma gives every element of the product", "[cuda][fragments]") {
    const std::vector<double> a = whole_numbers(16, 16);
    const std::vector<double> b = whole_numbers(8, 16);
    const std::vector<double> d = whole_numbers(16, 8);
    const std::vector<double> wanted = product_by_loops(a, b, d);
    CHECK(product_on_device<BFloat16>(a, b, d, DType::BF16) == wanted);
    CHECK(product_on_device<Float16>(a, b, d, DType::F16) == wanted);
}

TEST_CASE("golden fragments: mma takes f16 subnormals and large bf16 numbers", "[cuda][fragments]") {
    const std::vector<double> nothing(16 * 8, 0.0);
    const std::vector<double> b = whole_numbers(8, 16);
    std::vector<double> a = whole_numbers(16, 16);
    for (double& x : a) x *= 0x1.0p-24;
    CHECK(product_on_device<Float16>(a, b, nothing, DType::F16) == product_by_loops(a, b, nothing));
    for (double& x : a) x *= 0x1.0p+120;
    CHECK(product_on_device<BFloat16>(a, b, nothing, DType::BF16) == product_by_loops(a, b, nothing));
}

TEST_CASE("golden fragments: ldmatrix gives every lane its elements", "[cuda][fragments]") {
    CudaBench bench(1);
    Mirrors mirrors(bench);
    // 256 different values: an element tells where it came from.
    const Mirror matrices = mirrors.make(Shape{4 * 8 * 8}, DType::BF16);
    for (int i = 0; i < 256; ++i)
        matrices.host.as<BFloat16>()[i] = BFloat16{static_cast<std::uint16_t>(i + 1000)};
    mirrors.up(matrices);
    const Mirror registers = mirrors.make(Shape{32 * 4}, DType::I32);
    for (const MatrixRead read : {MatrixRead::Straight, MatrixRead::Transposed}) {
        one_matrix_read(reinterpret_cast<std::uint32_t*>(registers.device.data),
                        reinterpret_cast<const std::uint16_t*>(matrices.device.data), read,
                        cuda::handle(bench.stream()));
        mirrors.down(registers);
        std::vector<std::int32_t> wanted;
        for (int lane = 0; lane < 32; ++lane) {
            for (int matrix = 0; matrix < 4; ++matrix) {
                const auto value = [&](int column) {
                    const int place =
                        read == MatrixRead::Straight ? lane / 4 * 8 + column : column * 8 + lane / 4;
                    return matrix * 64 + place + 1000;
                };
                wanted.push_back(value(lane % 4 * 2) + value(lane % 4 * 2 + 1) * 65536);
            }
        }
        const auto* found = registers.host.as<std::int32_t>();
        CHECK(std::vector<std::int32_t>(found, found + 128) == wanted);
    }
}

TEST_CASE("golden fragments: cp.async brings each group's bytes, and zeros where told", "[cuda][fragments]") {
    CudaBench bench(1);
    Mirrors mirrors(bench);
    for (const int bytes : {16, 8, 4}) {
        const int total = fetch_groups * fetch_lanes * bytes;
        const Mirror in = mirrors.make(Shape{total}, DType::U8);
        const Mirror out = mirrors.make(Shape{total}, DType::U8);
        for (int i = 0; i < total; ++i) in.host.data[i] = static_cast<std::byte>(i % 251 + 1);
        mirrors.up(in);
        fetched_in_groups(out.device.data, in.device.data, bytes, cuda::handle(bench.stream()));
        mirrors.down(out);
        std::vector<std::byte> wanted;
        for (int i = 0; i < total; ++i) {
            const int group = i / bytes / fetch_lanes;
            const int lane = i / bytes % fetch_lanes;
            wanted.push_back((group + lane) % 5 == 0 ? std::byte{0} : in.host.data[i]);
        }
        CHECK(std::vector<std::byte>(out.host.data, out.host.data + total) == wanted);
    }
}

}  // namespace trainctl::cuda_test
