#include <nlohmann/json.hpp>

#include "job_text.h"
#include "support/catch.h"
#include "trainctl/config/commands.h"
#include "trainctl/config/presets.h"
#include "trainctl/config/reference.h"
#include "trainctl/config/registry.h"

using namespace trainctl;
using namespace trainctl::test;
using nlohmann::json;

namespace {

// One file in memory; everything else is not there.
class OneFile final : public FileSystem {
  public:
    OneFile(std::string path, std::string text) : path_(std::move(path)), text_(std::move(text)) {}

    std::unique_ptr<File> open(const std::string& path, Open mode) override {
        if (path != path_ || mode != Open::Read) fail(Exit::BadInput, path + ": no such file");
        return std::make_unique<Reader>(text_);
    }
    std::optional<FileStatus> status(const std::string& path) override {
        if (path != path_) return std::nullopt;
        FileStatus status;
        status.size = text_.size();
        return status;
    }
    std::vector<std::string> list(const std::string&) override { unexpected(); }
    void make_directories(const std::string&) override { unexpected(); }
    void require_creatable(const std::string&) override { unexpected(); }
    void rename(const std::string&, const std::string&) override { unexpected(); }
    void remove_file(const std::string&) override { unexpected(); }
    void remove_directory(const std::string&) override { unexpected(); }
    void sync_directory(const std::string&) override { unexpected(); }
    SpaceStatus space(const std::string&) override { unexpected(); }

  private:
    class Reader final : public File {
      public:
        explicit Reader(const std::string& text) : text_(text) {}
        void read_at(std::uint64_t offset, std::span<std::byte> into) override { read_some_at(offset, into); }
        std::size_t read_some_at(std::uint64_t offset, std::span<std::byte> into) override {
            const std::size_t count = std::min<std::size_t>(into.size(), text_.size() - offset);
            std::copy_n(reinterpret_cast<const std::byte*>(text_.data()) + offset, count, into.data());
            return count;
        }
        void write(std::span<const std::byte>) override { unexpected(); }
        void sync() override { unexpected(); }
        void close() override {}
        std::uint64_t size() override { return text_.size(); }

      private:
        const std::string& text_;
    };

    [[noreturn]] static void unexpected() { fail(Exit::Internal, "config only reads one file"); }

    std::string path_;
    std::string text_;
};

CommandResult check(const std::string& text, ConfigCheckOptions options = {}) {
    OneFile files{"job.toml", text};
    options.path = "job.toml";
    return config_check(files, options);
}

CommandResult show(ConfigShowOptions options) {
    OneFile files{"job.toml", valid_job};
    options.path = "job.toml";
    return config_show(files, options);
}

}  // namespace

TEST_CASE("config check: a good job", "[config][command]") {
    const CommandResult result = check(valid_job);
    CHECK(result.exit == Exit::Ok);
    CHECK_THAT(result.out, Catch::Contains("job.toml: ok") && Catch::Contains("230080 parameters"));
    CHECK_THAT(result.err, Catch::Contains("not checked here: token files"));
}

TEST_CASE("config check: problems, texts and exit", "[config][command]") {
    const CommandResult result = check(valid_job + "x = 1\nsequence_length = \"a\"\n");
    CHECK(result.exit == Exit::Usage);
    CHECK(result.out.empty());
    CHECK_THAT(result.err, Catch::Contains("error: unknown key training.x\n  --> job.toml:15:1\n  hint: ") &&
                               Catch::Contains("  --> job.toml:16:19\n") &&
                               Catch::Contains("job.toml: 2 errors\n"));
    OneFile files{"job.toml", valid_job};
    ConfigCheckOptions options;
    options.path = "other.toml";
    CHECK(config_check(files, options).exit == Exit::Usage);
}

TEST_CASE("config check --json", "[config][command]") {
    ConfigCheckOptions options;
    options.output = OutputFormat::Json;
    const json good = json::parse(check(valid_job, options).out);
    CHECK(good["ok"] == true);
    CHECK(good["summary"]["parameters"] == 230080);
    CHECK(good["problems"][0]["severity"] == "not_checked");
    const CommandResult bad = check(valid_job + "x = 1\n", options);
    CHECK_THAT(bad.err, Catch::Contains("unknown key training.x"));  // for whoever reads the error object
    const json problems = json::parse(bad.out);
    CHECK(problems["ok"] == false);
    CHECK(problems["exit"] == 2);
    CHECK(problems["problems"][0]["code"] == "unknown_key");
    CHECK(problems["problems"][0]["line"] == 15);
    CHECK(problems["problems"][0]["column"] == 1);
    // Bytes that are no UTF-8 must not break the output.
    CHECK_NOTHROW(json::parse(check("[job]\nname = \"\xff\"\n", options).out));
}

TEST_CASE("config check asks the rooms above, and --strict fails on what they could not see",
          "[config][command]") {
    ConfigCheckOptions options;
    std::int64_t seen = 0;
    options.external = [&seen](const LoadedJob& job) {
        seen = job.spec.model.vocab_size;
        Problem unseen = make_error("not_checked", "data.train", {}, "data/text is not here");
        unseen.severity = Severity::Unchecked;
        unseen.exit = Exit::BadInput;
        return std::vector<Problem>{unseen};
    };
    const CommandResult unseen = check(valid_job, options);
    CHECK(unseen.exit == Exit::Ok);
    CHECK(unseen.err == "warning: not checked here: data/text is not here\n  --> job.toml:10:9\n");
    CHECK(seen == 257);
    options.strictness = Strictness::Strict;
    CHECK(check(valid_job, options).exit == Exit::BadInput);
    options.external = [](const LoadedJob&) { return std::vector<Problem>{}; };
    CHECK(check(valid_job, options).exit == Exit::Ok);
    options.external = [](const LoadedJob&) {
        Problem full =
            make_error("disk_full", "checkpoint.directory", {}, "no room for the first checkpoint");
        full.exit = Exit::Resource;
        return std::vector<Problem>{full};
    };
    CHECK(check(valid_job, options).exit == Exit::Resource);
    // The file comes first, and what it has wrong does not keep the others from saying the rest.
    const CommandResult both = check(valid_job + "x = 1\n", options);
    CHECK(both.exit == Exit::Usage);
    CHECK_THAT(both.err, Catch::Contains("training.x") &&
                             Catch::Contains("no room for the first checkpoint") &&
                             Catch::Contains("2 errors"));
}

TEST_CASE("config show in its forms", "[config][command]") {
    CHECK_THAT(show({}).out, Catch::Contains("layers = 4\n"));
    CHECK_THAT(
        show({.path = {}, .load = {.set = {"job.steps=7"}, .world_size = {}}, .origin = ShowOrigin::Yes}).out,
        Catch::Contains("steps = 7  # --set job.steps=7\n"));
    CHECK(json::parse(show({.path = {}, .load = {}, .format = ShowFormat::Json}).out)["model"]["layers"] ==
          4);
    const json origins = json::parse(
        show({.path = {}, .load = {}, .format = ShowFormat::Json, .origin = ShowOrigin::Yes}).out);
    CHECK(origins["model.layers"]["origin"] == "preset tiny");
    CHECK(origins["model.layers"]["value"] == 4);
    const CommandResult bad = show({.path = {}, .load = {.set = {"job.steps=0"}, .world_size = {}}});
    CHECK(bad.exit == Exit::Usage);
    CHECK(bad.out.empty());
    const CommandResult bad_json =
        show({.path = {}, .load = {.set = {"job.steps=0"}, .world_size = {}}, .output = OutputFormat::Json});
    CHECK(bad_json.exit == Exit::Usage);
    CHECK(json::parse(bad_json.out)["problems"][0]["key"] == "job.steps");
}

TEST_CASE("config explain: exact, by substring, unknown", "[config][command]") {
    const CommandResult exact = config_explain("memory.zero_stage", OutputFormat::Text);
    CHECK(exact.exit == Exit::Ok);
    CHECK_THAT(exact.out, Catch::Contains("between 0 and 3") && Catch::Contains("default    1"));
    CHECK_THAT(config_explain("job.steps", OutputFormat::Text).out,
               Catch::Contains("--allow-change job.steps"));
    const CommandResult several = config_explain("warmup", OutputFormat::Text);
    CHECK_THAT(several.out, Catch::Contains("schedule.warmup_steps"));
    CHECK_THAT(config_explain("learning_rate", OutputFormat::Text).out, Catch::Contains("optimizer.lr"));
    const Registry registry;
    const std::string all = config_explain("", OutputFormat::Text).out;
    CHECK(static_cast<std::size_t>(std::count(all.begin(), all.end(), '\n')) == registry.keys().size());
    const CommandResult unknown = config_explain("optimizer.lrr", OutputFormat::Text);
    CHECK(unknown.exit == Exit::Usage);
    CHECK_THAT(unknown.err, Catch::Contains("did you mean optimizer.lr?"));
    CHECK(json::parse(config_explain("optimizer.lr", OutputFormat::Json).out)["keys"][0]["default"] ==
          "0.0003");
    const CommandResult unknown_json = config_explain("optimizer.lrr", OutputFormat::Json);
    CHECK(unknown_json.exit == Exit::Usage);
    CHECK(json::parse(unknown_json.out)["ok"] == false);
    CHECK(json::parse(unknown_json.out)["problems"][0]["hint"] == "did you mean optimizer.lr?");
    CHECK(unknown_json.err == unknown.err);
    for (const Key& key : registry.keys())
        CHECK(config_explain(key.name, OutputFormat::Text).exit == Exit::Ok);
}

TEST_CASE("config schema describes every key", "[config][command]") {
    const json schema = json::parse(config_schema().out);
    const Registry registry;
    for (const Key& key : registry.keys()) {
        const json* at = &schema;
        std::istringstream parts{key.name};
        for (std::string part; std::getline(parts, part, '.');) {
            CHECK(at->at("additionalProperties") == false);
            at = &at->at("properties").at(part);
        }
        INFO(key.name);
        CHECK_THAT(at->at("description").get<std::string>(), Catch::Contains(key.help));
    }
    CHECK(schema["properties"]["memory"]["properties"]["zero_stage"]["maximum"] == 3);
    CHECK(schema["properties"]["job"]["required"] == json::array({"run_dir"}));
    CHECK(schema["properties"]["optimizer"]["properties"]["lr"]["exclusiveMinimum"] == 0.0);
}

TEST_CASE("config init writes a job that passes check, for every preset", "[config][command]") {
    for (const std::string& name : preset_names()) {
        INFO(name);
        const CommandResult result = config_init(name, OutputFormat::Text);
        CHECK(result.exit == Exit::Ok);
        const LoadedJob job = load(result.out);
        INFO(format_problems(job.problems));
        CHECK(job.problems.empty());
        CHECK(job.spec.model == find_preset(name)->model);
        for (const std::int64_t world : {1, 2, 8})
            CHECK(load(result.out, {.set = {}, .world_size = world}).ok() ==
                  (find_preset(name)->recipe.global_batch_size %
                       (find_preset(name)->recipe.micro_batch_size * world) ==
                   0));
    }
    const CommandResult unknown = config_init("gpt2-124", OutputFormat::Text);
    CHECK(unknown.exit == Exit::Usage);
    CHECK_THAT(unknown.err, Catch::Contains("did you mean gpt2-124m?"));
    CHECK(json::parse(config_init("nope-nope-nope", OutputFormat::Json).out)["ok"] == false);
}

TEST_CASE("Lines of config init that show a default are the default when their # is removed",
          "[config][command]") {
    const JobSpec plain = load(config_init("tiny", OutputFormat::Text).out).spec;
    std::istringstream lines{config_init("tiny", OutputFormat::Text).out};
    std::string uncommented;
    std::size_t changed = 0;
    const std::string known = "# Known, but not in this build:";
    for (std::string line; std::getline(lines, line) && line != known;) {
        const bool setting = line.rfind("# ", 0) == 0 && line.find(" = ") != std::string::npos &&
                             line.find(' ', 2) == line.find(" = ");
        const bool shown = setting && line.find("= ...") == std::string::npos;
        changed += shown ? 1 : 0;
        uncommented += (shown ? line.substr(2) : line) + "\n";
    }
    const LoadedJob job = load(uncommented);
    INFO(uncommented << format_problems(job.problems));
    CHECK(job.ok());
    CHECK(job.spec == plain);
    CHECK(changed > 30);
}

TEST_CASE("The reference table has a row for every key", "[config][command]") {
    const std::string text = config_reference_markdown();
    const Registry registry;
    for (const std::string& section : registry.sections())
        CHECK_THAT(text, Catch::Contains("\n## [" + section + "]"));
    std::size_t rows = 0;
    std::istringstream lines{text};
    for (std::string line; std::getline(lines, line);) rows += line.rfind("| `", 0) == 0 ? 1 : 0;
    CHECK(rows == registry.keys().size());
    CHECK(config_reference(OutputFormat::Text).out == text);
    const std::string all = config_reference(OutputFormat::Json).out;
    CHECK(json::parse(all)["keys"].size() == registry.keys().size());
}
