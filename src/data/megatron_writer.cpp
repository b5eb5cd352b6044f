#include "trainctl/data/megatron_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "data/little_endian.h"
#include "trainctl/base/error.h"
#include "trainctl/base/hash.h"

namespace trainctl {
namespace {

using data_detail::store;

constexpr std::size_t flush_bytes = 1024 * 1024;

std::uint8_t code_of(TokenType type) { return type == TokenType::U16 ? 8 : 4; }

// A temporary file with a write buffer; removed unless kept. Its name is fixed, so that what a killed process
// left is written over.
class Spool {
  public:
    Spool(FileSystem& files, std::string path)
        : files_(files), path_(std::move(path)), file_(files.open(path_, Open::Truncate)) {
        buffer_.reserve(flush_bytes + 64);
    }
    ~Spool() {
        file_.reset();
        if (settled_) return;
        remove_quietly(path_);
        if (!final_.empty()) remove_quietly(final_);
    }
    Spool(const Spool&) = delete;
    Spool& operator=(const Spool&) = delete;

    template <class T>
    void put(T value) {
        store(buffer_, value);
        if (buffer_.size() >= flush_bytes) flush();
    }
    void put_bytes(std::span<const std::byte> bytes) {
        buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
        if (buffer_.size() >= flush_bytes) flush();
    }
    void flush() {
        file_->write(buffer_);
        digest_.update(buffer_);
        bytes_ += buffer_.size();
        buffer_.clear();
    }
    std::string finish() {
        flush();
        file_->sync();
        file_->close();
        file_.reset();
        return digest_.hex_digest();
    }
    // From here on the destructor removes the final name too, unless settle() was reached.
    void rename_to(const std::string& name) {
        final_ = name;
        files_.rename(path_, name);
    }
    void settle() { settled_ = true; }
    // Removes the temporary; unlike the destructor it reports failure.
    void discard() {
        file_.reset();
        files_.remove_file(path_);
        settled_ = true;
    }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    void remove_quietly(const std::string& path) {
        try {
            files_.remove_file(path);
        } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): a leftover file harms nothing
        }
    }

    FileSystem& files_;
    std::string path_;
    std::string final_;
    std::unique_ptr<File> file_;
    std::vector<std::byte> buffer_;
    Sha256 digest_;
    std::uint64_t bytes_ = 0;
    bool settled_ = false;
};

}  // namespace

TokenType megatron_token_type(std::int64_t vocab_size) {
    return vocab_size < 65500 ? TokenType::U16 : TokenType::I32;
}

struct MegatronWriter::Impl {
    Impl(FileSystem& files_in, std::string prefix_in, std::int64_t vocab, Existing existing,
         std::int64_t limit)
        : files(files_in),
          prefix(std::move(prefix_in)),
          vocab_size(vocab),
          type(megatron_token_type(vocab)),
          sequence_limit(limit) {
        files.make_directories(parent_path(prefix));
        if (existing == Existing::Refuse) refuse_existing();
        for (const char* later : {".idx.tmp", ".json.tmp"}) files.remove_file(prefix + later);
        bin = std::make_unique<Spool>(files, prefix + ".bin.tmp");
        lengths = std::make_unique<Spool>(files, prefix + ".lengths.tmp");
        documents = std::make_unique<Spool>(files, prefix + ".documents.tmp");
        documents->put(std::int64_t{0});
    }

    void refuse_existing() {
        for (const char* suffix : {".bin", ".idx", ".json"}) {
            if (!files.status(prefix + suffix)) continue;
            fail(Exit::Usage, fmt::format("{}{} exists already; choose another output or give --overwrite",
                                          prefix, suffix));
        }
    }

    void end_sequence() {
        lengths->put(static_cast<std::int32_t>(sequence_tokens));
        ++written.sequences;
        sequence_tokens = 0;
    }

    // The index needs the counts in front and its columns one after another, so they were spooled separately.
    void write_index() {
        Spool& idx = *index;
        for (const char c : {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'}) idx.put(c);
        idx.put(std::uint64_t{1});
        idx.put(code_of(type));
        idx.put(static_cast<std::uint64_t>(written.sequences));
        idx.put(static_cast<std::uint64_t>(written.documents + 1));
        copy(*lengths, [&](std::span<const std::byte> piece) { idx.put_bytes(piece); });
        std::int64_t offset = 0;
        copy(*lengths, [&](std::span<const std::byte> piece) {
            for (std::size_t at = 0; at < piece.size(); at += 4) {
                idx.put(offset);
                offset +=
                    data_detail::load<std::int32_t>(piece, at) * static_cast<std::int64_t>(token_bytes(type));
            }
        });
        copy(*documents, [&](std::span<const std::byte> piece) { idx.put_bytes(piece); });
    }

    template <class Use>
    void copy(const Spool& from, Use use) {
        const auto file = files.open(from.path(), Open::Read);
        std::vector<std::byte> piece(flush_bytes);
        for (std::uint64_t at = 0; at < from.bytes(); at += piece.size()) {
            piece.resize(static_cast<std::size_t>(std::min<std::uint64_t>(flush_bytes, from.bytes() - at)));
            file->read_at(at, piece);
            use(std::span<const std::byte>(piece));
        }
    }

    FileSystem& files;
    const std::string prefix;
    const std::int64_t vocab_size;
    const TokenType type;
    const std::int64_t sequence_limit;
    WrittenTokens written;
    std::int64_t sequence_tokens = 0;
    bool in_document = false;
    std::unique_ptr<Spool> bin, index, lengths, documents;
};

MegatronWriter::MegatronWriter(FileSystem& files, std::string prefix, std::int64_t vocab_size,
                               Existing existing, std::int64_t sequence_limit)
    : impl_(std::make_unique<Impl>(files, std::move(prefix), vocab_size, existing, sequence_limit)) {}

MegatronWriter::~MegatronWriter() = default;

void MegatronWriter::append(std::span<const std::int32_t> ids) {
    Impl& s = *impl_;
    for (const std::int32_t id : ids) {
        invariant(id >= 0 && id < s.vocab_size, "MegatronWriter: an id is outside the vocabulary");
        if (s.sequence_tokens == s.sequence_limit) s.end_sequence();
        if (s.type == TokenType::U16) {
            s.bin->put(static_cast<std::uint16_t>(id));
        } else {
            s.bin->put(id);
        }
        ++s.sequence_tokens;
    }
    s.written.tokens += static_cast<std::int64_t>(ids.size());
    s.in_document = s.in_document || !ids.empty();
}

void MegatronWriter::end_document() {
    Impl& s = *impl_;
    if (!s.in_document) return;
    s.end_sequence();
    ++s.written.documents;
    s.documents->put(s.written.sequences);
    s.in_document = false;
}

WrittenTokens MegatronWriter::finish() {
    Impl& s = *impl_;
    end_document();
    s.written.bin_sha256 = s.bin->finish();
    s.written.bin_bytes = s.bin->bytes();
    s.lengths->flush();
    s.documents->flush();
    s.index = std::make_unique<Spool>(s.files, s.prefix + ".idx.tmp");
    s.write_index();
    s.written.idx_sha256 = s.index->finish();
    s.written.idx_bytes = s.index->bytes();
    s.lengths->discard();
    s.documents->discard();
    return s.written;
}

void MegatronWriter::commit(const std::string& sidecar) {
    Impl& s = *impl_;
    invariant(s.index != nullptr, "MegatronWriter: commit() comes after finish()");
    std::unique_ptr<Spool> json;
    if (!sidecar.empty()) {
        json = std::make_unique<Spool>(s.files, s.prefix + ".json.tmp");
        json->put_bytes(std::as_bytes(std::span(sidecar)));
        json->finish();
    }
    // The syncs order what a power cut may leave: an index never stands beside a .bin that is not its own.
    const std::string folder = parent_path(s.prefix);
    s.files.remove_file(s.prefix + ".idx");
    s.files.sync_directory(folder);
    s.bin->rename_to(s.prefix + ".bin");
    if (json) {
        json->rename_to(s.prefix + ".json");
    } else {
        s.files.remove_file(s.prefix + ".json");  // of the data set that is being replaced
    }
    s.files.sync_directory(folder);
    s.index->rename_to(s.prefix + ".idx");
    s.files.sync_directory(folder);
    s.bin->settle();
    s.index->settle();
    if (json) json->settle();
}

}  // namespace trainctl
