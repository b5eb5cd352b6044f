#include <filesystem>
#include <fstream>
#include <iterator>

#include "data_fixture.h"
#include "support/catch.h"
#include "trainctl/data/megatron_index.h"

using namespace trainctl;
using namespace trainctl::test;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::vector<DocumentSpan> all_documents(const MegatronIndex& index) {
    std::vector<DocumentSpan> spans;
    index.scan([&](const DocumentSpan& span) { spans.push_back(span); });
    return spans;
}

}  // namespace

TEST_CASE("a written data set reads back document by document") {
    for (const std::int64_t limit : {std::int64_t{1}, std::int64_t{3}, MegatronWriter::longest_sequence}) {
        for (const std::int64_t vocab : {500, 70'000}) {
            MemoryFileSystem disk;
            std::vector<std::vector<std::int32_t>> documents;
            std::int64_t tokens = 0;
            for (std::int64_t d = 0; d < 40; ++d) {
                documents.push_back(counting<std::int32_t>(1 + d * d % 17, d));
                tokens += static_cast<std::int64_t>(documents.back().size());
            }
            const WrittenTokens written = put_megatron(disk, "x/a", vocab, documents, limit);
            REQUIRE(written.documents == 40);
            REQUIRE(written.tokens == tokens);
            REQUIRE(written.sequences >= 40);
            REQUIRE(disk.all_files() == std::vector<std::string>{"x/a.bin", "x/a.idx"});

            OpenFiles files(disk);
            const auto file = open_token_file(files, "x/a", {TokenFormat::Auto, {}, vocab});
            const std::vector<DocumentSpan> spans = all_documents(*file->index());
            REQUIRE(spans.size() == 40);
            for (const DocumentSpan& span : spans) {
                std::vector<std::int32_t> ids(static_cast<std::size_t>(span.tokens));
                file->read(span.first_token, ids);
                REQUIRE(ids == documents[static_cast<std::size_t>(span.document)]);
                for (std::int64_t t = span.first_token; t < span.first_token + span.tokens; ++t) {
                    REQUIRE(file->index()->document_at(t).document == span.document);
                }
                REQUIRE(file->index()->document(span.document).first_token == span.first_token);
            }
        }
    }
}

TEST_CASE("the type follows Megatron's rule and empty documents are not stored") {
    REQUIRE(megatron_token_type(65'499) == TokenType::U16);
    REQUIRE(megatron_token_type(65'500) == TokenType::I32);
    MemoryFileSystem disk;
    const WrittenTokens written = put_megatron(disk, "a", 10, {{}, {1}, {}, {2, 3}});
    REQUIRE(written.documents == 2);
    REQUIRE(written.bin_bytes == 6);
    REQUIRE(*disk.contents("a.bin") == raw<std::uint16_t>({1, 2, 3}));
}

TEST_CASE("the index is byte for byte what Megatron writes") {
    MemoryFileSystem disk;
    put_megatron(disk, "a", 10, {{1}, {2, 3}});
    std::string expected("MMIDIDX\0\0", 9);
    expected += raw<std::uint64_t>({1}) + "\x08" + raw<std::uint64_t>({2, 3});
    expected += raw<std::int32_t>({1, 2}) + raw<std::int64_t>({0, 2}) + raw<std::int64_t>({0, 1, 2});
    REQUIRE(*disk.contents("a.idx") == expected);
}

TEST_CASE("no single damaged byte of an index goes unnoticed by a scan") {
    MemoryFileSystem clean;
    put_megatron(clean, "a", 10, {{1}, {2, 3}, {4, 5, 6, 7}});
    const std::string index = *clean.contents("a.idx");
    const auto verdict = [&](const std::string& bytes) {
        MemoryFileSystem disk;
        disk.put("a.idx", bytes);
        OpenFiles files(disk);
        const Thrown thrown = thrown_by([&] { MegatronIndex(files, "a.idx", 14).scan({}); });
        REQUIRE((thrown.code == Exit::Ok || thrown.code == Exit::BadInput));
        return thrown.code;
    };
    REQUIRE(verdict(index) == Exit::Ok);
    int unnoticed = 0;
    for (std::size_t i = 0; i < index.size(); ++i) {
        std::string damaged = index;
        damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
        unnoticed += verdict(damaged) == Exit::Ok ? 1 : 0;
        REQUIRE(verdict(index.substr(0, i)) == Exit::BadInput);
    }
    // A document border may move to another sequence: only the checksum of `data verify` can tell.
    REQUIRE(unnoticed == 0);
}

TEST_CASE("the kept corpus of the index fuzzer") {
    int inputs = 0;
    for (const auto& entry : std::filesystem::directory_iterator(TRAINCTL_FUZZ_CORPUS)) {
        INFO(entry.path());
        std::ifstream stream(entry.path(), std::ios::binary);
        const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
        REQUIRE(LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()) ==
                0);
        ++inputs;
    }
    REQUIRE(inputs >= 14);
}
