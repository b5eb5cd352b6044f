#include <zlib.h>
#include <zstd.h>

#include <cerrno>

#include "data_fixture.h"
#include "support/catch.h"
#include "trainctl/base/clock.h"
#include "trainctl/base/hash.h"
#include "trainctl/data/commands.h"
#include "trainctl/data/tokenizer.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

std::string gzip(const std::string& text) {
    z_stream stream{};
    REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    std::string out(deflateBound(&stream, text.size()), '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
}

std::string zstd(const std::string& text) {
    std::string out(ZSTD_compressBound(text.size()), '\0');
    out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
    return out;
}

CommandResult prepare(MemoryFileSystem& disk, std::vector<std::string> inputs, std::int64_t threads = 2,
                      Existing existing = Existing::Refuse) {
    SystemClock clock;
    PrepareArgs args;
    args.inputs = std::move(inputs);
    args.output = "out/p";
    args.threads = threads;
    args.existing = existing;
    return prepare_data(disk, clock, args, OutputFormat::Text);
}

// The documents of a prepared byte data set, each checked to end with the end-of-document token.
std::vector<std::string> documents_of(MemoryFileSystem& disk) {
    OpenFiles files(disk);
    const auto file = open_token_file(files, "out/p", {});
    const auto tokenizer = make_byte_tokenizer();
    std::vector<std::string> documents;
    file->index()->scan([&](const DocumentSpan& span) {
        std::vector<std::int32_t> ids(static_cast<std::size_t>(span.tokens));
        file->read(span.first_token, ids);
        REQUIRE(ids.back() == tokenizer->end_of_document());
        documents.push_back(tokenizer->decode(ids));
    });
    return documents;
}

std::vector<std::string> outputs_of(const MemoryFileSystem& disk) {
    std::vector<std::string> outputs;
    for (const std::string& path : disk.all_files()) {
        if (path.rfind("out/", 0) == 0) outputs.push_back(path);
    }
    return outputs;
}

const std::vector<std::string> complete = {"out/p.bin", "out/p.idx", "out/p.json"};

Exit verify(MemoryFileSystem& disk) {
    return verify_data(disk, {"out/p", TokenFormat::Auto, {}, 0}, OutputFormat::Text).exit;
}

}  // namespace

TEST_CASE("the byte tokenizer gives back any bytes") {
    const auto tokenizer = make_tokenizer("byte");
    std::string text;
    for (int i = 0; i < 256; ++i) text.push_back(static_cast<char>(i));
    std::vector<std::int32_t> ids;
    tokenizer->encode(text, ids);
    REQUIRE(ids.size() == 256);
    REQUIRE(tokenizer->decode(ids) == text);
    ids = {'a', 256, 'b', 257, -1};
    REQUIRE(tokenizer->decode(ids) == "ab\xEF\xBF\xBD\xEF\xBF\xBD");
    REQUIRE(tokenizer->vocab_size() == 257);
    REQUIRE(thrown_by([] { make_tokenizer("bpe"); }).code == Exit::Usage);
}

TEST_CASE("text, JSONL and compressed files become documents in the given order") {
    MemoryFileSystem disk;
    disk.put("in/b.txt", "second file\nwith lines\n");
    disk.put("in/a.md", "first");
    disk.put("in/empty.txt", "");
    disk.put("in/notes.pdf", "ignored in a directory");
    disk.put("in/sub/c.jsonl.gz",
             gzip("{\"text\":\"one\"}\n\n{\"id\":3,\"text\":\"t\\u00e4\\n\"}\r\n{\"text\":\"\"}") +
                 gzip("\n{\"text\":\"member two\"}"));
    disk.put("in/sub/d.txt.zst", zstd("zstandard") + zstd(" in two frames"));
    disk.put("x.pdf", "taken because it is named");
    const CommandResult result = prepare(disk, {"x.pdf", "in"});
    REQUIRE(result.exit == Exit::Ok);
    REQUIRE(documents_of(disk) == std::vector<std::string>{"taken because it is named", "first",
                                                           "second file\nwith lines\n", "one", "t\xC3\xA4\n",
                                                           "member two", "zstandard in two frames"});
    REQUIRE(outputs_of(disk) == complete);
    REQUIRE(verify(disk) == Exit::Ok);
    const auto sidecar = read_sidecar(disk, "out/p");
    REQUIRE(sidecar->empty_documents == 2);
    REQUIRE(sidecar->vocab_size == 257);
    REQUIRE(sidecar->token_type == "uint16");
    REQUIRE(sidecar->written.documents == 7);
    REQUIRE(sidecar->sources.size() == 6);
    REQUIRE(sidecar->sources[4].documents == 3);
    const std::string bin = *disk.contents("out/p.bin");
    REQUIRE(sidecar->written.bin_sha256 == sha256_hex(std::as_bytes(std::span(bin))));
    REQUIRE(sidecar->text_bytes + sidecar->written.documents == sidecar->written.tokens);
}

TEST_CASE("the output is the same for any number of threads, also when files span many blocks", "[threads]") {
    // 1.5 MB of text in one document and 2.7 MB of JSON lines of many lengths, one of them beyond a block.
    std::string text, lines;
    std::uint64_t state = 1;
    const auto next = [&] { return (state = state * 6364136223846793005U + 1442695040888963407U) >> 33U; };
    while (text.size() < 1'500'000) text.push_back(static_cast<char>(next() % 256));
    std::size_t documents = 0;
    while (lines.size() < 1'500'000) {
        std::string body(next() % 5000 + 1, static_cast<char>('a' + documents % 26));
        lines += "{\"text\":\"" + body + "\"}\n";
        ++documents;
    }
    const std::string huge(1'200'000, 'x');
    lines += "{\"text\":\"" + huge + "\"}\n{\"text\":\"last\"}";
    std::vector<std::vector<std::string>> outputs;
    for (const std::int64_t threads : {1, 2, 7}) {
        MemoryFileSystem disk;
        disk.put("long.txt", text);
        disk.put("many.jsonl.gz", gzip(lines));
        prepare(disk, {"long.txt", "many.jsonl.gz"}, threads);
        outputs.emplace_back();
        for (const std::string& path : complete) outputs.back().push_back(*disk.contents(path));
        if (threads != 7) continue;
        const auto read_back = documents_of(disk);
        REQUIRE(read_back.size() == documents + 3);
        REQUIRE(read_back[0] == text);
        REQUIRE(read_back[documents + 1] == huge);
        REQUIRE(read_back.back() == "last");
    }
    REQUIRE(outputs[1] == outputs[0]);
    REQUIRE(outputs[2] == outputs[0]);
}

TEST_CASE("progress is reported by the calling thread and ends at the whole", "[threads]") {
    MemoryFileSystem disk;
    disk.put("a.txt", std::string(3'000'000, 'a'));
    SystemClock clock;
    PrepareArgs args;
    args.inputs = {"a.txt"};
    args.output = "out/p";
    args.threads = 2;
    args.progress_interval_s = 0.0;
    std::vector<PrepareProgress> seen;
    args.progress = [&](const PrepareProgress& progress) { seen.push_back(progress); };
    prepare_data(disk, clock, args, OutputFormat::Text);
    REQUIRE(seen.size() >= 3);
    for (std::size_t i = 1; i < seen.size(); ++i) REQUIRE(seen[i].tokens >= seen[i - 1].tokens);
    REQUIRE(seen.back().bytes_read == seen.back().bytes_total);
    REQUIRE(seen.back().tokens == 3'000'001);
    REQUIRE(seen.back().documents == 1);
    REQUIRE(contains(format_progress(seen.back()), "100.0%"));

    args.output = "out/q";
    args.stop = [] { return true; };
    REQUIRE(thrown_by([&] { prepare_data(disk, clock, args, OutputFormat::Text); }).code ==
            Exit::Interrupted);
    REQUIRE(outputs_of(disk) == complete);
}

TEST_CASE("bad input is refused with file and line, and leaves nothing behind", "[threads]") {
    struct Case {
        const char* path;
        std::string contents;
        const char* message;
    };
    const std::string good = "{\"text\":\"good\"}\n";
    const std::vector<Case> cases = {
        {"a.jsonl", good + "{\"text\": }\n" + good, "a.jsonl: line 2: not valid JSON"},
        {"a.jsonl", good + good + "[1]", "line 3: a JSON object"},
        {"a.jsonl", good + "{\"body\":\"x\"}", "line 2: has no key \"text\""},
        {"a.jsonl", "{\"text\":5}", "line 1: the value of \"text\" is not a string"},
        {"a.jsonl", good + "{\"text\":\"\xFF\"}", "line 2"},
        {"a.jsonl", "{\"text\":\"cut", "line 1"},
        {"a.txt.gz", gzip(std::string(5000, 'y')).substr(0, 20), "ends inside a gzip member"},
        {"a.txt.gz", "no gzip at all, only text", "damaged"},
        {"a.txt.zst", zstd(std::string(5000, 'y') + "z").substr(0, 12), "ends inside a zstd frame"},
        {"a.txt.zst", "no zstd at all, only text", "damaged"},
        {"a.txt", "", "no text at all"},
        {"a.jsonl", "\n\n", "no text at all"},
    };
    for (const Case& bad : cases) {
        for (const std::int64_t threads : {1, 3}) {
            INFO(bad.message);
            MemoryFileSystem disk;
            disk.put(bad.path, bad.contents);
            const Thrown thrown = thrown_by([&] { prepare(disk, {bad.path}, threads); });
            REQUIRE(thrown.code == Exit::BadInput);
            INFO(thrown.text);
            REQUIRE(contains(thrown.text, bad.message));
            // What to do next is the last sentence.
            REQUIRE((contains(thrown.text, ". ") || contains(thrown.text, "; ")));
            REQUIRE(outputs_of(disk).empty());
        }
    }
    MemoryFileSystem disk;
    disk.put("folder/x.pdf", "x");
    REQUIRE(thrown_by([&] { prepare(disk, {"missing.txt"}); }).code == Exit::BadInput);
    REQUIRE(thrown_by([&] { prepare(disk, {"folder"}); }).code == Exit::BadInput);
    REQUIRE(thrown_by([&] { prepare(disk, {}); }).code == Exit::Usage);
    REQUIRE(outputs_of(disk).empty());
}

TEST_CASE("an existing data set is refused or replaced as a whole") {
    MemoryFileSystem disk;
    disk.put("a.txt", "one");
    disk.put("b.txt", "two");
    prepare(disk, {"a.txt"});
    const Thrown thrown = thrown_by([&] { prepare(disk, {"b.txt"}); });
    REQUIRE(thrown.code == Exit::Usage);
    REQUIRE(contains(thrown.text, "out/p.bin exists"));
    REQUIRE(documents_of(disk) == std::vector<std::string>{"one"});
    prepare(disk, {"b.txt"}, 2, Existing::Replace);
    REQUIRE(documents_of(disk) == std::vector<std::string>{"two"});
    REQUIRE(outputs_of(disk) == complete);
    REQUIRE(contains(thrown.text, "--overwrite"));
}

TEST_CASE("what is read is never written over") {
    MemoryFileSystem disk;
    disk.put("out/p.bin", "text of a strange name");
    const Thrown thrown = thrown_by([&] { prepare(disk, {"out/p.bin"}, 2, Existing::Replace); });
    REQUIRE(thrown.code == Exit::Usage);
    REQUIRE(contains(thrown.text, "choose another --output"));
    REQUIRE(*disk.contents("out/p.bin") == "text of a strange name");
}

TEST_CASE("what a killed process left half-written is gone after the next one, whether it succeeds or not") {
    for (const char* text : {"one", ""}) {
        MemoryFileSystem disk;
        disk.put("a.txt", text);
        for (const char* suffix : {".bin", ".lengths", ".documents", ".idx", ".json"})
            disk.put(std::string("out/p") + suffix + ".tmp", "half, and longer than what comes");
        const bool good = *text != '\0';
        REQUIRE(thrown_by([&] { prepare(disk, {"a.txt"}); }).code == (good ? Exit::Ok : Exit::BadInput));
        REQUIRE(outputs_of(disk) == (good ? complete : std::vector<std::string>{}));
        if (good) REQUIRE(verify(disk) == Exit::Ok);
    }
}

TEST_CASE("an output that another process holds is not touched") {
    MemoryFileSystem disk;
    disk.put("a.txt", "one");
    disk.put("out/p.bin.tmp", "of the other one");
    SystemClock clock;
    PrepareArgs args;
    args.inputs = {"a.txt"};
    args.output = "out/p.bin";
    args.claim = [](const std::string& prefix) { fail(Exit::Usage, prefix + " is held"); };
    REQUIRE(thrown_by([&] { prepare_data(disk, clock, args, OutputFormat::Text); }).text == "out/p is held");
    REQUIRE(*disk.contents("out/p.bin.tmp") == "of the other one");
}

TEST_CASE("a failing file system leaves no part of a data set") {
    for (const FaultEffect effect : {FaultEffect::None, FaultEffect::Applied}) {
        std::uint64_t failed = 0;
        for (std::uint64_t k = 0;; ++k) {
            MemoryFileSystem disk;
            disk.put("a.txt", "some text");
            Fault fault;
            fault.error_number = ENOSPC;
            fault.after = k;
            fault.effect = effect;
            disk.add_fault(fault);
            const Thrown thrown = thrown_by([&] { prepare(disk, {"a.txt"}, 1); });
            if (thrown.code == Exit::Ok) {
                REQUIRE(outputs_of(disk) == complete);
                if (k > 40) break;
                continue;
            }
            ++failed;
            INFO("operation " << k << ": " << thrown.text);
            REQUIRE(thrown.code == Exit::Resource);
            // A temporary whose creation was reported as failed stays for the next one to write over.
            const std::vector<std::string> left = outputs_of(disk);
            REQUIRE((left.empty() ||
                     (effect == FaultEffect::Applied && left.size() == 1 && contains(left[0], ".tmp"))));
        }
        REQUIRE(failed >= 15);
    }
}

TEST_CASE("after a power cut at any moment an index never stands without its data") {
    const auto run = [](MemoryFileSystem& disk) {
        disk.put("a.txt", "some text");
        prepare(disk, {"a.txt"}, 1, Existing::Replace);
    };
    // Fresh, and in place of an older, longer data set.
    for (const bool over_another : {false, true}) {
        const auto start = [&](MemoryFileSystem& disk) {
            if (!over_another) return;
            disk.put("old.txt", "an older and longer text");
            prepare(disk, {"old.txt"}, 1);
        };
        MemoryFileSystem clean;
        start(clean);
        const std::uint64_t first = clean.mutations();
        run(clean);
        int with_index = 0;
        for (std::uint64_t k = first; k < clean.mutations(); ++k) {
            MemoryFileSystem disk;
            start(disk);
            disk.crash_at(k);
            REQUIRE_THROWS_AS(run(disk), Crash);
            for_each_crash_state(disk, 64, [&](MemoryFileSystem& found, const std::string& what) {
                if (!found.contents("out/p.idx")) return;
                INFO(what << " after operation " << k);
                REQUIRE(verify(found) == Exit::Ok);
                ++with_index;
            });
        }
        REQUIRE(with_index > 0);
    }
}
