#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "comm/collective_program.h"
#include "comm/combine.h"
#include "support/catch.h"
#include "support/run_ranks.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

struct Lane {
    explicit Lane(CpuDevice& device) : stream(device.make_stream("comm", StreamRole::Communication)) {}
    std::unique_ptr<Stream> stream;
};

// A tensor with values that rounding depends on: their sum differs with the order of addition.
float awkward(int rank, std::int64_t i) {
    return std::ldexp(1.0F + 1e-3F * static_cast<float>(i % 997), (rank * 7 + static_cast<int>(i % 5)) % 24) *
           (i % 2 == 0 ? 1.0F : -1.0F);
}

}  // namespace

TEST_CASE("sums are added in rank order, with the same bits for any chunk", "[threads]") {
    constexpr int ranks = 4;
    constexpr std::int64_t part = 1237;
    const auto run = [&](const CommTuning& tuning) {
        RankOptions options;
        options.world.tuning = tuning;
        return collect_ranks<std::vector<float>>(
            ranks,
            [&](World& world, CpuDevice& device) {
                const Lane lane(device);
                const Buffer full = device.allocate(part * ranks * 4, Memory::Device, "full");
                const Buffer shard = device.allocate(part * 4, Memory::Device, "shard");
                auto* values = reinterpret_cast<float*>(full.data());
                for (std::int64_t i = 0; i < part * ranks; ++i) values[i] = awkward(world.rank(), i);
                const TensorView whole = full.view(Shape{part * ranks}, DType::F32);
                const TensorView own = shard.view(Shape{part}, DType::F32);
                world.all().reduce_scatter(own, whole, Into::Overwrite, *lane.stream);
                world.all().all_reduce(whole, Reduce::Sum, *lane.stream);
                lane.stream->synchronize();
                std::vector<float> result(values, values + part * ranks);
                if (std::memcmp(own.data, values + world.rank() * part, part * 4) != 0) result.clear();
                return result;
            },
            options);
    };
    std::vector<float> expected(part * ranks);
    for (std::int64_t i = 0; i < part * ranks; ++i) {
        float sum = awkward(0, i);
        for (int rank = 1; rank < ranks; ++rank) sum += awkward(rank, i);
        expected[static_cast<std::size_t>(i)] = sum;
    }
    CommTuning everything_small;
    everything_small.small_bytes = std::size_t{1} << 30U;
    for (const CommTuning& tuning : {CommTuning{}, small_tuning(), everything_small}) {
        for (const auto& result : run(tuning)) CHECK(result == expected);
    }
}

TEST_CASE("bf16 gradients are added in f32 into an f32 shard without rounding in between", "[threads]") {
    constexpr int ranks = 3;
    const auto shards = collect_ranks<std::vector<float>>(ranks, [](World& world, CpuDevice& device) {
        const Lane lane(device);
        const Buffer full = device.allocate(2 * ranks * 2, Memory::Device, "full");
        const Buffer shard = device.allocate(2 * 4, Memory::Device, "shard");
        for (std::int64_t i = 0; i < 2 * ranks; ++i) {
            store_element(full.data(), DType::BF16, i, world.rank() == 0 ? 256.0 : 0.5);  // 256.5 is no bf16
        }
        const TensorView own = shard.view(Shape{2}, DType::F32);
        const TensorView whole = full.view(Shape{2 * ranks}, DType::BF16);
        world.all().reduce_scatter(own, whole, Into::Overwrite, *lane.stream);
        world.all().reduce_scatter(own, whole, Into::Accumulate, *lane.stream);
        lane.stream->synchronize();
        return std::vector<float>(own.as<float>(), own.as<float>() + 2);
    });
    for (const auto& shard : shards) CHECK(shard == std::vector<float>{514.0F, 514.0F});
}

TEST_CASE("combining: NaN wins, integers wrap, dtypes that do not fit are refused") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float first[] = {1.0F, nan, 3.0F};
    const float second[] = {nan, 2.0F, 5.0F};
    float out[3];
    const std::byte* sources[] = {reinterpret_cast<const std::byte*>(first),
                                  reinterpret_cast<const std::byte*>(second)};
    for (const Reduce reduce : {Reduce::Max, Reduce::Min}) {
        combine(reinterpret_cast<std::byte*>(out), DType::F32, Into::Overwrite, sources, DType::F32, reduce,
                3);
        CHECK(std::isnan(out[0]));
        CHECK(std::isnan(out[1]));
        CHECK(out[2] == (reduce == Reduce::Max ? 5.0F : 3.0F));
    }
    const std::int64_t big[] = {std::numeric_limits<std::int64_t>::max()};
    const std::int64_t one[] = {1};
    std::int64_t sum[1];
    const std::byte* integers[] = {reinterpret_cast<const std::byte*>(big),
                                   reinterpret_cast<const std::byte*>(one)};
    combine(reinterpret_cast<std::byte*>(sum), DType::I64, Into::Overwrite, integers, DType::I64, Reduce::Sum,
            1);
    CHECK(sum[0] == std::numeric_limits<std::int64_t>::min());
    CHECK_THROWS_AS(check_combinable(DType::F32, DType::BF16), Error);
    CHECK_THROWS_AS(check_combinable(DType::U8, DType::U8), Error);
    CHECK_NOTHROW(check_combinable(DType::BF16, DType::F32));
}

TEST_CASE("staging is bounded, counted, and not allocated again", "[threads]") {
    constexpr int ranks = 3;
    struct Counts {
        MemoryUse after_first;
        MemoryUse after_many;
    };
    RankOptions options;
    options.world.tuning.staging_bytes = 64 << 10;
    const auto counts = collect_ranks<Counts>(
        ranks,
        [](World& world, CpuDevice& device) {
            const Lane lane(device);
            constexpr std::int64_t elements = 300'000;
            const Buffer buffer = device.allocate(elements * 4, Memory::Device, "gradients");
            const TensorView full = buffer.view(Shape{elements}, DType::F32);
            const auto round = [&] {
                world.all().reduce_scatter(full.flat(world.rank() * (elements / ranks), elements / ranks),
                                           full, Into::Overwrite, *lane.stream);
                world.all().all_reduce(full.flat(0, 1000), Reduce::Sum, *lane.stream);
                lane.stream->synchronize();
            };
            round();
            Counts result;
            result.after_first = device.memory_use();
            for (int i = 0; i < 20; ++i) round();
            result.after_many = device.memory_use();
            return result;
        },
        options);
    for (const Counts& count : counts) {
        CHECK(count.after_many.allocations == count.after_first.allocations);
        CHECK(count.after_first.device_bytes > 1'200'000);
        CHECK(count.after_first.device_bytes <= 1'200'000 + (64 << 10));
        CHECK(count.after_many.device_peak_bytes == count.after_first.device_peak_bytes);
    }
}

TEST_CASE("host messages: gather, broadcast, exact sums", "[threads]") {
    for (const int ranks : {1, 2, 5}) {
        const auto results =
            collect_ranks<std::string>(ranks, [](World& world, CpuDevice& /*device*/) -> std::string {
                HostChannel& control = world.control();
                const int rank = control.rank();
                const auto all = control.gather(
                    std::string(static_cast<std::size_t>(rank) * 1000, 'a' + static_cast<char>(rank)));
                if (rank == 0) {
                    if (static_cast<int>(all.size()) != control.size()) return "gather: wrong number";
                    for (int other = 0; other < control.size(); ++other) {
                        const std::string expected(static_cast<std::size_t>(other) * 1000,
                                                   'a' + static_cast<char>(other));
                        if (all[static_cast<std::size_t>(other)] != expected) return "gather: wrong text";
                    }
                } else if (!all.empty()) {
                    return "gather: text at another rank";
                }
                if (control.broadcast(rank == 0 ? "the one" : "mine") != "the one") return "broadcast";
                std::vector<std::int64_t> values{std::int64_t{1} << 60U, rank, -rank};
                control.all_reduce(values, Reduce::Max);
                if (values != std::vector<std::int64_t>{std::int64_t{1} << 60U, control.size() - 1, 0})
                    return "max";
                control.all_reduce(values, Reduce::Sum);
                if (values[1] != static_cast<std::int64_t>(control.size()) * (control.size() - 1))
                    return "sum";
                control.barrier();
                return "";
            });
        for (const std::string& result : results) CHECK(result == "");
    }
}

TEST_CASE("control messages pass a blocked tensor stream", "[threads]") {
    const auto results = collect_ranks<int>(2, [](World& world, CpuDevice& device) {
        const Lane lane(device);
        const Buffer buffer = device.allocate(1 << 20, Memory::Device, "x");
        const TensorView tensor = buffer.view(Shape{1 << 18}, DType::F32);
        if (world.rank() == 0) world.all().receive(tensor, 1, *lane.stream);  // nothing is sent yet
        world.control().barrier();
        world.all().barrier();
        if (world.rank() == 1) world.all().send(tensor, 0, *lane.stream);
        lane.stream->synchronize();
        return 1;
    });
    CHECK(results == std::vector<int>{1, 1});
}

TEST_CASE("collectives work on the compute stream, too", "[threads]") {
    const auto sums = collect_ranks<float>(3, [](World& world, CpuDevice& device) {
        const auto compute = device.make_stream("compute", StreamRole::Compute);
        const Buffer buffer = device.allocate(4, Memory::Device, "x");
        const TensorView tensor = buffer.view(Shape{1}, DType::F32);
        *tensor.as<float>() = static_cast<float>(world.rank() + 1);
        world.all().all_reduce(tensor, Reduce::Sum, *compute);
        return *tensor.as<float>();  // the call returned, so it is done
    });
    CHECK(sums == std::vector<float>{6.0F, 6.0F, 6.0F});
}

TEST_CASE("shapes that do not fit are refused when issued", "[threads]") {
    const auto texts = collect_ranks<std::string>(2, [](World& world, CpuDevice& device) -> std::string {
        const Lane lane(device);
        const Buffer buffer = device.allocate(400, Memory::Device, "x");
        try {
            world.all().reduce_scatter(buffer.view(Shape{3}, DType::F32), buffer.view(Shape{7}, DType::F32),
                                       Into::Overwrite, *lane.stream);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    });
    for (const std::string& text : texts) CHECK_THAT(text, Catch::Contains("7 elements are not 2 times 3"));
}
