#include "trainctl/parallel/pipeline_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "trainctl/base/error.h"
#include "trainctl/config/model_math.h"

namespace trainctl {
namespace {

// FLOPs of the head per token, in blocks.
double head_blocks(const ModelSpec& model, std::int64_t sequence_length) {
    const double head = 6.0 * static_cast<double>(model.vocab_size) * static_cast<double>(model.hidden_size);
    const double blocks = flops_per_token(model, sequence_length) - head;
    return head / (blocks / static_cast<double>(model.layers));
}

}  // namespace

std::vector<UnitRun> pipeline_parts(const ModelSpec& model, std::int64_t sequence_length, int parts) {
    invariant(parts >= 1, "a model has at least one part");
    if (model.layers < parts) {
        fail(Exit::Usage,
             fmt::format("model.layers {} cannot be cut into {} parts of at least one block "
                         "(parallel.pipeline_parallel_size x parallel.virtual_stages); use at most {}",
                         model.layers, parts, model.layers));
    }
    // Blocks are alike, so handing each to the part that has least with it is as even as can be.
    std::vector<double> work(static_cast<std::size_t>(parts), 1.0);
    std::vector<UnitId> blocks(static_cast<std::size_t>(parts), 1);
    work.back() += head_blocks(model, sequence_length);
    for (std::int64_t left = model.layers - parts; left > 0; --left) {
        std::size_t least = 0;
        for (std::size_t part = 1; part < work.size(); ++part)
            if (work[part] <= work[least]) least = part;
        work[least] += 1.0;
        ++blocks[least];
    }
    std::vector<UnitRun> runs;
    UnitId begin = 0;
    UnitId end = 1;  // behind the embedding
    for (const UnitId count : blocks) {
        end += count;
        runs.push_back({begin, end});
        begin = end;
    }
    ++runs.back().end;  // the head
    return runs;
}

std::vector<UnitRun> stage_parts(const std::vector<UnitRun>& all, int stage, int stages) {
    std::vector<UnitRun> parts;
    for (auto part = static_cast<std::size_t>(stage); part < all.size();
         part += static_cast<std::size_t>(stages))
        parts.push_back(all[part]);
    return parts;
}

}  // namespace trainctl
