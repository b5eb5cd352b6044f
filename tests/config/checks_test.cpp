#include "config/checks.h"

#include "job_text.h"
#include "support/catch.h"
#include "trainctl/base/text.h"
#include "trainctl/config/port_range.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

void refused(const std::vector<std::string>& set, const std::string& code, const std::string& text) {
    const LoadedJob job = load_set(set);
    INFO(set.front() << "\n" << format_problems(job.problems));
    const Problem found = problem(job, code);
    CHECK_THAT(found.what, Catch::Contains(text));
    CHECK((!found.hint.empty() || found.what.find("; ") != std::string::npos));  // what to do next
    CHECK(count_errors(job) == 1);
}

void accepted(const std::vector<std::string>& set) {
    const LoadedJob job = load_set(set);
    INFO(set.front() << "\n" << format_problems(job.problems));
    CHECK(job.problems.empty());
}

}  // namespace

TEST_CASE("Model dimensions must divide", "[config][checks]") {
    refused({"model.heads=3", "model.kv_heads=3"}, "divisibility",
            "model.hidden_size 64 is not a multiple of model.heads 3");
    refused({"model.kv_heads=3"}, "divisibility", "model.heads 4 is not a multiple of model.kv_heads 3");
    refused({"model.head_dim=15"}, "divisibility", "must be even, found 15");
    accepted({"model.architecture=gpt2", "model.head_dim=15"});
    accepted({"model.heads=2", "model.kv_heads=1"});
}

TEST_CASE("Sequence length and vocabulary fit the model and the tokens", "[config][checks]") {
    refused({"training.sequence_length=257"}, "contradiction",
            "training.sequence_length 257 exceeds model.max_sequence_length 256");
    accepted({"training.sequence_length=257", "model.max_sequence_length=257"});
    refused({"data.format=nanogpt", "data.dtype=uint16", "model.vocab_size=65537"}, "contradiction", "65536");
    accepted({"data.format=nanogpt", "data.dtype=uint16", "model.vocab_size=65536"});
    accepted({"data.format=megatron", "data.dtype=uint16"});  // the header is asked when the file is opened
}

TEST_CASE("A device has kernels for the model", "[config][checks]") {
    const std::vector<std::string> wide = {"model.hidden_size=1040", "model.heads=4", "model.ffn_size=64"};
    const auto on = [&](const char* device, std::vector<std::string> set) {
        set.push_back(std::string("device.kind=") + device);
        return set;
    };
    refused(on("cuda", wide), "contradiction", "heads of up to 256 elements, model.head_dim is 260");
    accepted(on("cpu", wide));
    accepted(on("auto", wide));  // nobody knows yet
    accepted(on("cuda", {"model.hidden_size=1024", "model.heads=4", "model.ffn_size=64"}));
}

TEST_CASE("The loss scale starts at or above its minimum, and belongs to fp16", "[config][checks]") {
    const std::string fp16 = "precision.compute=fp16";
    refused({fp16, "precision.loss_scale.minimum=8.0", "precision.loss_scale.initial=4.0"}, "contradiction",
            "precision.loss_scale.minimum 8 exceeds precision.loss_scale.initial 4");
    accepted({fp16, "precision.loss_scale.minimum=4.0", "precision.loss_scale.initial=4.0"});
    accepted({fp16});
    const LoadedJob unused = load_set({"precision.loss_scale.hysteresis=1"});
    CHECK(unused.ok());
    CHECK_THAT(format_problems(unused.problems),
               Catch::Contains("precision.loss_scale.hysteresis has no effect"));
}

TEST_CASE("NCCL needs GPUs", "[config][checks]") {
    accepted({"communication.backend=nccl"});
    accepted({"communication.backend=nccl", "device.kind=cuda"});
    refused({"communication.backend=nccl", "device.kind=cpu"}, "contradiction", "between GPUs");
}

TEST_CASE("CUDA graphs need a GPU, and work that repeats", "[config][checks]") {
    accepted({"device.cuda_graphs=true"});
    accepted({"device.cuda_graphs=true", "device.kind=cuda", "precision.compute=fp16"});
    accepted({"device.cuda_graphs=false", "device.kind=cpu", "model.dropout=0.1"});
    refused({"device.cuda_graphs=true", "device.kind=cpu"}, "contradiction", "device.kind = \"cpu\"");
    refused({"device.cuda_graphs=true", "model.dropout=0.1"}, "contradiction", "model.dropout = 0.1");
}

TEST_CASE("TF32 belongs to fp32 on a GPU", "[config][checks]") {
    const std::string tf32 = "precision.tf32=true";
    accepted({tf32, "precision.compute=fp32"});
    accepted({tf32, "precision.compute=fp32", "device.kind=cuda"});
    for (const char* compute : {"precision.compute=bf16", "precision.compute=fp16"})
        refused({tf32, compute}, "contradiction", "precision.compute is not \"fp32\"");
    refused({tf32, "precision.compute=fp32", "device.kind=cpu"}, "contradiction", "needs a GPU");
}

TEST_CASE("Steps exclude tokens", "[config][checks]") {
    const LoadedJob job = load(
        "[job]\nrun_dir='r'\nsteps=5\ntokens=5\n[model]\npreset='tiny'\n[data]\ntrain='a'\n"
        "[training]\nglobal_batch_size=4\n");
    CHECK_THAT(problem(job, "contradiction", "job.steps").what,
               Catch::Contains("job.steps = 5 and job.tokens = 5"));
    refused({"job.steps=1000000000000000", "training.global_batch_size=1048576"}, "out_of_range", "2^62");
}

TEST_CASE("A warm-up that leaves no decay is refused with the numbers", "[config][checks]") {
    for (const char* kind : {"cosine", "linear", "polynomial"}) {
        const std::string set = std::string{"schedule.kind="} + kind;
        refused({set, "schedule.warmup_steps=100"}, "contradiction",
                "schedule.warmup_steps 100 leaves no decay: the schedule ends at job.steps 100");
        refused({set, "schedule.warmup_steps=60", "schedule.decay_steps=50"}, "contradiction",
                "schedule.decay_steps 50");
        accepted({set, "schedule.warmup_steps=99"});
    }
    for (const char* kind : {"constant", "inverse_sqrt"}) {
        const std::string set = std::string{"schedule.kind="} + kind;
        refused({set, "schedule.warmup_steps=101"}, "contradiction",
                "longer than the schedule, job.steps 100");
        accepted({set, "schedule.warmup_steps=100"});
    }
}

TEST_CASE("wsd needs its decay, and room for it", "[config][checks]") {
    refused({"schedule.kind=wsd"}, "missing", "schedule.wsd_decay_steps");
    refused({"schedule.kind=wsd", "schedule.warmup_steps=20", "schedule.wsd_decay_steps=81"}, "contradiction",
            "= 101 is longer than the schedule, job.steps 100");
    accepted({"schedule.kind=wsd", "schedule.warmup_steps=20", "schedule.wsd_decay_steps=80"});
}

TEST_CASE("Learning rates are consistent", "[config][checks]") {
    refused({"schedule.min_lr=0.01"}, "contradiction",
            "schedule.min_lr 0.01 exceeds the peak learning rate 0.0003");
    refused({"optimizer.scale_lr=linear"}, "missing", "scale_lr_reference_batch");
    // 16 samples against 64: the scaled peak is 0.25 or 0.5 of lr.
    refused({"optimizer.scale_lr=linear", "optimizer.scale_lr_reference_batch=64", "optimizer.lr=1e-2",
             "schedule.min_lr=4e-3"},
            "contradiction", "peak learning rate 0.0025");
    accepted({"optimizer.scale_lr=sqrt", "optimizer.scale_lr_reference_batch=64", "optimizer.lr=1e-2",
              "schedule.min_lr=4e-3"});
}

TEST_CASE("Evaluation needs data, once", "[config][checks]") {
    refused({"training.eval_interval=10"}, "missing", "needs validation data");
    accepted({"training.eval_interval=10", "data.validation_split=0.1"});
    accepted({"training.eval_interval=10", "data.validation=v"});
    refused({"data.validation_split=0.1", "data.validation=v"}, "contradiction", "both given");
    refused({"checkpoint.interval=2h", "checkpoint.max_age=1h"}, "contradiction", "shorter");
}

TEST_CASE("Keys without effect are warnings, not errors", "[config][checks]") {
    const std::pair<const char*, const char*> cases[] = {
        {"schedule.power=2.0", "not \"polynomial\""},
        {"schedule.wsd_shape=exponential", "not \"wsd\""},
        {"schedule.wsd_decay_steps=5", "not \"wsd\""},
        {"optimizer.scale_lr_reference_batch=5", "is \"none\""},
        {"memory.checkpoint_every_blocks=2", "gradient_checkpointing is \"none\""},
        {"communication.gradient_bucket_mb=1", "one bucket"},  // 230,080 x 4 bytes = 0.92 MB
    };
    for (const auto& [set, text] : cases) {
        const LoadedJob job = load_set({set});
        REQUIRE(job.problems.size() == 1);
        CHECK(job.problems.front().severity == Severity::Warning);
        CHECK_THAT(job.problems.front().what, Catch::Contains(text));
        CHECK(job.ok());
    }
    accepted({"memory.checkpoint_every_blocks=2", "memory.gradient_checkpointing=full"});
    accepted({"communication.gradient_bucket_mb=0.9"});
    accepted({"communication.gradient_bucket_mb=1", "communication.overlap_comm=false"});
    refused({"communication.gradient_bucket_mb=0"}, "out_of_range", "greater than 0");
}

TEST_CASE("One checkpoint alone is never enough: keep_latest 1 is refused", "[config][checks]") {
    refused({"checkpoint.keep_latest=1"}, "out_of_range", "between 2 and");
    accepted({"checkpoint.keep_latest=2"});
}

TEST_CASE("Tensor sizes must divide the model, and every pipeline stage needs blocks", "[config][checks]") {
    JobSpec job = load(valid_job).spec;
    const auto texts = [&job] {
        std::vector<Finding> findings;
        check_layout(job, findings);
        std::vector<std::string> whats;
        for (const Finding& each : findings) whats.push_back(each.problem.what);
        return whats;
    };
    CHECK(texts().empty());
    job.parallel.tensor_parallel_size = 2;
    job.parallel.pipeline_parallel_size = 3;  // uneven
    CHECK(texts().empty());
    job.parallel.tensor_parallel_size = 4;  // two kv heads, each on two ranks
    CHECK(texts().empty());
    job.model.heads = 12;
    job.model.kv_heads = 6;
    CHECK(texts() ==
          std::vector<std::string>{
              "model.kv_heads 6 is neither a multiple nor a divisor of parallel.tensor_parallel_size 4"});
    job.parallel.tensor_parallel_size = 5;
    const std::int64_t ffn = job.model.ffn_size;
    CHECK(
        texts() ==
        std::vector<std::string>{
            "model.heads 12 is not a multiple of parallel.tensor_parallel_size 5",
            "model.kv_heads 6 is neither a multiple nor a divisor of parallel.tensor_parallel_size 5",
            "model.ffn_size " + std::to_string(ffn) + " is not a multiple of parallel.tensor_parallel_size 5",
            "model.vocab_size 257, padded to 384, is not a multiple of parallel.tensor_parallel_size 5"});
    std::vector<Finding> findings;
    check_layout(job, findings);
    for (const Finding& each : findings)
        CHECK(each.problem.hint == "sizes that fit this model: 1, 2, 3, 6, 12; or change its shape");
    job.parallel.tensor_parallel_size = 1;
    job.parallel.pipeline_parallel_size = 5;
    CHECK(texts() ==
          std::vector<std::string>{"model.layers 4 cannot fill parallel.pipeline_parallel_size 5 x "
                                   "parallel.virtual_stages 1 = 5 model parts of at least one block"});
    job.parallel.pipeline_parallel_size = 2;
    job.parallel.pipeline_schedule = "interleaved";
    job.parallel.virtual_stages = 2;
    CHECK(texts().empty());
    for (const std::int64_t stages : {1, 2}) {
        job.parallel.pipeline_parallel_size = stages;
        job.parallel.virtual_stages = stages == 1 ? 2 : 1;
        CHECK(texts() == std::vector<std::string>{"parallel.pipeline_schedule = \"interleaved\" with " +
                                                  counted(3 - stages, "virtual stage") + " on each of " +
                                                  counted(stages, "pipeline stage")});
    }
    job.parallel.pipeline_schedule = "1f1b";
    job.parallel.virtual_stages = 2;
    CHECK(texts().size() == 1);
    job.parallel.virtual_stages = 1;
    job.model.layers = 0;  // not given: reported elsewhere
    CHECK(texts().empty());
}

TEST_CASE("The interleaved schedule needs a multiple of the stages as micro-batches", "[config][checks]") {
    const auto loaded = [](std::int64_t world, const char* micro) {
        return load(valid_job, {.set = {"parallel.pipeline_parallel_size=2", "parallel.virtual_stages=2",
                                        "parallel.pipeline_schedule=interleaved", micro},
                                .world_size = world});
    };
    CHECK(count_errors(loaded(2, "training.micro_batch_size=1")) == 0);
    const LoadedJob odd = loaded(2, "training.micro_batch_size=16");
    CHECK_THAT(problem(odd, "divisibility").what,
               Catch::Contains("parallel.pipeline_parallel_size 2") &&
                   Catch::Contains(
                       "found 1 = global_batch_size 16 / (micro_batch_size 16 x data-parallel ranks 1)"));
    CHECK_THAT(problem(odd, "divisibility").hint, Catch::Contains("a multiple of 32,"));
    // No number of ranks makes two of one micro-batch; four may become two or one.
    const auto anywhere = [](const char* micro) {
        return load_set({"parallel.pipeline_parallel_size=2", "parallel.virtual_stages=2",
                         "parallel.pipeline_schedule=interleaved", micro});
    };
    CHECK_THAT(problem(anywhere("training.micro_batch_size=16"), "divisibility").what,
               Catch::Contains("found 1"));
    CHECK(anywhere("training.micro_batch_size=4").ok());
}

TEST_CASE("A contradiction points to every key that has part in it", "[config][checks]") {
    const auto places = [](const LoadedJob& job, const std::string& code) {
        const Problem found = problem(job, code);
        std::vector<std::string> texts{to_string(found.at)};
        for (const Position& place : found.also) texts.push_back(to_string(place));
        return texts;
    };
    using Places = std::vector<std::string>;
    CHECK(places(load_set({"training.micro_batch_size=5"}), "batch") ==
          Places{"job.toml:14:21", "--set training.micro_batch_size=5"});
    CHECK(places(load_set({"training.global_batch_size=17", "training.gradient_accumulation_steps=3"}),
                 "batch") == Places{"--set training.global_batch_size=17", "job.toml:13:20",
                                    "--set training.gradient_accumulation_steps=3"});
    CHECK(places(load_set({"job.steps=5", "job.tokens=6"}), "contradiction") ==
          Places{"--set job.steps=5", "--set job.tokens=6"});
    // What follows from job.tokens says so: the user did not write these steps.
    const LoadedJob derived = load_set({"job.tokens=8192", "schedule.warmup_steps=2"});
    CHECK_THAT(problem(derived, "contradiction").what, Catch::Contains("job.steps 2 (from job.tokens 8192)"));
    CHECK(places(derived, "contradiction") ==
          Places{"--set schedule.warmup_steps=2", "--set job.tokens=8192"});
    CHECK_THAT(format_problem(problem(load_set({"training.micro_batch_size=5"}), "batch")),
               Catch::Contains("  --> job.toml:14:21\n  --> --set training.micro_batch_size=5\n"));
    try {
        job_or_fail(load_set({"training.micro_batch_size=5"}));
        FAIL("a wrong batch was accepted");
    } catch (const Error& error) {
        CHECK_THAT(error.what(), Catch::Contains("job.toml:14:21, --set training.micro_batch_size=5: "));
    }
}

TEST_CASE("A broken key is unknown to the checks, which go on with the others", "[config][checks]") {
    const auto batch = [](std::vector<std::string> set, std::optional<std::int64_t> world) {
        const LoadedJob job = load_set(std::move(set), world);
        CHECK(count_errors(job) == 2);
        return problem(job, "batch").what;
    };
    const std::string with_micro = "global_batch_size 17 is not a multiple of micro_batch_size 4; ";
    const std::string global = "training.global_batch_size=17";
    CHECK_THAT(batch({global, "optimizer.lr=-1"}, 1),
               Catch::Contains("micro_batch_size 4 x data-parallel ranks 1"));
    CHECK_THAT(batch({global, "parallel.data_parallel_size=0"}, {}), Catch::Contains(with_micro));
    CHECK_THAT(batch({global, "parallel.tensor_parallel_size=0"}, 2), Catch::Contains(with_micro));
    CHECK_THAT(batch({global, "training.gradient_accumulation_steps=0"}, {}), Catch::Contains(with_micro));
    CHECK_THAT(batch({global, "training.micro_batch_size=0"}, 2),
               Catch::Contains("global_batch_size 17 is not a multiple of data-parallel ranks 2; "));
    // Nothing is left to check, and nothing is said to be missing that was given.
    const LoadedJob both = load_set({"training.micro_batch_size=0", "training.global_batch_size=0"}, 2);
    CHECK(count_errors(both) == 2);
    CHECK(problem(both, "batch").what.empty());
    CHECK(!both.usable({"job.name", "training.micro_batch_size"}));
    CHECK(both.usable({"job.name", "model.layers"}));
}

TEST_CASE("A consequence of another mistake is not reported", "[config][checks]") {
    const LoadedJob job =
        load(valid_job, {.set = {"job.steps=ten", "schedule.warmup_steps=2000"}, .world_size = {}});
    CHECK(count_errors(job) == 1);
    CHECK(problem(job, "wrong_type", "job.steps").code == "wrong_type");
}

TEST_CASE("Port ranges", "[config][checks]") {
    accepted({"launch.port_range=20000-20100"});
    accepted({"launch.port_range=1024-65535"});
    accepted({"launch.port_range=20000-20000"});
    for (const char* ports :
         {"20000", "20100-20000", "1023-2000", "60000-65536", "-", "20000-", "20000-20100x", "a-b",
          "20000:20100", " 20000-20100", "99999999999-99999999999"}) {
        refused({std::string("launch.port_range=\"") + ports + "\""}, "out_of_range",
                std::string("found \"") + ports + "\"");
    }
    CHECK(parse_port_range("20000-20100")->size() == 101);
}
