#include "cuda/product_trial.h"

#include <algorithm>
#include <cstring>

#include "cuda/check.h"
#include "cuda/kernels/compare.h"
#include "cuda/stream.h"
#include "trainctl/base/philox.h"

namespace trainctl::cuda {
namespace {

struct Sizes {
    std::int64_t left, right, result;  // elements
};

Sizes sizes_of(const Product& p) {
    switch (p.kind) {
        case MatmulKind::Forward:
            return {p.m * p.k, p.n * p.k, p.m * p.n};
        case MatmulKind::BackwardInput:
            return {p.m * p.n, p.n * p.k, p.m * p.k};
        case MatmulKind::BackwardWeight:
            return {p.m * p.n, p.m * p.k, p.n * p.k};
    }
    fail(Exit::Internal, "unknown kind of product");
}

class TimedEvent {
  public:
    TimedEvent() { check(cudaEventCreateWithFlags(&event_, cudaEventDefault), "cudaEventCreate"); }
    ~TimedEvent() { static_cast<void>(cudaEventDestroy(event_)); }
    TimedEvent(const TimedEvent&) = delete;
    TimedEvent& operator=(const TimedEvent&) = delete;
    void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
    [[nodiscard]] float ms_since(const TimedEvent& earlier) const {
        float milliseconds = 0.0F;
        check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "cudaEventElapsedTime");
        return milliseconds;
    }

  private:
    cudaEvent_t event_ = nullptr;
};

float median(std::vector<float> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

}  // namespace

ProductTrial::ProductTrial(Device& device, Stream& stream, const Product& product)
    : device_(device), stream_(stream) {
    const Sizes sizes = sizes_of(product);
    const auto allocate = [&](std::int64_t elements, DType dtype) {
        return device.allocate(storage_bytes(elements, dtype), Memory::Device, "tuning of products");
    };
    left_ = allocate(sizes.left, product.operands);
    right_ = allocate(sizes.right, product.operands);
    result_ = allocate(sizes.result, product.result);
    again_ = allocate(sizes.result, product.result);
    result_bytes_ = storage_bytes(sizes.result, product.result);
    workspace_ = device.allocate(product_workspace_bytes, Memory::Device, "tuning of products");
    fill(left_, product.operands, 1);
    fill(right_, product.operands, 2);
    if (!product.bias) return;
    bias_ = allocate(product.n, product.result);
    fill(bias_, product.result, 3);
}

// A GPU's clock depends on how many bits change: zeros would be multiplied faster than a model's numbers.
void ProductTrial::fill(const Buffer& operand, DType dtype, std::uint64_t seed) {
    // A prime: rows do not repeat in step.
    constexpr std::size_t period = 262139;
    const std::size_t distinct = std::min(operand.bytes() / dtype_size(dtype), period);
    const std::size_t bytes = distinct * dtype_size(dtype);
    const Buffer pattern = device_.allocate(bytes, Memory::Pinned, "tuning of products");
    for (std::size_t i = 0; i < distinct; ++i) {
        const float value = static_cast<float>(philox_uniform(philox4x32(philox_key(seed), i, 0)[0])) - 0.5F;
        if (dtype == DType::F32) {
            std::memcpy(pattern.data() + i * sizeof value, &value, sizeof value);
        } else {
            const std::uint16_t bits =
                dtype == DType::BF16 ? to_bfloat16(value).bits : to_float16(value).bits;
            std::memcpy(pattern.data() + i * sizeof bits, &bits, sizeof bits);
        }
    }
    device_.copy(stream_, operand.data(), pattern.data(), bytes);
    for (std::size_t done = bytes; done < operand.bytes(); done *= 2) {
        device_.copy(stream_, operand.data() + done, operand.data(), std::min(done, operand.bytes() - done));
    }
    stream_.synchronize();
}

cublasStatus_t ProductTrial::run(cublasLtHandle_t library, ProductPlan& plan, void* result) {
    return plan.run(library, handle(stream_), {left_.data(), right_.data(), result, bias_.data()},
                    Into::Overwrite, workspace_.data());
}

std::vector<bool> ProductTrial::repeatable(cublasLtHandle_t library, ProductPlan& plan,
                                           const std::vector<cublasLtMatmulAlgo_t>& candidates) {
    const std::size_t bytes = candidates.size() * sizeof(std::uint32_t);
    const Buffer flags = device_.allocate(bytes, Memory::Device, "tuning of products");
    const Buffer flags_here = device_.allocate(bytes, Memory::Pinned, "tuning of products");
    std::vector<bool> usable;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
        plan.use(candidates[i]);
        bool runs = run(library, plan, result_.data()) == CUBLAS_STATUS_SUCCESS;
        for (int repetition = 1; runs && repetition < 3; ++repetition) {
            runs = run(library, plan, again_.data()) == CUBLAS_STATUS_SUCCESS;
            mark_difference(handle(stream_), flags.view(Shape{1}, DType::U32, i * 4).as<std::uint32_t>(),
                            result_.data(), again_.data(), result_bytes_);
        }
        usable.push_back(runs);
    }
    device_.copy(stream_, flags_here.data(), flags.data(), bytes);
    stream_.synchronize();
    for (std::size_t i = 0; i < candidates.size(); ++i) {
        std::uint32_t differs = 0;
        std::memcpy(&differs, flags_here.data() + i * sizeof differs, sizeof differs);
        usable[i] = usable[i] && differs == 0;
    }
    return usable;
}

std::vector<float> ProductTrial::measure(cublasLtHandle_t library, ProductPlan& plan,
                                         const std::vector<cublasLtMatmulAlgo_t>& candidates) {
    constexpr int rounds = 5;
    constexpr float worth_timing_ms = 0.3F;
    constexpr float most_runs = 20.0F;
    const auto run_all = [&](TimedEvent& before, TimedEvent& after, std::size_t candidate, int runs) {
        plan.use(candidates[candidate]);
        before.record(handle(stream_));
        for (int i = 0; i < runs; ++i) check(run(library, plan, result_.data()), "cublasLtMatmul");
        after.record(handle(stream_));
    };
    TimedEvent first;
    TimedEvent last;
    for (std::size_t i = 0; i < candidates.size(); ++i) run_all(first, last, i, 1);  // warms up
    run_all(first, last, 0, 1);
    stream_.synchronize();
    const float one_ms = std::max(last.ms_since(first), 1e-3F);
    const int runs = static_cast<int>(std::clamp(worth_timing_ms / one_ms, 1.0F, most_runs));
    // Nothing waits in between: the GPU finds its next work ready, and no call of the host is timed.
    std::vector<TimedEvent> before(rounds * candidates.size());
    std::vector<TimedEvent> after(rounds * candidates.size());
    for (std::size_t at = 0; at < before.size(); ++at)
        run_all(before[at], after[at], at % candidates.size(), runs);
    stream_.synchronize();
    std::vector<std::vector<float>> times(candidates.size());
    for (std::size_t at = 0; at < before.size(); ++at) {
        times[at % candidates.size()].push_back(after[at].ms_since(before[at]) / static_cast<float>(runs));
    }
    std::vector<float> medians;
    for (const std::vector<float>& each : times) medians.push_back(median(each));
    return medians;
}

}  // namespace trainctl::cuda
