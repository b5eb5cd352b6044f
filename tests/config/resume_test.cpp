#include "trainctl/config/resume.h"

#include "job_text.h"
#include "support/catch.h"
#include "trainctl/config/registry.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

std::vector<KeyChange> changes(const std::vector<std::string>& set) {
    return compare_for_resume(load(valid_job).spec, load_set(set).spec);
}

std::string refusal_text(const std::vector<std::string>& set, const std::vector<std::string>& allowed = {}) {
    try {
        require_resumable(changes(set), allowed);
    } catch (const Error& error) {
        CHECK(error.code() == Exit::Usage);
        return error.what();
    }
    return {};
}

}  // namespace

TEST_CASE("The same job has no changes", "[config][resume]") {
    CHECK(changes({"job.steps=100"}).empty());
    CHECK_NOTHROW(require_resumable({}, {}));
}

TEST_CASE("Free keys change without a word", "[config][resume]") {
    const std::vector<std::string> set{"job.run_dir=elsewhere",
                                       "training.micro_batch_size=2",
                                       "memory.zero_stage=2",
                                       "checkpoint.keep_latest=5",
                                       "monitoring.log_interval=7",
                                       "device.threads=1",
                                       "communication.gradient_bucket_mb=0.1"};
    const auto found = changes(set);
    CHECK(found.size() == set.size());
    for (const KeyChange& change : found) CHECK(change.resume == ResumeClass::Free);
    CHECK(refusal_text(set).empty());
}

TEST_CASE("Steps, schedule and rates need --allow-change", "[config][resume]") {
    const std::string text = refusal_text({"job.steps=200", "optimizer.lr=1e-4"});
    CHECK_THAT(text, Catch::Contains("--allow-change job.steps --allow-change optimizer.lr") &&
                         Catch::Contains("job.steps: 100 -> 200") &&
                         Catch::Contains("optimizer.lr: 0.0003 -> 0.0001"));
    CHECK_THAT(refusal_text({"job.steps=200", "optimizer.lr=1e-4"}, {"job.steps"}),
               Catch::Contains("optimizer.lr") && !Catch::Contains("job.steps"));
    CHECK(refusal_text({"job.steps=200", "optimizer.lr=1e-4"}, {"job.steps", "optimizer.lr"}).empty());
}

TEST_CASE("Model, seed, batch and precision must not change", "[config][resume]") {
    for (const char* set :
         {"model.layers=5", "job.seed=1", "training.global_batch_size=32", "precision.compute=fp32",
          "model.dropout=0.1", "data.train=b", "training.sequence_length=128", "model.preset=llama-4m",
          "data.validation_split=0.1"}) {
        INFO(set);
        CHECK_THAT(refusal_text({set}), Catch::Contains("cannot be continued"));
    }
    CHECK_THAT(refusal_text({"job.seed=1"}, {"job.seed"}), Catch::Contains("must not change within a run"));
    CHECK_THAT(refusal_text({"job.steps=200"}, {"job.stepps"}), Catch::Contains("did you mean job.steps?"));
}

TEST_CASE("What is never allowed is told apart from what needs to be confirmed", "[config][resume]") {
    const std::string text = refusal_text({"job.seed=1", "job.steps=200"});
    const std::size_t never = text.find("never allowed");
    const std::size_t seed = text.find("job.seed: ");
    const std::size_t confirm = text.find("confirm them with --allow-change job.steps:");
    const std::size_t steps = text.find("job.steps: 100 -> 200");
    REQUIRE(steps != std::string::npos);
    CHECK(never < seed);
    CHECK(seed < confirm);
    CHECK(confirm < steps);
    CHECK_THAT(refusal_text({"job.seed=1", "job.steps=200"}, {"job.steps"}), !Catch::Contains("confirm"));
}

TEST_CASE("Data that only moved may go on; its contents are compared elsewhere", "[config][resume]") {
    const auto moved = changes({"data.train=/other/disk/text"});
    REQUIRE(moved.size() == 1);
    CHECK(moved.front().resume == ResumeClass::Free);
    CHECK(changes({"data.train=[{path='/other/text',weight=2}]"}).front().resume == ResumeClass::Refuse);
    CHECK(changes({"data.train=['/other/text','/other/text']"}).front().resume == ResumeClass::Refuse);
}

TEST_CASE("Every key has the class the design gives it", "[config][resume]") {
    const Registry registry;
    const auto of = [&](const char* name) { return registry.find(name)->resume; };
    for (const char* name : {"schedule.kind", "schedule.warmup_steps", "optimizer.lr", "job.steps",
                             "job.tokens", "device.tune_products"})
        CHECK(of(name) == ResumeClass::Warn);
    for (const char* name :
         {"model.layers", "model.vocab_size", "data.train", "job.seed", "training.global_batch_size",
          "precision.compute", "precision.gradient", "precision.tf32"})
        CHECK(of(name) == ResumeClass::Refuse);
    for (const Key& key : registry.keys()) {
        if (key.name == "device.tune_products") continue;  // the one that changes bits
        if (key.section() == "parallel" || key.section() == "memory" || key.section() == "checkpoint" ||
            key.section() == "launch" || key.section() == "monitoring" || key.section() == "device")
            CHECK(key.resume == ResumeClass::Free);
    }
}
