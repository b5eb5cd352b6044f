// The job files that we hand out.
#include "job_text.h"
#include "support/catch.h"
#include "trainctl/base/file_system.h"
#include "trainctl/config/batch.h"
#include "trainctl/config/reference.h"

using namespace trainctl;
using namespace trainctl::test;

TEST_CASE("Every file in configs/ passes check", "[config][folder]") {
    const auto files = make_posix_file_system();
    std::size_t checked = 0;
    for (const std::string& name : files->list(CONFIGS_FOLDER)) {
        if (name == "REFERENCE.md") continue;
        INFO(name);
        REQUIRE(name.size() > 5);
        REQUIRE(name.substr(name.size() - 5) == ".toml");
        const LoadedJob job = load_job(*files, join_path(CONFIGS_FOLDER, name));
        INFO(format_problems(job.problems));
        CHECK(job.problems.empty());
        CHECK(job.spec.steps > 0);
        ++checked;
    }
    CHECK(checked >= 5);
}

TEST_CASE("configs/REFERENCE.md is what this build prints", "[config][folder]") {
    const auto files = make_posix_file_system();
    const std::string path = join_path(CONFIGS_FOLDER, "REFERENCE.md");
    INFO("The keys changed. Renew the document: trainctl config reference > configs/REFERENCE.md");
    CHECK(read_text(*files, path) == config_reference_markdown());
}

TEST_CASE("The files in configs/ run on the ranks their comments name", "[config][folder]") {
    const auto files = make_posix_file_system();
    const std::pair<const char*, std::int64_t> runs[] = {{"tiny-cpu.toml", 1},
                                                         {"tiny-cpu.toml", 2},
                                                         {"llama-15m-english-cpu.toml", 2},
                                                         {"gpt2-124m-cpu-2ranks.toml", 2},
                                                         {"llama-1b-cluster.toml", 32},
                                                         {"llama-7b-cluster.toml", 64}};
    for (const auto& [name, world] : runs) {
        INFO(name);
        const LoadedJob job =
            load_job(*files, join_path(CONFIGS_FOLDER, name), {.set = {}, .world_size = world});
        INFO(format_problems(job.problems));
        CHECK(job.ok());
        CHECK(plan_batch(job.spec, world).global_batch_size == job.spec.training.global_batch_size);
    }
    const LoadedJob one = load_job(*files, join_path(CONFIGS_FOLDER, "llama-1b-cluster.toml"));
    CHECK(one.spec.steps == 476'838);  // as its comment says
}
