// The .idx of a Megatron indexed data set, version 1, read in place: nothing is kept in memory, so its size
// does not matter. Layout (little-endian):
//   0 "MMIDIDX\0\0" | 9 u64 version 1 | 17 u8 dtype | 18 u64 sequences S | 26 u64 document entries D =
//   documents + 1 34 i32[S] lengths in tokens | i64[S] byte offsets into .bin | i64[D] first sequence of each
//   document | [i8[S] modes]
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trainctl/data/open_files.h"
#include "trainctl/data/token_type.h"

namespace trainctl {

// One document as a range of tokens of its file.
struct DocumentSpan {
    std::int64_t document = 0;
    std::int64_t first_token = 0;
    std::int64_t tokens = 0;
};

class MegatronIndex {
  public:
    // Checks the header, the sizes and the first and last entries against a .bin of `bin_bytes`: O(1).
    // Anything wrong is Exit::BadInput and names the file at fault, the .bin if its size is not what the
    // index says. `files` must outlive the index.
    MegatronIndex(OpenFiles& files, std::string path, std::uint64_t bin_bytes);

    [[nodiscard]] TokenType type() const { return type_; }
    [[nodiscard]] std::int64_t sequences() const { return sequences_; }
    [[nodiscard]] std::int64_t documents() const { return document_entries_ - 1; }
    [[nodiscard]] std::int64_t tokens() const { return tokens_; }
    [[nodiscard]] const std::string& path() const { return path_; }

    // Reads a few entries. Precondition: 0 <= document < documents().
    [[nodiscard]] DocumentSpan document(std::int64_t document) const;
    // The document that holds token `token` of the file; O(log S) small reads. Precondition: 0 <= token <
    // tokens().
    [[nodiscard]] DocumentSpan document_at(std::int64_t token) const;

    // Reads every entry in bounded memory: lengths not negative, offsets the running sum of the lengths,
    // documents in order. Calls `each` (may be empty) for every document in order. The first fault is
    // Exit::BadInput with its place.
    void scan(const std::function<void(const DocumentSpan&)>& each) const;

  private:
    [[nodiscard]] std::int64_t length_at(std::int64_t sequence) const;
    [[nodiscard]] std::int64_t stored_offset(std::int64_t sequence) const;  // as read
    [[nodiscard]] std::int64_t offset_at(std::int64_t sequence) const;  // bytes; sequence S is the .bin's end
    [[nodiscard]] std::int64_t document_entry(std::int64_t entry) const;  // sequence number, checked
    void require_bin_size() const;
    [[noreturn]] void corrupt(const std::string& what) const;

    OpenFiles& files_;
    std::string path_;
    std::uint64_t bin_bytes_ = 0;
    TokenType type_ = TokenType::U16;
    std::int64_t sequences_ = 0;
    std::int64_t document_entries_ = 1;
    std::int64_t tokens_ = 0;
};

}  // namespace trainctl
