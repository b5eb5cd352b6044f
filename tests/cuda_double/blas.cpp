// cuBLASLt's functions that the backend uses, under their own names: products as plain loops, in F32. Strict
// about what the library leaves to its caller: sizes of layouts, alignment as promised to the heuristic, room
// for the workspace. Each product has several algorithms, which add in other orders and are said to take
// other times; one of them, the fastest, does not give the same bits twice.
#include <cublasLt.h>

#include <bit>
#include <cstring>
#include <iterator>
#include <vector>

#include "cuda_double/emulated_device.h"
#include "trainctl/tensor/dtype.h"

namespace {

using namespace trainctl;               // NOLINT: everything here is about them
using namespace trainctl::cuda_double;  // NOLINT

struct Layout {
    cudaDataType_t type;
    std::int64_t rows, columns, leading;
};
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));

struct Product {
    cublasOperation_t first_op = CUBLAS_OP_N;
    cublasOperation_t second_op = CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void* bias = nullptr;
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
};

struct Preference {
    std::uint64_t workspace = 0;
    std::uint32_t alignment[4] = {256, 256, 256, 256};
};

// What cublasLtMatmulAlgo_t holds here.
struct Algorithm {
    std::uint64_t mark;  // else the bytes come from somewhere else
    std::uint64_t workspace;
    std::uint32_t alignment[4];
    std::uint32_t bias_alignment;
    std::uint32_t variant;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));
constexpr std::uint64_t algorithm_mark = 0x63626C6173446221U;

struct Variant {
    int sums;        // that the inner dimension is added up in
    double seconds;  // of a product, on the modelled clock
    bool repeats;
    bool supported = true;  // in the state that the heuristic gives with it
};
// In the order of the heuristic.
constexpr Variant variants[] = {{8, 1e-3, true},    {8, 0.9e-3, true, false}, {8, 1.4e-3, true},
                                {8, 0.2e-3, false}, {4, 0.5e-3, true},        {2, 0.8e-3, true}};

bool usable(const Algorithm& algorithm) {
    return algorithm.mark == algorithm_mark && algorithm.variant < std::size(variants) &&
           variants[algorithm.variant].supported;
}

// Aligned as a pointer of unknown memory lets expect, up to 256.
std::uint32_t alignment_of(const void* pointer) {
    const auto place = reinterpret_cast<std::uintptr_t>(pointer) | 256U;
    return static_cast<std::uint32_t>(place & (~place + 1));
}

float read(const std::byte* data, cudaDataType_t type, std::int64_t index) {
    switch (type) {
        case CUDA_R_32F:
            return reinterpret_cast<const float*>(data)[index];
        case CUDA_R_16BF:
            return to_float(reinterpret_cast<const BFloat16*>(data)[index]);
        default:
            return to_float(reinterpret_cast<const Float16*>(data)[index]);
    }
}

void write(std::byte* data, cudaDataType_t type, std::int64_t index, float value) {
    switch (type) {
        case CUDA_R_32F:
            reinterpret_cast<float*>(data)[index] = value;
            break;
        case CUDA_R_16BF:
            reinterpret_cast<BFloat16*>(data)[index] = to_bfloat16(value);
            break;
        default:
            reinterpret_cast<Float16*>(data)[index] = to_float16(value);
    }
}

// As tensor cores read F32: 10 bits of mantissa, to nearest, ties away from zero.
float to_tf32(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7F800000U) == 0x7F800000U) return value;
    return std::bit_cast<float>((bits + 0x1000U) & ~0x1FFFU);
}

struct Call {
    Product product;
    Variant variant;
    Layout first, second, result;
    const std::byte* a;
    const std::byte* b;
    std::byte* d;
    float beta;
};

// op(matrix) as rows of `inner` consecutive floats, one per row (or column) of the result.
std::vector<float> gather(const std::byte* data, const Layout& layout, bool inner_is_row, std::int64_t outer,
                          std::int64_t inner, cublasComputeType_t compute) {
    std::vector<float> packed(static_cast<std::size_t>(outer * inner));
    for (std::int64_t o = 0; o < outer; ++o) {
        for (std::int64_t i = 0; i < inner; ++i) {
            const std::int64_t row = inner_is_row ? i : o;
            const std::int64_t column = inner_is_row ? o : i;
            const float value = read(data, layout.type, column * layout.leading + row);
            packed[static_cast<std::size_t>(o * inner + i)] =
                compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? to_tf32(value) : value;
        }
    }
    return packed;
}

void multiply(const Call& call) {
    const std::int64_t rows = call.result.rows;
    const std::int64_t columns = call.result.columns;
    const bool first_transposed = call.product.first_op == CUBLAS_OP_T;
    const bool second_transposed = call.product.second_op == CUBLAS_OP_T;
    const std::int64_t inner = first_transposed ? call.first.rows : call.first.columns;
    const std::vector<float> left =
        gather(call.a, call.first, first_transposed, rows, inner, call.product.compute);
    const std::vector<float> right =
        gather(call.b, call.second, !second_transposed, columns, inner, call.product.compute);
    for (std::int64_t column = 0; column < columns; ++column) {
        for (std::int64_t row = 0; row < rows; ++row) {
            const float* x = left.data() + row * inner;
            const float* y = right.data() + column * inner;
            // Partial sums, as if on so many lanes.
            float sums[8] = {};
            for (std::int64_t i = 0; i < inner; ++i) sums[i % call.variant.sums] += x[i] * y[i];
            float sum =
                ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
            const std::int64_t place = column * call.result.leading + row;
            if (call.beta != 0.0F) sum += call.beta * read(call.d, call.result.type, place);
            if (call.product.bias != nullptr && call.product.epilogue == CUBLASLT_EPILOGUE_BIAS)
                sum += read(static_cast<const std::byte*>(call.product.bias), call.result.type, row);
            write(call.d, call.result.type, place, sum);
        }
    }
}

bool fits(const Product& product, const Layout& first, const Layout& second, const Layout& result) {
    const bool first_transposed = product.first_op == CUBLAS_OP_T;
    const bool second_transposed = product.second_op == CUBLAS_OP_T;
    const std::int64_t inner = first_transposed ? first.rows : first.columns;
    return (first_transposed ? first.columns : first.rows) == result.rows &&
           (second_transposed ? second.columns : second.rows) == inner &&
           (second_transposed ? second.rows : second.columns) == result.columns &&
           first.type == second.type && first.leading >= first.rows && second.leading >= second.rows &&
           result.leading >= result.rows;
}

Layout& opened(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<Layout*>(layout); }
Product& opened(cublasLtMatmulDesc_t product) { return *reinterpret_cast<Product*>(product); }
Preference& opened(cublasLtMatmulPreference_t preference) {
    return *reinterpret_cast<Preference*>(preference);
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    *handle = reinterpret_cast<cublasLtHandle_t>(new int(this_device_index()));
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    delete reinterpret_cast<int*>(handle);
    return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusName(cublasStatus_t status) {
    return status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
                                                 : "a status of the test double";
}
const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusName(status); }
std::size_t cublasLtGetVersion() { return CUBLAS_VERSION + this_machine()->options.newer_blas; }

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, std::size_t /*bytes*/,
                                                 cudaDataType_t type, std::uint64_t rows,
                                                 std::uint64_t columns, std::int64_t leading) {
    opened(layout) = {type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), leading};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t columns, std::int64_t leading) {
    *layout = new cublasLtMatrixLayoutOpaque_t{};
    return cublasLtMatrixLayoutInit_internal(*layout, sizeof **layout, type, rows, columns, leading);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    if (scale != CUDA_R_32F || (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32))
        return CUBLAS_STATUS_INVALID_VALUE;
    *product = new cublasLtMatmulDescOpaque_t{};
    opened(*product) = {};
    opened(*product).compute = compute;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
    delete product;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t bytes) {
    Product& mine = opened(product);
    const auto take = [&](auto& member) {
        if (bytes != sizeof member) return CUBLAS_STATUS_INVALID_VALUE;
        std::memcpy(&member, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    };
    switch (attribute) {
        case CUBLASLT_MATMUL_DESC_TRANSA:
            return take(mine.first_op);
        case CUBLASLT_MATMUL_DESC_TRANSB:
            return take(mine.second_op);
        case CUBLASLT_MATMUL_DESC_EPILOGUE:
            return take(mine.epilogue);
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
            return take(mine.bias);
        default:
            return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
    *preference = new cublasLtMatmulPreferenceOpaque_t{};
    opened(*preference) = {};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
    Preference& mine = opened(preference);
    const auto take = [&](auto& member) {
        if (bytes != sizeof member) return CUBLAS_STATUS_INVALID_VALUE;
        std::memcpy(&member, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    };
    std::uint32_t mask = 0;
    switch (attribute) {
        case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
            return take(mine.workspace);
        case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
            return take(mask);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
            return take(mine.alignment[0]);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
            return take(mine.alignment[1]);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
            return take(mine.alignment[2]);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
            return take(mine.alignment[3]);
        default:
            return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t first, cublasLtMatrixLayout_t second,
                                              cublasLtMatrixLayout_t /*in*/, cublasLtMatrixLayout_t result,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
    *found = 0;
    if (!fits(opened(product), opened(first), opened(second), opened(result)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
    ++this_machine()->heuristic_queries;
    const Preference& mine = opened(preference);
    for (int i = 0; i < wanted && i < static_cast<int>(std::size(variants)); ++i) {
        results[i] = {};
        results[i].state = variants[i].supported ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
        Algorithm algorithm{algorithm_mark,
                            mine.workspace,
                            {},
                            alignment_of(opened(product).bias),
                            static_cast<std::uint32_t>(i)};
        std::memcpy(algorithm.alignment, mine.alignment, sizeof mine.alignment);
        std::memcpy(&results[i].algo, &algorithm, sizeof algorithm);
        results[i].workspaceSize = mine.workspace;
        *found = i + 1;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                       cublasLtMatrixLayout_t first, cublasLtMatrixLayout_t second,
                                       cublasLtMatrixLayout_t /*in*/, cublasLtMatrixLayout_t result,
                                       const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* answer) {
    Algorithm algorithm{};
    std::memcpy(&algorithm, algo, sizeof algorithm);
    if (*reinterpret_cast<int*>(handle) != this_device_index() ||
        !fits(opened(product), opened(first), opened(second), opened(result)) || !usable(algorithm))
        return CUBLAS_STATUS_INVALID_VALUE;
    answer->workspaceSize = algorithm.workspace;
    answer->state = CUBLAS_STATUS_SUCCESS;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t first, const void* b,
                              cublasLtMatrixLayout_t second, const void* beta, const void* c,
                              cublasLtMatrixLayout_t /*in*/, void* d, cublasLtMatrixLayout_t result,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, std::size_t workspace_bytes,
                              cudaStream_t stream) {
    Algorithm algorithm{};
    std::memcpy(&algorithm, algo, sizeof algorithm);
    if (!usable(algorithm)) return CUBLAS_STATUS_INVALID_VALUE;
    const void* pointers[] = {a, b, c, d};
    for (int i = 0; i < 4; ++i) {
        if (reinterpret_cast<std::uintptr_t>(pointers[i]) % algorithm.alignment[i] != 0)
            return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (*reinterpret_cast<int*>(handle) != this_device_index() || *static_cast<const float*>(alpha) != 1.0F ||
        c != d || workspace_bytes < algorithm.workspace ||
        alignment_of(opened(product).bias) < algorithm.bias_alignment ||
        !fits(opened(product), opened(first), opened(second), opened(result)))
        return CUBLAS_STATUS_INVALID_VALUE;
    EmulatedDevice& device = this_device();
    const Call call{opened(product),
                    variants[algorithm.variant],
                    opened(first),
                    opened(second),
                    opened(result),
                    static_cast<const std::byte*>(a),
                    static_cast<const std::byte*>(b),
                    static_cast<std::byte*>(d),
                    *static_cast<const float*>(beta)};
    // The workspace holds garbage afterwards: whoever keeps something in it notices.
    return enqueue_kernel(stream, "cublasLtMatmul", {dim3(1), dim3(1), 0},
                          [call, workspace, &device] {
                              multiply(call);
                              device.modelled_s += call.variant.seconds;
                              ++device.products;
                              if (!call.variant.repeats) {
                                  write(call.d, call.result.type, 0,
                                        static_cast<float>(++device.unsteady_products % 64));
                              }
                              std::memset(workspace, 0xFF, 4096);
                          }) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
