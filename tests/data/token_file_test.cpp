#include "trainctl/data/token_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "data_fixture.h"
#include "support/catch.h"
#include "support/temporary_directory.h"
#include "trainctl/data/commands.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

std::string llmc_header(std::int32_t magic, std::int32_t version, std::int32_t tokens) {
    std::vector<std::int32_t> header(256, 0);
    header[0] = magic;
    header[1] = version;
    header[2] = tokens;
    return raw(header);
}

std::vector<std::int32_t> read_all(const TokenFile& file) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(file.tokens()));
    file.read(0, ids);
    return ids;
}

}  // namespace

TEST_CASE("every format gives back its ids") {
    MemoryFileSystem disk;
    OpenFiles files(disk);
    const auto ids = counting<std::int32_t>(500, 3);
    TokenFileOptions options;
    options.vocab_size = 503;

    put_megatron(disk, "m16", 503, {ids});
    put_megatron(disk, "m32", 100'000, {ids});
    disk.put("gpt2.bin", llmc_header(20240520, 1, 500) + raw(counting<std::uint16_t>(500, 3)));
    disk.put("llama.bin", llmc_header(20240801, 7, 500) + raw(counting<std::uint32_t>(500, 3)));
    for (const auto& [path, format, type] : {std::tuple{"m16", TokenFormat::Megatron, TokenType::U16},
                                             {"m16.bin", TokenFormat::Megatron, TokenType::U16},
                                             {"m16.idx", TokenFormat::Megatron, TokenType::U16},
                                             {"m32", TokenFormat::Megatron, TokenType::I32},
                                             {"gpt2.bin", TokenFormat::LlmC, TokenType::U16},
                                             {"llama.bin", TokenFormat::LlmC, TokenType::U32}}) {
        INFO(path);
        const auto file = open_token_file(files, path, options);
        REQUIRE(file->layout().format == format);
        REQUIRE(file->layout().type == type);
        REQUIRE(read_all(*file) == ids);
    }
    disk.put("nano16.bin", raw(counting<std::uint16_t>(500, 3)));
    options.dtype = DType::U16;
    REQUIRE(read_all(*open_token_file(files, "nano16.bin", options)) == ids);
    put_counting(disk, "nano32.bin", 500, 3);
    options.dtype = DType::U32;
    const auto file = open_token_file(files, "nano32.bin", options);
    REQUIRE(read_all(*file) == ids);
    std::vector<std::int32_t> part(7);
    file->read(123, part);
    REQUIRE(part == counting<std::int32_t>(7, 126));
    REQUIRE(file->byte_of(123) == 492);
}

TEST_CASE("all integer types of Megatron are read, wide ids are range-checked") {
    for (const auto& [code, bytes] : {std::pair{1, raw<std::uint8_t>({1, 200})},
                                      {2, raw<std::int8_t>({1, 100})},
                                      {3, raw<std::int16_t>({1, 30000})},
                                      {4, raw<std::int32_t>({1, 70000})},
                                      {5, raw<std::int64_t>({1, 90000})},
                                      {8, raw<std::uint16_t>({1, 65000})}}) {
        MemoryFileSystem disk;
        put_megatron(disk, "a", 10, {{1, 2}});
        std::string index = *disk.contents("a.idx");
        index[17] = static_cast<char>(code);
        disk.put("a.idx", index);
        disk.put("a.bin", bytes);
        OpenFiles files(disk);
        const auto ids = read_all(*open_token_file(files, "a", {}));
        REQUIRE(ids[0] == 1);
        REQUIRE(ids[1] >= 100);
    }
    MemoryFileSystem disk;
    put_megatron(disk, "a", 10, {{1, 2}});
    std::string index = *disk.contents("a.idx");
    index[17] = 5;
    disk.put("a.idx", index);
    for (const std::int64_t id : {std::int64_t{-1}, std::int64_t{1} << 32, INT64_MIN}) {
        disk.put("a.bin", raw<std::int64_t>({1, id}));
        OpenFiles files(disk);
        const auto file = open_token_file(files, "a", {});
        REQUIRE(contains(thrown_by([&] { read_all(*file); }).text, std::to_string(id)));
    }
}

TEST_CASE("known failure 55: ids beyond the vocabulary and vocabularies beyond uint16 are refused") {
    MemoryFileSystem disk;
    OpenFiles files(disk);
    disk.put("a.bin", raw<std::uint16_t>({1, 2, 65535, 4}));
    TokenFileOptions options;
    options.dtype = DType::U16;
    options.vocab_size = 65536;
    REQUIRE(read_all(*open_token_file(files, "a.bin", options))[2] == 65535);
    options.vocab_size = 100'000;
    const Thrown wide = thrown_by([&] { open_token_file(files, "a.bin", options); });
    REQUIRE(wide.code == Exit::BadInput);
    REQUIRE(contains(wide.text, "100000"));

    put_megatron(disk, "m", 60'000, {{1, 2, 59'999, 4}});
    options.vocab_size = 59'999;
    const auto file = open_token_file(files, "m", options);
    const Thrown beyond = thrown_by([&] { read_all(*file); });
    REQUIRE(beyond.code == Exit::BadInput);
    REQUIRE(contains(beyond.text, "m.bin: token 2 at byte 4 has id 59999"));
}

TEST_CASE("known failure 56: a headerless file with the wrong declared type is detected") {
    MemoryFileSystem disk;
    OpenFiles files(disk);
    put_counting(disk, "wide.bin", 5000, 10);
    disk.put("narrow.bin", raw(counting<std::uint16_t>(5000, 10)));
    for (const std::int64_t vocab : {0, 50'257}) {
        const Thrown thrown = thrown_by([&] {
            open_token_file(files, "wide.bin", {TokenFormat::Auto, DType::U16, vocab});
        });
        REQUIRE(thrown.code == Exit::BadInput);
        REQUIRE(contains(thrown.text, "uint32"));
    }
    const Thrown thrown = thrown_by([&] {
        open_token_file(files, "narrow.bin", {TokenFormat::Auto, DType::U32, 50'257});
    });
    REQUIRE(thrown.code == Exit::BadInput);
    REQUIRE(contains(thrown.text, "data.dtype"));
    // Without a declaration nothing is guessed, with a wrong one for the format nothing is read.
    REQUIRE(thrown_by([&] { open_token_file(files, "wide.bin", {}); }).code == Exit::Usage);
    REQUIRE(thrown_by([&] {
                open_token_file(files, "wide.bin", {TokenFormat::Auto, DType::F32, 0});
            }).code == Exit::Usage);
    // Ids that only look odd are left alone.
    disk.put("zeros.bin", std::string(400, '\0'));
    REQUIRE_NOTHROW(open_token_file(files, "zeros.bin", {TokenFormat::Auto, DType::U16, 10}));
}

TEST_CASE("damaged, cut and missing token files are refused with the reason") {
    MemoryFileSystem disk;
    OpenFiles files(disk);
    const TokenFileOptions u16{TokenFormat::Auto, DType::U16, 0};
    const auto text_of = [&](const std::string& path, const TokenFileOptions& options) {
        const Thrown thrown = thrown_by([&] { open_token_file(files, path, options); });
        REQUIRE(thrown.code == Exit::BadInput);
        return thrown.text;
    };
    REQUIRE(contains(text_of("nothing", u16), "no such file"));
    disk.put("odd.bin", "abc");
    REQUIRE(contains(text_of("odd.bin", u16), "3 bytes"));
    disk.put("empty.bin", "");
    REQUIRE(contains(text_of("empty.bin", u16), "no tokens"));
    disk.put("folder/x.bin", "ab");
    REQUIRE(contains(text_of("folder", u16), "directory"));
    disk.put("cut.bin", llmc_header(20240520, 1, 500) + "xx");
    REQUIRE(contains(text_of("cut.bin", {}), "500 tokens"));
    disk.put("negative.bin", llmc_header(20240520, 1, -1));
    REQUIRE(contains(text_of("negative.bin", {}), "-1 tokens"));
    disk.put("version.bin", llmc_header(20240520, 9, 0));
    REQUIRE(contains(text_of("version.bin", {}), "version 9"));
    disk.put("short.bin", llmc_header(20240520, 1, 0).substr(0, 100));
    REQUIRE(contains(text_of("short.bin", {}), "1024"));
    disk.put("llmc.bin", llmc_header(20240801, 7, 0));
    REQUIRE(contains(text_of("llmc.bin", {TokenFormat::NanoGpt, DType::U16, 0}), "llmc"));
    put_megatron(disk, "m", 100, {{1, 2, 3}});
    // Opening reads the index; that the ids cannot be read is known then all the same.
    test::Fault closed;
    closed.error_number = EACCES;
    closed.op = test::FileOp::OpenRead;
    closed.path_part = "m.bin";
    disk.add_fault(closed);
    REQUIRE(contains(text_of("m", {}), "permissions"));
    // The index is whole: the message is about the .bin, also when half an id is left.
    for (const std::uint64_t size : {4, 3, 0}) {
        disk.truncate("m.bin", size);
        const std::string found =
            "m.bin: expected 6 bytes, as its index m.idx says, found " + std::to_string(size);
        REQUIRE(contains(text_of("m", {}), found));
    }
    disk.erase("m.bin");
    REQUIRE(contains(text_of("m", {}), "m.bin"));
}

TEST_CASE("a missing file is named, with what is there instead, in the words of whoever asks") {
    MemoryFileSystem disk;
    OpenFiles files(disk);
    const auto text_of = [&](const char* path, const TokenFileOptions& options) {
        const Thrown thrown = thrown_by([&] { open_token_file(files, path, options); });
        CHECK((thrown.code == Exit::BadInput || thrown.code == Exit::Usage));
        return thrown.text;
    };
    for (const TokenFormat format : {TokenFormat::NanoGpt, TokenFormat::LlmC}) {
        const std::string text = text_of("none", {format, DType::U16, 0});
        REQUIRE(contains(text, "none: no such file"));
        REQUIRE_FALSE(contains(text, ".idx"));  // these formats have none
    }
    disk.put("n.bin", raw<std::uint16_t>({1, 2, 3}));
    REQUIRE(contains(text_of("n", {TokenFormat::NanoGpt, DType::U16, 0}), "give the whole name, n.bin"));
    REQUIRE(contains(text_of("n", {}), "n.idx: no such file, but n.bin is there"));
    REQUIRE(contains(text_of("n", {TokenFormat::Megatron, {}, 0}), "n.idx: no such file"));
    put_megatron(disk, "m", 100, {{1, 2, 3}});
    REQUIRE(contains(text_of("m", {TokenFormat::NanoGpt, {}, 0}), "data.format = \"megatron\""));
    REQUIRE(contains(text_of("m", {TokenFormat::NanoGpt, {}, 0, Wording::Options}), "--format megatron"));
    REQUIRE(contains(text_of("n.bin", {}), "data.dtype = \"uint16\""));
    const std::string options = text_of("n.bin", {TokenFormat::Auto, {}, 0, Wording::Options});
    REQUIRE(contains(options, "--dtype uint16"));
    REQUIRE_FALSE(contains(options, "data.dtype"));
}

TEST_CASE("a declared type that no headerless file uses must agree with the headers") {
    MemoryFileSystem disk;
    put_counting(disk, "wide.bin", 9, 0);
    disk.put("narrow.bin", raw(counting<std::uint16_t>(9)));
    put_megatron(disk, "m16", 100, {{1, 2, 3}});
    put_megatron(disk, "m32", 100'000, {{1, 2, 3}});
    disk.put("gpt2.bin", llmc_header(20240520, 1, 3) + raw<std::uint16_t>({1, 2, 3}));
    for (const auto& [path, agrees, contradicts] : {std::tuple{"m16", DType::U16, DType::U32},
                                                    {"m32", DType::U32, DType::U16},
                                                    {"gpt2.bin", DType::U16, DType::U32}}) {
        INFO(path);
        DataSpec data;
        data.train = {{path, 1.0}};
        data.dtype = agrees;
        const CorpusOptions options{2, 100, 1};
        REQUIRE_NOTHROW(Corpus(disk, data, options));
        data.dtype = contradicts;
        const Thrown of_job = thrown_by([&] { Corpus(disk, data, options); });
        REQUIRE(of_job.code == Exit::Usage);
        REQUIRE(contains(of_job.text, "leave data.dtype out"));
        // Beside a headerless file it is that one's.
        data.validation = {{contradicts == DType::U32 ? "wide.bin" : "narrow.bin", 1.0}};
        REQUIRE_NOTHROW(Corpus(disk, data, options));
        for (const bool verify : {false, true}) {
            const Thrown of_command = thrown_by([&] {
                if (verify) verify_data(disk, {path, TokenFormat::Auto, contradicts, 0}, OutputFormat::Text);
                if (!verify)
                    inspect_data(disk, {path, TokenFormat::Auto, contradicts, "", {}, 1, 1},
                                 OutputFormat::Text);
            });
            REQUIRE(of_command.code == Exit::Usage);
            REQUIRE(contains(of_command.text, "leave --dtype out"));
        }
    }
}

TEST_CASE("files beyond 2^31 tokens and 2^32 bytes are addressed with 64 bits") {
    const TemporaryDirectory directory;
    const auto disk = make_posix_file_system();
    const std::int64_t tokens = (std::int64_t{1} << 32) + 1000;
    const std::string path = directory / "sparse.bin";
    const int fd = ::open(path.c_str(), O_CREAT | O_WRONLY, 0600);
    REQUIRE(fd >= 0);
    REQUIRE(::ftruncate(fd, tokens * 2) == 0);
    const std::vector<std::uint16_t> end = {11, 22, 33};
    REQUIRE(::pwrite(fd, end.data(), 6, (tokens - 3) * 2) == 6);
    ::close(fd);

    OpenFiles files(*disk);
    const auto file = open_token_file(files, path, {TokenFormat::NanoGpt, DType::U16, 100});
    REQUIRE(file->tokens() == tokens);
    std::vector<std::int32_t> ids(4);
    file->read(tokens - 4, ids);
    REQUIRE(ids == std::vector<std::int32_t>{0, 11, 22, 33});

    // As a corpus: window numbers and token positions do not wrap either.
    DataSpec data;
    data.train = {{path, 1.0}};
    data.dtype = DType::U16;
    const Corpus corpus(*disk, data, {1024, 100, 7});
    REQUIRE(corpus.windows(Split::Train) == (tokens - 1) / 1024);
    std::vector<std::int32_t> window(1025);
    std::int64_t furthest = 0;
    for (std::int64_t sample = 0; sample < 100; ++sample) {
        const SampleOrigin origin = corpus.locate(Split::Train, sample);
        furthest = std::max(furthest, origin.first_token);
        corpus.read(origin, window);
    }
    REQUIRE(furthest > std::int64_t{1} << 31);
}

TEST_CASE("a Megatron data set beyond 2^31 tokens keeps its documents") {
    const TemporaryDirectory directory;
    const auto disk = make_posix_file_system();
    // Two documents: one of two sequences of 2^31 - 1 tokens, and one of 5.
    const std::int64_t long_sequence = 0x7FFFFFFF;
    const std::int64_t tokens = 2 * long_sequence + 5;
    const std::string prefix = directory / "big";
    std::string index("MMIDIDX\0\0", 9);
    index += raw<std::uint64_t>({1}) + "\x08" + raw<std::uint64_t>({3, 3});
    index += raw<std::int32_t>({0x7FFFFFFF, 0x7FFFFFFF, 5});
    index += raw<std::int64_t>({0, long_sequence * 2, long_sequence * 4}) + raw<std::int64_t>({0, 2, 3});
    const auto idx = disk->open(prefix + ".idx", Open::CreateNew);
    idx->write(std::as_bytes(std::span(index)));
    idx->close();
    const int fd = ::open((prefix + ".bin").c_str(), O_CREAT | O_WRONLY, 0600);
    REQUIRE(::ftruncate(fd, tokens * 2) == 0);
    ::close(fd);

    OpenFiles files(*disk);
    const auto file = open_token_file(files, prefix, {});
    REQUIRE(file->tokens() == tokens);
    REQUIRE(file->index()->documents() == 2);
    REQUIRE_NOTHROW(file->index()->scan({}));
    REQUIRE(file->index()->document_at(2 * long_sequence - 1).document == 0);
    const DocumentSpan last = file->index()->document_at(2 * long_sequence);
    REQUIRE(last.document == 1);
    REQUIRE(last.first_token == 2 * long_sequence);
    REQUIRE(last.tokens == 5);
}

TEST_CASE("patterns name files in order, a Megatron pair once") {
    MemoryFileSystem disk;
    for (const char* name : {"d/a_2.bin", "d/a_10.bin", "d/b_1.bin", "d/a.txt"}) disk.put(name, "xx");
    put_megatron(disk, "d/a_3", 100, {{1}});
    disk.put("d/a_3.json", "{}");
    REQUIRE(expand_pattern(disk, "d/a_*") ==
            std::vector<std::string>{"d/a_10.bin", "d/a_2.bin", "d/a_3.bin"});
    REQUIRE(expand_pattern(disk, "d/*_1*.bin") == std::vector<std::string>{"d/a_10.bin", "d/b_1.bin"});
    REQUIRE(expand_pattern(disk, "d/missing") == std::vector<std::string>{"d/missing"});
    for (const char* pattern : {"d/z*", "nowhere/*.bin"}) {
        const Thrown nothing = thrown_by([&] { expand_pattern(disk, pattern); });
        REQUIRE(nothing.code == Exit::BadInput);
        REQUIRE(contains(nothing.text, std::string(pattern) + ": no file matches"));
    }
    REQUIRE(is_pattern("d*"));
    REQUIRE(is_pattern("d/x*.bin"));
    REQUIRE_FALSE(is_pattern("d*/x"));
}

TEST_CASE("many files need few descriptors") {
    MemoryFileSystem disk;
    OpenFiles files(disk, 3);
    for (int i = 0; i < 10; ++i)
        disk.put("f" + std::to_string(i), std::string(4, static_cast<char>('a' + i)));
    for (int round = 0; round < 2; ++round) {
        for (int i = 0; i < 10; ++i) {
            std::array<std::byte, 2> bytes{};
            files.read_at("f" + std::to_string(i), 1, bytes);
            REQUIRE(static_cast<char>(bytes[1]) == static_cast<char>('a' + i));
            REQUIRE(files.open_now() <= 3);
        }
    }
}
