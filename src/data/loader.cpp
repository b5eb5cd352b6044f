#include "trainctl/data/loader.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "data/prefetch_queue.h"
#include "trainctl/base/error.h"

namespace trainctl {

using data_detail::PrefetchQueue;
using data_detail::Slot;

void check_layout(const BatchLayout& layout) {
    const std::int64_t chunk = layout.ranks * layout.micro_batch;
    if (layout.ranks >= 1 && layout.rank >= 0 && layout.rank < layout.ranks && layout.micro_batch >= 1 &&
        layout.global_batch >= 1 && layout.global_batch % chunk == 0) {
        return;
    }
    fail(Exit::Usage,
         fmt::format("training.global_batch_size {} must be a multiple of data-parallel ranks {} x "
                     "training.micro_batch_size {} = {} (this is rank {}). Change one of the three",
                     layout.global_batch, layout.ranks, layout.micro_batch, chunk, layout.rank));
}

std::uint64_t loader_bytes(const BatchLayout& layout, std::int64_t sequence_length,
                           const LoaderOptions& options) {
    const std::int64_t slots = options.prefetch_batches * layout.micro_batches() + 1;
    return static_cast<std::uint64_t>(slots * layout.micro_batch * (sequence_length + 1)) *
           sizeof(std::int32_t);
}

struct Loader::Impl {
    Impl(const SampleStream& stream_in, const BatchLayout& layout_in, const LoaderOptions& options,
         Clock& clock_in)
        : stream(stream_in), layout(layout_in), clock(clock_in), width(stream.sequence_length() + 1) {
        check_layout(layout);
        const auto slot_ids = static_cast<std::size_t>(layout.micro_batch * width);
        direct.ids.resize(slot_ids);
        const std::int64_t slots = options.prefetch_batches * layout.micro_batches();
        if (slots > 0) {
            queue =
                std::make_unique<PrefetchQueue>(static_cast<std::size_t>(slots), slot_ids,
                                                [this](std::int64_t item, Slot& slot) { fill(item, slot); });
        }
    }

    // Micro-batches in reading order: item = step x micro-batches per step + micro.
    void fill(std::int64_t item, Slot& slot) const {
        const std::int64_t micros = layout.micro_batches();
        const std::int64_t first = layout.first_sample(item / micros, item % micros);
        const std::optional<std::int64_t> size = stream.samples();
        slot.rows =
            size ? std::clamp<std::int64_t>(*size - first, 0, layout.micro_batch) : layout.micro_batch;
        for (std::int64_t row = 0; row < slot.rows; ++row) {
            // A large micro-batch on a slow disk takes minutes, and nobody wants it any more.
            if (ending.load(std::memory_order_relaxed)) return;
            stream.read(first + row, std::span(slot.ids).subspan(static_cast<std::size_t>(row * width),
                                                                 static_cast<std::size_t>(width)));
        }
    }

    void copy_out(const Slot& slot, const TensorView& tokens, const TensorView& targets) const {
        const std::int64_t length = width - 1;
        for (std::int64_t row = 0; row < layout.micro_batch; ++row) {
            auto* token = tokens.as<std::int32_t>() + row * length;
            auto* target = targets.as<std::int32_t>() + row * length;
            if (row < slot.rows) {
                const std::int32_t* window = slot.ids.data() + row * width;
                std::copy_n(window, length, token);
                std::copy_n(window + 1, length, target);
            } else {
                std::fill_n(token, length, 0);
                std::fill_n(target, length, -1);
            }
        }
    }

    const SampleStream& stream;
    const BatchLayout layout;
    Clock& clock;
    const std::int64_t width;  // T + 1
    std::atomic<bool> ending{false};
    double waited = 0.0;
    Slot direct;                           // without a thread
    std::unique_ptr<PrefetchQueue> queue;  // last: its thread uses what is above
};

Loader::Loader(const SampleStream& stream, const BatchLayout& layout, const LoaderOptions& options,
               Clock& clock)
    : impl_(std::make_unique<Impl>(stream, layout, options, clock)) {}

Loader::~Loader() { impl_->ending.store(true, std::memory_order_relaxed); }

Batch Loader::batch(std::int64_t step, std::int64_t micro, TensorView tokens, TensorView targets) {
    return *batch_unless({}, step, micro, tokens, targets);
}

std::optional<Batch> Loader::batch_unless(const std::function<bool()>& stop, std::int64_t step,
                                          std::int64_t micro, TensorView tokens, TensorView targets) {
    const BatchLayout& layout = impl_->layout;
    invariant(step >= 0 && micro >= 0 && micro < layout.micro_batches(), "Loader: no such micro-batch");
    const Shape expected{layout.micro_batch, impl_->width - 1};
    for (const TensorView& view : {tokens, targets}) {
        invariant(view.dtype == DType::I32 && view.shape == expected,
                  "Loader: tokens and targets are I32 [b, T]");
    }
    const std::int64_t item = step * layout.micro_batches() + micro;
    const double begin = impl_->clock.monotonic_s();
    const Slot* slot = &impl_->direct;
    if (impl_->queue) {
        slot = impl_->queue->take(item, stop);
    } else {
        impl_->fill(item, impl_->direct);
    }
    impl_->waited += impl_->clock.monotonic_s() - begin;
    if (slot == nullptr) return std::nullopt;
    impl_->copy_out(*slot, tokens, targets);
    const std::int64_t rows = slot->rows;
    if (impl_->queue) impl_->queue->release();
    return Batch{layout.first_sample(step, micro), rows};
}

bool Loader::await_step(const std::function<bool()>& stop, std::int64_t step) {
    if (!impl_->queue) return true;
    const std::int64_t micros = impl_->layout.micro_batches();
    const double begin = impl_->clock.monotonic_s();
    const bool there = impl_->queue->await(step * micros, static_cast<std::size_t>(micros), stop);
    impl_->waited += impl_->clock.monotonic_s() - begin;
    return there;
}

std::optional<std::int64_t> Loader::batches() const {
    const std::optional<std::int64_t> samples = impl_->stream.samples();
    if (!samples) return std::nullopt;
    return (*samples + impl_->layout.global_batch - 1) / impl_->layout.global_batch;
}

const BatchLayout& Loader::layout() const { return impl_->layout; }

double Loader::waited_s() const { return impl_->waited; }

}  // namespace trainctl
