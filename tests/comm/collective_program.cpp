#include "comm/collective_program.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "trainctl/base/philox.h"
#include "trainctl/device/host_stream.h"

namespace trainctl::test {
namespace {

using Random = std::mt19937_64;

int below(Random& random, int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); }

int tensor_of(Random& random, DType dtype, int but_not) {
    for (;;) {
        const int tensor = below(random, tensor_count);
        if (tensor != but_not && tensor_dtypes[tensor] == dtype) return tensor;
    }
}

std::int64_t count_up_to(Random& random, std::int64_t most) {
    switch (below(random, 6)) {
        case 0:
            return std::min<std::int64_t>(most, below(random, 3));  // 0, 1, 2
        case 1:
            return most;
        default:
            return below(random, static_cast<int>(most) + 1);
    }
}

Step random_step(Random& random, int families, int ranks) {
    constexpr Verb verbs[] = {Verb::Fill,      Verb::Fill,          Verb::Halve,         Verb::Halve,
                              Verb::AllReduce, Verb::AllReduce,     Verb::ReduceScatter, Verb::ReduceScatter,
                              Verb::AllGather, Verb::ReduceInPlace, Verb::GatherInPlace, Verb::Broadcast,
                              Verb::Ring,      Verb::OneWay,        Verb::Barrier,       Verb::HostSleep};
    Step step;
    step.verb = verbs[below(random, static_cast<int>(std::size(verbs)))];
    step.family = below(random, families);
    step.stream = below(random, stream_count);
    step.a = below(random, tensor_count);
    DType other = tensor_dtypes[step.a];
    const bool narrow = other == DType::BF16 || other == DType::F16;
    if (step.verb == Verb::ReduceScatter && narrow && below(random, 2) == 0) other = DType::F32;
    if (other == DType::I32) other = tensor_dtypes[step.a = 0];  // there is only one I32 tensor
    step.b = tensor_of(random, other, step.a);
    step.root = below(random, 1000);
    step.other = below(random, 1000);
    step.reduce = static_cast<Reduce>(below(random, 3));
    step.into = below(random, 2) == 0 ? Into::Overwrite : Into::Accumulate;
    const bool parts = step.verb == Verb::ReduceScatter || step.verb == Verb::ReduceInPlace ||
                       step.verb == Verb::AllGather || step.verb == Verb::GatherInPlace;
    if (parts) {
        step.count = count_up_to(random, tensor_elements / ranks);
    } else {
        step.begin = below(random, 100);
        step.count = count_up_to(random, tensor_elements - step.begin);
    }
    if (step.verb == Verb::AllReduce && below(random, 4) == 0) step.a = 9;  // I32
    if (step.verb == Verb::Fill || step.verb == Verb::Halve || step.verb == Verb::HostSleep) step.family = 0;
    return step;
}

// One rank's objects.
class Runner {
  public:
    Runner(World& world, CpuDevice& device, const Program& program)
        : world_(world),
          device_(device),
          program_(program),
          random_(program.seed * 31 + 7 + static_cast<std::uint64_t>(world.rank())) {
        for (int i = 0; i < stream_count; ++i) {
            streams_.push_back(device.make_stream(fmt::format("stream {}", i),
                                                  i == 0 ? StreamRole::Compute : StreamRole::Communication));
        }
        for (const DType dtype : tensor_dtypes) {
            buffers_.push_back(
                device.allocate(storage_bytes(tensor_elements, dtype), Memory::Device, "tensor"));
            last_use_.push_back(device.make_event());
        }
        for (std::size_t f = 1; f < program.families.size(); ++f) split(static_cast<int>(f));
    }

    std::string run() {
        for (std::size_t i = 0; i < program_.steps.size(); ++i) issue(program_.steps[i], static_cast<int>(i));
        for (const auto& stream : streams_) stream->synchronize();
        return compare();
    }

  private:
    Communicator* communicator(int family) {
        return family == 0 ? &world_.all() : splits_[static_cast<std::size_t>(family - 1)].get();
    }

    void split(int number) {
        const Family& family = program_.families[static_cast<std::size_t>(number)];
        Communicator* parent = communicator(family.parent);
        const auto rank = static_cast<std::size_t>(world_.rank());
        std::unique_ptr<Communicator> child;
        if (parent != nullptr) {
            child = parent->split(family.colours[rank], family.keys[rank], fmt::format("split {}", number));
        }
        const std::vector<int> group = group_of(program_, number, world_.rank());
        const bool right = group.empty()
                               ? child == nullptr
                               : child != nullptr && child->size() == static_cast<int>(group.size()) &&
                                     group[static_cast<std::size_t>(child->rank())] == world_.rank();
        if (!right) fail(Exit::Internal, fmt::format("split {} gave another group than planned", number));
        splits_.push_back(std::move(child));
    }

    TensorView tensor(int index) {
        return buffers_[static_cast<std::size_t>(index)].view(Shape{tensor_elements}, tensor_dtypes[index]);
    }

    void issue(const Step& step, int number) {
        Communicator* comm = communicator(step.family);
        if (comm == nullptr) return;
        if (step.verb == Verb::Barrier) return comm->barrier();
        if (step.verb == Verb::HostSleep) return rest();
        const bool compute = step.verb == Verb::Fill || step.verb == Verb::Halve;
        Stream& stream = *streams_[compute ? 0 : static_cast<std::size_t>(step.stream)];
        for (const int used : {step.a, step.b}) stream.wait(*last_use_[static_cast<std::size_t>(used)]);
        if (compute) {
            issue_compute(step, number, stream);
        } else {
            issue_collective(step, *comm, stream);
        }
        for (const int used : {step.a, step.b}) stream.record(*last_use_[static_cast<std::size_t>(used)]);
    }

    void issue_compute(const Step& step, int number, Stream& stream) {
        const TensorView a = tensor(step.a);
        const int rank = world_.rank();
        host_stream(stream).run([this, a, number, rank, fill = step.verb == Verb::Fill] {
            for (std::int64_t i = 0; i < tensor_elements; ++i) {
                const double value =
                    fill ? fill_value(program_, number, rank, i) : load_element(a.data, a.dtype, i) * 0.5;
                store_element(a.data, a.dtype, i, value);
            }
        });
    }

    void issue_collective(const Step& step, Communicator& comm, Stream& stream) {
        const int size = comm.size();
        const TensorView a = tensor(step.a);
        const TensorView b = tensor(step.b);
        const TensorView all_parts = a.flat(0, step.count * size);
        const TensorView own_part = all_parts.flat(comm.rank() * step.count, step.count);
        switch (step.verb) {
            case Verb::AllReduce:
                return comm.all_reduce(a.flat(step.begin, step.count), step.reduce, stream);
            case Verb::ReduceScatter:
                return comm.reduce_scatter(b.flat(0, step.count), all_parts, step.into, stream);
            case Verb::ReduceInPlace:
                return comm.reduce_scatter(own_part, all_parts, step.into, stream);
            case Verb::AllGather:
                return comm.all_gather(all_parts, b.flat(0, step.count), stream);
            case Verb::GatherInPlace:
                return comm.all_gather(all_parts, own_part, stream);
            case Verb::Broadcast:
                return comm.broadcast(a.flat(step.begin, step.count), step.root % size, stream);
            case Verb::Ring: {
                const CommGroup group(comm, stream);
                comm.send(a.flat(step.begin, step.count), (comm.rank() + 1) % size, stream);
                comm.receive(b.flat(0, step.count), (comm.rank() + size - 1) % size, stream);
                return;
            }
            case Verb::OneWay:
                if (step.root % size == step.other % size) return;
                if (comm.rank() == step.root % size) {
                    comm.send(a.flat(step.begin, step.count), step.other % size, stream);
                } else if (comm.rank() == step.other % size) {
                    comm.receive(b.flat(0, step.count), step.root % size, stream);
                }
                return;
            default:
                fail(Exit::Internal, "not a collective");
        }
    }

    // Every rank of its own: sleeps, waits for a random tensor, or goes on.
    void rest() {
        const int choice = below(random_, 3);
        if (choice == 0) std::this_thread::sleep_for(std::chrono::microseconds(below(random_, 300)));
        if (choice == 1) last_use_[static_cast<std::size_t>(below(random_, tensor_count))]->synchronize();
    }

    std::string compare() {
        const auto expected = run_oracle(program_)[static_cast<std::size_t>(world_.rank())];
        for (int index = 0; index < tensor_count; ++index) {
            const std::byte* found = buffers_[static_cast<std::size_t>(index)].data();
            const std::byte* wanted = expected[static_cast<std::size_t>(index)].data();
            const DType dtype = tensor_dtypes[index];
            const auto element = static_cast<std::int64_t>(dtype_size(dtype));
            for (std::int64_t i = 0; i < tensor_elements; ++i) {
                if (std::memcmp(found + i * element, wanted + i * element,
                                static_cast<std::size_t>(element)) == 0)
                    continue;
                return fmt::format(
                    "program {} over {} ranks, rank {}: tensor {} ({}) element {} is {}, expected {}",
                    program_.seed, program_.ranks, world_.rank(), index, dtype_name(dtype), i,
                    load_element(found, dtype, i), load_element(wanted, dtype, i));
            }
        }
        return "";
    }

    World& world_;
    CpuDevice& device_;
    const Program& program_;
    Random random_;
    std::vector<std::unique_ptr<Stream>> streams_;
    std::vector<Buffer> buffers_;
    std::vector<std::unique_ptr<Event>> last_use_;  // of each tensor, by any stream
    std::vector<std::unique_ptr<Communicator>> splits_;
};

}  // namespace

Program make_program(std::uint64_t seed, int ranks, int steps) {
    Random random(seed);
    Program program;
    program.seed = seed;
    program.ranks = ranks;
    program.families.emplace_back();  // the world
    for (int f = 1; f <= 3; ++f) {
        Family family;
        family.parent = f == 3 ? 1 : 0;
        for (int rank = 0; rank < ranks; ++rank) {
            family.colours.push_back(below(random, 4) - 1);
            family.keys.push_back(below(random, 3));
        }
        program.families.push_back(family);
    }
    for (int tensor = 0; tensor < tensor_count; ++tensor) {
        Step fill;
        fill.a = fill.b = tensor;
        program.steps.push_back(fill);
    }
    for (int i = 0; i < steps; ++i) program.steps.push_back(random_step(random, 4, ranks));
    return program;
}

std::vector<int> group_of(const Program& program, int family, int rank) {
    const Family& split = program.families[static_cast<std::size_t>(family)];
    std::vector<int> members;
    if (split.parent < 0) {
        for (int other = 0; other < program.ranks; ++other) members.push_back(other);
        return members;
    }
    const int colour = split.colours[static_cast<std::size_t>(rank)];
    if (colour < 0) return members;
    for (const int other : group_of(program, split.parent, rank)) {
        if (split.colours[static_cast<std::size_t>(other)] == colour) members.push_back(other);
    }
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
        return split.keys[static_cast<std::size_t>(a)] < split.keys[static_cast<std::size_t>(b)];
    });
    return members;
}

double fill_value(const Program& program, int step, int rank, std::int64_t element) {
    const PhiloxBlock block =
        philox4x32(philox_key(program.seed), static_cast<std::uint64_t>(element),
                   static_cast<std::uint64_t>(step) * 64 + static_cast<std::uint64_t>(rank));
    // Thirds over many magnitudes: sums are rounded, so that the order of addition shows.
    return std::ldexp((static_cast<double>(block[0] % 2000) - 1000.0) / 3.0,
                      -static_cast<int>(block[1] % 12));
}

std::string run_program(World& world, CpuDevice& device, const Program& program) {
    return Runner(world, device, program).run();
}

CommTuning small_tuning() {
    CommTuning tuning;
    tuning.chunk_bytes = 1024;
    tuning.staging_bytes = 8192;
    tuning.small_bytes = 1500;
    tuning.message_bytes = 3000;
    return tuning;
}

}  // namespace trainctl::test
