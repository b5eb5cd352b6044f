#include "ops/cpu/onednn.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "trainctl/base/error.h"

namespace trainctl::cpu {
namespace {

using Memory = dnnl::memory;

// oneDNN takes its number of threads from the calling thread's OpenMP setting, which several ranks of one
// process have each for themselves.
class ThreadCount {
  public:
    explicit ThreadCount(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
    ~ThreadCount() { omp_set_num_threads(before_); }
    ThreadCount(const ThreadCount&) = delete;
    ThreadCount& operator=(const ThreadCount&) = delete;

  private:
    int before_;
};

Memory::data_type data_type(DType dtype) {
    return dtype == DType::BF16 ? Memory::data_type::bf16 : Memory::data_type::f32;
}

std::size_t lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

std::int64_t divide_up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

Memory::dims strides(bool transposed, std::int64_t stride) {
    return transposed ? Memory::dims{1, stride} : Memory::dims{stride, 1};
}

// With AMX, this many threads and so long an inner dimension oneDNN 2.6 may share the latter out, and the
// bits follow. (Shorter ones must not be cut: the pieces of transposed products would round differently.)
constexpr int amx_threads_that_split = 16;
constexpr std::int64_t amx_length_that_splits = 1024;

}  // namespace

bool onednn_has_amx() { return dnnl::get_effective_cpu_isa() == dnnl::cpu_isa::avx512_core_amx; }

bool onednn_has_bf16() {
    return dnnl::get_effective_cpu_isa() == dnnl::cpu_isa::avx512_core_bf16 || onednn_has_amx();
}

struct ProductCache::Entry {
    dnnl::matmul::primitive_desc description;
    std::size_t pad_bytes = 0;
    dnnl::matmul primitive;  // made at the first use
};

// Rows x columns of pieces; all but the last of each have the same size.
struct ProductCache::Grid {
    std::int64_t piece_m = 0;
    std::int64_t piece_n = 0;
    std::int64_t rows = 0;
    std::int64_t columns = 0;

    [[nodiscard]] bool empty() const { return rows * columns == 0; }
    [[nodiscard]] Product piece(const Product& whole, std::int64_t row, std::int64_t column) const {
        Product product = whole;
        product.m = std::min(piece_m, whole.m - row * piece_m);
        product.n = std::min(piece_n, whole.n - column * piece_n);
        return product;
    }
};

ProductCache::ProductCache(int threads) : threads_(threads), engine_(dnnl::engine::kind::cpu, 0) {}

ProductCache::~ProductCache() = default;

ProductCache::Grid ProductCache::grid(const Product& p) const {
    if (threads_ < amx_threads_that_split || p.k < amx_length_that_splits) return {};
    if (p.in != DType::BF16 || !onednn_has_amx()) return {};
    constexpr std::int64_t grain = 64;
    Grid grid;
    grid.piece_n = divide_up(divide_up(p.n, threads_), grain) * grain;
    grid.columns = divide_up(p.n, grid.piece_n);
    grid.piece_m = divide_up(divide_up(p.m, divide_up(threads_, grid.columns)), grain) * grain;
    grid.rows = divide_up(p.m, grid.piece_m);
    return grid;
}

// Called with the mutex held.
ProductCache::Entry& ProductCache::entry(const Product& p, int threads) {
    std::unique_ptr<Entry>& slot = entries_[p];
    if (slot) return *slot;
    const ThreadCount count(threads);
    const auto in = data_type(p.in);
    const Memory::desc a({p.m, p.k}, in, strides(p.a_transposed, p.a_stride));
    const Memory::desc b({p.k, p.n}, in, strides(p.b_transposed, p.b_stride));
    const Memory::desc out({p.m, p.n}, data_type(p.out), strides(false, p.out_stride));
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (p.accumulate) {
        dnnl::post_ops sum;
        sum.append_sum(1.0F);
        attributes.set_post_ops(sum);
    }
    auto made = std::make_unique<Entry>();
    try {
        if (p.bias) {
            const Memory::desc bias({1, p.n}, in, Memory::dims{p.n, 1});
            made->description = {dnnl::matmul::desc(a, b, bias, out), attributes, engine_};
        } else {
            made->description = {dnnl::matmul::desc(a, b, out), attributes, engine_};
        }
    } catch (const dnnl::error& error) {
        entries_.erase(p);
        fail(Exit::Internal,
             fmt::format("oneDNN has no product of {} x {} x {} in {} ({}); report this as a defect", p.m,
                         p.n, p.k, dtype_name(p.in), error.what()));
    }
    made->pad_bytes = lines(made->description.scratchpad_desc().get_size());
    slot = std::move(made);
    return *slot;
}

std::size_t ProductCache::scratch_bytes(const Product& product) {
    if (product.m == 0 || product.n == 0) return 0;
    const std::lock_guard lock(mutex_);
    const Grid parts = grid(product);
    if (parts.empty()) return entry(product, threads_).pad_bytes;
    std::size_t most = 0;
    for (const std::int64_t row : {std::int64_t{0}, parts.rows - 1}) {
        for (const std::int64_t column : {std::int64_t{0}, parts.columns - 1}) {
            most = std::max(most, entry(parts.piece(product, row, column), 1).pad_bytes);
        }
    }
    return most * static_cast<std::size_t>(threads_);
}

void ProductCache::execute(Entry& entry, const Product& product, const ProductOperands& operands,
                           std::byte* scratch) const {
    const auto& description = entry.description;
    const auto memory = [&](const Memory::desc& desc, const std::byte* data) {
        return Memory(desc, engine_, const_cast<std::byte*>(data));
    };
    std::unordered_map<int, Memory> arguments = {
        {DNNL_ARG_SRC, memory(description.src_desc(), operands.a)},
        {DNNL_ARG_WEIGHTS, memory(description.weights_desc(), operands.b)},
        {DNNL_ARG_DST, memory(description.dst_desc(), operands.out)},
        {DNNL_ARG_SCRATCHPAD, memory(description.scratchpad_desc(), scratch)}};
    if (product.bias) arguments.emplace(DNNL_ARG_BIAS, memory(description.bias_desc(), operands.bias));
    dnnl::stream stream(engine_);
    entry.primitive.execute(stream, arguments);
    stream.wait();
}

void ProductCache::run(const Product& product, const ProductOperands& operands, std::byte* scratch) {
    if (product.m == 0 || product.n == 0) return;
    const std::lock_guard lock(mutex_);
    const Grid parts = grid(product);
    if (!parts.empty()) {
        run_grid(parts, product, operands, scratch);
        return;
    }
    const ThreadCount count(threads_);
    Entry& cached = entry(product, threads_);
    if (!cached.primitive) cached.primitive = dnnl::matmul(cached.description);
    execute(cached, product, operands, scratch);
}

// Pieces of the output, each a product of its own by one thread: the inner dimension stays whole.
void ProductCache::run_grid(const Grid& parts, const Product& product, const ProductOperands& operands,
                            std::byte* scratch) {
    std::vector<Entry*> entries;
    std::size_t pad = 0;
    for (std::int64_t i = 0; i < parts.rows * parts.columns; ++i) {
        Entry& cached = entry(parts.piece(product, i / parts.columns, i % parts.columns), 1);
        if (!cached.primitive) {
            const ThreadCount one(1);
            cached.primitive = dnnl::matmul(cached.description);
        }
        pad = std::max(pad, cached.pad_bytes);
        entries.push_back(&cached);
    }
    const auto in_bytes = static_cast<std::int64_t>(dtype_size(product.in));
    const auto out_bytes = static_cast<std::int64_t>(dtype_size(product.out));
#pragma omp parallel for num_threads(threads_) schedule(static)
    for (std::int64_t i = 0; i < parts.rows * parts.columns; ++i) {
        const std::int64_t row = i / parts.columns * parts.piece_m;
        const std::int64_t column = i % parts.columns * parts.piece_n;
        ProductOperands part = operands;
        part.out += (row * product.out_stride + column) * out_bytes;
        part.a += (product.a_transposed ? row : row * product.a_stride) * in_bytes;
        part.b += (product.b_transposed ? column * product.b_stride : column) * in_bytes;
        if (product.bias) part.bias += column * in_bytes;
        execute(*entries[static_cast<std::size_t>(i)],
                parts.piece(product, i / parts.columns, i % parts.columns), part,
                scratch + static_cast<std::size_t>(omp_get_thread_num()) * pad);
    }
}

}  // namespace trainctl::cpu
