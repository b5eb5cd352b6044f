#include "bench/activation_bound.h"

#include <algorithm>

#include "trainctl/device/arena.h"
#include "trainctl/model/architecture.h"

namespace trainctl {
namespace {

// Tensors of a micro-batch by their number of columns, as the arena places them.
struct Sizes {
    explicit Sizes(const JobSpec& job)
        : rows(job.training.micro_batch_size * job.training.sequence_length),
          compute(job.precision.compute) {}

    [[nodiscard]] std::uint64_t activation(std::int64_t columns) const {
        return placed(rows * columns, compute);
    }
    // Norm statistics, softmax denominators, losses.
    [[nodiscard]] std::uint64_t statistics(std::int64_t columns) const {
        return placed(rows * columns, DType::F32);
    }
    [[nodiscard]] static std::uint64_t placed(std::int64_t elements, DType dtype) {
        constexpr std::uint64_t grain = Arena::alignment;
        return (storage_bytes(elements, dtype) + grain - 1) / grain * grain;
    }

    std::int64_t rows;
    DType compute;
};

std::uint64_t placed_scratch(std::size_t bytes) {
    return Sizes::placed(static_cast<std::int64_t>(bytes), DType::U8);
}

std::size_t product_scratch(Ops planned, std::int64_t rows, std::int64_t columns, const JobSpec& job) {
    std::size_t most = 0;
    for (const MatmulKind kind : {MatmulKind::Forward, MatmulKind::BackwardInput, MatmulKind::BackwardWeight})
        most = std::max(most, planned.matmul.scratch_bytes(kind, rows, columns, job.model.hidden_size,
                                                           job.precision.compute));
    return most;
}

// The largest of one op.
std::uint64_t block_scratch(const JobSpec& job, const Sizes& sizes, Ops planned) {
    const ModelSpec& model = job.model;
    const std::int64_t qkv = (model.heads + 2 * model.kv_heads) * model.head_dim;
    const std::int64_t widest = std::max({qkv, 2 * model.ffn_size, model.hidden_size});
    AttentionSettings attention;
    attention.batch = job.training.micro_batch_size;
    attention.length = job.training.sequence_length;
    attention.heads = model.heads;
    attention.kv_heads = model.kv_heads;
    attention.head_dim = model.head_dim;
    return placed_scratch(
        std::max({planned.attention.forward_scratch_bytes(attention, sizes.compute),
                  planned.attention.backward_scratch_bytes(attention, sizes.compute),
                  planned.norm.backward_scratch_bytes(sizes.rows, model.hidden_size, sizes.compute),
                  planned.elementwise.column_sum_scratch_bytes(sizes.rows, widest),
                  product_scratch(planned, sizes.rows, widest, job)}));
}

}  // namespace

std::uint64_t ActivationBound::total(std::int64_t blocks) const {
    const auto count = static_cast<std::uint64_t>(blocks);
    return std::max((count - 1) * kept_per_block + live_block, count * kept_per_block + head);
}

ActivationBound activation_bound(const JobSpec& job, Ops planned) {
    const ModelSpec& model = job.model;
    const Sizes sizes(job);
    const bool gated = architecture_row(model.architecture).mlp == MlpKind::SwiGlu;
    const std::uint64_t hidden = sizes.activation(model.hidden_size);
    const std::uint64_t wide = sizes.activation(model.ffn_size);
    const std::uint64_t up = sizes.activation((gated ? 2 : 1) * model.ffn_size);
    const std::uint64_t attention = sizes.activation((model.heads + 2 * model.kv_heads) * model.head_dim) +
                                    sizes.activation(model.heads * model.head_dim) +
                                    sizes.statistics(model.heads);
    const std::uint64_t sums = 2 * hidden + 2 * sizes.statistics(2);  // in front of both norms
    const std::uint64_t products = sums + attention + up;
    const std::uint64_t everything = products + 2 * hidden + wide;
    // The gradient of the hidden state, under dropout also of the branch, and where the activation has two
    // inputs theirs.
    const std::uint64_t gradients = (model.dropout > 0.0 ? 2 : 1) * hidden + (gated ? up : 0);

    ActivationBound bound;
    switch (job.memory.gradient_checkpointing) {
        case GradientCheckpointing::None:
            bound.kept_per_block = everything;
            break;
        case GradientCheckpointing::Selective:
            bound.kept_per_block = products;
            break;
        case GradientCheckpointing::Full:
            bound.kept_per_block = hidden;
            break;
    }
    bound.live_block = everything + gradients + block_scratch(job, sizes, planned);
    const std::int64_t logit_rows = std::min<std::int64_t>(sizes.rows, 1024);
    bound.head = 3 * hidden + sizes.statistics(2) + sizes.statistics(1) +
                 Sizes::placed(logit_rows * model.padded_vocab_size(), job.precision.compute) +
                 placed_scratch(product_scratch(planned, logit_rows, model.padded_vocab_size(), job));
    return bound;
}

}  // namespace trainctl
