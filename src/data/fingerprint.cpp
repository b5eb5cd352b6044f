#include "trainctl/data/fingerprint.h"

#include <fmt/core.h>

#include <algorithm>

#include "data/little_endian.h"
#include "trainctl/base/hash.h"
#include "trainctl/base/text.h"

namespace trainctl {
namespace {

constexpr std::uint64_t pieces = 64;
constexpr std::uint64_t piece_bytes = 64 * 1024;
constexpr std::uint64_t stream_bytes = 1024 * 1024;

std::uint64_t hash_whole(FileSystem& files, const std::string& path) {
    const auto file = files.open(path, Open::Read);
    std::vector<std::byte> buffer(stream_bytes);
    std::uint64_t hash = 0, offset = 0;
    for (;;) {
        // read_some_at may return less than asked; whole pieces keep the hash independent of that.
        std::size_t filled = 0;
        while (filled < buffer.size()) {
            const std::size_t got = file->read_some_at(offset + filled, std::span(buffer).subspan(filled));
            if (got == 0) break;
            filled += got;
        }
        if (filled == 0) return hash;
        hash = hash64(std::span(buffer).first(filled), hash);
        offset += filled;
    }
}

std::uint64_t hash_sample(FileSystem& files, const std::string& path, std::uint64_t bytes) {
    const auto file = files.open(path, Open::Read);
    std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(bytes, piece_bytes)));
    const std::uint64_t last = bytes - buffer.size();
    const std::uint64_t count =
        bytes <= piece_bytes ? 1 : std::min(pieces, (bytes + piece_bytes - 1) / piece_bytes);
    std::uint64_t hash = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
        // last / (count - 1) * i without overflow and with the last piece at the very end.
        const std::uint64_t step = count == 1 ? 0 : last / (count - 1);
        file->read_at(i + 1 == count ? last : step * i, buffer);
        hash = hash64(buffer, hash);
    }
    return hash;
}

std::vector<FileFingerprint> of_sources(FileSystem& files, const std::vector<CorpusSource>& sources,
                                        std::vector<std::byte>& summary) {
    std::vector<FileFingerprint> prints;
    for (const CorpusSource& source : sources) {
        data_detail::store(summary, static_cast<std::uint64_t>(source.files.size()));
        for (const auto& file : source.files) {
            const TokenLayout& layout = file->layout();
            FileFingerprint print;
            print.path = layout.path;
            print.bytes = layout.file_bytes;
            print.tokens = layout.tokens;
            if (!layout.index_path.empty()) print.index_hash = hash_whole(files, layout.index_path);
            print.content_hash = hash_sample(files, layout.path, layout.file_bytes);
            data_detail::store(summary, print.bytes);
            data_detail::store(summary, print.tokens);
            data_detail::store(summary, print.index_hash);
            data_detail::store(summary, print.content_hash);
            data_detail::store(summary, static_cast<std::uint64_t>(layout.type));
            prints.push_back(std::move(print));
        }
    }
    return prints;
}

std::string list_json(const std::vector<FileFingerprint>& prints) {
    std::string text = "[";
    for (const FileFingerprint& print : prints) {
        text += fmt::format(
            R"({}{{"path":{},"bytes":{},"tokens":{},"index_hash":"{:016x}","content_hash":"{:016x}"}})",
            text.size() > 1 ? "," : "", json_quote(print.path), print.bytes, print.tokens, print.index_hash,
            print.content_hash);
    }
    return text + "]";
}

}  // namespace

DataFingerprint fingerprint(FileSystem& files, const Corpus& corpus) {
    DataFingerprint print;
    std::vector<std::byte> summary;
    print.train = of_sources(files, corpus.train_sources(), summary);
    data_detail::store(summary, std::uint64_t{0});  // separates the lists
    print.validation = of_sources(files, corpus.validation_sources(), summary);
    print.id = fmt::format("{:016x}", hash64(summary));
    return print;
}

std::string to_json(const DataFingerprint& print) {
    return fmt::format(R"({{"id":"{}","train":{},"validation":{}}})", print.id, list_json(print.train),
                       list_json(print.validation));
}

}  // namespace trainctl
