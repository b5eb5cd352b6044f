#include "cuda/blas.h"

#include <fmt/core.h>

#include <array>

namespace trainctl::cuda {
namespace {

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

class Layout {
  public:
    // Column-major, as the library sees memory: a row-major [rows, columns] is its transpose.
    Layout(DType dtype, std::int64_t rows, std::int64_t columns) {
        check(cublasLtMatrixLayoutCreate(&layout_, blas_type(dtype), static_cast<std::uint64_t>(rows),
                                         static_cast<std::uint64_t>(columns), rows),
              "cublasLtMatrixLayoutCreate");
    }
    ~Layout() { static_cast<void>(cublasLtMatrixLayoutDestroy(layout_)); }
    Layout(const Layout&) = delete;
    Layout& operator=(const Layout&) = delete;
    [[nodiscard]] cublasLtMatrixLayout_t raw() const { return layout_; }

  private:
    cublasLtMatrixLayout_t layout_ = nullptr;
};

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

Mapping mapping(const ProductKey& key) {
    switch (key.kind) {
        case ProductKey::Kind::Forward:  // y^T[n,m] = w[n,k] x^T[k,m]; w lies there as k x n
            return {key.n, key.m, key.k, key.n, key.k, key.m, CUBLAS_OP_T, CUBLAS_OP_N};
        case ProductKey::Kind::BackwardInput:  // dx^T[k,m] = w^T[k,n] dy^T[n,m]
            return {key.k, key.m, key.k, key.n, key.n, key.m, CUBLAS_OP_N, CUBLAS_OP_N};
        case ProductKey::Kind::BackwardWeight:  // dw^T[k,n] = x^T[k,m] dy[m,n]; dy lies there as n x m
            return {key.k, key.n, key.k, key.m, key.n, key.m, CUBLAS_OP_N, CUBLAS_OP_T};
    }
    fail(Exit::Internal, "unknown kind of product");
}

}  // namespace

void check(cublasStatus_t status, const char* what, Where where) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    fail(Exit::Resource,
         fmt::format("{} failed with {} ({})", what, cublasLtGetStatusName(status),
                     cublasLtGetStatusString(status)),
         where);
}

class Products::Plan {
  public:
    Plan(cublasLtHandle_t library, const ProductKey& key, F32Products f32)
        : Plan(library, key, mapping(key), f32) {}
    ~Plan() { static_cast<void>(cublasLtMatmulDescDestroy(product_)); }
    Plan(const Plan&) = delete;
    Plan& operator=(const Plan&) = delete;

    void run(cublasLtHandle_t library, cudaStream_t stream, const ProductTensors& t, Into into,
             void* workspace) {
        if (t.bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, t.bias);
        const float alpha = 1.0F;
        const float beta = into == Into::Accumulate ? 1.0F : 0.0F;
        // Column-major turns the product around: our right operand is the library's first.
        check(cublasLtMatmul(library, product_, &alpha, t.right, first_.raw(), t.left, second_.raw(), &beta,
                             t.result, result_.raw(), t.result, result_.raw(), &algorithm_, workspace,
                             product_workspace_bytes, stream),
              "cublasLtMatmul");
    }

  private:
    Plan(cublasLtHandle_t library, const ProductKey& key, const Mapping& map, F32Products f32)
        : first_(key.operands, map.first_rows, map.first_columns),
          second_(key.operands, map.second_rows, map.second_columns),
          result_(key.result, map.rows, map.columns) {
        const bool rounded = key.operands == DType::F32 && f32 == F32Products::Tf32;
        check(cublasLtMatmulDescCreate(&product_, rounded ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                       CUDA_R_32F),
              "cublasLtMatmulDescCreate");
        set(CUBLASLT_MATMUL_DESC_TRANSA, map.first_op);
        set(CUBLASLT_MATMUL_DESC_TRANSB, map.second_op);
        if (key.bias) set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);

        Preference preference;
        preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, product_workspace_bytes);
        // Pieces of a split inner dimension are added from the workspace, in order and in F32: never by
        // atomics.
        preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                       static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
        const std::uint32_t alignment =
            key.aligned ? 16 : static_cast<std::uint32_t>(dtype_size(key.operands));
        const std::uint32_t result_alignment =
            key.aligned ? 16 : static_cast<std::uint32_t>(dtype_size(key.result));
        preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
        preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
        preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, result_alignment);
        preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, result_alignment);
        cublasLtMatmulHeuristicResult_t best{};
        int found = 0;
        const cublasStatus_t status =
            cublasLtMatmulAlgoGetHeuristic(library, product_, first_.raw(), second_.raw(), result_.raw(),
                                           result_.raw(), preference.raw(), 1, &best, &found);
        if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, "cublasLtMatmulAlgoGetHeuristic");
        if (found == 0) {
            fail(Exit::Resource, fmt::format("cuBLASLt {} has no kernel for a product of m {} n {} k {} with "
                                             "{} operands and {} result; use "
                                             "sizes that are multiples of 8, or another precision.compute",
                                             cublasLtGetVersion(), key.m, key.n, key.k,
                                             dtype_name(key.operands), dtype_name(key.result)));
        }
        algorithm_ = best.algo;
    }

    template <class T>
    void set(cublasLtMatmulDescAttributes_t attribute, T value) {
        check(cublasLtMatmulDescSetAttribute(product_, attribute, &value, sizeof value),
              "cublasLtMatmulDescSetAttribute");
    }

    Layout first_;
    Layout second_;
    Layout result_;
    cublasLtMatmulDesc_t product_ = nullptr;
    cublasLtMatmulAlgo_t algorithm_{};
};

Products::Products(F32Products f32) : f32_(f32) { check(cublasLtCreate(&library_), "cublasLtCreate"); }

Products::~Products() {
    plans_.clear();
    static_cast<void>(cublasLtDestroy(library_));
}

Products::Plan& Products::plan(const ProductKey& key) {
    std::unique_ptr<Plan>& plan = plans_[key];
    if (!plan) plan = std::make_unique<Plan>(library_, key, f32_);
    return *plan;
}

void Products::prepare(const ProductKey& key) { plan(key); }

void Products::run(cudaStream_t stream, const ProductKey& key, const ProductTensors& tensors, Into into,
                   void* workspace) {
    plan(key).run(library_, stream, tensors, into, workspace);
}

}  // namespace trainctl::cuda
