// One list of op cases for every use: any backend against the reference, gradients against finite
// differences, bits against thread counts, benchmarks. A case is an op with its backward, over named tensors.
//
// Names: gradients carry a "d" in front ("dx" of "x"). Dtypes follow the role: activations and weights have
// the compute dtype under test, statistics, losses and gradients of parameters are wide (F32; F64 with F64).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "support/reference/elements.h"
#include "trainctl/device/device.h"
#include "trainctl/ops/ops.h"

namespace trainctl {

enum class CaseRole {
    Activation,  // differentiable input; gradient in compute dtype
    Parameter,   // differentiable input; gradient wide, accumulated if the case says so
    Table,       // wide constant (rotary angles)
    Indices,     // I32 constant: values 0 .. range - 1, or -1 with the probability `ignored`
    Output,      // differentiable result in compute dtype
    WideOutput,  // differentiable result, wide
    Saved,       // wide result kept for backward
};

struct CaseTensor {
    std::string name;
    CaseRole role;
    Shape shape;
    double spread = 1.0;  // standard deviation of inputs, and of the gradient of outputs
    double centre = 0.0;  // mean of inputs
    std::int32_t range = 0;
    double ignored = 0.0;
    bool constant_gradient = false;  // WideOutput: d = 1 (losses), not random
};

enum class CaseCombine { Maximum, Sum };

// The tensors of one case in one dtype, with their gradients and scratch, in one device's memory.
class CaseTensors {
  public:
    TensorView& operator[](const std::string& name);
    [[nodiscard]] TensorView optional(const std::string& name) const;  // empty view if the case has none
    [[nodiscard]] const std::map<std::string, TensorView>& all() const { return views_; }
    TensorView scratch;
    // What ranks would do between two ops: `parts` of equal shape all become their combination. The one given
    // here is for host memory; whoever keeps tensors elsewhere replaces it.
    std::function<void(Stream&, const std::vector<TensorView>& parts, CaseCombine)> combine;

  private:
    friend struct OpCase;
    std::map<std::string, TensorView> views_;
    std::vector<Buffer> buffers_;
};

struct OpCase {
    std::string name;
    std::vector<CaseTensor> tensors;
    std::function<void(Ops, Stream&, CaseTensors&)> forward;
    std::function<void(Ops, Stream&, CaseTensors&)> backward;  // may be empty
    std::function<std::size_t(Ops, DType)> scratch_bytes = [](Ops, DType) { return std::size_t{0}; };
    Into into = Into::Overwrite;  // of parameter gradients
    double slack =
        1.0;  // multiplies the tolerance of bf16 and f16: how many roundings lie between in and out

    // Allocated from `device` and filled by `seed`: inputs and output gradients with values representable in
    // `rounded_to` (so that two dtypes can start from the same numbers), results with garbage, gradients that
    // are accumulated into with small numbers.
    [[nodiscard]] CaseTensors allocate(Device& device, Ops ops, DType dtype, DType rounded_to,
                                       std::uint64_t seed) const;
    // The same tensors in another device's memory, which is left as it is. Nothing is copied; `combine` is
    // empty.
    [[nodiscard]] CaseTensors allocate_like(const CaseTensors& other, Device& device, Ops ops,
                                            DType dtype) const;

  private:
    void add_scratch(CaseTensors& tensors_of_case, Device& device, Ops ops, DType dtype) const;
};

// Largest error of `found` against `wanted` (host memory, any dtypes) in units of what is allowed: half an
// ulp for the store and as much again of the largest element for what happened inside, `op_case.slack` times.
// Above 1 is wrong; NaN if any element is.
double worst_error(const TensorView& found, const TensorView& wanted, const OpCase& op_case, DType compute);

// Small and odd shapes of every op: M = 1, sizes off the vector length, grouped queries, several tiles,
// padded vocabularies, ignored targets.
std::vector<OpCase> op_cases();

// Larger ones, for backends whose kernels share a row or a sum among many threads and choose by width how:
// rows of every size class, more rows than partial sums, frequent tokens, heads of every width.
std::vector<OpCase> wide_op_cases();

}  // namespace trainctl
