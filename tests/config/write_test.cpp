#include "trainctl/config/write.h"

#include <nlohmann/json.hpp>
#include <random>

#include "job_text.h"
#include "support/catch.h"
#include "trainctl/config/presets.h"
#include "trainctl/config/registry.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

// A valid job with many keys drawn at random.
std::vector<std::string> random_settings(std::mt19937_64& random) {
    const auto pick = [&random](std::initializer_list<const char*> options) {
        return std::string{*(options.begin() + static_cast<std::ptrdiff_t>(random() % options.size()))};
    };
    const auto real = [&random](double low, double high) {
        const double value = std::uniform_real_distribution<double>{low, high}(random);
        std::ostringstream text;
        text.precision(17);
        text << value;
        return text.str();
    };
    const auto whole = [&random](std::int64_t low, std::int64_t high) {
        return std::to_string(std::uniform_int_distribution<std::int64_t>{low, high}(random));
    };
    std::vector<std::string> names = preset_names();
    std::vector<std::string> set{
        "model.preset=" + names[random() % names.size()],
        "job.seed=" + whole(0, std::numeric_limits<std::int64_t>::max()),
        "job.run_dir=" +
            pick({"\"a b\"", "\"q\\\"uote\"", "\"tab\\tx\\u0007\"", "'back\\slash'", "\"\xc3\xa4\""}),
        "data.train=" + pick({"a", "['a','b']", "[{path='a',weight=0.1},'b c']"}),
        "data.format=" + pick({"auto", "megatron", "nanogpt", "llmc"}),
        "training.micro_batch_size=" + whole(1, 4),
        "training.global_batch_size=" + whole(1, 8) + "00",
        "training.gradient_clip=" + real(0, 2),
        "optimizer.lr=" + real(0.001, 1),
        "optimizer.epsilon=" + pick({"1e-8", "1e-300", "0.1"}),
        "schedule.kind=" + pick({"constant", "linear", "cosine", "polynomial", "inverse_sqrt"}),
        "precision.compute=" + pick({"bf16", "fp32"}),
        "memory.zero_stage=" + whole(0, 3),
        "communication.gradient_bucket_mb=" + pick({"auto", "0.25", "1e-3"}),
        "checkpoint.interval=" + pick({"auto", "90s", "1d2h3m4s", "1.5", "86400"}),
        "checkpoint.max_age=" + pick({"auto", "7d", "1e9"}),
        "device.threads=" + pick({"auto", "3"}),
        "device.kind=" + pick({"auto", "cpu"}),
        "monitoring.plain_interval_s=" + real(0.1, 100),
        "monitoring.gpu_interval_s=" + real(0, 100)};
    if (random() % 2 == 0) set.push_back("job.tokens=" + whole(1, 1'000'000'000'000));
    if (random() % 2 == 0) set.push_back("checkpoint.interval_steps=" + whole(1, 1000));
    return set;
}

}  // namespace

TEST_CASE("A resolved job written as TOML loads back to the same job", "[config][write]") {
    std::mt19937_64 random{20};
    int loaded = 0;
    for (int round = 0; round < 200; ++round) {
        const LoadedJob job = load_set(random_settings(random), std::nullopt);
        if (!job.ok()) continue;  // a micro-batch that does not divide, for example
        ++loaded;
        const std::string text = to_toml(job.spec);
        INFO(text);
        const LoadedJob again = load_job_text(text, "resolved.toml");
        INFO(format_problems(again.problems));
        REQUIRE(again.ok());
        CHECK(again.spec == job.spec);
        CHECK(to_toml(again.spec) == text);
        const LoadedJob commented = load_job_text(to_toml(job.spec, job.origins), "resolved.toml");
        CHECK(commented.spec == job.spec);
    }
    CHECK(loaded > 100);
}

TEST_CASE("A resolved job does not change with the ranks it is loaded for", "[config][write]") {
    const LoadedJob job = load(valid_job, {.set = {"job.tokens=100000"}, .world_size = 2});
    REQUIRE(job.ok());
    for (const std::int64_t world : {1, 2, 4}) {
        const LoadedJob again =
            load_job_text(to_toml(job.spec), "resolved.toml", {.set = {}, .world_size = world});
        REQUIRE(again.ok());
        CHECK(again.spec == job.spec);
    }
}

TEST_CASE("Every bound key that has a value is written", "[config][write]") {
    const LoadedJob job = load(valid_job);
    const std::string text = to_toml(job.spec);
    const Registry registry;
    for (const Key& key : registry.keys()) {
        if (!key.binding) continue;
        const bool valued =
            key.absent == Absent::Auto || !std::holds_alternative<std::monostate>(key.current(job.spec));
        INFO(key.name);
        CHECK((text.find("\n" + key.leaf() + " = ") != std::string::npos || !valued));
    }
    CHECK_THAT(to_toml(job.spec, job.origins), Catch::Contains("steps = 100  # job.toml:4:9") &&
                                                   Catch::Contains("layers = 4  # preset tiny") &&
                                                   Catch::Contains("beta1 = 0.9  # default"));
}

TEST_CASE("An origin cannot break out of its comment", "[config][write]") {
    const LoadedJob job = load_set({"job.name=\"a\\nb\"", "job.run_dir='''x\ny'''"});
    REQUIRE(job.ok());
    CHECK(job.spec.run_dir == "x\ny");
    CHECK(load_job_text(to_toml(job.spec, job.origins), "resolved.toml").spec == job.spec);
}

TEST_CASE("JSON has the same values, nested like the tables", "[config][write]") {
    const LoadedJob job = load_set({"checkpoint.interval=90m", "optimizer.lr=0.1"});
    const auto json = nlohmann::json::parse(to_json(job.spec));
    CHECK(json["job"]["steps"] == 100);
    CHECK(json["optimizer"]["lr"] == 0.1);
    CHECK(json["checkpoint"]["interval"] == "1h30m");
    CHECK(json["device"]["threads"] == "auto");
    CHECK(json["precision"]["loss_scale"]["hysteresis"] == 2);
    CHECK(json["data"]["train"][0]["path"] == "data/text");
    CHECK(!json["job"].contains("tokens"));
}
