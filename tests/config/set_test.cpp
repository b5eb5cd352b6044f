#include "job_text.h"
#include "support/catch.h"

using namespace trainctl;
using namespace trainctl::test;

TEST_CASE("--set takes TOML values, and bare text where there is none", "[config][set]") {
    CHECK(load_set({"optimizer.lr=3e-4"}).spec.optimizer.lr == 3e-4);
    CHECK(load_set({"optimizer.lr = 1"}).spec.optimizer.lr == 1.0);
    CHECK(load_set({"job.run_dir=/scratch/a=b"}).spec.run_dir == "/scratch/a=b");
    CHECK(load_set({"job.run_dir=\"with space\""}).spec.run_dir == "with space");
    CHECK(load_set({"job.name=42"}).spec.name == "42");
    CHECK(load_set({"job.name=true"}).spec.name == "true");
    CHECK(load_set({"model.preset=llama-4m"}).spec.model.hidden_size == 256);
    CHECK(load_set({"checkpoint.interval=45m"}).spec.checkpoint.interval_s == 2700.0);
    CHECK(load_set({"checkpoint.interval=auto"}).spec.checkpoint.interval_s == 0.0);
    CHECK(load_set({"data.train=other"}).spec.data.train == std::vector<DataSource>{{"other", 1.0}});
    CHECK(load_set({"data.train=[{path='a',weight=2},'b']"}).spec.data.train ==
          std::vector<DataSource>{{"a", 2.0}, {"b", 1.0}});
    CHECK(load_set({"training={micro_batch_size=8}"}).spec.training.micro_batch_size == 8);
}

TEST_CASE("--set wins over the file, and the last one wins", "[config][set]") {
    const LoadedJob job = load_set({"training.micro_batch_size=8", "training.micro_batch_size=2"});
    CHECK(job.ok());
    CHECK(job.spec.training.micro_batch_size == 2);
    // Instead of a contradiction with the file: what excludes it gives way.
    const LoadedJob tokens = load_set({"job.tokens=8192"});
    CHECK(tokens.ok());
    CHECK(tokens.spec.steps == 2);  // 16 x 256 tokens per step
    CHECK(to_string(tokens.origins.at("job.tokens")) == "--set job.tokens=8192");
    std::string in_tokens = valid_job;
    in_tokens.replace(in_tokens.find("steps = 100"), 11, "tokens = 8192");
    CHECK(load(in_tokens, {.set = {"job.steps=9"}, .world_size = {}}).spec.steps == 9);
    CHECK(!load_set({"job.tokens=8192", "job.steps=3"}).ok());
}

TEST_CASE("A malformed --set is explained", "[config][set]") {
    for (const char* text : {"", "=", "=3", "job.steps", "job steps=3", "job.steps[0]=3", "$x=1"}) {
        INFO(text);
        CHECK_THAT(problem(load_set({text}), "syntax").what, Catch::Contains("section.key=value"));
    }
    CHECK(problem(load_set({"job=3"}), "wrong_type", "job").code == "wrong_type");
    CHECK(problem(load_set({"job..steps=3"}), "wrong_section", "job..steps").code == "wrong_section");
    // A second line cannot smuggle in a second key.
    CHECK(!load_set({"job.steps=1\njob.tokens=2"}).ok());
}
