// What a device can compute: families of pure virtuals. Every call is asynchronous on its stream, takes
// everything by value, may run after it has returned (so it reads no host memory except pinned Buffers), and
// allocates nothing: scratch is an argument, sized by scratch_bytes() while planning.
//
// Notation: M rows (micro-batch x sequence), T sequence length, C hidden, V padded vocabulary. "x: compute
// dtype" means BF16, F16, F32 (or F64 in the reference backend), the same for all such tensors of one call.
// Statistics, losses and gradients of parameters are F32 (F64 in the reference backend). All tensors are
// contiguous. An optional tensor is absent when empty().
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainctl/base/philox.h"
#include "trainctl/device/device.h"
#include "trainctl/tensor/into.h"
#include "trainctl/tensor/tensor_view.h"

namespace trainctl {

enum class MatmulKind { Forward, BackwardInput, BackwardWeight };

// Dense layers; the weight is [out N, in K] as in checkpoints of this field.
class MatmulOps {
  public:
    virtual ~MatmulOps() = default;
    // y[M,N] = x[M,K] w[N,K]^T (+ bias[N])
    virtual void forward(Stream& stream, TensorView y, TensorView x, TensorView w, TensorView bias,
                         TensorView scratch) = 0;
    // dx[M,K] (=, +=) dy[M,N] w[N,K]
    virtual void backward_input(Stream& stream, TensorView dx, TensorView dy, TensorView w, Into into,
                                TensorView scratch) = 0;
    // dw[N,K] F32 (=, +=) dy[M,N]^T x[M,K], in accumulated chunks of at most 1024 rows (bits independent of
    // threads)
    virtual void backward_weight(Stream& stream, TensorView dw, TensorView dy, TensorView x, Into into,
                                 TensorView scratch) = 0;
    // Bytes of scratch for one call of `kind` on M x N x K with inputs of `dtype`.
    [[nodiscard]] virtual std::size_t scratch_bytes(MatmulKind kind, std::int64_t m, std::int64_t n,
                                                    std::int64_t k, DType dtype) const = 0;
};

enum class NormKind { LayerNorm, RmsNorm };

struct NormSettings {
    NormKind kind = NormKind::RmsNorm;
    float epsilon = 1e-5F;
};

// Fused residual addition and normalisation over the last dimension C.
class NormOps {
  public:
    virtual ~NormOps() = default;
    // residual_out[M,C] = residual_in + branch, rounded to its dtype; y = norm(residual_out) * gain (+ bias).
    // branch empty: residual_out is not written (it may be empty) and residual_in is normalised.
    // statistics[M,2] F32: mean (0 for RMS) and 1/standard deviation (1/rms).
    virtual void forward(Stream& stream, TensorView y, TensorView residual_out, TensorView statistics,
                         TensorView residual_in, TensorView branch, TensorView gain, TensorView bias,
                         NormSettings settings) = 0;
    // dresidual_in[M,C] = dresidual_out (may be empty: 0) + d norm(residual)/d residual applied to dy: also
    // the gradient of branch. dresidual_in may be the same memory as dresidual_out. dgain[C], dbias[C] (bias
    // empty: dbias empty) F32.
    virtual void backward(Stream& stream, TensorView dresidual_in, TensorView dgain, TensorView dbias,
                          TensorView dy, TensorView dresidual_out, TensorView residual, TensorView statistics,
                          TensorView gain, Into into, NormSettings settings, TensorView scratch) = 0;
    [[nodiscard]] virtual std::size_t backward_scratch_bytes(std::int64_t m, std::int64_t c,
                                                             DType dtype) const = 0;
};

// One dropout site. Element e of sample s is kept iff uniform(Philox(key, counter)) >= probability, where the
// counter is {e / 4, site, low word of s, high word of s}, lane e % 4, and s = first_sample + (first_row +
// row) / rows_per_sample. Kept values are scaled by 1 / (1 - probability). The same bits on every device and
// layout.
struct Dropout {
    float probability = 0.0F;
    PhiloxKey key;
    std::uint32_t site = 0;          // layer x 8 + place
    std::uint64_t first_sample = 0;  // global index (consumed samples) of the first sample of the micro-batch
    std::int64_t first_row = 0;      // where the rows at hand begin in the micro-batch
};

struct AttentionSettings {
    std::int64_t batch = 0;
    std::int64_t length = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;  // divides heads; query head h reads key/value head h / (heads / kv_heads)
    std::int64_t head_dim = 0;
    float scale = 0.0F;  // normally 1/sqrt(head_dim)
    // On the probabilities; element index ((first_head + head) x T + query) x T + key within a sample.
    Dropout dropout;
    std::int64_t first_head = 0;  // where the query heads at hand begin in the model
};

enum class RopeDirection { Forward, Backward };

// Causal self-attention over packed qkv[batch x length, (heads + 2 kv_heads) x head_dim]: all q heads, then
// k, then v.
class AttentionOps {
  public:
    virtual ~AttentionOps() = default;
    // out[batch x length, heads x head_dim]; lse[batch, heads, length] F32: log of the softmax denominator
    // (scaled scores).
    virtual void forward(Stream& stream, TensorView out, TensorView lse, TensorView qkv,
                         AttentionSettings settings, TensorView scratch) = 0;
    virtual void backward(Stream& stream, TensorView dqkv, TensorView dout, TensorView out, TensorView lse,
                          TensorView qkv, AttentionSettings settings, TensorView scratch) = 0;
    [[nodiscard]] virtual std::size_t forward_scratch_bytes(AttentionSettings settings,
                                                            DType dtype) const = 0;
    [[nodiscard]] virtual std::size_t backward_scratch_bytes(AttentionSettings settings,
                                                             DType dtype) const = 0;
    // In place on the q and k heads, pairs (i, i + head_dim/2) ("rotate half"). table[length, head_dim/2, 2]
    // F32: cosine and sine of position x theta^(-2i/head_dim). Backward rotates by the opposite angle.
    virtual void rope(Stream& stream, TensorView qkv, TensorView table, AttentionSettings settings,
                      RopeDirection direction) = 0;
};

class ElementwiseOps {
  public:
    virtual ~ElementwiseOps() = default;
    // y[M,N] = gelu_tanh(x + bias[N])
    virtual void bias_gelu_forward(Stream& stream, TensorView y, TensorView x, TensorView bias) = 0;
    // dx = dy * gelu'(x + bias) (may be the memory of dy); dbias[N] F32 (=, +=) column sums of dx
    virtual void bias_gelu_backward(Stream& stream, TensorView dx, TensorView dbias, TensorView dy,
                                    TensorView x, TensorView bias, Into into, TensorView scratch) = 0;
    // y[M,F] = silu(gate) * up with gate_up[M,2F] = [gate | up] per row
    virtual void swiglu_forward(Stream& stream, TensorView y, TensorView gate_up) = 0;
    virtual void swiglu_backward(Stream& stream, TensorView dgate_up, TensorView dy, TensorView gate_up) = 0;
    // dbias[N] F32 (=, +=) column sums of dy[M,N]
    virtual void bias_backward(Stream& stream, TensorView dbias, TensorView dy, Into into,
                               TensorView scratch) = 0;
    // For bias_gelu_backward and bias_backward.
    [[nodiscard]] virtual std::size_t column_sum_scratch_bytes(std::int64_t m, std::int64_t n) const = 0;
    // y = a + b elementwise (y may be a or b)
    virtual void add(Stream& stream, TensorView y, TensorView a, TensorView b) = 0;
    // y = x under the mask of the site (y may be x); the same call is its own backward. Element index within
    // a sample: position in the sample's rows_per_sample x N block. Any number of rows, from any row on.
    virtual void dropout(Stream& stream, TensorView y, TensorView x, std::int64_t rows_per_sample,
                         Dropout site) = 0;
    // Any two floating dtypes, to nearest even.
    virtual void cast(Stream& stream, TensorView to, TensorView from) = 0;
    virtual void fill_zero(Stream& stream, TensorView x) = 0;
};

class EmbeddingOps {
  public:
    virtual ~EmbeddingOps() = default;
    // x[M,C] = table[token - first_row] (+ positions[row % T]); tokens outside the table's rows give 0
    // (vocabulary parallel). tokens[M] I32, table[rows,C], positions[>=T,C] may be empty.
    virtual void forward(Stream& stream, TensorView x, TensorView tokens, TensorView table,
                         TensorView positions, std::int64_t length, std::int64_t first_row) = 0;
    // dtable[rows,C] F32 (=, +=) and dpositions (may be empty; rows beyond T are zeroed on Overwrite).
    // Deterministic: rows of one token are added in row order.
    virtual void backward(Stream& stream, TensorView dtable, TensorView dpositions, TensorView dx,
                          TensorView tokens, std::int64_t length, std::int64_t first_row, Into table_into,
                          Into positions_into, TensorView scratch) = 0;
    [[nodiscard]] virtual std::size_t backward_scratch_bytes(std::int64_t m, std::int64_t rows) const = 0;
};

enum class LossPass { Train, Evaluate };

struct LossSettings {
    std::int64_t vocab_size =
        0;  // logical; columns beyond it are masked out of the softmax, their gradient is 0
    float gradient_scale = 1.0F;  // 1 / target tokens of the global batch, times the loss scale
    LossPass pass = LossPass::Train;
    std::int64_t first_column = 0;  // token id of the first column (vocabulary parallel)
};

class LossOps {
  public:
    virtual ~LossOps() = default;
    // losses[M] F32 = -log softmax(logits)[target], 0 where the target is negative (ignored).
    // Train: logits[M,V] become dlogits = (softmax - one_hot) * gradient_scale in place. targets[M] I32.
    virtual void cross_entropy(Stream& stream, TensorView losses, TensorView logits, TensorView targets,
                               LossSettings settings) = 0;

    // The same over ranks that hold some columns each (vocabulary parallel): the caller takes the maximum of
    // `maxima` and then the sum of `sums` over the ranks between the calls.
    // maxima[M] F32: largest logit of the row; -infinity without a logical column.
    virtual void row_maxima(Stream& stream, TensorView maxima, TensorView logits, LossSettings settings) = 0;
    // sums[M,2] F32: sum of exp(logit - maximum), and target logit - maximum (0 if another rank has the
    // target).
    virtual void exponential_sums(Stream& stream, TensorView sums, TensorView logits, TensorView maxima,
                                  TensorView targets, LossSettings settings) = 0;
    // losses and, in training, dlogits as cross_entropy.
    virtual void finish_cross_entropy(Stream& stream, TensorView losses, TensorView logits, TensorView maxima,
                                      TensorView sums, TensorView targets, LossSettings settings) = 0;
    // total[1] F64 (=, +=) sum of losses[M] in a fixed order.
    virtual void sum_losses(Stream& stream, TensorView total, TensorView losses, Into into) = 0;
};

// Exact, order-independent sums of squares: each 128-element block's sum (double) is split into 32-bit digits
// that are added into signed 64-bit bins, bin b weighing 2^(32 (b - norm_zero_bin)). The last bin counts
// non-finite blocks. Integer additions commute, so any sharding gives the same bits.
inline constexpr std::int64_t norm_block = 128;
inline constexpr int norm_digit_bins = 24;
inline constexpr int norm_zero_bin = 12;
inline constexpr int norm_bins = norm_digit_bins + 1;

// Per-128-element-block flags of a flat parameter range (U8).
enum BlockFlag : std::uint8_t {
    block_decays = 1  // weight decay applies
};

// Device-resident results of one step, F64[step_scalars].
enum StepScalar : int {
    scalar_loss_sum = 0,   // summed over this rank, then over all ranks
    scalar_grad_norm = 1,  // before clipping
    scalar_clip = 2,       // coefficient applied to gradients (includes 1 / loss scale)
    scalar_apply = 3,      // 1: update; 0: skip (non-finite), every weight untouched
    step_scalars = 8
};

struct AdamwSettings {
    double lr = 0.0;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;  // outside the root
    double weight_decay = 0.0;
    std::int64_t step = 1;  // counts applied updates from 1: bias correction
};

class OptimizerOps {
  public:
    virtual ~OptimizerOps() = default;
    // bins[norm_bins] I64 (=, +=); elements a multiple of 128 or the tail block is short.
    virtual void sum_squares(Stream& stream, TensorView bins, TensorView gradient, Into into) = 0;
    // From bins (summed over ranks) and scalars[scalar_loss_sum]: norm of the unscaled gradient (root of the
    // sum times inverse_loss_scale; NaN with a non-finite block), clip coefficient max_norm/(norm + 1e-6) if
    // below 1 (max_norm 0: 1), times inverse_loss_scale; apply = 0 if loss or norm is not finite.
    virtual void finish_norm(Stream& stream, TensorView scalars, TensorView bins, double max_norm,
                             double inverse_loss_scale) = 0;
    // Decoupled AdamW on one flat range, one pass: master, m, v F32; weights (compute dtype, empty if master
    // is the weight) get the rounded new master. Reads clip and apply from scalars; apply == 0 writes
    // nothing.
    virtual void adamw(Stream& stream, TensorView weights, TensorView master, TensorView m, TensorView v,
                       TensorView gradient, TensorView flags, TensorView scalars, AdamwSettings settings) = 0;
};

// One backend's ops, bound to its device. References stay valid as long as the backend object.
struct Ops {
    MatmulOps& matmul;
    NormOps& norm;
    AttentionOps& attention;
    ElementwiseOps& elementwise;
    EmbeddingOps& embedding;
    LossOps& loss;
    OptimizerOps& optimizer;
};

class ProductPlans;  // product_plans.h

// Owns the families of one backend.
class OpsBackend {
  public:
    virtual ~OpsBackend() = default;
    [[nodiscard]] virtual Ops ops() = 0;
    // nullptr: matrix products need no plans here.
    [[nodiscard]] virtual ProductPlans* product_plans() { return nullptr; }
};

}  // namespace trainctl
