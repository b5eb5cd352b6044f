#include "trainctl/config/load.h"

#include <cstdio>
#include <fstream>

#include "job_text.h"
#include "support/catch.h"

using namespace trainctl;
using namespace trainctl::test;

TEST_CASE("A small job resolves completely", "[config][load]") {
    const LoadedJob job = load(valid_job);
    INFO(format_problems(job.problems));
    REQUIRE(job.ok());
    CHECK(job.problems.empty());
    const JobSpec& spec = job.spec;
    CHECK(spec.model.layers == 4);
    CHECK(spec.model.head_dim == 16);
    CHECK(spec.model.kv_heads == 2);
    CHECK(spec.training.sequence_length == 256);  // the preset's longest
    CHECK(spec.training.micro_batch_size == 4);
    CHECK(spec.data.train == std::vector<DataSource>{{"data/text", 1.0}});
    CHECK(spec.optimizer == OptimizerSpec{});
    CHECK(spec.checkpoint == CheckpointSpec{});
}

TEST_CASE("Every kind of value loads", "[config][load]") {
    const LoadedJob job = load(R"([job]
run_dir = "r"
tokens = 1_000_000
seed = 0x10
[model]
architecture = "gpt2"
layers = 2
hidden_size = 48
heads = 3
vocab_size = 300
[data]
train = [ "a", { path = "b", weight = 3 }, { weight = 0.5, path = "c" } ]
validation = "v"
format = "nanogpt"
dtype = "uint16"
[training]
micro_batch_size = 2
global_batch_size = 8
sequence_length = 64
gradient_clip = 0
[schedule]
kind = "inverse_sqrt"
[precision]
compute = "fp32"
[communication]
gradient_bucket_mb = 0.01
overlap_comm = false
[checkpoint]
interval = "1h30m"
max_age = 7200
[device]
threads = "auto"
)");
    INFO(format_problems(job.problems));
    REQUIRE(job.ok());
    const JobSpec& spec = job.spec;
    CHECK(spec.seed == 16);
    CHECK(spec.model.architecture == Architecture::Gpt2);
    CHECK(spec.model.head_dim == 16);
    CHECK(spec.model.kv_heads == 3);
    CHECK(spec.model.ffn_size == 192);
    CHECK(spec.model.tie_embeddings);
    CHECK(spec.model.max_sequence_length == 64);
    CHECK(spec.data.train == std::vector<DataSource>{{"a", 1.0}, {"b", 3.0}, {"c", 0.5}});
    CHECK(spec.data.validation == std::vector<DataSource>{{"v", 1.0}});
    CHECK(spec.data.dtype == DType::U16);
    CHECK(spec.training.gradient_clip == 0.0);
    CHECK(spec.schedule.kind == ScheduleKind::InverseSqrt);
    CHECK(spec.precision.compute == DType::F32);
    CHECK(spec.communication.gradient_bucket_mb == 0.01);
    CHECK(!spec.communication.overlap_comm);
    CHECK(spec.checkpoint.interval_s == 5400.0);
    CHECK(spec.checkpoint.max_age_s == 7200.0);
    CHECK(spec.device.threads == 0);
    CHECK(spec.steps == 1954);  // 1e6 / (8 x 64) = 1953.1, rounded up
    CHECK(spec.tokens == 1'000'000);
}

TEST_CASE("The llama MLP width and head follow the published rule", "[config][load]") {
    for (const auto& [hidden, ffn] : {std::pair{2048, 5632}, {4096, 11008}, {5120, 13824}}) {
        const LoadedJob job = load_job_text(
            "[job]\nrun_dir='r'\nsteps=10\n[data]\ntrain='a'\n[training]\nglobal_batch_size=4\nsequence_"
            "length=8\n"
            "[model]\nlayers=1\nheads=32\nvocab_size=10\nhidden_size=" +
                std::to_string(hidden),
            "job.toml");
        REQUIRE(job.ok());
        CHECK(job.spec.model.ffn_size == ffn);
        CHECK(!job.spec.model.tie_embeddings);
    }
}

TEST_CASE("Keys of [model] win over the preset, and what follows from them follows", "[config][load]") {
    const JobSpec plain = load(valid_job).spec;
    const JobSpec vocabulary = load_set({"model.vocab_size=1000"}).spec;
    CHECK(vocabulary.model.vocab_size == 1000);
    CHECK(vocabulary.model.layers == plain.model.layers);
    const JobSpec wider = load_set({"model.hidden_size=128"}).spec;
    CHECK(wider.model.head_dim == 32);
    CHECK(wider.model.ffn_size == 512);
    const JobSpec pinned =
        load_set({"model.hidden_size=128", "model.head_dim=16", "model.ffn_size=100"}).spec;
    CHECK(pinned.model.head_dim == 16);
    CHECK(pinned.model.ffn_size == 100);
    CHECK(load_set({"model.tie_embeddings=true"}).spec.model.tie_embeddings);
}

TEST_CASE("Origins name the place of every value", "[config][load]") {
    const LoadedJob job = load(valid_job, {.set = {"optimizer.lr=1e-3"}, .world_size = 2});
    CHECK(to_string(job.origins.at("job.steps")) == "job.toml:4:9");
    CHECK(to_string(job.origins.at("optimizer.lr")) == "--set optimizer.lr=1e-3");
    CHECK(to_string(job.origins.at("model.layers")) == "preset tiny");
    CHECK(to_string(job.origins.at("optimizer.beta1")) == "default");
    CHECK(to_string(job.origins.at("training.sequence_length")) == "derived");
    CHECK(job.origins.count("job.tokens") == 0);
}

TEST_CASE("A key that is required is missed", "[config][load]") {
    const LoadedJob job = load("");
    CHECK(problem(job, "missing", "job.run_dir").code == "missing");
    CHECK(problem(job, "missing", "data.train").code == "missing");
    CHECK(problem(job, "missing", "job.steps").code == "missing");
    CHECK_THAT(problem(job, "missing", "model.layers").what,
               Catch::Contains("model.hidden_size") && Catch::Contains("model.vocab_size"));
    CHECK_THAT(problem(job, "batch").what, Catch::Contains("neither"));
    CHECK(problem(load_set({"job.run_dir=\"\""}), "empty", "job.run_dir").code == "empty");
    CHECK(problem(load_set({"data.train=[]"}), "empty", "data.train").code == "empty");
}

TEST_CASE("A job file that cannot be read is a problem of the command line", "[config][load]") {
    const auto files = make_posix_file_system();
    const LoadedJob missing = load_job(*files, "/nonexistent/job.toml");
    CHECK(problem(missing, "unreadable").exit == Exit::Usage);
    CHECK_THAT(problem(missing, "unreadable").what, Catch::Contains("/nonexistent/job.toml"));
    const LoadedJob directory = load_job(*files, "/tmp");
    CHECK(problem(directory, "unreadable").exit == Exit::Usage);
}
