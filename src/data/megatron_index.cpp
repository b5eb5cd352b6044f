#include "trainctl/data/megatron_index.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "data/little_endian.h"
#include "trainctl/base/error.h"
#include "trainctl/base/text.h"
#include "trainctl/data/sidecar.h"

namespace trainctl {
namespace {

using data_detail::load;

constexpr std::size_t header_bytes = 34;
constexpr std::array<char, 9> index_magic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};

std::optional<TokenType> type_of_code(std::uint8_t code) {
    switch (code) {
        case 1:
            return TokenType::U8;
        case 2:
            return TokenType::I8;
        case 3:
            return TokenType::I16;
        case 4:
            return TokenType::I32;
        case 5:
            return TokenType::I64;
        case 8:
            return TokenType::U16;
        default:
            return std::nullopt;  // 6 and 7 are floating point
    }
}

template <class T>
T read_one(OpenFiles& files, const std::string& path, std::uint64_t offset) {
    std::array<std::byte, sizeof(T)> bytes{};
    files.read_at(path, offset, bytes);
    return load<T>(bytes, 0);
}

// Consecutive T of a file from byte `offset`, read in pieces.
template <class T>
class Column {
  public:
    Column(OpenFiles& files, const std::string& path, std::uint64_t offset, std::int64_t count)
        : files_(files), path_(path), offset_(offset), left_(count) {}

    T next() {
        if (at_ == buffered_) refill();
        return load<T>(buffer_, sizeof(T) * at_++);
    }

  private:
    static constexpr std::int64_t piece = 64 * 1024;

    void refill() {
        buffered_ = static_cast<std::size_t>(std::min(piece, left_));
        buffer_.resize(buffered_ * sizeof(T));
        files_.read_at(path_, offset_, buffer_);
        offset_ += buffer_.size();
        left_ -= static_cast<std::int64_t>(buffered_);
        at_ = 0;
    }

    OpenFiles& files_;
    const std::string& path_;
    std::uint64_t offset_;
    std::int64_t left_;
    std::vector<std::byte> buffer_;
    std::size_t buffered_ = 0;
    std::size_t at_ = 0;
};

}  // namespace

MegatronIndex::MegatronIndex(OpenFiles& files, std::string path, std::uint64_t bin_bytes)
    : files_(files), path_(std::move(path)), bin_bytes_(bin_bytes) {
    const auto status = files_.files().status(path_);
    if (!status || status->directory) corrupt("there is no such file");
    const std::uint64_t size = status->size;
    if (size < header_bytes)
        corrupt(fmt::format("a header of {} bytes is expected, the file has {}", header_bytes,
                            counted(size, "byte")));
    std::array<std::byte, header_bytes> header{};
    files_.read_at(path_, 0, header);
    if (std::memcmp(header.data(), index_magic.data(), index_magic.size()) != 0) {
        corrupt("it does not start with \"MMIDIDX\", so it is not an index of a Megatron indexed data set");
    }
    const auto version = load<std::uint64_t>(header, 9);
    if (version != 1) corrupt(fmt::format("version 1 is expected, found {}", version));
    const auto code = load<std::uint8_t>(header, 17);
    const auto type = type_of_code(code);
    if (!type) corrupt(fmt::format("dtype code {} is not an integer type (1, 2, 3, 4, 5 or 8)", code));
    type_ = *type;

    const auto sequences = load<std::uint64_t>(header, 18);
    const auto entries = load<std::uint64_t>(header, 26);
    // Bounding both counts by the file's size first keeps every product below far away from overflow.
    if (sequences > size || entries > size || entries == 0) {
        corrupt(fmt::format("{} and {} do not fit a file of {}", counted(sequences, "sequence"),
                            counted(entries, "document entry", "document entries"), counted(size, "byte")));
    }
    const std::uint64_t plain = header_bytes + sequences * 12 + entries * 8;
    if (size != plain && size != plain + sequences) {
        corrupt(fmt::format(
            "{} and {} need {} bytes (or {} with modes), the file has {}", counted(sequences, "sequence"),
            counted(entries, "document entry", "document entries"), plain, plain + sequences, size));
    }
    sequences_ = static_cast<std::int64_t>(sequences);
    document_entries_ = static_cast<std::int64_t>(entries);

    require_bin_size();
    tokens_ = static_cast<std::int64_t>(bin_bytes_ / token_bytes(type_));
    if (document_entry(0) != 0)
        corrupt(fmt::format("the first document starts at sequence {}", document_entry(0)));
    if (document_entry(document_entries_ - 1) != sequences_) {
        corrupt(fmt::format("the documents end at sequence {} of {}", document_entry(document_entries_ - 1),
                            sequences_));
    }
    if (sequences_ > 0 && offset_at(0) != 0)
        corrupt(fmt::format("sequence 0 starts at byte {}", offset_at(0)));
}

// Of the two files the .bin is the one that gets cut: the index, whose own size was right, is believed.
void MegatronIndex::require_bin_size() const {
    std::uint64_t end = 0;
    if (sequences_ > 0) {
        const std::int64_t offset = stored_offset(sequences_ - 1);
        const auto item = static_cast<std::int64_t>(token_bytes(type_));
        if (offset < 0 || offset % item != 0) {
            corrupt(fmt::format("sequence {} starts at byte {} of {} ids", sequences_ - 1, offset,
                                token_type_name(type_)));
        }
        end =
            static_cast<std::uint64_t>(offset) + static_cast<std::uint64_t>(length_at(sequences_ - 1) * item);
    }
    if (end == bin_bytes_) return;
    fail(Exit::BadInput,
         fmt::format(
             "{}.bin: expected {}, as its index {} says, found {}: it is cut, or belongs to another "
             "index. Restore the file or prepare the data again (trainctl data verify lists every check)",
             megatron_prefix(path_), counted(end, "byte"), path_, bin_bytes_));
}

void MegatronIndex::corrupt(const std::string& what) const {
    fail(Exit::BadInput,
         fmt::format(
             "{}: {}. Restore the file or prepare the data again (trainctl data verify lists every check)",
             path_, what));
}

std::int64_t MegatronIndex::length_at(std::int64_t sequence) const {
    const auto length =
        read_one<std::int32_t>(files_, path_, header_bytes + static_cast<std::uint64_t>(sequence) * 4);
    if (length < 0) corrupt(fmt::format("sequence {} has length {}", sequence, length));
    return length;
}

std::int64_t MegatronIndex::stored_offset(std::int64_t sequence) const {
    const std::uint64_t at =
        header_bytes + static_cast<std::uint64_t>(sequences_) * 4 + static_cast<std::uint64_t>(sequence) * 8;
    return read_one<std::int64_t>(files_, path_, at);
}

std::int64_t MegatronIndex::offset_at(std::int64_t sequence) const {
    if (sequence == sequences_) return static_cast<std::int64_t>(bin_bytes_);
    const std::int64_t offset = stored_offset(sequence);
    const auto item = static_cast<std::int64_t>(token_bytes(type_));
    if (offset < 0 || static_cast<std::uint64_t>(offset) > bin_bytes_ || offset % item != 0) {
        corrupt(fmt::format("sequence {} starts at byte {} of a .bin of {} with {} ids", sequence, offset,
                            counted(bin_bytes_, "byte"), token_type_name(type_)));
    }
    return offset;
}

std::int64_t MegatronIndex::document_entry(std::int64_t entry) const {
    const std::uint64_t at =
        header_bytes + static_cast<std::uint64_t>(sequences_) * 12 + static_cast<std::uint64_t>(entry) * 8;
    const auto sequence = read_one<std::int64_t>(files_, path_, at);
    if (sequence < 0 || sequence > sequences_) {
        corrupt(fmt::format("document {} starts at sequence {} of {}", entry, sequence, sequences_));
    }
    return sequence;
}

DocumentSpan MegatronIndex::document(std::int64_t document) const {
    invariant(document >= 0 && document < documents(), "no such document");
    const auto item = static_cast<std::int64_t>(token_bytes(type_));
    const std::int64_t begin = offset_at(document_entry(document)) / item;
    const std::int64_t end = offset_at(document_entry(document + 1)) / item;
    if (end < begin) corrupt(fmt::format("document {} ends before it starts", document));
    return {document, begin, end - begin};
}

DocumentSpan MegatronIndex::document_at(std::int64_t token) const {
    invariant(token >= 0 && token < tokens_, "no such token");
    const auto item = static_cast<std::int64_t>(token_bytes(type_));
    // Last document that starts at or before the token; empty documents in front of it share its start.
    std::int64_t low = 0, high = documents();
    while (high - low > 1) {
        const std::int64_t middle = low + (high - low) / 2;
        (offset_at(document_entry(middle)) <= token * item ? low : high) = middle;
    }
    if (documents() == 0) corrupt("it has tokens but no documents");
    return document(low);
}

void MegatronIndex::scan(const std::function<void(const DocumentSpan&)>& each) const {
    const std::uint64_t lengths_at = header_bytes;
    const std::uint64_t offsets_at = lengths_at + static_cast<std::uint64_t>(sequences_) * 4;
    const std::uint64_t documents_at = offsets_at + static_cast<std::uint64_t>(sequences_) * 8;
    Column<std::int32_t> lengths(files_, path_, lengths_at, sequences_);
    Column<std::int64_t> offsets(files_, path_, offsets_at, sequences_);
    Column<std::int64_t> starts(files_, path_, documents_at, document_entries_);

    std::int64_t sequence = 0, token = 0;
    const auto item = static_cast<std::int64_t>(token_bytes(type_));
    std::int64_t start = starts.next();
    if (start != 0) corrupt(fmt::format("the first document starts at sequence {}", start));
    for (std::int64_t document = 0; document < documents(); ++document) {
        const std::int64_t end = starts.next();
        if (end < start || end > sequences_) {
            corrupt(fmt::format("document {} is sequences {} to {} of {}", document, start, end, sequences_));
        }
        const std::int64_t first_token = token;
        for (; sequence < end; ++sequence) {
            const std::int64_t length = lengths.next();
            const std::int64_t offset = offsets.next();
            if (length < 0) corrupt(fmt::format("sequence {} has length {}", sequence, length));
            if (offset != token * item) {
                corrupt(fmt::format(
                    "sequence {} should start at byte {} (the sum of the lengths before it) but says {}",
                    sequence, token * item, offset));
            }
            token += length;
            if (token > tokens_)
                corrupt(fmt::format("sequence {} ends beyond the .bin's {} tokens", sequence, tokens_));
        }
        if (each) each({document, first_token, token - first_token});
        start = end;
    }
    if (sequence != sequences_)
        corrupt(fmt::format("the documents end at sequence {} of {}", sequence, sequences_));
    if (token != tokens_)
        corrupt(fmt::format("its lengths sum to {}, the .bin has {}", counted(token, "token"), tokens_));
}

}  // namespace trainctl
