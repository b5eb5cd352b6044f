#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "data_fixture.h"
#include "support/catch.h"
#include "trainctl/base/clock.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

constexpr std::int64_t length = 4;  // T

// Sample s is the ids s * 100, s * 100 + 1, ... so that each row says which sample it is.
class NumberedStream : public SampleStream {
  public:
    explicit NumberedStream(std::optional<std::int64_t> samples = std::nullopt) : samples_(samples) {}
    [[nodiscard]] std::int64_t sequence_length() const override { return length; }
    [[nodiscard]] std::optional<std::int64_t> samples() const override { return samples_; }
    void read(std::int64_t sample, std::span<std::int32_t> window) const override {
        for (std::size_t i = 0; i < window.size(); ++i)
            window[i] = static_cast<std::int32_t>(sample * 100 + static_cast<std::int64_t>(i));
    }

  private:
    std::optional<std::int64_t> samples_;
};

// read() waits until open() was called; fails for one sample as often as told.
class GatedStream final : public NumberedStream {
  public:
    using NumberedStream::NumberedStream;
    void read(std::int64_t sample, std::span<std::int32_t> window) const override {
        while (!open_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        ++reads_;
        if (sample == bad_sample_ && failures_-- > 0)
            fail(Exit::BadInput, "sample " + std::to_string(sample) + " is bad");
        NumberedStream::read(sample, window);
    }
    mutable std::atomic<bool> open_{true};
    mutable std::atomic<int> reads_{0};
    mutable std::atomic<int> failures_{0};
    std::atomic<std::int64_t> bad_sample_{-1};
};

// Sample numbers of one global batch in order of rank, micro-batch and row.
std::vector<std::int64_t> global_batch(const SampleStream& stream, std::int64_t step, BatchLayout layout,
                                       std::int64_t prefetch) {
    SystemClock clock;
    std::vector<std::int64_t> samples;
    for (layout.rank = 0; layout.rank < layout.ranks; ++layout.rank) {
        Loader loader(stream, layout, {prefetch}, clock);
        for (std::int64_t micro = 0; micro < layout.micro_batches(); ++micro) {
            BatchMemory memory(layout.micro_batch, length);
            const Batch batch = loader.batch(step, micro, memory.tokens(), memory.targets());
            for (std::int64_t row = 0; row < batch.rows; ++row) {
                const std::int32_t* tokens = memory.token_ids.data() + row * length;
                const std::int32_t* targets = memory.target_ids.data() + row * length;
                const std::int64_t sample = tokens[0] / 100;
                samples.push_back(sample);
                if (sample != batch.first_sample + row) return {};
                for (std::int64_t i = 0; i < length; ++i) {
                    if (tokens[i] != sample * 100 + i || targets[i] != sample * 100 + i + 1) return {};
                }
            }
        }
    }
    return samples;
}

}  // namespace

TEST_CASE("the global batch is the same for any ranks and micro-batch size", "[threads]") {
    const NumberedStream stream;
    for (const std::int64_t step : {0, 1, 7}) {
        for (const std::int64_t ranks : {1, 2, 3, 4}) {
            for (const std::int64_t micro : {1, 2, 4}) {
                for (const std::int64_t prefetch : {0, 1, 3}) {
                    REQUIRE(global_batch(stream, step, {48, micro, ranks, 0}, prefetch) ==
                            counting<std::int64_t>(48, step * 48));
                }
            }
        }
    }
}

TEST_CASE("layouts that do not divide the batch are refused with the numbers") {
    for (const BatchLayout layout :
         {BatchLayout{10, 3, 1, 0}, BatchLayout{8, 2, 3, 0}, BatchLayout{4, 1, 8, 0}, BatchLayout{0, 1, 1, 0},
          BatchLayout{8, 0, 1, 0}, BatchLayout{8, 1, 2, 2}}) {
        REQUIRE(thrown_by([&] { check_layout(layout); }).code == Exit::Usage);
    }
    REQUIRE_NOTHROW(check_layout({48, 4, 3, 2}));
}

TEST_CASE("known failures 6, 7, 9, 12, 13: a resumed run reads on where it stopped, whatever the layout",
          "[threads]") {
    MemoryFileSystem disk;
    // Three shards, the stop lies in the second; one epoch is 24 windows.
    for (int f = 0; f < 3; ++f) put_counting(disk, "shard_" + std::to_string(f), 8 * length + 1, f * 1000);
    DataSpec data = counting_data({{"shard_*", 1.0}});
    const Corpus corpus(disk, data, {length, 10'000, 42});
    SystemClock clock;
    const auto first_ids = [&](std::int64_t from, std::int64_t to, BatchLayout layout) {
        std::vector<std::vector<std::int32_t>> ids;  // per step, in order of samples
        const Corpus reopened(disk, data, {length, 10'000, 42});
        for (std::int64_t step = from; step < to; ++step) ids.emplace_back();
        for (layout.rank = 0; layout.rank < layout.ranks; ++layout.rank) {
            Loader loader(reopened.train(), layout, {2}, clock);
            BatchMemory memory(layout.micro_batch, length);
            for (std::int64_t step = from; step < to; ++step) {
                for (std::int64_t micro = 0; micro < layout.micro_batches(); ++micro) {
                    loader.batch(step, micro, memory.tokens(), memory.targets());
                    for (std::int64_t row = 0; row < layout.micro_batch; ++row) {
                        ids[static_cast<std::size_t>(step - from)].push_back(
                            memory.token_ids[static_cast<std::size_t>(row * length)]);
                    }
                }
            }
        }
        return ids;
    };
    const auto straight = first_ids(0, 5, {12, 2, 1, 0});
    // Two steps are one epoch: nothing repeats and nothing is left out.
    std::set<std::int32_t> epoch(straight[0].begin(), straight[0].end());
    epoch.insert(straight[1].begin(), straight[1].end());
    REQUIRE(epoch.size() == 24);
    REQUIRE(straight[0] != straight[2]);
    for (const std::int64_t stop : {1, 2, 3}) {
        for (const BatchLayout after :
             {BatchLayout{12, 2, 1, 0}, BatchLayout{12, 4, 1, 0}, BatchLayout{12, 1, 1, 0},
              BatchLayout{12, 2, 3, 0}, BatchLayout{12, 3, 4, 0}, BatchLayout{12, 1, 6, 0}}) {
            auto segments = first_ids(0, stop, {12, 2, 2, 0});
            for (auto& step : first_ids(stop, 5, after)) segments.push_back(step);
            REQUIRE(segments == straight);
        }
    }
}

TEST_CASE("reading ahead, seeking and reading directly give the same batches", "[threads]") {
    const NumberedStream stream;
    const BatchLayout layout{8, 2, 2, 1};
    SystemClock clock;
    Loader direct(stream, layout, {0}, clock);
    Loader ahead(stream, layout, {2}, clock);
    BatchMemory a(2, length), b(2, length);
    const std::vector<std::pair<std::int64_t, std::int64_t>> places = {
        {0, 0}, {0, 1}, {1, 0}, {1, 1}, {9, 0}, {9, 1}, {3, 1}, {4, 0}, {4, 0}, {4, 1}, {0, 0}, {1000000, 1}};
    for (const auto& [step, micro] : places) {
        const Batch from_a = direct.batch(step, micro, a.tokens(), a.targets());
        const Batch from_b = ahead.batch(step, micro, b.tokens(), b.targets());
        REQUIRE(from_a.first_sample == from_b.first_sample);
        REQUIRE(a.token_ids == b.token_ids);
        REQUIRE(a.target_ids == b.target_ids);
        REQUIRE(a.token_ids[0] == static_cast<std::int32_t>((step * 8 + 4 + micro * 2) * 100));
    }
    REQUIRE(ahead.waited_s() >= 0.0);
    REQUIRE(direct.waited_s() > 0.0);
}

TEST_CASE("a validation set of any size is read once, short batches are marked and padded", "[threads]") {
    for (const std::int64_t samples : {0, 1, 3, 5, 12, 13, 24}) {
        const NumberedStream stream(samples);
        std::vector<std::int64_t> read;
        const std::int64_t steps = (samples + 11) / 12;
        for (std::int64_t step = 0; step < steps; ++step) {
            for (const std::int64_t sample : global_batch(stream, step, {12, 2, 3, 0}, 1))
                read.push_back(sample);
        }
        REQUIRE(read == counting<std::int64_t>(samples));
        SystemClock clock;
        Loader loader(stream, {12, 2, 3, 1}, {1}, clock);
        REQUIRE(loader.batches() == steps);
        // The second rank's first micro-batch is samples 4 and 5; rows behind the end are ignored by the
        // loss.
        BatchMemory memory(2, length);
        const Batch batch = loader.batch(0, 0, memory.tokens(), memory.targets());
        REQUIRE(batch.first_sample == 4);
        REQUIRE(batch.rows == std::clamp<std::int64_t>(samples - 4, 0, 2));
        for (std::int64_t row = batch.rows; row < 2; ++row) {
            REQUIRE(memory.token_ids[static_cast<std::size_t>(row * length)] == 0);
            REQUIRE(memory.target_ids[static_cast<std::size_t>(row * length)] == -1);
        }
        // Reading past the end is an empty batch, and the set can be read again.
        REQUIRE(loader.batch(steps + 3, 0, memory.tokens(), memory.targets()).rows == 0);
        REQUIRE(loader.batch(0, 0, memory.tokens(), memory.targets()).rows == batch.rows);
    }
}

TEST_CASE("an error of the thread is thrown for its own batch, and can be passed", "[threads]") {
    GatedStream stream;
    stream.bad_sample_ = 5;
    stream.failures_ = 1;
    SystemClock clock;
    Loader loader(stream, {2, 2, 1, 0}, {3}, clock);
    BatchMemory memory(2, length);
    loader.batch(0, 0, memory.tokens(), memory.targets());
    loader.batch(1, 0, memory.tokens(), memory.targets());
    const Thrown thrown = thrown_by([&] { loader.batch(2, 0, memory.tokens(), memory.targets()); });
    REQUIRE(thrown.code == Exit::BadInput);
    REQUIRE(contains(thrown.text, "sample 5 is bad"));
    // The fault was a passing one: asking again works, and so does any other place, also the one before.
    loader.batch(1, 0, memory.tokens(), memory.targets());
    REQUIRE(memory.token_ids[0] == 200);
    loader.batch(2, 0, memory.tokens(), memory.targets());
    REQUIRE(memory.token_ids[0] == 400);
    loader.batch(3, 0, memory.tokens(), memory.targets());
    REQUIRE(memory.token_ids[0] == 600);
}

TEST_CASE("an error anywhere in a step is thrown before its first micro-batch is taken", "[threads]") {
    GatedStream stream;
    stream.bad_sample_ = 7;  // the last micro-batch of step 0
    stream.failures_ = 1;
    SystemClock clock;
    Loader loader(stream, {8, 2, 1, 0}, {1}, clock);
    BatchMemory memory(2, length);
    REQUIRE(contains(thrown_by([&] { loader.await_step({}, 0); }).text, "sample 7 is bad"));
    REQUIRE(loader.await_step({}, 0));  // a passing fault
    for (const std::int64_t micro : {0, 1, 2, 3}) {
        REQUIRE(loader.batch(0, micro, memory.tokens(), memory.targets()).first_sample == 2 * micro);
        REQUIRE(memory.token_ids[0] == 200 * micro);
    }
    stream.bad_sample_ = 16;  // of step 2: no matter for step 1
    stream.failures_ = 1;
    REQUIRE(loader.await_step({}, 1));
}

TEST_CASE("waiting for data ends when asked to stop, and the loader ends in the middle of anything",
          "[threads]") {
    GatedStream stream;
    stream.open_ = false;
    SystemClock clock;
    {
        Loader loader(stream, {4, 2, 1, 0}, {2}, clock);
        BatchMemory memory(2, length);
        int asked = 0;
        REQUIRE_FALSE(
            loader.batch_unless([&] { return ++asked > 2; }, 0, 0, memory.tokens(), memory.targets()));
        REQUIRE(loader.waited_s() > 0.05);
        stream.open_ = true;
        REQUIRE(loader.batch_unless([] { return false; }, 0, 0, memory.tokens(), memory.targets())
                    ->first_sample == 0);
    }  // the thread waits for a free slot or is reading
    { const Loader never_used(stream, {4, 2, 1, 0}, {2}, clock); }
    {
        Loader full(stream, {4, 2, 1, 0}, {1}, clock);
        BatchMemory memory(2, length);
        full.batch(0, 0, memory.tokens(), memory.targets());
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

TEST_CASE("a loader ends in the middle of a micro-batch that would take minutes", "[threads]") {
    const struct SlowStream final : SampleStream {
        [[nodiscard]] std::int64_t sequence_length() const override { return length; }
        [[nodiscard]] std::optional<std::int64_t> samples() const override { return std::nullopt; }
        void read(std::int64_t /*sample*/, std::span<std::int32_t> /*window*/) const override {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    } slow;
    SystemClock clock;
    const double began = clock.monotonic_s();
    {
        Loader loader(slow, {100'000, 100'000, 1, 0}, {1}, clock);
        REQUIRE_FALSE(loader.await_step([] { return true; }, 0));
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    REQUIRE(clock.monotonic_s() - began < 10.0);
}

TEST_CASE("no more is read ahead than was asked for", "[threads]") {
    const GatedStream stream;
    SystemClock clock;
    Loader loader(stream, {8, 2, 1, 0}, {2}, clock);  // 4 micro-batches per step: 8 slots of 2 samples
    BatchMemory memory(2, length);
    loader.batch(0, 0, memory.tokens(), memory.targets());
    for (int i = 0; i < 200 && stream.reads_ < 18; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    REQUIRE(stream.reads_ == 18);
}

TEST_CASE("ids beyond the vocabulary stop the batch that holds them, naming file and byte", "[threads]") {
    MemoryFileSystem disk;
    auto ids = counting<std::uint32_t>(40'000 * length + 1, 0);
    for (auto& id : ids) id %= 97;
    ids[length * 30'001 + 2] = 97;  // none of the places that opening looks at
    disk.put("a.bin", raw(ids));
    const Corpus corpus(disk, counting_data({{"a.bin", 1.0}}), {length, 97, 1});
    SystemClock clock;
    Loader loader(corpus.train(), {100, 50, 1, 0}, {2}, clock);
    BatchMemory memory(50, length);
    const Thrown thrown = thrown_by([&] {
        for (std::int64_t step = 0; step < 400; ++step) {
            for (std::int64_t micro = 0; micro < 2; ++micro)
                loader.batch(step, micro, memory.tokens(), memory.targets());
        }
    });
    REQUIRE(thrown.code == Exit::BadInput);
    REQUIRE(contains(thrown.text, "a.bin: token 120006 at byte 480024 has id 97"));
}
