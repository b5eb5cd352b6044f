// Every dropout site draws its own masks, and backward draws those of forward again.
#include <set>
#include <tuple>

#include "model/tiny_model.h"
#include "support/catch.h"
#include "trainctl/ops/ops.h"

namespace trainctl {
namespace {

using Draws = std::multiset<std::tuple<std::uint32_t, std::int64_t>>;  // site, elements of the masked tensor

// Counts the masks that a backend is asked for and passes everything on.
class MaskCounter final : public ElementwiseOps, public AttentionOps {
  public:
    MaskCounter(const Ops& inner, std::uint64_t first_sample)
        : elementwise_(inner.elementwise), attention_(inner.attention), first_sample_(first_sample) {}

    [[nodiscard]] const Draws& draws() const { return draws_; }
    [[nodiscard]] const std::set<std::uint64_t>& keys() const { return keys_; }

    void dropout(Stream& stream, TensorView y, TensorView x, std::int64_t rows, Dropout site) override {
        count(site, x.elements());
        elementwise_.dropout(stream, y, x, rows, site);
    }
    void forward(Stream& stream, TensorView out, TensorView lse, TensorView qkv, AttentionSettings settings,
                 TensorView scratch) override {
        count(settings.dropout, qkv.elements());
        attention_.forward(stream, out, lse, qkv, settings, scratch);
    }
    void backward(Stream& stream, TensorView dqkv, TensorView dout, TensorView out, TensorView lse,
                  TensorView qkv, AttentionSettings settings, TensorView scratch) override {
        count(settings.dropout, qkv.elements());
        attention_.backward(stream, dqkv, dout, out, lse, qkv, settings, scratch);
    }

    void bias_gelu_forward(Stream& s, TensorView y, TensorView x, TensorView bias) override {
        elementwise_.bias_gelu_forward(s, y, x, bias);
    }
    void bias_gelu_backward(Stream& s, TensorView dx, TensorView dbias, TensorView dy, TensorView x,
                            TensorView bias, Into into, TensorView scratch) override {
        elementwise_.bias_gelu_backward(s, dx, dbias, dy, x, bias, into, scratch);
    }
    void swiglu_forward(Stream& s, TensorView y, TensorView gate_up) override {
        elementwise_.swiglu_forward(s, y, gate_up);
    }
    void swiglu_backward(Stream& s, TensorView dgate_up, TensorView dy, TensorView gate_up) override {
        elementwise_.swiglu_backward(s, dgate_up, dy, gate_up);
    }
    void bias_backward(Stream& s, TensorView dbias, TensorView dy, Into into, TensorView scratch) override {
        elementwise_.bias_backward(s, dbias, dy, into, scratch);
    }
    [[nodiscard]] std::size_t column_sum_scratch_bytes(std::int64_t m, std::int64_t n) const override {
        return elementwise_.column_sum_scratch_bytes(m, n);
    }
    void add(Stream& s, TensorView y, TensorView a, TensorView b) override { elementwise_.add(s, y, a, b); }
    void cast(Stream& s, TensorView to, TensorView from) override { elementwise_.cast(s, to, from); }
    void fill_zero(Stream& s, TensorView x) override { elementwise_.fill_zero(s, x); }
    [[nodiscard]] std::size_t forward_scratch_bytes(AttentionSettings settings, DType dtype) const override {
        return attention_.forward_scratch_bytes(settings, dtype);
    }
    [[nodiscard]] std::size_t backward_scratch_bytes(AttentionSettings settings, DType dtype) const override {
        return attention_.backward_scratch_bytes(settings, dtype);
    }
    void rope(Stream& s, TensorView qkv, TensorView table, AttentionSettings settings,
              RopeDirection direction) override {
        attention_.rope(s, qkv, table, settings, direction);
    }

  private:
    void count(const Dropout& site, std::int64_t elements) {
        if (site.probability == 0.0F) return;
        invariant(site.probability == 0.25F && site.first_sample == first_sample_, "mask counter: settings");
        draws_.insert({site.site, elements});
        keys_.insert(std::uint64_t{site.key.k0} << 32U | site.key.k1);
    }

    ElementwiseOps& elementwise_;
    AttentionOps& attention_;
    std::uint64_t first_sample_;
    Draws draws_;
    std::set<std::uint64_t> keys_;
};

}  // namespace

TEST_CASE("dropout has one site for each place, the same in forward and backward") {
    for (ModelSpec spec : {tiny_gpt2(3, true), tiny_llama(3, 2, false)}) {
        spec.dropout = 0.25;
        TinyModel model(spec, {});
        model.scatter_weights(4);
        TinyBatch data(spec, 2, 19, 21);
        const Ops inner = model.ops();
        MaskCounter counter(inner, data.first_sample);
        const Ops counted{inner.matmul,    inner.norm, counter,        counter,
                          inner.embedding, inner.loss, inner.optimizer};
        model.train_with(counted, data.micro(), 0.0625F);

        const std::int64_t branch = 2 * 19 * spec.hidden_size;
        const std::int64_t packed = 2 * 19 * (spec.heads + 2 * spec.kv_heads) * spec.head_dim;
        Draws expected;
        for (int direction = 0; direction < 2; ++direction) {
            expected.insert({0U, branch});
            for (std::uint32_t block = 1; block <= 3; ++block) {
                expected.insert({block * 8 + 1, packed});
                expected.insert({block * 8 + 2, branch});
                expected.insert({block * 8 + 3, branch});
            }
        }
        CHECK(counter.draws() == expected);
        CHECK(counter.keys().size() == 1);
    }
}

}  // namespace trainctl
