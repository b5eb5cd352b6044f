// Random programs of collectives give, bit for bit, what the sequential oracle says.
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "comm/collective_program.h"
#include "support/catch.h"
#include "support/run_ranks.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

void check_program(std::uint64_t seed, int ranks, int steps, const RankOptions& options) {
    const Program program = make_program(seed, ranks, steps);
    INFO("program " << seed << " over " << ranks << " ranks");
    const auto differences = collect_ranks<std::string>(
        ranks, [&](World& world, CpuDevice& device) { return run_program(world, device, program); }, options);
    for (const std::string& difference : differences) CHECK(difference == "");
}

RankOptions small_messages() {
    RankOptions options;
    options.world.tuning = small_tuning();
    return options;
}

}  // namespace

TEST_CASE("random programs of collectives over threads", "[threads]") {
    for (std::uint64_t seed = 0; seed < 24; ++seed)
        check_program(seed, 1 + static_cast<int>(seed % 5), 60, small_messages());
}

TEST_CASE("random programs with the default sizes of chunks", "[threads]") {
    for (std::uint64_t seed = 100; seed < 106; ++seed) check_program(seed, 3, 60, {});
}

TEST_CASE("random programs on devices that run as late as events allow", "[threads]") {
    for (std::uint64_t seed = 200; seed < 209; ++seed) {
        RankOptions options = small_messages();
        options.late_seed = seed % 3;
        check_program(seed, 2 + static_cast<int>(seed % 3), 50, options);
    }
}

TEST_CASE("two worlds in one process at once", "[threads]") {
    const Program one = make_program(300, 3, 60);
    const Program two = make_program(301, 2, 60);
    std::vector<std::string> differences_of_two;
    std::exception_ptr failure;
    std::thread other([&] {
        try {
            differences_of_two = collect_ranks<std::string>(
                2, [&](World& world, CpuDevice& device) { return run_program(world, device, two); },
                small_messages());
        } catch (...) {
            failure = std::current_exception();
        }
    });
    const auto differences_of_one = collect_ranks<std::string>(
        3, [&](World& world, CpuDevice& device) { return run_program(world, device, one); },
        small_messages());
    other.join();
    if (failure) std::rethrow_exception(failure);
    for (const std::string& difference : differences_of_one) CHECK(difference == "");
    REQUIRE(differences_of_two.size() == 2);
    for (const std::string& difference : differences_of_two) CHECK(difference == "");
}

TEST_CASE("the oracle notices a wrong element") {
    Program program = make_program(400, 2, 30);
    const auto right = run_oracle(program);
    Step wrong;
    wrong.verb = Verb::AllReduce;
    wrong.count = 1;
    program.steps.push_back(wrong);
    CHECK(run_oracle(program) != right);
}
