#include "trainctl/bench/comm_bench.h"

#include <fmt/format.h>

#include <cstring>
#include <functional>

#include "trainctl/base/text.h"
#include "trainctl/bench/median.h"

namespace trainctl {
namespace {

// Small integers, so that every sum is exact in f32 and any mistake shows.
float input_value(std::int64_t index, int rank) { return static_cast<float>((index * 7 + rank * 3) % 64); }

float exact_sum(std::int64_t index, int ranks) {
    float sum = 0.0F;
    for (int rank = 0; rank < ranks; ++rank) sum += input_value(index, rank);
    return sum;
}

void fill(TensorView tensor, int rank) {
    for (std::int64_t index = 0; index < tensor.elements(); ++index)
        tensor.as<float>()[index] = input_value(index, rank);
}

// Elements [begin, begin + tensor.elements()) of the whole, as `expected` says.
void verify(TensorView tensor, std::int64_t begin, const char* operation,
            const std::function<float(std::int64_t)>& expected) {
    for (std::int64_t index = 0; index < tensor.elements(); ++index) {
        const float found = tensor.as<float>()[index];
        if (found == expected(begin + index)) continue;
        fail(Exit::Internal, fmt::format("bench comm: {} gave {} at element {}, expected {}", operation,
                                         found, begin + index, expected(begin + index)));
    }
}

class CommBench {
  public:
    CommBench(Rank& rank, Clock& clock, std::int64_t elements, int repetitions)
        : rank_(rank),
          clock_(clock),
          ranks_(rank.world.size()),
          me_(rank.world.rank()),
          part_((elements + ranks_ - 1) / ranks_),
          repetitions_(repetitions),
          memory_(rank.device.allocate(bytes(), Memory::Device, "bench")),
          copy_(rank.device.allocate(bytes(), Memory::Device, "bench")),
          full_(memory_.view(Shape{part_ * ranks_}, DType::F32)),
          mine_(full_.flat(me_ * part_, part_)) {}

    std::vector<CommBenchRow> run() {
        Communicator& all = rank_.world.all();
        Stream& stream = *rank_.communication;
        const double copy_s = median_of([&] { std::memcpy(copy_.data(), memory_.data(), bytes()); });
        const auto sum = [this](std::int64_t index) { return exact_sum(index, ranks_); };
        const auto from_owner = [this](std::int64_t index) {
            return input_value(index, static_cast<int>(index / part_));
        };
        const auto from_root = [](std::int64_t index) { return input_value(index, 0); };

        std::vector<CommBenchRow> rows;
        const auto measure = [&](const char* name, const std::function<void()>& operation, TensorView result,
                                 std::int64_t begin, const std::function<float(std::int64_t)>& expected) {
            const double seconds = median_of([&] {
                operation();
                stream.synchronize();
            });
            verify(result, begin, name, expected);
            rows.push_back({name, static_cast<std::int64_t>(bytes()), seconds,
                            static_cast<double>(bytes()) / seconds, static_cast<double>(bytes()) / copy_s});
        };
        measure(
            "all_reduce", [&] { all.all_reduce(full_, Reduce::Sum, stream); }, full_, 0, sum);
        measure(
            "reduce_scatter", [&] { all.reduce_scatter(mine_, full_, Into::Overwrite, stream); }, mine_,
            me_ * part_, sum);
        measure(
            "all_gather", [&] { all.all_gather(full_, mine_, stream); }, full_, 0, from_owner);
        measure(
            "broadcast", [&] { all.broadcast(full_, 0, stream); }, full_, 0, from_root);
        return rows;
    }

  private:
    [[nodiscard]] std::size_t bytes() const {
        return static_cast<std::size_t>(part_ * ranks_) * sizeof(float);
    }

    // Fresh inputs before every repetition; all ranks start together.
    double median_of(const std::function<void()>& operation) {
        std::vector<double> times;
        for (int repetition = 0; repetition <= repetitions_; ++repetition) {
            fill(full_, me_);
            rank_.world.control().barrier();
            const double began = clock_.monotonic_s();
            operation();
            if (repetition > 0) times.push_back(clock_.monotonic_s() - began);
        }
        return median(times);
    }

    Rank& rank_;
    Clock& clock_;
    int ranks_;
    int me_;
    std::int64_t part_;
    int repetitions_;
    Buffer memory_;
    Buffer copy_;
    TensorView full_;
    TensorView mine_;
};

}  // namespace

std::vector<CommBenchRow> bench_comm(Rank& rank, Clock& clock, const CommBenchOptions& options) {
    std::vector<CommBenchRow> rows;
    for (const std::int64_t elements : options.elements) {
        for (CommBenchRow& row : CommBench(rank, clock, elements, options.repetitions).run())
            rows.push_back(std::move(row));
    }
    return rows;
}

std::string describe(const std::vector<CommBenchRow>& rows, int ranks) {
    std::string text = fmt::format("{}; every result checked\n{:<16} {:>12} {:>12} {:>12} {:>12}\n",
                                   counted(ranks, "rank"), "operation", "bytes", "time", "GB/s", "copy GB/s");
    for (const CommBenchRow& row : rows) {
        text += fmt::format("{:<16} {:>12} {:>12} {:>12.4g} {:>12.4g}\n", row.operation, row.bytes,
                            format_seconds(row.seconds), row.bytes_per_s / 1e9, row.copy_bytes_per_s / 1e9);
    }
    return text;
}

std::string to_json(const std::vector<CommBenchRow>& rows, int ranks) {
    std::string list;
    for (const CommBenchRow& row : rows) {
        list += fmt::format(
            R"({}{{"operation":{},"bytes":{},"seconds":{},"bytes_per_s":{},"copy_bytes_per_s":{}}})",
            list.empty() ? "" : ",", json_quote(row.operation), row.bytes, json_number(row.seconds),
            json_number(row.bytes_per_s), json_number(row.copy_bytes_per_s));
    }
    return fmt::format(R"({{"type":"bench_comm","v":1,"ranks":{},"rows":[{}]}})", ranks, list);
}

}  // namespace trainctl
