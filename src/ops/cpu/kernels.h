// The kernels of the cpu backend as plain functions over pointers, one table per family and instruction-set
// level. The tables are all that the rest of the room sees of code compiled for wider machines. Pointers are
// typed by `dtype` (F32, BF16 or F16) where they are void; counts are elements. `threads` never changes a
// result.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainctl/base/philox.h"
#include "trainctl/tensor/dtype.h"

namespace trainctl::cpu {

// Levels as template arguments of the table functions.
struct LevelV3;
struct LevelV4;
struct LevelAvx512Bf16;
struct LevelAmx;  // attention only: AVX512_BF16 with matrix tiles

struct NormForwardArgs {
    DType dtype;
    void* y;
    void* residual_out;  // null with branch null
    float* statistics;   // [rows, 2]
    const void* residual_in;
    const void* branch;  // or null
    const void* gain;
    const void* bias;  // or null
    std::int64_t rows;
    std::int64_t width;
    float epsilon;
    bool centred;  // LayerNorm
    int threads;
};

struct NormBackwardArgs {
    DType dtype;
    void* dresidual_in;
    float* dgain;
    float* dbias;  // or null
    const void* dy;
    const void* dresidual_out;  // or null
    const void* residual;
    const float* statistics;
    const void* gain;
    float* partials;  // [row_chunks(rows), 2, width]
    std::int64_t rows;
    std::int64_t width;
    bool centred;
    bool accumulate;
    int threads;
};

struct NormKernels {
    void (*forward)(const NormForwardArgs&);
    void (*backward)(const NormBackwardArgs&);
};

struct BiasGeluArgs {
    DType dtype;
    void* out;       // y, or dx
    const void* dy;  // backward only
    const void* x;
    const void* bias;
    float* dbias;     // backward only
    float* partials;  // backward only: [row_chunks(rows), width]
    std::int64_t rows;
    std::int64_t width;
    bool accumulate;
    int threads;
};

struct SwigluArgs {
    DType dtype;
    void* out;       // y[rows, width], or dgate_up[rows, 2 width]
    const void* dy;  // backward only
    const void* gate_up;
    std::int64_t rows;
    std::int64_t width;
    int threads;
};

struct BiasBackwardArgs {
    DType dtype;
    float* dbias;
    const void* dy;
    float* partials;
    std::int64_t rows;
    std::int64_t width;
    bool accumulate;
    int threads;
};

struct AddArgs {
    DType dtype;
    void* y;
    const void* a;
    const void* b;
    std::int64_t count;
    int threads;
};

// One dropout mask: see Dropout in ops.h.
struct MaskArgs {
    float probability = 0.0F;
    float kept_scale = 0.0F;  // 1 / (1 - probability)
    PhiloxKey key;
    std::uint32_t site = 0;
    std::uint64_t first_sample = 0;
};

struct DropoutArgs {
    DType dtype = DType::F32;
    void* y = nullptr;
    const void* x = nullptr;
    std::int64_t count = 0;
    std::int64_t per_sample = 0;  // elements
    std::int64_t first = 0;       // element of the micro-batch that x and y begin with
    MaskArgs mask;
    int threads = 1;
};

struct CastArgs {
    DType to_dtype;  // F64, F32, BF16, F16
    DType from_dtype;
    void* to;
    const void* from;
    std::int64_t count;
    int threads;
};

struct ElementwiseKernels {
    void (*bias_gelu_forward)(const BiasGeluArgs&);
    void (*bias_gelu_backward)(const BiasGeluArgs&);
    void (*swiglu_forward)(const SwigluArgs&);
    void (*swiglu_backward)(const SwigluArgs&);
    void (*bias_backward)(const BiasBackwardArgs&);
    void (*add)(const AddArgs&);
    void (*dropout)(const DropoutArgs&);
    void (*cast)(const CastArgs&);
};

struct EmbeddingForwardArgs {
    DType dtype;
    void* x;
    const std::int32_t* tokens;
    const void* table;
    const void* positions;  // or null
    std::int64_t rows;
    std::int64_t width;
    std::int64_t length;
    std::int64_t first_row;
    std::int64_t table_rows;
    int threads;
};

struct EmbeddingBackwardArgs {
    DType dtype;
    float* dtable;
    float* dpositions;  // or null
    const void* dx;
    const std::int64_t* first;  // [table_rows + 1]: where each table row's entries begin in `order`
    const std::int64_t* order;  // rows of dx, by token, then by row
    std::int64_t rows;
    std::int64_t width;
    std::int64_t length;
    std::int64_t table_rows;
    std::int64_t position_rows;
    bool table_accumulate;
    bool positions_accumulate;
    int threads;
};

struct EmbeddingKernels {
    void (*forward)(const EmbeddingForwardArgs&);
    void (*backward)(const EmbeddingBackwardArgs&);
};

struct CrossEntropyArgs {
    DType dtype;
    float* losses;
    void* logits;
    const std::int32_t* targets;
    std::int64_t rows;
    std::int64_t width;
    std::int64_t vocab;
    float gradient_scale;
    bool train;
    int threads;
};

// Some columns of the vocabulary.
struct VocabularyPartArgs {
    DType dtype;
    float* losses;  // finish only
    float* maxima;  // [rows]
    float* sums;    // [rows, 2]; null in row_maxima
    void* logits;
    const std::int32_t* targets;  // null in row_maxima
    std::int64_t rows;
    std::int64_t width;
    std::int64_t vocab;         // logical columns among `width`
    std::int64_t first_column;  // token id of column 0
    float gradient_scale;
    bool train;
    int threads;
};

struct LossKernels {
    void (*cross_entropy)(const CrossEntropyArgs&);
    void (*row_maxima)(const VocabularyPartArgs&);
    void (*exponential_sums)(const VocabularyPartArgs&);
    void (*finish_cross_entropy)(const VocabularyPartArgs&);
};

struct SumSquaresArgs {
    std::int64_t* bins;
    const float* gradient;
    std::int64_t count;
    bool accumulate;
    int threads;
};

struct AdamwArgs {
    DType weight_dtype;
    void* weights;  // or null
    float* master;
    float* m;
    float* v;
    const float* gradient;
    const std::uint8_t* flags;
    const double* scalars;  // StepScalar
    std::int64_t count;
    float beta1;
    float other1;  // 1 - beta1, formed in double
    float beta2;
    float other2;
    float step_size;          // lr / (1 - beta1^t)
    float inverse_root_bias;  // 1 / sqrt(1 - beta2^t)
    float epsilon;
    float decay;  // lr x weight decay
    int threads;
};

struct OptimizerKernels {
    void (*sum_squares)(const SumSquaresArgs&);
    void (*adamw)(const AdamwArgs&);
};

struct AttentionShape {
    std::int64_t batch = 0;
    std::int64_t length = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    float scale = 0.0F;
    MaskArgs mask;  // probability 0: no dropout
    std::int64_t first_head = 0;
};

struct AttentionForwardArgs {
    DType dtype = DType::F32;
    AttentionShape shape;
    void* out = nullptr;
    float* lse = nullptr;
    const void* qkv = nullptr;
    std::byte* scratch = nullptr;  // threads x forward_scratch()
    int threads = 1;
};

struct AttentionBackwardArgs {
    DType dtype = DType::F32;
    AttentionShape shape;
    void* dqkv = nullptr;
    const void* dout = nullptr;
    const void* out = nullptr;
    const float* lse = nullptr;
    const void* qkv = nullptr;
    std::byte* scratch = nullptr;  // threads x backward_scratch()
    int threads = 1;
};

struct RopeArgs {
    DType dtype = DType::F32;
    AttentionShape shape;
    void* qkv = nullptr;
    const float* table = nullptr;
    float direction = 0.0F;  // 1 forward, -1 backward: multiplies the sine
    int threads = 1;
};

struct AttentionKernels {
    void (*forward)(const AttentionForwardArgs&);
    void (*backward)(const AttentionBackwardArgs&);
    void (*rope)(const RopeArgs&);
    // Bytes for one thread, a multiple of 64.
    std::int64_t (*forward_scratch)(const AttentionShape&, DType);
    std::int64_t (*backward_scratch)(const AttentionShape&, DType);
};

// Column sums are made in two stages: one partial per chunk of this many rows, then the partials in order.
inline constexpr std::int64_t rows_per_chunk = 32;
constexpr std::int64_t row_chunks(std::int64_t rows) { return (rows + rows_per_chunk - 1) / rows_per_chunk; }

// Specialised in the sources that are compiled once per level.
template <class Level>
NormKernels norm_kernels();
template <class Level>
ElementwiseKernels elementwise_kernels();
template <class Level>
EmbeddingKernels embedding_kernels();
template <class Level>
LossKernels loss_kernels();
template <class Level>
OptimizerKernels optimizer_kernels();
template <class Level>
AttentionKernels attention_kernels();

struct Kernels {
    NormKernels norm;
    ElementwiseKernels elementwise;
    EmbeddingKernels embedding;
    LossKernels loss;
    OptimizerKernels optimizer;
    AttentionKernels attention;
};

}  // namespace trainctl::cpu
