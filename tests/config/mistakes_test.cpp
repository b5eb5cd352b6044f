// What users get wrong in a job file. A trainer that drops an unknown key runs for a week with a default.
#include "job_text.h"
#include "support/catch.h"

using namespace trainctl;
using namespace trainctl::test;

TEST_CASE("A typo is found at each level, with place and nearest name", "[config][mistakes]") {
    SECTION("section") {
        const LoadedJob job = load(valid_job + "[optimiser]\nlr = 1e-3\n");
        const Problem found = problem(job, "unknown_key", "optimiser");
        CHECK(to_string(found.at) == "job.toml:15:2");
        CHECK(found.hint == "did you mean optimizer?");
        CHECK(count_errors(job) == 1);
    }
    SECTION("key") {
        const LoadedJob job = load(valid_job + "[optimizer]\nlr = 1e-3\nweigth_decay = 0.1\n");
        const Problem found = problem(job, "unknown_key", "optimizer.weigth_decay");
        CHECK(to_string(found.at) == "job.toml:17:1");
        CHECK(found.hint == "did you mean optimizer.weight_decay?");
        CHECK(count_errors(job) == 1);
    }
    SECTION("key of a nested section") {
        const LoadedJob job = load(valid_job + "[precision.loss_scale]\nminimun = 1.0\n");
        const Problem found = problem(job, "unknown_key", "precision.loss_scale.minimun");
        CHECK(to_string(found.at) == "job.toml:16:1");
        CHECK(found.hint == "did you mean precision.loss_scale.minimum?");
    }
    SECTION("nested section") {
        const LoadedJob job = load(valid_job + "[launch.slurmm]\nqos = \"x\"\n");
        CHECK(problem(job, "unknown_key", "launch.slurmm").hint == "did you mean launch.slurm?");
    }
    SECTION("word") {
        const LoadedJob job = load(valid_job + "[schedule]\nkind = \"cosin\"\n");
        const Problem found = problem(job, "unknown_choice", "schedule.kind");
        CHECK(to_string(found.at) == "job.toml:16:8");
        CHECK_THAT(found.what, Catch::Contains("did you mean \"cosine\"?"));
    }
    SECTION("member of a source") {
        const LoadedJob job = load_set({"data.train=[{path=\"a\", wieght=2}]"});
        CHECK_THAT(problem(job, "wrong_type", "data.train").what, Catch::Contains("wieght"));
    }
    SECTION("--set") {
        const LoadedJob job = load_set({"training.micro_batch_sise=4"});
        const Problem found = problem(job, "unknown_key", "training.micro_batch_sise");
        CHECK(to_string(found.at) == "--set training.micro_batch_sise=4");
        CHECK(found.hint == "did you mean training.micro_batch_size?");
    }
    SECTION("nothing near") {
        const LoadedJob job = load(valid_job + "[zzzzzzzzzz]\nqqqqqqqqqqqqqqqq = 1\n");
        CHECK(problem(job, "unknown_key", "zzzzzzzzzz").hint == "`trainctl config explain` lists all keys");
    }
}

TEST_CASE("A right key in the wrong section is sent to the right one", "[config][mistakes]") {
    SECTION("another section") {
        const LoadedJob job = load(valid_job + "sequence_length = 128\nlr = 1e-3\n");
        const Problem found = problem(job, "wrong_section", "training.lr");
        CHECK(found.hint == "lr belongs in [optimizer]");
        CHECK(to_string(found.at) == "job.toml:16:1");
        CHECK(count_errors(job) == 1);
    }
    SECTION("no section") {
        const LoadedJob job = load("zero_stage = 2\n" + valid_job);
        CHECK(problem(job, "wrong_section", "zero_stage").hint == "zero_stage belongs in [memory]");
    }
    SECTION("several could be meant") {
        const LoadedJob job = load(valid_job + "kind = \"cpu\"\n");
        CHECK(problem(job, "wrong_section", "training.kind").hint ==
              "kind belongs in [schedule] or [device]");
    }
    SECTION("a quoted path is not a path") {
        const LoadedJob job = load("\"memory.zero_stage\" = 2\n" + valid_job);
        CHECK(!job.ok());
        CHECK(problem(job, "wrong_section", "memory.zero_stage").hint == "zero_stage belongs in [memory]");
    }
}

TEST_CASE("A wrong type says what was expected and found", "[config][mistakes]") {
    struct Mistake {
        const char* assignment;
        const char* key;
        const char* expected;
        const char* found;
    };
    const Mistake mistakes[] = {
        {"training.micro_batch_size=\"8\"", "training.micro_batch_size", "an integer", "a text \"8\""},
        {"training.micro_batch_size=8.0", "training.micro_batch_size", "integer", "a number 8"},
        {"training.micro_batch_size=[8]", "training.micro_batch_size", "integer", "a list"},
        {"optimizer.lr=true", "optimizer.lr", "number", "a boolean"},
        {"optimizer.lr=nan", "optimizer.lr", "a finite number", "nan"},
        {"optimizer.lr=-inf", "optimizer.lr", "a finite number", "-inf"},
        {"checkpoint.interval=inf", "checkpoint.interval", "a finite number", "inf"},
        {"job.steps=99999999999999999999", "job.steps", "an integer",
         "found 99999999999999999999, which does not fit 64 bits"},
        {"optimizer.lr=1e999", "optimizer.lr", "a number", "found 1e999, which does not fit 64 bits"},
        {"communication.overlap_comm=1", "communication.overlap_comm", "true or false", "an integer"},
        {"communication.overlap_comm=yes", "communication.overlap_comm", "true or false", "a text \"yes\""},
        {"data.train=3", "data.train", "a source is not", "an integer"},
        {"data.train=[[\"a\"]]", "data.train", "a source is not", "a list"},
        {"data.train=[{weight=1}]", "data.train", "a source has no path", ""},
        {"checkpoint.interval=soon", "checkpoint.interval", "duration", "a text \"soon\""},
        {"checkpoint.interval=1979-05-27", "checkpoint.interval", "duration", "a date or time"},
        {"launch.hosts=[1]", "launch.hosts", "list of texts", "an integer"},
    };
    for (const Mistake& mistake : mistakes) {
        INFO(mistake.assignment);
        const LoadedJob job = load_set({mistake.assignment});
        const Problem found = problem(job, "wrong_type", mistake.key);
        CHECK_THAT(found.what, Catch::Contains(mistake.expected) && Catch::Contains(mistake.found));
        CHECK(!found.hint.empty());
        CHECK(count_errors(job) == 1);
    }
    CHECK(problem(load_set({"training.micro_batch_size=8.0"}), "wrong_type").hint == "write 8");
    CHECK(problem(load_set({"training.micro_batch_size=\"8\""}), "wrong_type").hint ==
          "write 8 without quotes");
    CHECK_THAT(problem(load_set({"training.micro_batch_size=eight"}), "wrong_type").hint,
               Catch::Contains("config explain training.micro_batch_size"));
}

TEST_CASE("An integer beyond 64 bits in the file is called that", "[config][mistakes]") {
    for (const char* number : {"99999999999999999999", "9223372036854775808", "-9223372036854775809"}) {
        INFO(number);
        const LoadedJob job = load(valid_job + "[optimizer]\nlr = " + number + "\n");
        const Problem found = problem(job, "out_of_range");
        CHECK(found.at.line == 16);
        CHECK_THAT(found.what, Catch::Contains("64 bits"));
        CHECK_THAT(found.hint, Catch::Contains("9223372036854775807"));
        CHECK(count_errors(job) == 1);
    }
}

TEST_CASE("What must be given and is given empty is called empty, at its place", "[config][mistakes]") {
    std::string text = valid_job;
    text.replace(text.find("\"runs/t\""), 8, "\"\"");
    text.replace(text.find("[\"data/text\"]"), 13, "[]");
    const LoadedJob job = load(text);
    CHECK(count_errors(job) == 2);
    CHECK(to_string(problem(job, "empty", "job.run_dir").at) == "job.toml:3:11");
    CHECK(problem(job, "empty", "job.run_dir").what == "job.run_dir must be a text, found an empty one");
    CHECK(to_string(problem(job, "empty", "data.train").at) == "job.toml:10:9");
    CHECK_THAT(problem(job, "empty", "data.train").what, Catch::Contains("a list of paths"));
    CHECK(problem(load_set({"job.run_dir="}), "empty").at.file == "--set job.run_dir=");
}

TEST_CASE("A section given as a value, and a key given as a section", "[config][mistakes]") {
    const LoadedJob value = load("optimizer = \"adamw\"\n" + valid_job);
    CHECK(problem(value, "wrong_type", "optimizer").hint == "write [optimizer] and its keys below");
    const LoadedJob section = load(valid_job + "[optimizer.lr]\npeak = 1\n");
    CHECK(problem(section, "wrong_type", "optimizer.lr").hint ==
          "optimizer.lr is a key, not a section: write lr = VALUE in [optimizer]");
}

TEST_CASE("A duplicate key or table is refused where it stands", "[config][mistakes]") {
    const LoadedJob key = load(valid_job + "micro_batch_size = 8\n");
    CHECK(problem(key, "duplicate_key").at.line == 15);
    const LoadedJob table = load(valid_job + "[job]\nseed = 3\n");
    CHECK(problem(table, "duplicate_key").at.line == 15);
    CHECK(count_errors(key) == 1);
    CHECK(count_errors(table) == 1);
}

TEST_CASE("What is not TOML is one problem with its place", "[config][mistakes]") {
    const LoadedJob job = load("[job]\nname = unquoted\n[oops]\n");
    CHECK(problem(job, "syntax").at.line == 2);
    CHECK(job.problems.size() == 1);
    CHECK_THROWS_AS(job_or_fail(job), Error);
}

TEST_CASE("All problems are reported in one go, in the order of the text", "[config][mistakes]") {
    const LoadedJob job = load(R"([job]
run_dir = "r"
stepps = 10
seed = -1
[model]
preset = "tiny"
[training]
micro_batch_size = "4"
[precision]
gradient = "bf16"
[optimizer]
lr = 0.0
[checkpoint]
keep_latest = 1
)",
                               {.set = {"memory.zero_stage=7"}, .world_size = {}});
    std::vector<std::string> codes;
    for (const Problem& each : job.problems) codes.push_back(each.code + " " + each.key);
    CHECK(codes == std::vector<std::string>{
                       "unknown_key job.stepps", "out_of_range job.seed",
                       "wrong_type training.micro_batch_size", "not_in_this_build precision.gradient",
                       "out_of_range optimizer.lr", "out_of_range checkpoint.keep_latest",
                       "out_of_range memory.zero_stage", "missing data.train"});
    try {
        job_or_fail(job);
        FAIL("a broken job was accepted");
    } catch (const Error& error) {
        CHECK(error.code() == Exit::Usage);
        CHECK_THAT(error.what(), Catch::Contains("8 problems") && Catch::Contains("job.toml:3:1") &&
                                     Catch::Contains("job.toml:14:15") &&
                                     Catch::Contains("--set memory.zero_stage=7"));
    }
}

TEST_CASE("What is not in this build is known, explained and refused", "[config][mistakes]") {
    const char* const refused[] = {"precision.gradient=bf16",
                                   "fault_tolerance.max_restarts=3",
                                   "fault_tolerance.nonfinite=rollback",
                                   "fault_tolerance.hang_timeout_s=10",
                                   "fault_tolerance.spike={a=1}",
                                   "fault_tolerance.replica_hash_steps=10",
                                   "launch.hosts=[\"a\"]",
                                   "launch.hostfile=hosts",
                                   "launch.env={A=\"1\"}",
                                   "launch.slurm.nodes=4",
                                   "launch.slurm.time=2d",
                                   "monitoring.listen=\"127.0.0.1:9400\""};
    for (const char* assignment : refused) {
        INFO(assignment);
        const LoadedJob job = load_set({assignment});
        CHECK_THAT(problem(job, "not_in_this_build").what, Catch::Contains("not in this build"));
        CHECK(count_errors(job) == 1);
    }
    const char* const defaults[] = {"parallel.tensor_parallel_size=1",
                                    "parallel.sequence_parallel=false",
                                    "checkpoint.async=false",
                                    "checkpoint.tiers=[]",
                                    "launch.env={}",
                                    "launch.spare_nodes=0"};
    for (const char* assignment : defaults) {
        INFO(assignment);
        const LoadedJob job = load_set({assignment});
        INFO(format_problems(job.problems));
        CHECK(job.ok());
    }
}

TEST_CASE("Size and depth are limited before the parser can overflow", "[config][mistakes]") {
    CHECK(problem(load(std::string((1U << 20U) + 1, '#')), "too_large").code == "too_large");
    CHECK(problem(load(valid_job + std::string(1U << 19U, '\n')), "too_large").code.empty());
    const auto repeat = [](const std::string& text, int times) {
        std::string all;
        for (int i = 0; i < times; ++i) all += text;
        return all;
    };
    CHECK(problem(load("a = " + repeat("[", 100000)), "too_deep").at.line == 1);
    CHECK(problem(load("a = " + repeat("{a = ", 100000)), "too_deep").at.line == 1);
    CHECK(problem(load(repeat("a.", 400000) + "a = 1"), "too_deep").at.line == 1);
    CHECK(problem(load("[" + repeat("a.", 400000) + "a]"), "too_deep").at.line == 1);
    // Deep only in sum: a dotted header, a dotted key and nested lists.
    CHECK(problem(load("[" + repeat("a.", 15) + "a]\n" + repeat("b.", 15) + "b = " + repeat("[", 8) +
                       repeat("]", 8)),
                  "too_deep")
              .code == "too_deep");
    // 32 levels are fine, whatever the key is.
    const LoadedJob job = load("a = " + repeat("[", 31) + repeat("]", 31));
    CHECK(problem(job, "too_deep").code.empty());
    CHECK(problem(job, "unknown_key", "a").code == "unknown_key");
    // Brackets in texts and comments nest nothing; an unclosed one is a syntax error where it stands.
    CHECK(problem(load("# " + repeat("[", 99) + "\na = \"" + repeat("{", 99) + "\"\n"), "too_deep")
              .code.empty());
    CHECK(problem(load(repeat("[a\n", 60)), "syntax").at.line == 1);
}
