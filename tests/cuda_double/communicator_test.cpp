// Every kind of message between emulated devices, over both transports: what each rank holds at the end, and
// that work and messages on different streams meet where events say so.
#include <algorithm>
#include <future>

#include "cuda_double/machine.h"
#include "support/catch.h"
#include "support/run_ranks.h"
#include "trainctl/comm/cuda_comm.h"
#include "trainctl/device/cuda_device.h"

namespace trainctl::cuda_double {
namespace {

constexpr int ranks = 3;
constexpr int rounds = 2;
constexpr std::int64_t part = 5;  // elements
constexpr std::int64_t whole = ranks * part;

// Small integers, whose sums are exact in BF16 too.
float sent(int round, int rank, std::int64_t element) {
    return static_cast<float>(10 * round + 3 * rank + element);
}
float summed(int round, std::int64_t element) {
    float sum = 0.0F;
    for (int rank = 0; rank < ranks; ++rank) sum += sent(round, rank, element);
    return sum;
}

// What a rank holds after a round, in the order of `wanted`.
using Held = std::vector<float>;

Held wanted(int rank, int round) {
    Held held;
    for (std::int64_t i = 0; i < part; ++i) {  // the running sum, of both dtypes
        float sum = 1000.0F;
        for (int done = 1; done <= round; ++done) sum += summed(done, rank * part + i);
        held.push_back(sum);
        held.push_back(sum);
        held.push_back(summed(round, rank * part + i));  // widened
    }
    for (std::int64_t i = 0; i < whole; ++i) {
        held.push_back(summed(round, i));                            // scattered and gathered
        held.push_back(sent(round, ranks - 1, i));                   // the largest
        held.push_back(sent(round, 0, i));                           // the smallest
        held.push_back(100.0F + sent(round, 1, i));                  // of the root
        held.push_back(sent(round, (rank + ranks - 1) % ranks, i));  // of the rank before this one
    }
    return held;
}

class Talker {
  public:
    Talker(World& world, CpuDevice& host, CudaTransport transport)
        : device_(make_cuda_device(world.local_rank())),
          mesh_(make_cuda_mesh(make_mesh(world, {.data = ranks}), *device_, host, {transport, 30.0, {}})),
          compute_(device_->make_stream("compute", StreamRole::Compute)),
          messages_(device_->make_stream("messages", StreamRole::Communication)),
          ready_(device_->make_event()),
          arrived_(device_->make_event()) {
        for (TensorView* sum : {&sum_, &narrow_sum_}) {
            *sum = make(part, DType::F32);
            up(*sum, [](std::int64_t) { return 1000.0F; });
        }
    }

    // The compute stream makes what is sent and reads what came; the host waits at the end only.
    Held round(int round) {
        const int rank = mesh_.data->rank();
        const auto mine = [&](std::int64_t i) { return sent(round, rank, i); };
        for (const TensorView& view : {full_, narrow_, narrow_too_, largest_, smallest_, outgoing_})
            up(view, mine);
        up(root_, [&](std::int64_t i) { return 100.0F + mine(i); });
        compute_->record(*ready_);
        messages_->wait(*ready_);
        Communicator& all = *mesh_.data;
        all.reduce_scatter(shard_, full_, Into::Overwrite, *messages_);
        all.reduce_scatter(sum_, full_, Into::Accumulate, *messages_);
        all.reduce_scatter(narrow_sum_, narrow_, Into::Accumulate, *messages_);
        all.reduce_scatter(widened_, narrow_too_, Into::Overwrite, *messages_);
        all.all_gather(gathered_, shard_, *messages_);
        all.all_reduce(largest_, Reduce::Max, *messages_);
        all.all_reduce(smallest_, Reduce::Min, *messages_);
        all.broadcast(root_, 1, *messages_);
        {
            const CommGroup group(all, *messages_);
            all.send(outgoing_, (rank + 1) % ranks, *messages_);
            all.receive(incoming_, (rank + ranks - 1) % ranks, *messages_);
        }
        messages_->record(*arrived_);
        compute_->wait(*arrived_);
        std::vector<TensorView> host;
        for (const TensorView& view :
             {sum_, narrow_sum_, widened_, gathered_, largest_, smallest_, root_, incoming_})
            host.push_back(down(view));
        compute_->synchronize();
        Held held;
        for (const auto& [first, last] : {std::pair{0, 3}, std::pair{3, 8}}) {
            for (std::int64_t i = 0; i < host[static_cast<std::size_t>(first)].elements(); ++i)
                for (int t = first; t < last; ++t)
                    held.push_back(host[static_cast<std::size_t>(t)].as<float>()[i]);
        }
        return held;
    }

  private:
    TensorView make(std::int64_t elements, DType dtype, Memory memory = Memory::Device) {
        buffers_.push_back(device_->allocate(storage_bytes(elements, dtype), memory, "message"));
        return buffers_.back().view(Shape{elements}, dtype);
    }
    template <class Value>
    void up(const TensorView& view, const Value& value) {
        const TensorView host = make(view.elements(), view.dtype, Memory::Pinned);
        for (std::int64_t i = 0; i < view.elements(); ++i) {
            if (view.dtype == DType::F32) {
                host.as<float>()[i] = value(i);
            } else {
                host.as<BFloat16>()[i] = to_bfloat16(value(i));
            }
        }
        device_->copy(*compute_, view.data, host.data, view.bytes());
    }
    TensorView down(const TensorView& view) {
        const TensorView host = make(view.elements(), view.dtype, Memory::Pinned);
        device_->copy(*compute_, host.data, view.data, view.bytes());
        return host;
    }

    std::unique_ptr<Device> device_;
    std::vector<Buffer> buffers_;
    Mesh mesh_;
    std::unique_ptr<Stream> compute_;
    std::unique_ptr<Stream> messages_;
    std::unique_ptr<Event> ready_;
    std::unique_ptr<Event> arrived_;
    TensorView sum_;
    TensorView narrow_sum_;
    TensorView full_ = make(whole, DType::F32);
    TensorView narrow_ = make(whole, DType::BF16);
    TensorView narrow_too_ = make(whole, DType::BF16);
    TensorView widened_ = make(part, DType::F32);
    TensorView shard_ = make(part, DType::F32);
    TensorView gathered_ = make(whole, DType::F32);
    TensorView largest_ = make(whole, DType::F32);
    TensorView smallest_ = make(whole, DType::F32);
    TensorView root_ = make(whole, DType::F32);
    TensorView outgoing_ = make(whole, DType::F32);
    TensorView incoming_ = make(whole, DType::F32);
};

void check_messages(CudaTransport transport) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
        start_machine({.devices = ranks, .seed = seed});
        const auto held = test::collect_ranks<std::vector<Held>>(ranks, [&](World& world, CpuDevice& host) {
            Talker talker(world, host, transport);
            std::vector<Held> all;
            for (int round = 1; round <= rounds; ++round) all.push_back(talker.round(round));
            return all;
        });
        for (int rank = 0; rank < ranks; ++rank) {
            for (int round = 1; round <= rounds; ++round) {
                CAPTURE(seed, rank, round);
                CHECK(held[static_cast<std::size_t>(rank)][static_cast<std::size_t>(round - 1)] ==
                      wanted(rank, round));
            }
        }
    }
}

}  // namespace

TEST_CASE("cuda messages by NCCL give every rank its part", "[cuda]") { check_messages(CudaTransport::Nccl); }

// A rank that meets trouble instead of its part in a message: what does the other one, which waits for it,
// say?
std::string told_to_the_other(double timeout_s,
                              const std::function<void(const std::shared_future<void>& told)>& trouble) {
    start_machine({.devices = 2});
    std::string text;
    std::promise<void> told;
    const std::shared_future<void> is_told = told.get_future().share();
    try {
        test::run_ranks(2, [&](World& world, CpuDevice& host) {
            const std::unique_ptr<Device> device = make_cuda_device(world.local_rank());
            const Mesh mesh = make_cuda_mesh(make_mesh(world, {.data = 2}), *device, host,
                                             {CudaTransport::Nccl, timeout_s, {}});
            const auto stream = device->make_stream("messages", StreamRole::Communication);
            const Buffer buffer =
                device->allocate(storage_bytes(part, DType::F32), Memory::Device, "message");
            const TensorView message = buffer.view(Shape{part}, DType::F32);
            if (world.rank() == 1) return trouble(is_told);
            mesh.data->all_reduce(message, Reduce::Sum, *stream);
            try {
                stream->synchronize();
            } catch (const Error& error) {
                text = error.what();
            }
            told.set_value();
        });
    } catch (const Error&) {  // what the test is not about: the failing rank's own story
    }
    return text;
}

TEST_CASE("a rank that fails ends those that wait for its messages", "[cuda]") {
    const auto fails = [](const std::shared_future<void>&) { fail(Exit::Internal, "a fault of this test"); };
    CHECK_THAT(told_to_the_other(3600.0, fails), Catch::Contains("a rank of this NCCL communicator failed"));
}

TEST_CASE("messages that make no progress are given up while the host waits for them", "[cuda]") {
    const auto hangs = [](const std::shared_future<void>& told) { told.wait(); };
    CHECK_THAT(told_to_the_other(0.05, hangs), Catch::Contains("this NCCL communicator was aborted"));
}

TEST_CASE("cuda messages through host memory give every rank its part", "[cuda]") {
    check_messages(CudaTransport::Host);
}

}  // namespace trainctl::cuda_double
