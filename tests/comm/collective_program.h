// Random programs of collectives: several communicators from splits, several streams, all dtypes, sizes 0, 1,
// odd and longer than a chunk. Everything follows from a seed, so that every rank knows what every rank does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainctl/comm/world.h"

namespace trainctl::test {

// Every rank has these tensors, of `tensor_elements` each.
inline constexpr std::int64_t tensor_elements = 3001;
inline constexpr DType tensor_dtypes[] = {DType::F32,  DType::F32, DType::F32, DType::BF16,
                                          DType::BF16, DType::F64, DType::F64, DType::I64,
                                          DType::I64,  DType::I32, DType::F16, DType::F16};
inline constexpr int tensor_count = 12;
inline constexpr int stream_count = 4;  // stream 0 is the compute stream

enum class Verb {
    Fill,           // compute: tensor a = values of (seed, step, rank, element)
    Halve,          // compute: a *= 0.5, rounded to its dtype
    AllReduce,      // a[begin, begin + count)
    ReduceScatter,  // a = n parts, b = own part (another tensor)
    ReduceInPlace,  // a = n parts, own part of a receives the sum
    AllGather,      // a = n parts, b = own part
    GatherInPlace,  // own part of a
    Broadcast,
    Ring,       // a to the next rank, b from the previous one, as a group
    OneWay,     // member `root` sends a, member `other` receives b, no group
    Barrier,    // of the host
    HostSleep,  // ranks wait for different work and different times
};

struct Step {
    Verb verb = Verb::Fill;
    int family = 0;  // which split; 0 is the world
    int stream = 0;
    int a = 0;
    int b = 0;
    std::int64_t begin = 0;
    std::int64_t count = 0;  // of a, or of one part
    int root = 0;            // taken modulo the group's size
    int other = 0;
    Reduce reduce = Reduce::Sum;
    Into into = Into::Overwrite;
};

// Split number f has choices[f][rank of the parent's member]; a parent other than the world gives splits of
// splits.
struct Family {
    int parent = -1;           // -1: the world itself
    std::vector<int> colours;  // by world rank; -1: in no group
    std::vector<int> keys;
};

struct Program {
    std::uint64_t seed = 0;
    int ranks = 0;
    std::vector<Family> families;
    std::vector<Step> steps;
};

Program make_program(std::uint64_t seed, int ranks, int steps);

// World ranks of the group that `rank` is in, in their order; empty if in none.
std::vector<int> group_of(const Program& program, int family, int rank);

// Element of Verb::Fill before it is rounded to the tensor's dtype.
double fill_value(const Program& program, int step, int rank, std::int64_t element);

// What every rank's tensors hold after the program, computed sequentially: [rank][tensor] bytes.
std::vector<std::vector<std::vector<std::byte>>> run_oracle(const Program& program);

// Runs this rank's part; "" or the first difference from the oracle.
std::string run_program(World& world, CpuDevice& device, const Program& program);

// Small enough that a few thousand elements go through every path in several chunks and pieces.
CommTuning small_tuning();

// One element as a number, and back (rounded to nearest even).
double load_element(const std::byte* data, DType dtype, std::int64_t index);
void store_element(std::byte* data, DType dtype, std::int64_t index, double value);

}  // namespace trainctl::test
