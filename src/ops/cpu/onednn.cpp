#include "ops/cpu/onednn.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <unordered_map>

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

Memory::dims strides(bool transposed, std::int64_t stride) {
    return transposed ? Memory::dims{1, stride} : Memory::dims{stride, 1};
}

// With AMX, 16 threads and so long an inner dimension oneDNN 2.6 may share the latter out, and the bits
// follow. (Cutting the output into pieces for single threads does not help: pieces of another shape round
// differently.)
constexpr int amx_threads = 15;
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

ProductCache::ProductCache(int threads)
    : threads_(threads), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

ProductCache::~ProductCache() = default;

int ProductCache::threads_for(const Product& p) const {
    const bool splits = p.k >= amx_length_that_splits && p.in == DType::BF16 && onednn_has_amx();
    return splits ? std::min(threads_, amx_threads) : threads_;
}

// Called with the mutex held.
ProductCache::Entry& ProductCache::entry(const Product& p) {
    std::unique_ptr<Entry>& slot = entries_[p];
    if (slot) return *slot;
    const ThreadCount count(threads_for(p));
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
    return entry(product).pad_bytes;
}

void ProductCache::run(const Product& product, const ProductOperands& operands, std::byte* scratch) {
    if (product.m == 0 || product.n == 0) return;
    const std::lock_guard lock(mutex_);
    const ThreadCount count(threads_for(product));
    Entry& cached = entry(product);
    if (!cached.primitive) cached.primitive = dnnl::matmul(cached.description);
    const auto& description = cached.description;
    const auto memory = [&](const Memory::desc& desc, const std::byte* data) {
        return Memory(desc, engine_, const_cast<std::byte*>(data));
    };
    std::unordered_map<int, Memory> arguments = {
        {DNNL_ARG_SRC, memory(description.src_desc(), operands.a)},
        {DNNL_ARG_WEIGHTS, memory(description.weights_desc(), operands.b)},
        {DNNL_ARG_DST, memory(description.dst_desc(), operands.out)},
        {DNNL_ARG_SCRATCHPAD, memory(description.scratchpad_desc(), scratch)}};
    if (product.bias) arguments.emplace(DNNL_ARG_BIAS, memory(description.bias_desc(), operands.bias));
    cached.primitive.execute(stream_, arguments);
    stream_.wait();
}

}  // namespace trainctl::cpu
