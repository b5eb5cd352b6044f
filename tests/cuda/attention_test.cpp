// What the shared cases do not show of attention on the cuda backend: how rows are read and written, extreme
// scores, what no token may see, and what is refused.
#include <array>
#include <cmath>
#include <cstring>

#include "cuda/mirrors.h"
#include "support/catch.h"

namespace trainctl::cuda_test {
namespace {

AttentionSettings settings_for(std::int64_t length, std::int64_t heads, std::int64_t kv_heads,
                               std::int64_t head_dim) {
    AttentionSettings s;
    s.batch = 1;
    s.length = length;
    s.heads = heads;
    s.kv_heads = kv_heads;
    s.head_dim = head_dim;
    s.scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
    return s;
}

// Forward and backward of one attention, with tensors that begin `shift` elements into their allocations.
class AttentionRun {
  public:
    AttentionRun(CudaBench& bench, const AttentionSettings& settings, DType dtype, std::int64_t shift = 0)
        : bench_(bench), mirrors_(bench), settings_(settings), shift_(shift) {
        const std::int64_t rows = settings.batch * settings.length;
        const Shape packed{rows, (settings.heads + 2 * settings.kv_heads) * settings.head_dim};
        const Shape plain{rows, settings.heads * settings.head_dim};
        for (Tensor* tensor : {&qkv, &dqkv}) *tensor = make(packed, dtype);
        for (Tensor* tensor : {&out, &dout}) *tensor = make(plain, dtype);
        lse = mirrors_.make(Shape{settings.batch, settings.heads, settings.length}, DType::F32).host;
    }

    void run() {
        const Mirror saved = mirrors_.make(lse.shape, DType::F32);
        const Mirror scratch = mirrors_.make(lse.shape, DType::F32);
        mirrors_.up(qkv.whole);
        mirrors_.up(dout.whole);
        AttentionOps& attention = bench_.ops().attention;
        attention.forward(bench_.stream(), out.device, saved.device, qkv.device, settings_, {});
        attention.backward(bench_.stream(), dqkv.device, dout.device, out.device, saved.device, qkv.device,
                           settings_, scratch.device);
        mirrors_.down(out.whole);
        mirrors_.down(dqkv.whole);
        mirrors_.down({lse, saved.device});
    }

    struct Tensor {
        Mirror whole;
        TensorView host;
        TensorView device;
    };
    Tensor qkv;
    Tensor out;
    Tensor dout;
    Tensor dqkv;
    TensorView lse;

  private:
    Tensor make(const Shape& shape, DType dtype) {
        const std::int64_t elements = shape.elements();
        const Mirror whole = mirrors_.make(Shape{elements + shift_}, dtype);
        const std::size_t begin = storage_bytes(shift_, dtype);
        return {whole, {whole.host.data + begin, shape, dtype}, {whole.device.data + begin, shape, dtype}};
    }

    CudaBench& bench_;
    Mirrors mirrors_;
    AttentionSettings settings_;
    std::int64_t shift_;
};

// Numbers without a pattern, of size 1.
void fill(const TensorView& tensor, std::uint32_t seed) {
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
        const PhiloxBlock block = philox4x32(philox_key(seed), static_cast<std::uint64_t>(i), 0);
        set_element(tensor, i, 2.0 * static_cast<double>(philox_uniform(block[0])) - 1.0);
    }
}

bool same_bits(const TensorView& a, const TensorView& b) {
    return a.bytes() == b.bytes() && std::memcmp(a.data, b.data, a.bytes()) == 0;
}

}  // namespace

TEST_CASE("cuda attention gives the same bits however its rows lie in memory", "[cuda]") {
    // By 16 bytes, by 8, element by element
    const AttentionSettings settings = settings_for(40, 2, 1, 64);
    CudaBench bench(1);
    AttentionRun aligned(bench, settings, DType::BF16);
    fill(aligned.qkv.host, 1);
    fill(aligned.dout.host, 2);
    aligned.run();
    for (const std::int64_t shift : {4, 1}) {
        AttentionRun shifted(bench, settings, DType::BF16, shift);
        fill(shifted.qkv.host, 1);
        fill(shifted.dout.host, 2);
        shifted.run();
        CHECK(same_bits(shifted.out.host, aligned.out.host));
        CHECK(same_bits(shifted.lse, aligned.lse));
        // Sums of dout . out are added in another order, so that one rounding may differ.
        double largest = 0.0;
        for (std::int64_t i = 0; i < aligned.dqkv.host.elements(); ++i) {
            largest =
                std::max(largest, std::fabs(element(shifted.dqkv.host, i) - element(aligned.dqkv.host, i)));
        }
        CHECK(largest < 0.01);
    }
}

TEST_CASE("cuda attention: no query sees a later token", "[cuda]") {
    for (const DType dtype : {DType::F32, DType::BF16}) {
        for (const std::int64_t changed : {1, 31, 40, 69}) {
            const AttentionSettings settings = settings_for(70, 1, 1, 64);
            CudaBench bench(2);
            AttentionRun before(bench, settings, dtype);
            AttentionRun after(bench, settings, dtype);
            const std::int64_t width = before.qkv.host.shape[1];
            for (AttentionRun* run : {&before, &after}) {
                fill(run->qkv.host, 3);
                fill(run->dout.host, 4);
            }
            // Queries from `changed` on give no gradient, so that those of earlier tokens show only
            // themselves.
            for (AttentionRun* run : {&before, &after})
                for (std::int64_t i = changed * 64; i < 70 * 64; ++i) set_element(run->dout.host, i, 0.0);
            for (std::int64_t i = changed * width; i < 70 * width; ++i)
                set_element(after.qkv.host, i, 50.0 * element(after.qkv.host, i));
            before.run();
            after.run();
            const auto head = [&](const TensorView& tensor) { return tensor.rows(0, changed); };
            CHECK(same_bits(head(before.out.host), head(after.out.host)));
            CHECK(same_bits(head(before.dqkv.host), head(after.dqkv.host)));
            CHECK(std::memcmp(before.lse.data, after.lse.data, static_cast<std::size_t>(changed) * 4) == 0);
            bool zeros = true;
            for (std::int64_t i = changed * width; i < 70 * width; ++i)
                zeros = zeros && element(after.dqkv.host, i) == 0.0;
            CHECK(zeros);
        }
    }
}

TEST_CASE("cuda attention: scores may grow, fall and jump along the keys", "[cuda]") {
    constexpr std::int64_t length = 200;
    constexpr std::int64_t dim = 16;
    // Another one in every column: each is a sum of its own.
    const auto value = [](std::int64_t token, std::int64_t column) {
        return static_cast<double>((token + 3 * column) % 7) / 8.0;
    };
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
        // Change of a score from key to key: within a tile's headroom, beyond it, huge; a jump in the middle
        for (const double slope : {0.03, -0.03, 0.5, -0.5, 60.0, -60.0, 0.0}) {
            AttentionSettings settings = settings_for(length, 1, 1, dim);
            settings.scale = 1.0F;
            CudaBench bench(3);
            AttentionRun run(bench, settings, dtype);
            std::vector<double> scores(length);
            for (std::int64_t token = 0; token < length; ++token) {
                const std::int64_t row = token * 3 * dim;
                set_element(run.qkv.host, row, 1.0);
                set_element(run.qkv.host, row + dim,
                            slope == 0.0 && token >= 100 ? 1000.0 : slope * static_cast<double>(token));
                scores[static_cast<std::size_t>(token)] = element(run.qkv.host, row + dim);
                for (std::int64_t column = 0; column < dim; ++column)
                    set_element(run.qkv.host, row + 2 * dim + column, value(token, column));
            }
            run.run();
            double worst = 0.0;
            double worst_lse = 0.0;
            double total = 0.0;
            std::array<double, dim> sums{};
            double top = -1e300;
            for (std::int64_t query = 0; query < length; ++query) {
                const double score = scores[static_cast<std::size_t>(query)];
                if (score > top) {
                    total *= std::exp(top - score);
                    for (double& sum : sums) sum *= std::exp(top - score);
                    top = score;
                }
                total += std::exp(score - top);
                for (std::int64_t column = 0; column < dim; ++column) {
                    double& sum = sums[static_cast<std::size_t>(column)];
                    sum += std::exp(score - top) * value(query, column);
                    worst =
                        std::max(worst, std::fabs(element(run.out.host, query * dim + column) - sum / total));
                }
                const double lse = top + std::log(total);
                worst_lse =
                    std::max(worst_lse, std::fabs(element(run.lse, query) - lse) / (1.0 + std::fabs(lse)));
            }
            CAPTURE(slope, dtype_name(dtype));
            CHECK(worst < (dtype == DType::F32 ? 1e-5 : 4e-3));
            CHECK(worst_lse < 1e-5);
        }
    }
}

TEST_CASE("cuda attention: what is not finite stays visible", "[cuda]") {
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
        for (const double bad : {std::nan(""), static_cast<double>(INFINITY)}) {
            CudaBench bench(4);
            AttentionRun run(bench, settings_for(40, 1, 1, 16), dtype);
            fill(run.qkv.host, 5);
            set_element(run.qkv.host, 20 * 48, bad);  // of a query
            run.run();
            CHECK(std::isfinite(element(run.out.host, 19 * 16)));
            CHECK(!std::isfinite(element(run.out.host, 20 * 16)));
            CHECK(!std::isfinite(element(run.lse, 20)));
        }
    }
}

TEST_CASE("cuda attention refuses what it has no kernel for", "[cuda]") {
    CudaBench bench(5);
    const auto code = [&](const AttentionSettings& settings) {
        AttentionRun run(bench, settings, DType::BF16);
        try {
            run.run();
        } catch (const Error& error) {
            return error.code();
        }
        return Exit::Ok;
    };
    CHECK(code(settings_for(3, 1, 1, 256)) == Exit::Ok);
    CHECK(code(settings_for(3, 1, 1, 257)) == Exit::Usage);
    AttentionSettings settings = settings_for(3, 1, 1, 8);
    settings.scale = 0.0F;
    CHECK(code(settings) == Exit::Internal);
}

}  // namespace trainctl::cuda_test
