// How parameters, gradients and optimizer state travel over the data axis: ZeRO 0 to 3 behind the model's
// ParamSource and GradSink.
//
//   stage  weights (compute dtype)  gradients F32           master, m, v F32
//   0      full                     full, all-reduced       full
//   1      full                     full, reduce-scattered  shard
//   2      full                     shard + bucket slots    shard
//   3      shard + unit slots       shard + bucket slots    shard
//
// With F32 compute the weights are the master and no second copy of them exists.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainctl/comm/communicator.h"
#include "trainctl/config/job_spec.h"
#include "trainctl/device/device.h"
#include "trainctl/model/named_slice.h"
#include "trainctl/model/param_source.h"
#include "trainctl/parallel/shard_map.h"

namespace trainctl {

struct ZeroOptions {
    int stage = 1;
    DType compute = DType::BF16;
    DType reduce_dtype = DType::F32;  // F32, or BF16: cast before sending, still added in F32
    // Largest message in MB of reduce_dtype; 0: auto, min(400 MB, gradients / 8), a larger unit going whole.
    double gradient_bucket_mb = 0.0;
    // Off: buckets wait for the end of the micro-batch. In stages 2 and 3, which have memory for a few units
    // only, backward then waits for each bucket instead, and stage 3 gathers no unit ahead of use. The same
    // bits either way.
    bool overlap = true;
};

// Everything the step needs between backward and the next forward, by value.
struct UpdateSettings {
    double lr = 0.0;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    double weight_decay = 0.1;
    double max_norm = 1.0;
    double inverse_loss_scale = 1.0;
    std::int64_t applied_updates = 0;  // before this one
};

// The axes that a rank's state travels over.
struct ZeroAxes {
    Communicator& data;  // ranks that hold the same parameters
    // Ranks that hold other parts or replicas of the tensors, and ranks that hold other units: the norm is
    // summed over both, the loss over pipeline stages. Gradients that replicas hold in parts
    // (ParamSpec::grad_partial_over_tensor) are added over `tensor`. nullptr: not used.
    Communicator* tensor = nullptr;
    Communicator* pipeline = nullptr;
    // First and last stage of a pipeline whose head is tied: both hold unit 0, and its gradients are added
    // over the two before the update. nullptr: no other stage holds it.
    Communicator* embedding = nullptr;
};

struct MemoryRow {
    std::string what;  // "weights", "gradients", "master + moments", "buckets", ...
    std::uint64_t bytes = 0;
};

// One rank's model state. Thread rule: the compute thread. Collective: all ranks of the data axis make the
// same calls in the same order.
class ZeroState {
  public:
    virtual ~ZeroState() = default;
    virtual ParamSource& params() = 0;
    // Exit::Internal unless every unit is announced as ready exactly once per micro-batch.
    virtual GradSink& grads() = 0;

    // Master weights from the counter-based initialisation; moments 0; weights rounded and gathered. Waits
    // for the host to have computed them. Not needed on the sim device, where nothing has a value.
    virtual void initialise(std::uint64_t seed) = 0;

    // Adds scalars[scalar_loss_sum] over the data and pipeline axes, reduces the norm over all, and updates,
    // all on the device: the host never waits. Weights of the next step are gathered unit by unit behind
    // params().acquire. scalars: F64[step_scalars] device memory.
    virtual void update(TensorView scalars, const UpdateSettings& settings) = 0;

    // The states this rank must save: master weights "<name>", moments "<name>.m" and "<name>.v", in logical
    // (unpadded) shapes; with stage 0 every rank names an equal share so that nothing is written twice.
    // Read after the compute stream is synchronised; the memory stays theirs until the next update writes it.
    virtual std::vector<NamedSlice> state_slices() = 0;
    // The slices this rank must fill on load (stage 0: everything it holds). Only logical elements are named:
    // padding is 0 and stays 0.
    virtual std::vector<NamedSlice> load_slices() = 0;
    // After load_slices were filled: rounds master into weights and gathers.
    virtual void loaded() = 0;

    // Every byte this object allocated from the device.
    [[nodiscard]] virtual std::vector<MemoryRow> memory_table() const = 0;
    [[nodiscard]] virtual int buckets() const = 0;
};

// Of slices that a ZeroState names, those of master weights: the moments are left out.
std::vector<NamedSlice> weights_of(std::vector<NamedSlice> slices);

// `communication` carries buckets and weight gathers; `compute` is the model's stream.
std::unique_ptr<ZeroState> make_zero_state(Device& device, Ops ops, const ZeroAxes& axes, Stream& compute,
                                           Stream& communication, const std::vector<ParamSpec>& params,
                                           const ZeroOptions& options);

}  // namespace trainctl
