// What a state allocates is what its table says, and what the stages promise. Misuse of the protocol is
// caught.
#include "parallel/sim_harness.h"
#include "support/catch.h"
#include "support/reference_ops.h"
#include "trainctl/ops/backends.h"

namespace trainctl::test {
namespace {

struct Rank {
    Rank(const std::vector<ParamSpec>& params, const ZeroOptions& options, int ranks)
        : data(*device, ranks - 1, ranks, Timed::Nothing) {
        before = device->memory_use();
        zero = make_zero_state(*device, ops->ops(), {data}, *compute, *communication, params, options);
    }
    std::unique_ptr<SimDevice> device = make_sim_device({});
    std::unique_ptr<OpsBackend> reference = make_reference_ops();
    std::unique_ptr<OpsBackend> ops = make_sim_ops(*device, reference->ops());
    std::unique_ptr<Stream> compute = device->make_stream("compute", StreamRole::Compute);
    std::unique_ptr<Stream> communication = device->make_stream("communication", StreamRole::Communication);
    TimedCommunicator data;
    MemoryUse before;
    std::unique_ptr<ZeroState> zero;
};

std::uint64_t row(const ZeroState& zero, const std::string& what) {
    for (const MemoryRow& row : zero.memory_table())
        if (row.what == what) return row.bytes;
    FAIL("no row " << what);
    return 0;
}

TEST_CASE("The memory table is the device's own account, to the byte") {
    for (const int stage : {0, 1, 2, 3}) {
        for (const DType compute : {DType::F32, DType::BF16}) {
            for (const DType reduce : {DType::F32, DType::BF16}) {
                for (const double megabytes : {0.0, 0.001, 0.1, 1e9}) {
                    ZeroOptions options;
                    options.stage = stage;
                    options.compute = compute;
                    options.reduce_dtype = reduce;
                    options.gradient_bucket_mb = megabytes;
                    const Rank rank(equal_units(6, 5000), options, 3);
                    std::uint64_t sum = 0;
                    for (const MemoryRow& row : rank.zero->memory_table()) sum += row.bytes;
                    const MemoryUse after = rank.device->memory_use();
                    CHECK(sum == after.device_bytes - rank.before.device_bytes);
                    CHECK(after.device_peak_bytes == after.device_bytes);
                    CHECK(after.pinned_bytes == 0);
                }
            }
        }
    }
}

TEST_CASE(
    "Stages keep what they promise: 18N, 6N + 12N/d, 2N + 16N/d, 18N/d bytes, and a few units in flight") {
    constexpr int ranks = 4;
    constexpr std::uint64_t unit = 512 * 50;
    constexpr std::uint64_t n = 10 * unit;
    for (const int stage : {0, 1, 2, 3}) {
        ZeroOptions options;
        options.stage = stage;
        const Rank rank(equal_units(10, unit), options, ranks);
        CHECK(row(*rank.zero, "weights") == 2 * n / (stage == 3 ? ranks : 1));
        CHECK(row(*rank.zero, "master weights and moments") == 12 * n / (stage == 0 ? 1 : ranks));
        CHECK(row(*rank.zero, "gradients") == 4 * n / (stage >= 2 ? ranks : 1));
        CHECK(row(*rank.zero, "gradient buckets") == (stage >= 2 ? 2 * 4 * unit : 0));
        if (stage == 3) CHECK(row(*rank.zero, "gathered units") == 3 * 2 * unit);
    }
    // A slot that is cast before it is sent is free at once: one in turn, and two BF16 images.
    ZeroOptions cast;
    cast.stage = 2;
    cast.reduce_dtype = DType::BF16;
    CHECK(row(*Rank(equal_units(10, unit), cast, ranks).zero, "gradient buckets") == 4 * unit + 2 * 2 * unit);
    // F32 compute: the weights are the master.
    ZeroOptions options;
    options.compute = DType::F32;
    const Rank rank(equal_units(10, unit), options, ranks);
    CHECK(row(*rank.zero, "weights") == 4 * n);
    CHECK(row(*rank.zero, "master weights and moments") == 8 * n / ranks);
}

// f must throw Error with this code and a text that contains `part`.
template <class F>
void check_error(Exit code, const std::string& part, F&& f) {
    try {
        f();
        FAIL("no error, expected: " << part);
    } catch (const Error& error) {
        CHECK(error.code() == code);
        CHECK_THAT(error.what(), Catch::Contains(part));
    }
}

TEST_CASE("Modes that this build lacks are refused, never changed") {
    const auto params = equal_units(3, 100);
    check_error(Exit::Usage, "zero_stage is 4", [&] {
        ZeroOptions options;
        options.stage = 4;
        const Rank rank(params, options, 2);
    });
    check_error(Exit::Usage, "reduce_dtype", [&] {
        ZeroOptions options;
        options.reduce_dtype = DType::F16;
        const Rank rank(params, options, 2);
    });
}

TEST_CASE("Every unit must be ready exactly once per micro-batch") {
    for (const int stage : {1, 2, 3}) {
        ZeroOptions options;
        options.stage = stage;
        Rank rank(equal_units(3, 100), options, 2);
        GradSink& sink = rank.zero->grads();
        const auto write = [&](UnitId unit) {
            sink.grads(unit, *rank.compute);
            sink.ready(unit, *rank.compute);
        };
        const Buffer scalars = rank.device->allocate(step_scalars * 8, Memory::Device, "scalars");
        const auto update = [&] { rank.zero->update(scalars.view(Shape{step_scalars}, DType::F64), {}); };

        sink.begin_micro(0, 0, MicroKind::Inner);
        check_error(Exit::Internal, "before", [&] { sink.ready(2, *rank.compute); });
        write(2);
        check_error(Exit::Internal, "twice", [&] { sink.ready(2, *rank.compute); });
        check_error(Exit::Internal, "after they were announced", [&] { sink.grads(2, *rank.compute); });
        write(1);
        check_error(Exit::Internal, "unit 0 were never announced",
                    [&] { sink.begin_micro(0, 1, MicroKind::Last); });
        check_error(Exit::Internal, "unit 0 were never announced", update);
        write(0);
        check_error(Exit::Internal, "last one", update);
        check_error(Exit::Internal, "unit 7", [&] { sink.grads(7, *rank.compute); });
        sink.begin_micro(0, 1, MicroKind::Last);
        for (UnitId unit = 2; unit >= 0; --unit) write(unit);
        update();
    }
}

TEST_CASE("Stage 3 hands out at most two inner units at a time, and refuses to update weights in use") {
    ZeroOptions options;
    options.stage = 3;
    Rank rank(equal_units(6, 100), options, 2);
    rank.zero->initialise(1);
    ParamSource& source = rank.zero->params();
    const std::byte* second = source.acquire(2, *rank.compute).flat().data;
    CHECK(source.acquire(1, *rank.compute).flat().data != second);
    CHECK(source.acquire(2, *rank.compute).flat().data == second);
    check_error(Exit::Internal, "unit 4 asked for while unit 2 is in use",
                [&] { source.acquire(4, *rank.compute); });
    source.release(2, *rank.compute);
    source.hint(4);  // still in use once: nothing is started
    check_error(Exit::Internal, "unit 2 is in use", [&] { source.acquire(4, *rank.compute); });
    source.release(2, *rank.compute);
    CHECK(source.acquire(4, *rank.compute).flat().data == second);
    check_error(Exit::Internal, "in use", [&] { rank.zero->loaded(); });
}

TEST_CASE("A gradient slot is never handed out while another unit's gradients wait in it") {
    ZeroOptions options;
    options.stage = 2;
    Rank rank(equal_units(6, 100), options, 2);
    GradSink& sink = rank.zero->grads();
    sink.begin_micro(0, 0, MicroKind::Last);
    sink.grads(5, *rank.compute);
    sink.grads(4, *rank.compute);
    check_error(Exit::Internal, "slot still waits", [&] { sink.grads(3, *rank.compute); });
}

}  // namespace
}  // namespace trainctl::test
