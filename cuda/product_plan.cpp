#include "cuda/product_plan.h"

#include <fmt/core.h>

#include <array>

namespace trainctl::cuda {
namespace {

constexpr int most_candidates = 8;

cudaDataType_t blas_type(DType dtype) {
    switch (dtype) {
        case DType::F32:
            return CUDA_R_32F;
        case DType::BF16:
            return CUDA_R_16BF;
        case DType::F16:
            return CUDA_R_16F;
        default:
            fail(Exit::Internal,
                 fmt::format("the cuda backend multiplies f32, bf16 and f16, not {}", dtype_name(dtype)));
    }
}

class Preference {
  public:
    Preference() { check(cublasLtMatmulPreferenceCreate(&preference_), "cublasLtMatmulPreferenceCreate"); }
    ~Preference() { static_cast<void>(cublasLtMatmulPreferenceDestroy(preference_)); }
    Preference(const Preference&) = delete;
    Preference& operator=(const Preference&) = delete;
    template <class T>
    void set(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
        check(cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof value),
              "cublasLtMatmulPreferenceSetAttribute");
    }
    [[nodiscard]] cublasLtMatmulPreference_t raw() const { return preference_; }

  private:
    cublasLtMatmulPreference_t preference_ = nullptr;
};

// The product as the library sees it: result[rows, columns] = op(first) op(second), all column-major.
struct Mapping {
    std::int64_t rows, columns;
    std::int64_t first_rows, first_columns;
    std::int64_t second_rows, second_columns;
    cublasOperation_t first_op, second_op;
};

Mapping mapping(const Product& p) {
    switch (p.kind) {
        case MatmulKind::Forward:  // y^T[n,m] = w[n,k] x^T[k,m]; w lies there as k x n
            return {p.n, p.m, p.k, p.n, p.k, p.m, CUBLAS_OP_T, CUBLAS_OP_N};
        case MatmulKind::BackwardInput:  // dx^T[k,m] = w^T[k,n] dy^T[n,m]
            return {p.k, p.m, p.k, p.n, p.n, p.m, CUBLAS_OP_N, CUBLAS_OP_N};
        case MatmulKind::BackwardWeight:  // dw^T[k,n] = x^T[k,m] dy[m,n]; dy lies there as n x m
            return {p.k, p.n, p.k, p.m, p.n, p.m, CUBLAS_OP_N, CUBLAS_OP_T};
    }
    fail(Exit::Internal, "unknown kind of product");
}

std::uint32_t alignment(const ProductKey& key, DType dtype) {
    return key.aligned ? 16 : static_cast<std::uint32_t>(dtype_size(dtype));
}

}  // namespace

void check(cublasStatus_t status, const char* what, Where where) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    fail(Exit::Resource,
         fmt::format("{} failed with {} ({})", what, cublasLtGetStatusName(status),
                     cublasLtGetStatusString(status)),
         where);
}

MatrixLayout::MatrixLayout(DType dtype, std::int64_t rows, std::int64_t columns) {
    check(cublasLtMatrixLayoutCreate(&layout_, blas_type(dtype), static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(columns), rows),
          "cublasLtMatrixLayoutCreate");
}
MatrixLayout::~MatrixLayout() { static_cast<void>(cublasLtMatrixLayoutDestroy(layout_)); }

template <class T>
void ProductPlan::set(cublasLtMatmulDescAttributes_t attribute, T value) {
    check(cublasLtMatmulDescSetAttribute(product_, attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
}

ProductPlan::ProductPlan(const ProductKey& key, F32Products f32)
    : key_(key),
      first_(key.product.operands, mapping(key.product).first_rows, mapping(key.product).first_columns),
      second_(key.product.operands, mapping(key.product).second_rows, mapping(key.product).second_columns),
      result_(key.product.result, mapping(key.product).rows, mapping(key.product).columns) {
    const Mapping map = mapping(key.product);
    const bool rounded = key.product.operands == DType::F32 && f32 == F32Products::Tf32;
    check(cublasLtMatmulDescCreate(&product_, rounded ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                   CUDA_R_32F),
          "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, map.first_op);
    set(CUBLASLT_MATMUL_DESC_TRANSB, map.second_op);
    if (!key.product.bias) return;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    // Until a call sets the real one: the library takes from it how biases will be aligned.
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER,
        reinterpret_cast<const void*>(std::uintptr_t{alignment(key, key.product.result)}));
}

ProductPlan::~ProductPlan() { static_cast<void>(cublasLtMatmulDescDestroy(product_)); }

std::vector<cublasLtMatmulAlgo_t> ProductPlan::candidates(cublasLtHandle_t library) const {
    const Product& p = key_.product;
    Preference preference;
    preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, product_workspace_bytes);
    // Pieces of a split inner dimension are added from the workspace, in order and in F32: never by
    // atomics.
    preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                   static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(key_, p.operands));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(key_, p.operands));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(key_, p.result));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(key_, p.result));
    std::array<cublasLtMatmulHeuristicResult_t, most_candidates> found{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        library, product_, first_.raw(), second_.raw(), result_.raw(), result_.raw(), preference.raw(),
        most_candidates, found.data(), &count);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, "cublasLtMatmulAlgoGetHeuristic");
    std::vector<cublasLtMatmulAlgo_t> usable;
    for (int i = 0; i < count; ++i) {
        const cublasLtMatmulHeuristicResult_t& each = found[static_cast<std::size_t>(i)];
        if (each.state == CUBLAS_STATUS_SUCCESS) usable.push_back(each.algo);
    }
    if (usable.empty()) {
        fail(Exit::Resource,
             fmt::format("cuBLASLt {} has no kernel for a product of m {} n {} k {} with "
                         "{} operands and {} result; use "
                         "sizes that are multiples of 8, or another precision.compute",
                         cublasLtGetVersion(), p.m, p.n, p.k, dtype_name(p.operands), dtype_name(p.result)));
    }
    return usable;
}

bool ProductPlan::accepts(cublasLtHandle_t library, const cublasLtMatmulAlgo_t& algorithm) const {
    cublasLtMatmulHeuristicResult_t answer{};
    return cublasLtMatmulAlgoCheck(library, product_, first_.raw(), second_.raw(), result_.raw(),
                                   result_.raw(), &algorithm, &answer) == CUBLAS_STATUS_SUCCESS &&
           answer.workspaceSize <= product_workspace_bytes;
}

cublasStatus_t ProductPlan::run(cublasLtHandle_t library, cudaStream_t stream, const ProductTensors& t,
                                Into into, void* workspace) {
    if (t.bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, t.bias);
    const float alpha = 1.0F;
    const float beta = into == Into::Accumulate ? 1.0F : 0.0F;
    // Column-major turns the product around: our right operand is the library's first.
    return cublasLtMatmul(library, product_, &alpha, t.right, first_.raw(), t.left, second_.raw(), &beta,
                          t.result, result_.raw(), t.result, result_.raw(), &algorithm_, workspace,
                          product_workspace_bytes, stream);
}

}  // namespace trainctl::cuda
