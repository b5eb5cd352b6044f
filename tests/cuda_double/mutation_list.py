"""The faults that mutations.py plants in cuda/: each is one of a kind that kernels and host code have had."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    kind: str
    file: str  # below the root; in it `before`, which occurs once, becomes `after`
    before: str
    after: str
    cases: tuple  # of test_cuda_double; one of them must fail
    unit: str = ""  # what is compiled, if file is a header
    quick: bool = False  # runs with the test suite: the first of its kind that is fast


ATTENTION = ("cuda attention on tensor cores agrees with the reference",)
ATTENTION_SCORES = ("cuda attention: scores may grow, fall and jump along the keys",)
ATTENTION_F32 = ("cuda attention in F32 agrees with the reference",)
CROSS_ENTROPY = ("cuda cross-entropy agrees with the reference",)
NORMS = ("cuda norms agree with the reference",)
PRODUCTS = ("cuda products agree with the reference",)
ACTIVATIONS = ("cuda activations agree with the reference",)
ROPE = ("cuda rotary embedding agrees with the reference",)
EMBEDDING = (
    "cuda embedding agrees with the reference",
    "cuda: embedding gradients are the cpu's to the bit, in any order of blocks",
)
NORM_BINS = ("cuda sums of squares are the cpu's bins, however a range is split",)
ADAMW = ("cuda AdamW is the cpu's to the bit, in every dtype and wherever the weights lie",)
UNAPPLIED = ("cuda AdamW leaves every bit where the step is not applied",)
NCCL = ("cuda messages by NCCL give every rank its part",)
TUNING = ("tuning takes the fastest algorithm that repeats",)
ADOPTION = ("a choice is taken over without a question and without a product",)
NO_QUERY = ("no step asks the library which algorithm to take",)
DIFFERENCES = ("cuda: a difference of one bit is seen wherever it lies",)
STAGED = ("cuda messages through host memory give every rank its part",)
GRAPH_KEYS = ("cuda graphs: another address, shape or setting is another section",)
GRAPH_EDGES = ("cuda graphs: what was gathered comes before copies, events and memory that goes away",)
GRAPH_ROOM = ("graphs: no more are kept than allowed, and those in turn do not push each other out",)
GRAPH_REFUSED = ("graphs: without memory for another one its calls are issued, and the others go on",)
FORWARD = "cuda/kernels/attention_forward.cu"
BACKWARD = "cuda/kernels/attention_backward.cu"
F32 = "cuda/kernels/attention_f32.cu"
TILE = "cuda/kernels/attention_tile.h"

ATTENTION_MUTATIONS = [
    Mutation(
        "a fetch not waited for", FORWARD,
        "        wait_groups<0>();\n",
        "",
        ATTENTION, quick=True,
    ),
    Mutation(
        "a missing barrier after a fetch", FORWARD,
        "        wait_groups<0>();\n        sync_block();\n",
        "        wait_groups<0>();\n",
        ATTENTION,
    ),
    Mutation(
        "a tile fetched over the one in use", FORWARD,
        "buffers + (first_key / Sizes::keys + 1) % 2 * 2 * Sizes::tile",
        "buffers + first_key / Sizes::keys % 2 * 2 * Sizes::tile",
        ATTENTION,
    ),
    Mutation(
        "a causal mask lost at the edge of a tile", FORWARD,
        "if (first_key + Sizes::keys > first_query) hide_later_keys",
        "if (first_key > first_query) hide_later_keys",
        ATTENTION, quick=True,
    ),
    Mutation(
        "keys of another head", FORWARD,
        "place.head / (s.heads / s.kv_heads)",
        "place.head % s.kv_heads",
        ATTENTION,
    ),
    Mutation(
        "output so far not brought to the new maximum", FORWARD,
        "                        sums[i][j][2 * which + 1] *= rescale;\n",
        "",
        ATTENTION_SCORES,
    ),
    Mutation(
        "total so far not brought to the new maximum", FORWARD,
        "                    total[i][which] *= rescale;\n",
        "",
        ATTENTION_SCORES,
    ),
    Mutation(
        "a bound off by one", FORWARD,
        "threadIdx.x % 4 == 0 && query < length",
        "threadIdx.x % 4 == 0 && query <= length",
        ATTENTION,
    ),
    Mutation(
        "a wrong fragment of a left operand", TILE,
        "narrow_pair<T>(sums[i][2 * k + half][2], sums[i][2 * k + half][3])",
        "narrow_pair<T>(sums[i][2 * k + half][3], sums[i][2 * k + half][2])",
        ATTENTION, unit=FORWARD,
    ),
    Mutation(
        "a wrong fragment of a right operand", TILE,
        "load_matrices(b, right + (right_place ^ column) + 8 * j * stride);\n"
        "            const std::uint32_t first[2] = {b[0], b[1]};",
        "load_matrices(b, right + (right_place ^ column) + 8 * j * stride);\n"
        "            const std::uint32_t first[2] = {b[0], b[2]};",
        ATTENTION, unit=FORWARD, quick=True,
    ),
    Mutation(
        "a wrong fragment of a transposed operand", TILE,
        "16 * k * stride);\n            const std::uint32_t first[2] = {b[0], b[1]};",
        "16 * k * stride);\n            const std::uint32_t first[2] = {b[0], b[2]};",
        ATTENTION, unit=BACKWARD,
    ),
    Mutation(
        "a row of another lane", TILE,
        "16 * i + 8 * which +",
        "16 * i + 2 * which +",
        ATTENTION, unit=FORWARD,
    ),
    Mutation(
        "a mask off by one", TILE,
        "if (first_key + sum_column(j) + k % 2 > first_query + sum_row(i, k / 2))",
        "if (first_key + sum_column(j) + k % 2 >= first_query + sum_row(i, k / 2))",
        ATTENTION, unit=FORWARD,
    ),
    Mutation(
        "a maximum over half of a row's lanes", TILE,
        "    x = fmaxf(x, shuffle_xor(x, 1));\n    return fmaxf(x, shuffle_xor(x, 2));",
        "    return fmaxf(x, shuffle_xor(x, 1));",
        ATTENTION, unit=FORWARD,
    ),
    Mutation(
        "rows beyond the length fetched", TILE,
        "const bool inside = i < present && column < dim;",
        "const bool inside = i <= present && column < dim;",
        ATTENTION, unit=FORWARD,
    ),
    Mutation(
        "columns beyond the head fetched", TILE,
        "const bool inside = i < present && column < dim;",
        "const bool inside = i < present;",
        ATTENTION, unit=FORWARD,
    ),
    Mutation(
        "columns beyond the head fetched in 8 bytes", TILE,
        "const bool inside = i < present && column + part < dim;",
        "const bool inside = i < present && column < dim;",
        ATTENTION, unit=BACKWARD,
    ),
    Mutation(
        "columns beyond the head stored", TILE,
        "const int elements = left < chunk_elements ? left : chunk_elements;",
        "const int elements = chunk_elements;",
        ATTENTION, unit=FORWARD,
    ),
    Mutation(
        "a missing barrier of a warp", TILE,
        "    sync_warp();\n    const int length",
        "    const int length",
        ATTENTION, unit=FORWARD,
    ),
    Mutation(
        "a fetch not waited for in backward", BACKWARD,
        "        wait_groups<0>();\n        sync_block();\n        if (const Step",
        "        sync_block();\n        if (const Step",
        ATTENTION,
    ),
    Mutation(
        "a missing barrier in backward", BACKWARD,
        "        sync_block();\n        if (const Step",
        "        if (const Step",
        ATTENTION,
    ),
    Mutation(
        "a missing barrier before probabilities that another warp made", BACKWARD,
        "        sync_block();\n        if (!seen) continue;\n",
        "        if (!seen) continue;\n",
        ATTENTION,
    ),
    Mutation(
        "a causal mask lost at the edge of a tile of keys", BACKWARD,
        "if (first_query < first_key + 16 * row_tiles) hide_earlier_queries",
        "if (first_query < first_key) hide_earlier_queries",
        ATTENTION,
    ),
    Mutation(
        "a causal mask lost at the edge of a tile of queries", BACKWARD,
        "if (first_key + Sizes::keys > first_query) hide_later_keys",
        "if (first_key > first_query) hide_later_keys",
        ATTENTION,
    ),
    Mutation(
        "a value not written", BACKWARD,
        "                if (query < length) delta[saved + query] = product;\n",
        "",
        ATTENTION, quick=True,
    ),
    Mutation(
        "gradients of values without dropout", BACKWARD,
        "if constexpr (drops == Drops::Some) p *= dropout.one(first_query + query, key);",
        "",
        ATTENTION,
    ),
    Mutation(
        "gradients without their scale", BACKWARD,
        "    if (owner == Owner::Keys) scale_sums(sums, s.scale);\n",
        "",
        ATTENTION,
    ),
    Mutation(
        "the queries of one head of a group left out", BACKWARD,
        "step.head < group; step = after(step)",
        "step.head == 0; step = after(step)",
        ATTENTION,
    ),
    Mutation(
        "two pairs of warps that hand over in one place", BACKWARD,
        "warp / 2 * row_tiles * query_tiles * warp_size + threadIdx.x % warp_size",
        "threadIdx.x % warp_size",
        ATTENTION,
    ),
    Mutation(
        "a missing barrier before a tile is loaded", F32,
        "        sync_block();\n        load_tile<columns>(k, key_rows(qkv, s, place.sample, kv_head), first_key, s);\n"
        "        load_tile<columns>(v, value_rows(qkv, s, place.sample, kv_head), first_key, s);\n        sync_block();\n"
        "        float scores",
        "        load_tile<columns>(k, key_rows(qkv, s, place.sample, kv_head), first_key, s);\n"
        "        load_tile<columns>(v, value_rows(qkv, s, place.sample, kv_head), first_key, s);\n        sync_block();\n"
        "        float scores",
        ATTENTION_F32,
    ),
    Mutation(
        "a missing barrier of a warp in F32", F32,
        "        sync_warp();\n        add_rows<columns>(dq, ds, k, at.lane);",
        "        add_rows<columns>(dq, ds, k, at.lane);",
        ATTENTION_F32,
    ),
    Mutation(
        "a bound off by one in F32", F32,
        "const bool inside = first + row < s.length && column < s.head_dim;",
        "const bool inside = first + row <= s.length && column < s.head_dim;",
        ATTENTION_F32,
    ),
    Mutation(
        "queries at the length counted in F32", F32,
        "if (query >= key && query < s.length) {",
        "if (query >= key && query <= s.length) {",
        ATTENTION_F32,
    ),
]

KERNEL_MUTATIONS = [
    Mutation(
        "a missing barrier", "cuda/reduce.h",
        "    sync_block();\n    T total = partial[0];",
        "    T total = partial[0];",
        CROSS_ENTROPY, unit="cuda/kernels/loss.cu", quick=True,
    ),
    Mutation(
        "a missing barrier in a maximum", "cuda/reduce.h",
        "    sync_block();\n    float largest = partial[0];",
        "    float largest = partial[0];",
        CROSS_ENTROPY, unit="cuda/kernels/loss.cu",
    ),
    Mutation(
        "a sum of a warp's first half", "cuda/reduce.h",
        "for (int mask = warp_size / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);",
        "for (int mask = warp_size / 4; mask > 0; mask /= 2) value += shuffle_xor(value, mask);",
        CROSS_ENTROPY, unit="cuda/kernels/loss.cu",
    ),
    Mutation(
        "a logit read after it was overwritten", "cuda/kernels/loss.cu",
        "    const float at_target = target >= 0 ? widen(row[target]) : 0.0F;\n"
        "    const float row_top = block_max<warps>(top, shared);\n"
        "    sum = block_sum<warps>(sum * exp_difference(top, row_top), shared + warps);\n",
        "    const float row_top = block_max<warps>(top, shared);\n"
        "    sum = block_sum<warps>(sum * exp_difference(top, row_top), shared + warps);\n"
        "    const float at_target = target >= 0 ? widen(row[target]) : 0.0F;\n",
        CROSS_ENTROPY,
    ),
    Mutation(
        "two sums in one place", "cuda/kernels/loss.cu",
        "const float row_top = block_max<warps>(top, shared);\n"
        "    sum = block_sum<warps>(sum * exp_difference(top, row_top), shared + warps)",
        "const float row_top = block_max<warps>(top, shared);\n"
        "    sum = block_sum<warps>(sum * exp_difference(top, row_top), shared)",
        CROSS_ENTROPY,
    ),
    Mutation(
        "the edge of the vocabulary too far", "cuda/kernels/loss.cu",
        "if (column + n > vocab) {",
        "if (column + n > vocab + 8) {",
        CROSS_ENTROPY + ("cuda: masked vocabulary columns have gradient exactly 0 and no say in the softmax",),
    ),
    Mutation(
        "a group filled in any order", "cuda/kernels/embedding.cu",
        "groups.ordered[begin + before] = row;",
        "groups.ordered[at] = row;",
        EMBEDDING,
    ),
    Mutation(
        "a beginning taken for an end", "cuda/kernels/embedding.cu",
        "first_row + rows - count;",
        "first_row + rows;",
        EMBEDDING,
    ),
    Mutation(
        "a missing barrier of a row's warps", "cuda/kernels/norm_rows.h",
        "        sync_block();\n        return sum_of_warps(partial);",
        "        return sum_of_warps(partial);",
        NORMS, unit="cuda/kernels/norm_forward.cu",
    ),
    Mutation(
        "a missing barrier of two sums", "cuda/kernels/norm_rows.h",
        "        sync_block();\n        a = sum_of_warps(partial);",
        "        a = sum_of_warps(partial);",
        NORMS, unit="cuda/kernels/norm_backward.cu",
    ),
    Mutation(
        "one place for the sums of two turns", "cuda/kernels/norm_backward.cu",
        "(turn % 2) * 2 * Group::block_warps",
        "0",
        NORMS,
    ),
    Mutation(
        "a missing barrier before memory is used again", "cuda/kernels/norm_backward.cu",
        "    sync_block();  // what the memory was used for before is over\n",
        "",
        NORMS,
    ),
    Mutation(
        "zeros beyond the row counted", "cuda/kernels/norm_forward.cu",
        "        if (Group::column(p) >= width) continue;  // zeros, but not once the mean is taken off\n",
        "",
        NORMS,
    ),
    Mutation(
        "a column left unwritten", "cuda/kernels/norm_forward.cu",
        "    for (int p = 0; p < packs; ++p) {\n        const int column",
        "    for (int p = 0; p < packs - 1; ++p) {\n        const int column",
        NORMS,
    ),
    Mutation(
        "a sum overwritten where it should grow", "cuda/kernels/column_sums.cu",
        "into == Into::Accumulate ? result[column] + sum : sum",
        "sum",
        ACTIVATIONS, quick=True,
    ),
    Mutation(
        "a sum that grows where it should be overwritten", "cuda/kernels/column_sums.cu",
        "into == Into::Accumulate ? result[column] + sum : sum",
        "result[column] + sum",
        ACTIVATIONS,
    ),
    Mutation(
        "the last partial sum left out", "cuda/kernels/column_sums.cu",
        "part < count; part += warps",
        "part + 1 < count; part += warps",
        ACTIVATIONS,
    ),
    Mutation(
        "one sample where several end", "cuda/kernels/elementwise.cu",
        "for (place += tile_warps; place >= rows_per_sample; place -= rows_per_sample) ++sample;",
        "if ((place += tile_warps) >= rows_per_sample) { place -= rows_per_sample; ++sample; }",
        ("cuda: dropout keeps what the cpu keeps",),
    ),
    Mutation(
        "every other tile of rows left out", "cuda/kernels/activations.cu",
        "first += tile_rows) {\n        Lanes<T, n> raw[rows_at_once];\n        Lanes<T, n> raw_dy",
        "first += 2 * tile_rows) {\n        Lanes<T, n> raw[rows_at_once];\n        Lanes<T, n> raw_dy",
        ACTIVATIONS,
    ),
    Mutation(
        "heads beyond the block left out", "cuda/kernels/rope.cu",
        "head += blockDim.y",
        "head += 256",
        ROPE,
    ),
    Mutation(
        "a bound off by one", "cuda/kernels/rope.cu",
        "head < a.heads + a.kv_heads; head",
        "head <= a.heads + a.kv_heads; head",
        ROPE,
    ),
    Mutation(
        "a bin's sum lost when the bin changes", "cuda/kernels/gradient_norm.cu",
        "        if (bin != bin_) {\n            flush();\n            bin_ = bin;\n        }",
        "        bin_ = bin;",
        NORM_BINS,
    ),
    Mutation(
        "an update that is not asked for", "cuda/kernels/adamw.cu",
        "    if (a.scalars[scalar_apply] == 0.0) return;\n",
        "",
        UNAPPLIED,
    ),
    Mutation(
        "a bound off by one", "cuda/kernels/adamw.cu",
        "if (begin >= a.count) return;",
        "if (begin > a.count) return;",
        ADAMW, quick=True,
    ),
    Mutation(
        "weights left unwritten", "cuda/kernels/adamw.cu",
        "    if (a.weights != nullptr) store(static_cast<W*>(a.weights) + begin, master);\n",
        "",
        ADAMW,
    ),
    Mutation(
        "a bound off by one", "cuda/kernels/accumulate.cu",
        "if (i >= count) return;",
        "if (i > count) return;",
        NCCL,
    ),
    Mutation(
        "a sum overwritten where it should grow", "cuda/kernels/accumulate.cu",
        "into == Into::Accumulate ? to[i] + value : value",
        "value",
        NCCL,
    ),
]

HOST_MUTATIONS = [
    Mutation(
        "an event not waited for", "cuda/device.cpp",
        '        check(cudaStreamWaitEvent(stream_, event, 0), "cudaStreamWaitEvent");\n',
        "",
        NCCL, quick=True,
    ),
    Mutation(
        "an event not recorded", "cuda/device.cpp",
        '        check(cudaEventRecord(raw_event(event), stream_), "cudaEventRecord");\n',
        "",
        NCCL,
    ),
    Mutation(
        "a host that does not wait", "cuda/device.cpp",
        'check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");',
        "",
        NCCL,
    ),
    Mutation(
        "a new buffer cleared too late", "cuda/device.cpp",
        "            copies_->synchronize();\n",
        "",
        ("cuda: a new buffer is zero to every stream",),
    ),
    Mutation(
        "a flag of the host not waited for", "cuda/staged_communicator.cpp",
        "        lane.flags->wait_on_stream(handle(stream), value);\n",
        "",
        STAGED, quick=True,
    ),
    Mutation(
        "a flag of the stream not waited for", "cuda/staged_communicator.cpp",
        "return flags_->stream_has_stored(value_);",
        "return true;",
        STAGED,
    ),
    Mutation(
        "a flag taken one message too early", "cuda/stream_flags.cpp",
        "- value) >= 0;",
        "- value) >= -1;",
        STAGED,
    ),
    Mutation(
        "a flag taken for any value", "cuda/stream_flags.cpp",
        "reinterpret_cast<CUdeviceptr>(&word(from_host)), value,",
        "reinterpret_cast<CUdeviceptr>(&word(from_host)), 0,",
        STAGED,
    ),
    Mutation(
        "pieces staged over each other", "cuda/staged_communicator.cpp",
        "lane.staging.back().data() + offsets[i]",
        "lane.staging.back().data()",
        STAGED,
    ),
    Mutation(
        "what a message adds to is not staged", "cuda/staged_communicator.cpp",
        "into == Into::Accumulate ? Way::DownAndUp : Way::Up",
        "Way::Up",
        STAGED,
    ),
    Mutation(
        "this rank's own part taken for the sum", "cuda/nccl_communicator.cpp",
        "        if (size() > 1) reduce_into(own.data, full, stream);\n",
        "",
        NCCL, quick=True,
    ),
    Mutation(
        "the sum in another rank's part", "cuda/nccl_communicator.cpp",
        "full.flat(rank() * shard.elements(), shard.elements())",
        "full.flat((rank() + 1) % size() * shard.elements(), shard.elements())",
        NCCL,
    ),
    Mutation(
        "a reduction that reads where it writes", "cuda/nccl_communicator.cpp",
        "return ncclReduceScatter(full.data, to,",
        "return ncclReduceScatter(to, to,",
        NCCL,
    ),
    Mutation(
        "another reduction", "cuda/nccl_communicator.cpp",
        "            return ncclMin;",
        "            return ncclMax;",
        NCCL,
    ),
    Mutation(
        "another root", "cuda/nccl_communicator.cpp",
        "nccl_type(tensor.dtype), root,",
        "nccl_type(tensor.dtype), 0,",
        NCCL,
    ),
    Mutation(
        "another type", "cuda/nccl_communicator.cpp",
        "            return ncclBfloat16;",
        "            return ncclFloat16;",
        NCCL,
    ),
    Mutation(
        "a gather that sends another part", "cuda/nccl_communicator.cpp",
        "return ncclAllGather(shard.data, full.data,",
        "return ncclAllGather(full.data, full.data,",
        NCCL,
    ),
    Mutation(
        "a range left open", "cuda/nvtx_ranges.cpp",
        "{ nvtxRangePop(); }",
        "{}",
        ("NVTX shows the phases and units of every step, and a profile switches the profiler",),
    ),
    Mutation(
        "operands of a product in the other order", "cuda/product_plan.cpp",
        "t.right, first_.raw(), t.left, second_.raw()",
        "t.left, first_.raw(), t.right, second_.raw()",
        PRODUCTS, quick=True,
    ),
    Mutation(
        "a product that is not transposed", "cuda/product_plan.cpp",
        "return {p.n, p.m, p.k, p.n, p.k, p.m, CUBLAS_OP_T, CUBLAS_OP_N};",
        "return {p.n, p.m, p.n, p.k, p.k, p.m, CUBLAS_OP_N, CUBLAS_OP_N};",
        PRODUCTS,
    ),
    Mutation(
        "a product that grows where it should be overwritten", "cuda/product_plan.cpp",
        "into == Into::Accumulate ? 1.0F : 0.0F",
        "1.0F",
        PRODUCTS,
    ),
    Mutation(
        "a product overwritten where it should grow", "cuda/product_plan.cpp",
        "into == Into::Accumulate ? 1.0F : 0.0F",
        "0.0F",
        PRODUCTS,
    ),
    Mutation(
        "a bias left out", "cuda/product_plan.cpp",
        "    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);\n",
        "",
        PRODUCTS,
    ),
    Mutation(
        "the last product's bias", "cuda/product_plan.cpp",
        "if (t.bias != nullptr) set(",
        "if (static bool once = false; t.bias != nullptr && !std::exchange(once, true)) set(",
        PRODUCTS,
    ),
    Mutation(
        "biases promised to lie better than they do", "cuda/product_plan.cpp",
        "std::uintptr_t{alignment(key, key.product.result)}",
        "std::uintptr_t{256}",
        PRODUCTS,
    ),
    Mutation(
        "an algorithm in a state of failure", "cuda/product_plan.cpp",
        "if (each.state == CUBLAS_STATUS_SUCCESS) usable",
        "usable",
        TUNING,
    ),
    Mutation(
        "an algorithm that was not checked", "cuda/product_plan.cpp",
        "&algorithm, &answer) == CUBLAS_STATUS_SUCCESS &&",
        "&algorithm, &answer) != CUBLAS_STATUS_NOT_SUPPORTED &&",
        ADOPTION,
    ),
    Mutation(
        "TF32 that was not asked for", "cuda/product_plan.cpp",
        "f32 == F32Products::Tf32",
        "true",
        ("cuda: F32 products are exact, or rounded to TF32 as asked",),
    ),
    Mutation(
        "an algorithm that does not repeat", "cuda/product_trial.cpp",
        "usable[i] = usable[i] && differs == 0;",
        "",
        TUNING, quick=True,
    ),
    Mutation(
        "the first run compared with itself", "cuda/product_trial.cpp",
        "runs = run(library, plan, again_.data()) == CUBLAS_STATUS_SUCCESS;",
        "runs = run(library, plan, result_.data()) == CUBLAS_STATUS_SUCCESS;",
        TUNING,
    ),
    Mutation(
        "times of another algorithm", "cuda/product_trial.cpp",
        "times[at % candidates.size()].push_back(",
        "times[at / rounds].push_back(",
        TUNING,
    ),
    Mutation(
        "the slowest algorithm", "cuda/ops/product_plans.cpp",
        "std::min_element(times.begin(), times.end())",
        "std::max_element(times.begin(), times.end())",
        TUNING,
    ),
    Mutation(
        "a plan kept under another key", "cuda/ops/matmul.cpp",
        "result, t.bias != nullptr},",
        "result, false},",
        NO_QUERY,
    ),
    Mutation(
        "a difference looked for in the first part only", "cuda/kernels/compare.cu",
        "for (int step = 0; step < per_thread; ++step)",
        "for (int step = 0; step < 1; ++step)",
        DIFFERENCES,
    ),
    Mutation(
        "a bound off by one", "cuda/kernels/compare.cu",
        "if (i >= count) break;",
        "if (i >= count - 1) break;",
        DIFFERENCES, quick=True,
    ),
]

GRAPH_MUTATIONS = [
    Mutation(
        "a graph replayed at other addresses", "cuda/graphs/call_bytes.h",
        "put_all(data, shape, dtype);",
        "put_all(shape, dtype);",
        GRAPH_KEYS, unit="cuda/graphs/gathering_ops.cpp", quick=True,
    ),
    Mutation(
        "a graph replayed for another shape", "cuda/graphs/call_bytes.h",
        "put_all(data, shape, dtype);",
        "put_all(data, dtype);",
        GRAPH_KEYS, unit="cuda/graphs/gathering_ops.cpp",
    ),
    Mutation(
        "a graph replayed with another setting", "cuda/graphs/call_bytes.h",
        "put_all(vocab_size, gradient_scale, pass, first_column);",
        "put_all(vocab_size, pass, first_column);",
        GRAPH_KEYS, unit="cuda/graphs/gathering_ops.cpp",
    ),
    Mutation(
        "a product replayed by a plan that was replaced", "cuda/graphs/gathering_ops.cpp",
        "op, products_->changes(), arguments...",
        "op, arguments...",
        ("cuda graphs: a product that runs by another plan is another section",), quick=True,
    ),
    Mutation(
        "a section lost because its graph was refused", "cuda/graphs/section_graphs.cpp",
        "    section.calls.make_all();\n    ++use_.issued;\n",
        "    if (use_.refusal.empty()) section.calls.make_all();\n    ++use_.issued;\n",
        GRAPH_REFUSED, quick=True,
    ),
    Mutation(
        "a graph in use taken for one of old", "cuda/graphs/section_graphs.cpp",
        "    graphs_.splice(graphs_.begin(), graphs_, kept);\n",
        "",
        GRAPH_ROOM,
    ),
    Mutation(
        "calls that lie over each other", "cuda/graphs/call_list.h",
        "(memory_.size() + alignment - 1) / alignment * alignment",
        "0",
        ("cuda graphs: a section is issued, then captured, then replayed",), unit="cuda/graphs/gathering_ops.cpp",
    ),
    Mutation(
        "an event recorded before what was gathered", "cuda/device.cpp",
        '        flush();\n        check(cudaEventRecord(',
        '        check(cudaEventRecord(',
        GRAPH_EDGES, quick=True,
    ),
    Mutation(
        "a host that does not wait for what was gathered", "cuda/device.cpp",
        '        flush();\n        check(cudaStreamSynchronize(',
        '        check(cudaStreamSynchronize(',
        ("cuda graphs: a call that breaks its contract is named, and the stream goes on",),
    ),
    Mutation(
        "a copy before what was gathered", "cuda/device.cpp",
        "    mine.flush();\n",
        "",
        GRAPH_EDGES,
    ),
    Mutation(
        "memory freed under what was gathered", "cuda/device.cpp",
        "        flush_streams();\n",
        "",
        GRAPH_EDGES,
    ),
    Mutation(
        "a failure found while memory is freed forgotten", "cuda/graphs/section_graphs.cpp",
        "        failure_ = CapturedError::current();\n",
        "",
        ("cuda graphs: a call that breaks its contract is named, and the stream goes on",),
    ),
    Mutation(
        "a graph let go while it runs", "cuda/graphs/section_graphs.cpp",
        '    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");  // it may be running\n',
        "",
        GRAPH_ROOM,
    ),
    Mutation(
        "a capture left open", "cuda/graphs/graph.cpp",
        "        if (!ended_) static_cast<void>(cudaStreamEndCapture(stream_, &graph_));\n",
        "",
        ("graphs: a call that fails while it is captured is thrown, and the capture ends",),
    ),
]

TELEMETRY = "cuda/gpu_telemetry.cpp"
READINGS = ("nvml: every reading is the GPU's",)
LIMITS = ("much shared memory is announced once per kernel and device",)

DEVICE_MUTATIONS = [
    Mutation(
        "a limit remembered for another device", "cuda/shared_memory_limit.cpp",
        "known.kernel == kernel && known.device == device",
        "known.kernel == kernel",
        LIMITS, quick=True,
    ),
    Mutation(
        "a limit remembered for another kernel", "cuda/shared_memory_limit.cpp",
        "known.kernel == kernel && known.device == device",
        "known.device == device",
        LIMITS,
    ),
    Mutation(
        "a lower limit taken for the one needed", "cuda/shared_memory_limit.cpp",
        " && known.bytes >= bytes",
        "",
        LIMITS,
    ),
    Mutation(
        "memory of other processes taken for free", "cuda/device.cpp",
        "        return free;\n",
        "        return total;\n",
        ("what a device may allocate is what other processes leave",), quick=True,
    ),
    Mutation(
        "the threshold of another event", "cuda/nvml.h",
        "{ Slowdown = 1 }",
        "{ Slowdown = 0 }",
        READINGS, unit=TELEMETRY, quick=True,
    ),
    Mutation(
        "the clock of another domain", "cuda/nvml.h",
        "{ Sm = 1, Memory = 2 }",
        "{ Sm = 0, Memory = 2 }",
        READINGS, unit=TELEMETRY,
    ),
    Mutation(
        "members of a structure in another order", "cuda/nvml.h",
        "    Count64 total = 0;\n    Count64 free = 0;\n",
        "    Count64 free = 0;\n    Count64 total = 0;\n",
        READINGS, unit=TELEMETRY,
    ),
    Mutation(
        "another kind of event", "cuda/nvml.h",
        "xid_events = 0x8;",
        "xid_events = 0x2;",
        ("nvml: an older library is asked under its own names",), unit=TELEMETRY,
    ),
    Mutation(
        "an older name forgotten", "cuda/nvml.cpp",
        "\"nvmlDeviceGetCurrentClocksThrottleReasons\"",
        "nullptr",
        ("nvml: an older library is asked under its own names",),
    ),
    Mutation(
        "a reason for low clocks taken for another", "cuda/nvml.h",
        "hardware_thermal = 0x40;",
        "hardware_thermal = 0x80;",
        ("nvml: what holds the clocks down is told apart",), unit=TELEMETRY,
    ),
    Mutation(
        "a reading kept though it is not supported", TELEMETRY,
        "        if (!ask(function, device_, arguments..., &value)) return std::nullopt;\n",
        "        static_cast<void>(ask(function, device_, arguments..., &value));\n",
        ("nvml: what a GPU does not support is absent",),
    ),
    Mutation(
        "a lost GPU taken for one that tells little", TELEMETRY,
        "        if (status == Status::GpuIsLost || status == Status::ResetRequired) lost_ = true;\n",
        "",
        ("nvml: a GPU that is lost tells only that, and why",),
    ),
    Mutation(
        "a library that is never ended", "cuda/nvml.cpp",
        "    if (started_) static_cast<void>(shut_down_());\n",
        "",
        ("nvml: what was started is ended",),
    ),
    Mutation(
        "events that nobody gives back", TELEMETRY,
        "        if (events_ != nullptr) static_cast<void>(library_->event_set_free(events_));\n",
        "",
        ("nvml: what was started is ended",),
    ),
]

MUTATIONS = ATTENTION_MUTATIONS + KERNEL_MUTATIONS + HOST_MUTATIONS + GRAPH_MUTATIONS + DEVICE_MUTATIONS
