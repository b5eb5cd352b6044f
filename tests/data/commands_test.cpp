#include "trainctl/data/commands.h"

#include <simdjson.h>

#include "data_fixture.h"
#include "support/catch.h"
#include "trainctl/base/clock.h"
#include "trainctl/base/text.h"
#include "trainctl/data/fingerprint.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

// What a command answers in either format.
struct Answer {
    Exit exit = Exit::Ok;
    std::string text;
    std::string json;
};
template <class Command>
Answer in_both_formats(const Command& command) {
    const CommandResult text = command(OutputFormat::Text);
    const CommandResult json = command(OutputFormat::Json);
    REQUIRE(text.exit == json.exit);
    return {text.exit, text.out, json.out};
}
Answer inspect(MemoryFileSystem& disk, const InspectArgs& args) {
    return in_both_formats([&](OutputFormat format) { return inspect_data(disk, args, format); });
}

// Every answer's JSON must parse; returns it for questions.
simdjson::dom::element parse(simdjson::dom::parser& parser, const Answer& result) {
    simdjson::dom::element element;
    REQUIRE(parser.parse(result.json).get(element) == simdjson::SUCCESS);
    return element;
}

// 30 documents "document 0 0 ..." of growing length.
void put_prepared(MemoryFileSystem& disk, const std::string& prefix = "d/p") {
    std::string lines;
    for (int i = 0; i < 30; ++i) {
        std::string text = "document";
        for (int j = 0; j <= i; ++j) text += " " + std::to_string(i);
        lines += "{\"text\":\"" + text + "\"}\n";
    }
    disk.put("in.jsonl", lines);
    SystemClock clock;
    PrepareArgs args;
    args.inputs = {"in.jsonl"};
    args.output = prefix;
    args.threads = 1;
    prepare_data(disk, clock, args, OutputFormat::Text);
}

JobSpec job_on(const std::vector<DataSource>& sources) {
    JobSpec job;
    job.data.train = sources;
    job.steps = 6;
    job.seed = 3;
    job.model.vocab_size = 257;
    job.training.micro_batch_size = 2;
    job.training.global_batch_size = 12;
    job.training.sequence_length = 16;
    return job;
}

}  // namespace

TEST_CASE("data inspect counts documents and shows text") {
    MemoryFileSystem disk;
    put_prepared(disk);
    simdjson::dom::parser parser;
    const Answer result = inspect(disk, {"d/p", TokenFormat::Auto, {}, "", {}, 3, 20});
    REQUIRE(result.exit == Exit::Ok);
    REQUIRE(contains(result.text, "in 30 documents (0 empty)"));
    REQUIRE(contains(result.text, "\"document 0<eod>\""));
    const auto json = parse(parser, result);
    REQUIRE(json["documents"].get_int64().value() == 30);
    std::int64_t counted = 0;
    for (const auto bucket : json["histogram"]) {
        counted += bucket["documents"].get_int64().value();
        REQUIRE(bucket["to"].get_int64().value() == bucket["from"].get_int64().value() * 2 - 1);
    }
    REQUIRE(counted == 30);
    REQUIRE(json["excerpts"].get_array().size() == 3);
    REQUIRE(json["excerpts"].at(1)["document"].get_int64().value() == 10);
    REQUIRE(std::string(json["excerpts"].at(1)["text"].get_c_str().value()) == "document 10 10 10 10");
}

TEST_CASE("data inspect splits formats without documents at the end-of-document id") {
    MemoryFileSystem disk;
    simdjson::dom::parser parser;
    disk.put("n.bin", raw<std::uint16_t>({1, 2, 9, 3, 9, 4, 5, 6}));
    InspectArgs args{"n.bin", TokenFormat::Auto, DType::U16, "", {}, 2, 3};
    Answer result = inspect(disk, args);
    REQUIRE(contains(result.text, "keeps no documents"));
    REQUIRE(contains(result.text, "[1, 2, 9]"));
    args.end_of_document = 9;
    result = inspect(disk, args);
    REQUIRE(parse(parser, result)["documents"].get_int64().value() == 3);
    REQUIRE(parse(parser, result)["longest_document"].get_int64().value() == 3);
    // llm.c puts it in front.
    std::vector<std::int32_t> header(256, 0);
    header[0] = 20240520;
    header[1] = 1;
    header[2] = 5;
    disk.put("l.bin", raw(header) + raw<std::uint16_t>({50256, 1, 2, 50256, 3}));
    result = inspect(disk, {"l.bin", TokenFormat::Auto, {}, "", {}, 1, 8});
    REQUIRE(parse(parser, result)["documents"].get_int64().value() == 2);
    REQUIRE(parse(parser, result)["longest_document"].get_int64().value() == 3);
}

TEST_CASE("data inspect --step shows what the loader feeds in that step") {
    MemoryFileSystem disk;
    put_prepared(disk);
    const JobSpec job = job_on({{"d/p", 1.0}});
    const Corpus corpus(disk, job.data, {16, 257, job.seed});
    SystemClock clock;
    simdjson::dom::parser parser;
    for (const std::int64_t step : {1, 2, 6, 1000}) {
        const auto json = parse(parser, in_both_formats([&](OutputFormat format) {
                                    return inspect_step(disk, job, {step, 3, "", 0}, format);
                                }));
        REQUIRE(json["first_sample"].get_int64().value() == (step - 1) * 12);
        const auto samples = json["samples"].get_array();
        REQUIRE(samples.size() == 12);
        for (std::int64_t rank = 0; rank < 3; ++rank) {
            Loader loader(corpus.train(), {12, 2, 3, rank}, {0}, clock);
            BatchMemory memory(2, 16);
            for (std::int64_t micro = 0; micro < 2; ++micro) {
                const Batch batch = loader.batch(step - 1, micro, memory.tokens(), memory.targets());
                for (std::int64_t row = 0; row < 2; ++row) {
                    const auto sample =
                        samples.at(static_cast<std::size_t>(batch.first_sample + row - (step - 1) * 12));
                    REQUIRE(sample["sample"].get_int64().value() == batch.first_sample + row);
                    REQUIRE(sample["rank"].get_int64().value() == rank);
                    std::string text;
                    for (std::int64_t i = 0; i <= 16; ++i) {
                        const std::int32_t id =
                            i < 16 ? memory.token_ids[static_cast<std::size_t>(row * 16 + i)]
                                   : memory.target_ids[static_cast<std::size_t>(row * 16 + 15)];
                        text += id == 256 ? std::string("<eod>") : std::string(1, static_cast<char>(id));
                    }
                    REQUIRE(std::string(sample["text"].get_c_str().value()) == text);
                    // The place is where the bytes really are.
                    const std::string bin = *disk.contents("d/p.bin");
                    const auto byte = static_cast<std::size_t>(sample["byte"].get_int64().value());
                    REQUIRE(static_cast<unsigned char>(bin[byte]) ==
                            (memory.token_ids[static_cast<std::size_t>(row * 16)] & 0xFF));
                    const auto documents = sample["documents"];
                    REQUIRE(documents["first"].get_int64().value() <= documents["last"].get_int64().value());
                }
            }
        }
    }
    REQUIRE(thrown_by([&] {
                inspect_step(disk, job, {0, 1, "", 0}, OutputFormat::Text);
            }).code == Exit::Usage);
    const std::string shown = inspect_step(disk, job, {1, 1, "", 10}, OutputFormat::Text).out;
    REQUIRE(contains(shown, "12 samples of d/p.bin"));
    REQUIRE(contains(shown, "of document"));
}

TEST_CASE("a model with a smaller vocabulary than the data's tokenizer is refused when the data is opened") {
    MemoryFileSystem disk;
    put_prepared(disk, "d/p.bin");  // names the prefix d/p
    const JobSpec job = job_on({{"d/p", 1.0}});
    REQUIRE_NOTHROW(Corpus(disk, job.data, {16, 257, 1}));
    const Thrown thrown = thrown_by([&] { Corpus(disk, job.data, {16, 256, 1}); });
    REQUIRE(thrown.code == Exit::BadInput);
    REQUIRE(contains(thrown.text, "model.vocab_size is 256"));
}

TEST_CASE("data verify finds every kind of damage") {
    const auto verify = [](MemoryFileSystem& disk, std::int64_t vocab = 0) {
        simdjson::dom::parser parser;
        const Answer result = in_both_formats([&](OutputFormat format) {
            return verify_data(disk, {"d/p", TokenFormat::Auto, {}, vocab}, format);
        });
        REQUIRE(parse(parser, result)["ok"].get_bool().value() == (result.exit == Exit::Ok));
        return result;
    };
    const auto failing = [&](const std::function<void(MemoryFileSystem&)>& damage, const std::string& check) {
        MemoryFileSystem disk;
        put_prepared(disk);
        REQUIRE(verify(disk).exit == Exit::Ok);
        damage(disk);
        const Answer result = verify(disk);
        INFO(result.text);
        REQUIRE(result.exit == Exit::BadInput);
        REQUIRE(contains(result.text, "FAILED       " + check));
    };
    const auto size = [] {
        MemoryFileSystem disk;
        put_prepared(disk);
        return disk.contents("d/p.bin")->size();
    }();
    failing([](MemoryFileSystem& disk) { disk.flip_bit("d/p.bin", 8 * 24); }, "checksum");
    failing([](MemoryFileSystem& disk) { disk.flip_bit("d/p.bin", 8 * 25 + 3); }, "ids: ");
    failing([&](MemoryFileSystem& disk) { disk.truncate("d/p.bin", size - 2); }, "files");
    failing([](MemoryFileSystem& disk) { disk.flip_bit("d/p.idx", 8 * 40); }, "index: ");
    failing([](MemoryFileSystem& disk) { disk.erase("d/p.idx"); }, "files");
    failing(
        [](MemoryFileSystem& disk) { disk.put("d/p.json", "{\"format\":\"trainctl-data\",\"version\":1}"); },
        "files");
    failing([](MemoryFileSystem& disk) { disk.put("d/p.json", "{\n"); }, "files");
    failing(
        [](MemoryFileSystem& disk) {
            // Another data set of the same shape behind the same record.
            disk.erase("d/p.bin");
            disk.erase("d/p.idx");
            const std::string json = *disk.contents("d/p.json");
            disk.erase("d/p.json");
            put_megatron(disk, "d/p", 257, {{1, 2, 256}});
            disk.put("d/p.json", json);
        },
        "record");
    // A smaller vocabulary than that of the record.
    MemoryFileSystem disk;
    put_prepared(disk);
    REQUIRE(contains(verify(disk, 256).text, "FAILED       ids"));
    // Without a record everything else is still checked.
    disk.erase("d/p.json");
    REQUIRE(contains(verify(disk).text, "not checked  checksum"));
    REQUIRE(verify(disk).exit == Exit::Ok);
}

TEST_CASE("a byte that the fingerprint's samples miss is found by data verify") {
    MemoryFileSystem disk;
    disk.put("in.txt", std::string(4'000'000, 'a'));
    SystemClock clock;
    PrepareArgs args;
    args.inputs = {"in.txt"};
    args.output = "d/p";
    prepare_data(disk, clock, args, OutputFormat::Text);
    const JobSpec job = job_on({{"d/p", 1.0}});
    const auto id = [&] {
        const Corpus corpus(disk, job.data, {16, 257, job.seed});
        return fingerprint(disk, corpus).id;
    };
    const std::string before = id();
    const auto verify = [&] {
        return verify_data(disk, {"d/p", TokenFormat::Auto, {}, 0}, OutputFormat::Text);
    };
    REQUIRE(verify().exit == Exit::Ok);
    REQUIRE(verify().err.empty());
    // 64 pieces of 64 KiB in 8 MB: the second byte of the gap behind the first piece.
    disk.flip_bit("d/p.bin", 8 * (64 * 1024 + 2));
    REQUIRE(id() == before);
    REQUIRE(verify().exit == Exit::BadInput);
    REQUIRE(contains(verify().out, "FAILED       checksum"));
    REQUIRE(contains(verify().err, "error: these checks failed: checksum. Restore"));
    disk.flip_bit("d/p.bin", 8 * (64 * 1024 + 2));
    disk.flip_bit("d/p.bin", 8 * 1024);  // in a sampled piece
    REQUIRE(id() != before);
}

TEST_CASE("progress is printed with few digits") {
    PrepareProgress progress;
    progress.bytes_total = 100;
    progress.bytes_read = 50;
    progress.tokens = 200;
    progress.elapsed_s = 5.3449;
    REQUIRE(contains(format_progress(progress), "  37.42 tokens/s"));
}

TEST_CASE("data verify of a job counts the windows that its ranks read") {
    MemoryFileSystem disk;
    put_prepared(disk);
    put_prepared(disk, "d/q");
    JobSpec job = job_on({{"d/p", 3.0}, {"d/q", 1.0}});
    job.data.validation_split = 0.1;
    simdjson::dom::parser parser;
    for (const std::int64_t ranks : {1, 2, 3, 6}) {
        const Answer result = in_both_formats([&](OutputFormat format) {
            return verify_job(disk, job, {ranks, 100'000, Contents::Check}, format);
        });
        INFO(result.text);
        REQUIRE(result.exit == Exit::Ok);
        REQUIRE(parse(parser, result)["ok"].get_bool().value());
        REQUIRE(contains(result.text, counted(ranks, "rank") + " read"));
        REQUIRE(contains(result.text, " complete epoch"));
        REQUIRE(contains(result.text, "each read once by"));
        REQUIRE_FALSE(contains(result.text, "not checked"));
    }
    // Too few samples to see every window: said, not hidden.
    REQUIRE(contains(verify_job(disk, job, {1, 24, Contents::Skip}, OutputFormat::Text).out,
                     "not checked  windows of d/q"));
    REQUIRE(thrown_by([&] {
                verify_job(disk, job, {5, 1000, Contents::Skip}, OutputFormat::Text);
            }).code == Exit::Usage);
    disk.flip_bit("d/q.bin", 8 * 24);
    REQUIRE(verify_job(disk, job, {1, 1000, Contents::Check}, OutputFormat::Text).exit == Exit::BadInput);
    disk.truncate("d/q.bin", 10);
    REQUIRE(verify_job(disk, job, {1, 1000, Contents::Skip}, OutputFormat::Text).exit == Exit::BadInput);
}
