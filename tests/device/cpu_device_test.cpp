#include "trainctl/device/cpu_device.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "trainctl/device/host_stream.h"

using namespace trainctl;

namespace {

// Done when told.
class Gate final : public Operation {
  public:
    explicit Gate(std::shared_ptr<std::atomic<bool>> open) : open_(std::move(open)) {}
    bool advance() override { return open_->load(); }

  private:
    std::shared_ptr<std::atomic<bool>> open_;
};

class Failing final : public Operation {
  public:
    bool advance() override { fail(Exit::Peer, "rank 3 is gone"); }
};

struct Parts {
    std::unique_ptr<CpuDevice> device = make_cpu_device({});
    std::unique_ptr<Stream> compute = device->make_stream("compute", StreamRole::Compute);
    std::unique_ptr<Stream> comm = device->make_stream("comm", StreamRole::Communication);
    std::unique_ptr<Stream> other = device->make_stream("other", StreamRole::Communication);
    std::shared_ptr<std::atomic<bool>> gate = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace

TEST_CASE("buffers are zero, aligned and counted") {
    const auto device = make_cpu_device({});
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{5'000'001}}) {
        const auto before = device->memory_use();
        {
            const Buffer buffer = device->allocate(bytes, Memory::Device, "x");
            REQUIRE(buffer.data() != nullptr);
            CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096 == 0);
            CHECK(std::all_of(buffer.data(), buffer.data() + bytes,
                              [](std::byte b) { return b == std::byte{0}; }));
            if (bytes > 0) std::memset(buffer.data(), 0xFF, bytes);  // pages come back zeroed all the same
            CHECK(device->memory_use().device_bytes == before.device_bytes + bytes);
        }
        CHECK(device->memory_use().device_bytes == before.device_bytes);
        CHECK(device->memory_use().allocations == before.allocations + 1);
    }
    CHECK(device->memory_use().device_peak_bytes == 5'000'001);
    const Buffer buffer = device->allocate(64, Memory::Pinned, "y");
    CHECK(device->memory_use().pinned_bytes == 64);
    CHECK(buffer.view(Shape{2, 8}, DType::F32).elements() == 16);
    CHECK_THROWS_AS(buffer.view(Shape{17}, DType::F32), Error);
    CHECK_THROWS_AS(buffer.view(Shape{1}, DType::F32, 61), Error);
}

TEST_CASE("more memory than there is is refused with the table of owners") {
    const auto device = make_cpu_device({});
    const Buffer small = device->allocate(1 << 20, Memory::Device, "logits chunk");
    try {
        device->allocate(device->info().memory_bytes, Memory::Device, "optimizer state");
        FAIL("allocated all memory twice");
    } catch (const Error& error) {
        CHECK(error.code() == Exit::Resource);
        CHECK_THAT(error.what(),
                   Catch::Contains("optimizer state needs") && Catch::Contains("logits chunk 1.00 MiB"));
    }
    CHECK_THROWS_AS(device->allocate(SIZE_MAX, Memory::Device, "x"), Error);
}

TEST_CASE("a communication stream keeps its order and waits for events", "[threads]") {
    Parts parts;
    const auto ready = parts.device->make_event();
    std::vector<int> order;  // progress thread only, until synchronised
    CHECK(ready->complete());
    host_stream(*parts.other).submit(std::make_unique<Gate>(parts.gate));
    host_stream(*parts.other).run([&] { order.push_back(1); });
    parts.other->record(*ready);
    parts.comm->wait(*ready);
    host_stream(*parts.comm).run([&] { order.push_back(2); });
    host_stream(*parts.comm).run([&] { order.push_back(3); });
    CHECK_FALSE(ready->complete());
    parts.gate->store(true);
    parts.comm->synchronize();
    CHECK(order == std::vector<int>{1, 2, 3});
    CHECK(ready->complete());
}

TEST_CASE("a stuck stream does not hold up the others", "[threads]") {
    Parts parts;
    std::atomic<int> done{0};
    host_stream(*parts.comm).submit(std::make_unique<Gate>(parts.gate));
    for (int i = 0; i < 1000; ++i) host_stream(*parts.other).run([&] { ++done; });
    parts.other->synchronize();
    CHECK(done == 1000);
    parts.gate->store(true);
    parts.comm->synchronize();
}

TEST_CASE("compute work runs at once here, its messages on the progress thread", "[threads]") {
    Parts parts;
    std::thread::id work;
    host_stream(*parts.compute).run([&] { work = std::this_thread::get_id(); });
    CHECK(work == std::this_thread::get_id());

    class Where final : public Operation {
      public:
        explicit Where(std::thread::id& id) : id_(id) {}
        bool advance() override {
            id_ = std::this_thread::get_id();
            return true;
        }

      private:
        std::thread::id& id_;
    };
    std::thread::id message;
    std::thread::id message_of_comm;
    host_stream(*parts.compute).submit(std::make_unique<Where>(message));
    host_stream(*parts.comm).submit(std::make_unique<Where>(message_of_comm));
    parts.comm->synchronize();
    CHECK(message != std::this_thread::get_id());
    CHECK(message == message_of_comm);

    // A wait of the compute stream blocks the host until the event is passed.
    const auto event = parts.device->make_event();
    int value = 0;
    host_stream(*parts.comm).run([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        value = 7;
    });
    parts.comm->record(*event);
    parts.compute->wait(*event);
    CHECK(value == 7);
}

TEST_CASE("a failure reaches whoever waits for what is behind it, and nobody else", "[threads]") {
    Parts parts;
    const auto before = parts.device->make_event();
    const auto after = parts.device->make_event();
    bool ran = false;
    host_stream(*parts.comm).submit(std::make_unique<Gate>(parts.gate));
    parts.comm->record(*before);
    host_stream(*parts.comm).submit(std::make_unique<Failing>());
    host_stream(*parts.comm).run([&] { ran = true; });
    parts.comm->record(*after);
    parts.other->wait(*after);
    parts.gate->store(true);
    CHECK_THROWS_WITH(parts.comm->synchronize(), "rank 3 is gone");
    CHECK_NOTHROW(before->synchronize());
    CHECK_THROWS_WITH(after->synchronize(), "rank 3 is gone");
    CHECK_THROWS_WITH(parts.compute->wait(*after), "rank 3 is gone");
    CHECK_THROWS_WITH(parts.other->synchronize(), "rank 3 is gone");
    CHECK_FALSE(ran);
    host_stream(*parts.comm).run([&] { ran = true; });
    CHECK_THROWS_WITH(parts.comm->synchronize(), "rank 3 is gone");
    CHECK_FALSE(ran);
    CHECK_NOTHROW(parts.compute->synchronize());
}

TEST_CASE("abort ends a blocked wait from another thread", "[threads]") {
    Parts parts;
    host_stream(*parts.comm).submit(std::make_unique<Gate>(parts.gate));
    std::thread aborter([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        parts.device->abort(Error(Exit::Peer, "told to stop", Where::here()));
    });
    CHECK_THROWS_WITH(parts.comm->synchronize(), "told to stop");
    aborter.join();
    CHECK_THROWS_WITH(host_stream(*parts.compute).run([] {}), "told to stop");
    const auto late = parts.device->make_stream("late", StreamRole::Communication);
    host_stream(*late).run([] {});
    CHECK_THROWS_WITH(late->synchronize(), "told to stop");
}

TEST_CASE("memory freed by an exception is not touched any more by pending work", "[threads]") {
    Parts parts;
    std::atomic<bool> destroyed{false};
    class Writer final : public Operation {
      public:
        Writer(std::byte* data, std::atomic<bool>& destroyed) : data_(data), destroyed_(destroyed) {}
        ~Writer() override { destroyed_ = true; }
        bool advance() override {
            *data_ = std::byte{1};  // faults once the page is gone
            return false;
        }

      private:
        std::byte* data_;
        std::atomic<bool>& destroyed_;
    };
    const auto throw_with_work_pending = [&] {
        const Buffer buffer = parts.device->allocate(4096, Memory::Device, "bucket");
        host_stream(*parts.comm).submit(std::make_unique<Writer>(buffer.data(), destroyed));
        fail(Exit::BadInput, "the first error");
    };
    CHECK_THROWS_WITH(throw_with_work_pending(), "the first error");
    CHECK(destroyed);
    CHECK_THROWS_AS(parts.comm->synchronize(), Error);
}

TEST_CASE("a device finishes what was issued before it goes", "[threads]") {
    std::atomic<int> done{0};
    {
        Parts parts;
        for (int i = 0; i < 100; ++i) host_stream(*parts.comm).run([&] { ++done; });
    }
    CHECK(done == 100);
}
