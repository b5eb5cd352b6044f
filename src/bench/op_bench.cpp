#include "trainctl/bench/op_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "bench/benched_op.h"
#include "trainctl/base/philox.h"
#include "trainctl/base/text.h"
#include "trainctl/bench/median.h"
#include "trainctl/train/device_peak.h"

namespace trainctl {
namespace {

// Of one run. Runs are measured together until what the host adds to each does not count.
double median_seconds(Rank& rank, Clock& clock, int repetitions, const std::function<void()>& run) {
    constexpr double worth_measuring_s = 2e-3;
    constexpr double most_runs = 200.0;
    const auto seconds_of = [&](int runs) {
        const double began = clock.monotonic_s();
        for (int i = 0; i < runs; ++i) run();
        rank.compute->synchronize();
        return (clock.monotonic_s() - began) / runs;
    };
    seconds_of(1);  // warms up
    const int runs =
        static_cast<int>(std::clamp(worth_measuring_s / std::max(seconds_of(1), 1e-9), 1.0, most_runs));
    std::vector<double> times(static_cast<std::size_t>(repetitions));
    for (double& time : times) time = seconds_of(runs);
    return median(times);
}

// Bytes read and written per second by the device's own elementwise addition, the ceiling of memory-bound
// ops.
double measure_stream(Rank& rank, Clock& clock, std::int64_t elements) {
    const Shape shape{elements};
    const std::size_t bytes = storage_bytes(elements, DType::F32);
    const Buffer a = rank.device.allocate(bytes, Memory::Device, "bench");
    const Buffer b = rank.device.allocate(bytes, Memory::Device, "bench");
    const Buffer y = rank.device.allocate(bytes, Memory::Device, "bench");
    const double seconds = median_seconds(rank, clock, 5, [&] {
        rank.backend->ops().elementwise.add(*rank.compute, y.view(shape, DType::F32),
                                            a.view(shape, DType::F32), b.view(shape, DType::F32));
    });
    return 12.0 * static_cast<double>(elements) / seconds;
}

}  // namespace

TensorView OpWorkspace::zeros(const Shape& shape, DType dtype) {
    const std::size_t bytes = storage_bytes(shape.elements(), dtype);
    buffers_.push_back(rank.device.allocate(bytes, Memory::Device, "bench"));
    return buffers_.back().view(shape, dtype);
}

TensorView OpWorkspace::random(const Shape& shape, DType dtype, double scale) {
    // Contents repeat after a prime number of elements: no two rows or columns in step are alike.
    constexpr std::int64_t period = 1048573;
    const TensorView tensor = zeros(shape, dtype);
    const auto stream = static_cast<std::uint64_t>(buffers_.size());
    const std::int64_t distinct = std::min(period, tensor.elements());
    std::vector<std::byte> contents(tensor.bytes());
    const TensorView host{contents.data(), tensor.shape, dtype};
    for (std::int64_t index = 0; index < distinct; ++index) {
        const std::uint32_t bits = philox4x32(philox_key(7), static_cast<std::uint64_t>(index), stream)[0];
        const auto value = static_cast<float>(scale * (2.0 * philox_uniform(bits) - 1.0));
        if (dtype == DType::BF16) {
            host.as<BFloat16>()[index] = to_bfloat16(value);
        } else if (dtype == DType::F16) {
            host.as<Float16>()[index] = to_float16(value);
        } else {
            host.as<float>()[index] = value;
        }
    }
    const auto repeated = static_cast<std::size_t>(distinct) * dtype_size(dtype);
    for (std::size_t done = repeated; done < contents.size(); done += repeated) {
        std::memcpy(contents.data() + done, contents.data(), std::min(repeated, contents.size() - done));
    }
    upload(tensor, contents.data());
    return tensor;
}

TensorView OpWorkspace::scratch(std::size_t bytes) {
    return zeros(Shape{static_cast<std::int64_t>(bytes)}, DType::U8);
}

void OpWorkspace::upload(const TensorView& to, const void* from) {
    if (memory_ == DeviceMemoryKind::Host) {
        std::memcpy(to.data, from, to.bytes());
        return;
    }
    const Buffer pinned = rank.device.allocate(to.bytes(), Memory::Pinned, "bench");
    std::memcpy(pinned.data(), from, to.bytes());
    rank.device.copy(*rank.compute, to.data, pinned.data(), to.bytes());
    rank.compute->synchronize();
}

TensorView OpWorkspace::on_host(const TensorView& tensor) {
    if (tensor.empty() || memory_ == DeviceMemoryKind::Host) return tensor;
    Buffer& copy = copies_[tensor.data];
    if (copy.bytes() < tensor.bytes()) {
        copy = rank.device.allocate(tensor.bytes(), Memory::Pinned, "bench");
        rank.device.copy(*rank.compute, copy.data(), tensor.data, tensor.bytes());
        rank.compute->synchronize();
    }
    return {copy.data(), tensor.shape, tensor.dtype};
}

double OpWorkspace::value_at(const TensorView& tensor, std::int64_t index) {
    const TensorView host = on_host(tensor);
    if (host.dtype == DType::BF16) return to_float(host.as<BFloat16>()[index]);
    if (host.dtype == DType::F16) return to_float(host.as<Float16>()[index]);
    return host.as<float>()[index];
}

std::vector<std::int64_t> sampled(std::int64_t size, std::int64_t count) {
    std::vector<std::int64_t> places;
    for (std::int64_t index = 0; index < count; ++index) {
        const std::uint32_t bits = philox4x32(philox_key(11), static_cast<std::uint64_t>(index), 0)[0];
        places.push_back(static_cast<std::int64_t>(bits) % size);
    }
    places.front() = 0;
    places.back() = size - 1;
    return places;
}

namespace {

bool wanted(const BenchedOp& one, const std::string& part) {
    return one.name.find(part) != std::string::npos;
}

// Before anything is measured.
void require_wanted(const std::vector<BenchedOp>& cases, const std::string& part) {
    std::vector<std::string> names;
    for (const BenchedOp& one : cases) {
        if (wanted(one, part)) return;
        names.push_back(one.name);
    }
    const auto near = nearest_name(part, names);
    fail(Exit::Usage,
         fmt::format("bench op: expected a part of an op's name, found '{}'; {}ops: {}", part,
                     near ? fmt::format("did you mean {}? ", *near) : "", fmt::join(names, ", ")));
}

}  // namespace

std::vector<OpBenchRow> bench_ops(Rank& rank, Clock& clock, const OpBenchOptions& options) {
    OpWorkspace workspace(rank, options);
    std::vector<BenchedOp> cases;
    add_product_cases(workspace, cases);
    add_streaming_cases(workspace, cases);
    require_wanted(cases, options.only);
    // The better of a measurement before and one after: other work on the machine can only lower a peak.
    double peak_flops = 0.0;
    double peak_bytes = 0.0;
    const auto measure_peaks = [&] {
        peak_flops =
            std::max(peak_flops, measure_peak_flops(rank.device, rank.backend->ops().matmul, *rank.compute,
                                                    options.compute, clock, options.smallest_product));
        peak_bytes = std::max(peak_bytes, measure_stream(rank, clock, options.streamed_elements));
    };
    measure_peaks();
    std::vector<OpBenchRow> rows;
    for (const BenchedOp& one : cases) {
        if (!wanted(one, options.only)) continue;
        OpBenchRow row;
        row.name = one.name;
        row.seconds = median_seconds(rank, clock, options.repetitions, one.run);
        row.flops = one.flops;
        row.bytes = one.bytes;
        row.tolerance = one.tolerance;
        workspace.forget_copies();
        row.worst_error = one.worst_error();
        if (!(row.worst_error <= row.tolerance)) {
            fail(Exit::Internal, fmt::format("bench op: {} is wrong: its error is {:.3g}, allowed are {:.3g}",
                                             row.name, row.worst_error, row.tolerance));
        }
        rows.push_back(row);
    }
    measure_peaks();
    for (OpBenchRow& row : rows)
        row.share_of_ceiling =
            row.flops > 0.0 ? row.flops / row.seconds / peak_flops : row.bytes / row.seconds / peak_bytes;
    return rows;
}

std::string describe(const std::vector<OpBenchRow>& rows) {
    std::string text = fmt::format("{:<44} {:>11} {:>10} {:>9} {:>10}  of the ceiling measured here\n",
                                   "op (every result checked)", "time", "GFLOP/s", "GB/s", "error");
    for (const OpBenchRow& row : rows) {
        text += fmt::format("{:<44} {:>11} {:>10} {:>9} {:>10.1e}  {:.1f} %\n", row.name,
                            format_seconds(row.seconds),
                            row.flops > 0.0 ? fmt::format("{:.4g}", row.flops / row.seconds / 1e9) : "",
                            row.bytes > 0.0 ? fmt::format("{:.4g}", row.bytes / row.seconds / 1e9) : "",
                            row.worst_error, 100.0 * row.share_of_ceiling);
    }
    if (std::any_of(rows.begin(), rows.end(),
                    [](const OpBenchRow& row) { return row.share_of_ceiling > 1.0; }))
        text +=
            "A share above 100 % is no error of the op: its data stayed in the caches, which the ceiling's "
            "do not, or "
            "other work on this machine slowed the ceiling's measurement down.\n";
    return text;
}

std::string to_json(const std::vector<OpBenchRow>& rows) {
    std::string list;
    for (const OpBenchRow& row : rows) {
        list += fmt::format(
            R"({}{{"name":{},"seconds":{},"flops":{},"bytes":{},"worst_error":{},"tolerance":{},"share_of_ceiling":{}}})",
            list.empty() ? "" : ",", json_quote(row.name), json_number(row.seconds), json_number(row.flops),
            json_number(row.bytes), json_number(row.worst_error), json_number(row.tolerance),
            json_number(row.share_of_ceiling));
    }
    return fmt::format(R"({{"type":"bench_op","v":1,"rows":[{}]}})", list);
}

}  // namespace trainctl
