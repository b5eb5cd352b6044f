// Real processes under mpirun: they agree with the oracle, and a failure of one ends all within seconds.
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <string>

#include "support/catch.h"

namespace {

struct Run {
    int code = 0;
    double seconds = 0.0;
    std::string output;  // of all ranks and mpirun
};

Run mpirun(int ranks, const std::string& arguments, const std::string& environment = "") {
    const std::string command =
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 " +
        environment + " " TRAINCTL_MPIRUN " -n " + std::to_string(ranks) + " " TRAINCTL_MPI_RANK " " +
        arguments + " 2>&1";
    Run run;
    const auto start = std::chrono::steady_clock::now();
    std::FILE* pipe = popen(command.c_str(), "r");
    REQUIRE(pipe != nullptr);
    std::array<char, 4096> block;
    while (const std::size_t count = std::fread(block.data(), 1, block.size(), pipe))
        run.output.append(block.data(), count);
    const int status = pclose(pipe);
    run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    run.code = WIFEXITED(status) ? WEXITSTATUS(status) : 256 + status;
    return run;
}

int occurrences(const std::string& text, const std::string& part) {
    int count = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
    return count;
}

}  // namespace

TEST_CASE("late devices under mpirun agree with the oracle") {
    for (const char* seed : {"0", "1", "2"}) {
        const Run run = mpirun(2, "program 3", std::string("LATE_SEED=") + seed);
        INFO(run.output);
        CHECK(run.code == 0);
        CHECK_THAT(run.output, Catch::Contains("3 programs on 2 ranks agree"));
    }
}

TEST_CASE("under mpirun a background channel waits while collectives go on") {
    const Run run = mpirun(2, "background 2");
    INFO(run.output);
    CHECK(run.code == 0);
    CHECK_THAT(run.output, Catch::Contains("2 programs on 2 ranks agree") && Catch::Contains("answer 0") &&
                               Catch::Contains("answer 1"));
}

TEST_CASE("under mpirun a rank's error ends all ranks with its exit code and one message") {
    const Run run = mpirun(3, "throw");
    INFO(run.output);
    CHECK(run.code == 4);
    CHECK(run.seconds < 15.0);
    CHECK(occurrences(run.output, "trainctl: ") == 1);
    CHECK_THAT(run.output, Catch::Contains("the token file is truncated"));
}

TEST_CASE("under mpirun a killed rank ends all ranks") {
    const Run run = mpirun(3, "kill");
    INFO(run.output);
    CHECK(run.code != 0);
    CHECK(run.seconds < 15.0);
}

TEST_CASE("under mpirun a deadline names the rank that stays away") {
    const Run run = mpirun(3, "away");
    INFO(run.output);
    CHECK(run.code == 6);
    CHECK(run.seconds < 20.0);
    CHECK_THAT(run.output, Catch::Contains("communicator 'world': all_reduce of 3.81 MiB") &&
                               Catch::Contains("nothing came from rank 1"));
}

TEST_CASE("under mpirun any thread can abort a communicator") {
    const Run run = mpirun(3, "abort");
    INFO(run.output);
    CHECK(run.code == 6);
    CHECK(run.seconds < 15.0);
    CHECK(occurrences(run.output, "the watchdog saw no step") == 1);
}

TEST_CASE("under mpirun everything printed arrives before the end") {
    const Run run = mpirun(3, "finish");
    CHECK(run.code == 0);
    std::size_t bytes = 0;  // lines of different ranks may cut each other
    for (int rank = 0; rank < 3; ++rank) {
        for (int line = 0; line < 2000; ++line) {
            bytes += ("line " + std::to_string(line) + " of rank " + std::to_string(rank) + "\n").size();
        }
    }
    CHECK(run.output.size() == bytes);
}

TEST_CASE("under mpirun an exception that passes the world ends the job") {
    const Run run = mpirun(2, "unwind");
    INFO(run.output);
    CHECK(run.code == 1);
    CHECK(run.seconds < 15.0);
}
