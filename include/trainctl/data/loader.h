// Batches for one data-parallel rank. Global batch s is samples [s G, (s + 1) G) whatever the number of
// ranks, the micro-batch size or the ZeRO stage; rank r owns the r-th of D equal contiguous parts and
// micro-batch m the m-th run of b samples of that part.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "trainctl/base/clock.h"
#include "trainctl/data/sample_stream.h"
#include "trainctl/tensor/tensor_view.h"

namespace trainctl {

struct BatchLayout {
    std::int64_t global_batch = 0;  // G samples
    std::int64_t micro_batch = 0;   // b samples
    std::int64_t ranks = 1;         // D, data-parallel size
    std::int64_t rank = 0;          // data-parallel rank

    // G / (D b). check_layout() guarantees that it is exact.
    [[nodiscard]] std::int64_t micro_batches() const { return global_batch / (ranks * micro_batch); }
    // Number of the first of the b consecutive samples of micro-batch `micro` of global batch `step` (from
    // 0).
    [[nodiscard]] std::int64_t first_sample(std::int64_t step, std::int64_t micro) const {
        return step * global_batch + rank * (global_batch / ranks) + micro * micro_batch;
    }
};

// Exit::Usage with the numbers unless 0 <= rank < ranks and G is a positive multiple of ranks x micro-batch.
void check_layout(const BatchLayout& layout);

struct Batch {
    std::int64_t first_sample = 0;  // rows are samples first_sample, first_sample + 1, ...
    std::int64_t rows = 0;          // real samples, in front; b except at the end of a finite stream
};

struct LoaderOptions {
    std::int64_t prefetch_batches = 2;  // global batches read ahead by a thread of the loader; 0: no thread
};

// (prefetch_batches x micro_batches + 1) x b x (T + 1) x 4: what a loader of these options holds.
std::uint64_t loader_bytes(const BatchLayout& layout, std::int64_t sequence_length,
                           const LoaderOptions& options);

// Thread rule: one consumer thread. All memory, loader_bytes(), is taken at construction. `stream` and
// `clock` must outlive the loader.
class Loader {
  public:
    Loader(const SampleStream& stream, const BatchLayout& layout, const LoaderOptions& options, Clock& clock);
    ~Loader();  // stops the thread, also in the middle of waiting or between two samples of a batch
    Loader(const Loader&) = delete;
    Loader& operator=(const Loader&) = delete;

    // Fills tokens and targets, each I32 [b, T] in host memory, with micro-batch `micro` of global batch
    // `step` (from 0). Rows beyond Batch::rows have token 0 and target -1 (ignored). Calls in order are
    // served from the read-ahead; any other place is a seek. Errors of reading, also those of the thread, are
    // thrown here.
    Batch batch(std::int64_t step, std::int64_t micro, TensorView tokens, TensorView targets);

    // As batch(), but asks `stop` while waiting (at least every 50 ms); nullopt if it said so before the data
    // came.
    std::optional<Batch> batch_unless(const std::function<bool()>& stop, std::int64_t step,
                                      std::int64_t micro, TensorView tokens, TensorView targets);

    // Waits until all of this rank's micro-batches of `step` are read ahead: what cannot be read is thrown
    // here, before a step that all ranks must finish. false: `stop`, asked as above, said so first. Without a
    // thread nothing is read ahead, and the answer is true.
    bool await_step(const std::function<bool()>& stop, std::int64_t step);

    // Global batches of a finite stream, the last one possibly short; nullopt: endless.
    [[nodiscard]] std::optional<std::int64_t> batches() const;
    [[nodiscard]] const BatchLayout& layout() const;
    // Seconds that the consumer spent waiting for data (without a thread: reading it) since construction.
    [[nodiscard]] double waited_s() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace trainctl
