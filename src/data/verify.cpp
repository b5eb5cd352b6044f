// `data verify` of one data set: everything that can be wrong in the files.
#include <fmt/core.h>

#include <algorithm>

#include "data/check_list.h"
#include "data/little_endian.h"
#include "trainctl/base/error.h"
#include "trainctl/base/hash.h"
#include "trainctl/base/text.h"
#include "trainctl/data/token_file.h"

namespace trainctl {
namespace data_detail {
namespace {

constexpr std::int64_t piece_tokens = 1024 * 1024;

struct Contents {
    std::int32_t smallest = INT32_MAX;
    std::int32_t largest = INT32_MIN;
    std::int64_t ends = 0;  // end-of-document tokens
    std::string sha256;     // of the ids as stored
};

// One pass over all ids. TokenFile::read refuses ids outside the vocabulary on the way.
Contents read_all(const TokenFile& file, std::optional<std::int32_t> end_of_document) {
    Contents contents;
    Sha256 digest;
    std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(piece_tokens, file.tokens())));
    std::vector<std::byte> raw;
    for (std::int64_t first = 0; first < file.tokens(); first += piece_tokens) {
        ids.resize(static_cast<std::size_t>(std::min(piece_tokens, file.tokens() - first)));
        file.read(first, ids);
        const auto [low, high] = std::minmax_element(ids.begin(), ids.end());
        contents.smallest = std::min(contents.smallest, *low);
        contents.largest = std::max(contents.largest, *high);
        if (end_of_document) contents.ends += std::count(ids.begin(), ids.end(), *end_of_document);
        // The stored bytes again, so that a large file is read once: prepared files are uint16 or int32.
        if (file.layout().type == TokenType::U16) {
            std::vector<std::uint16_t> narrow(ids.begin(), ids.end());
            digest.update(std::as_bytes(std::span(narrow)));
        } else {
            digest.update(std::as_bytes(std::span(ids)));
        }
    }
    contents.sha256 = digest.hex_digest();
    return contents;
}

std::string sha256_of(FileSystem& files, const std::string& path) {
    const auto file = files.open(path, Open::Read);
    std::vector<std::byte> buffer(1024 * 1024);
    Sha256 digest;
    for (std::uint64_t offset = 0;;) {
        const std::size_t got = file->read_some_at(offset, buffer);
        if (got == 0) return digest.hex_digest();
        digest.update(std::span(buffer).first(got));
        offset += got;
    }
}

void check_against_sidecar(CheckList& checks, FileSystem& files, const TokenFile& file,
                           const Sidecar& sidecar, const std::optional<Contents>& contents) {
    const WrittenTokens& written = sidecar.written;
    checks.expect(written.tokens == file.tokens() && written.bin_bytes == file.layout().file_bytes &&
                      sidecar.token_type == token_type_name(file.layout().type),
                  "record",
                  fmt::format("{} {} tokens recorded, {} {} found", written.tokens, sidecar.token_type,
                              file.tokens(), token_type_name(file.layout().type)));
    if (file.index() != nullptr) {
        checks.expect(
            written.documents == file.index()->documents() && written.sequences == file.index()->sequences(),
            "documents",
            fmt::format("{} in {} recorded, {} in {} found", counted(written.documents, "document"),
                        counted(written.sequences, "sequence"), file.index()->documents(),
                        file.index()->sequences()));
        const std::string found = sha256_of(files, file.layout().index_path);
        checks.expect(found == written.idx_sha256, "index checksum",
                      fmt::format("sha256 {} recorded, {} found", written.idx_sha256, found));
    }
    if (!contents) {
        checks.add(CheckList::Verdict::NotChecked, "checksum", "the ids could not be read to the end");
        return;
    }
    checks.expect(contents->ends == written.documents, "document ends",
                  fmt::format("{} for {}", counted(contents->ends, "end-of-document token"),
                              counted(written.documents, "document")));
    checks.expect(contents->sha256 == written.bin_sha256, "checksum",
                  fmt::format("sha256 {} recorded, {} found", written.bin_sha256, contents->sha256));
}

}  // namespace

CheckList check_token_file(FileSystem& files, const VerifyArgs& args) {
    CheckList checks;
    OpenFiles open_files(files);
    std::optional<Sidecar> sidecar;
    std::unique_ptr<TokenFile> file;
    const bool opened = checks.attempt("files", [&] {
        sidecar = read_sidecar(files, megatron_prefix(args.path));
        const std::int64_t vocab =
            args.vocab_size > 0 ? args.vocab_size : (sidecar ? sidecar->vocab_size : 0);
        const TokenFileOptions options{args.format, args.dtype, vocab, args.wording};
        file = open_token_file(open_files, args.path, options);
        if (args.wording == Wording::Options)
            check_dtype(*file, options);  // of a job the corpus has checked it
        return fmt::format("{}, {} of {}, {}", token_format_name(file->layout().format),
                           token_type_name(file->layout().type), format_bytes(file->layout().file_bytes),
                           counted(file->tokens(), "token"));
    });
    if (!opened) return checks;
    if (file->index() != nullptr) {
        checks.attempt("index", [&] {
            file->index()->scan({});
            return fmt::format("{} in {}; lengths, offsets and borders agree with the .bin",
                               counted(file->index()->documents(), "document"),
                               counted(file->index()->sequences(), "sequence"));
        });
    }
    std::optional<Contents> contents;
    checks.attempt("ids", [&] {
        contents = read_all(*file, sidecar ? std::optional(sidecar->end_of_document) : std::nullopt);
        const std::int64_t vocab =
            args.vocab_size > 0 ? args.vocab_size : (sidecar ? sidecar->vocab_size : 0);
        return fmt::format(
            "all in [{}, {}], {}", contents->smallest, contents->largest,
            vocab > 0 ? fmt::format("the vocabulary has {}", vocab) : "no vocabulary was given");
    });
    if (sidecar) {
        check_against_sidecar(checks, files, *file, *sidecar, contents);
    } else {
        checks.add(CheckList::Verdict::NotChecked, "checksum",
                   fmt::format("there is no {}.json of trainctl data prepare", megatron_prefix(args.path)));
    }
    return checks;
}

}  // namespace data_detail

CommandResult verify_data(FileSystem& files, const VerifyArgs& args, OutputFormat format) {
    return data_detail::check_token_file(files, args).result(format);
}

}  // namespace trainctl
