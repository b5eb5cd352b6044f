// Writes a Megatron .bin/.idx pair with bounded memory. Everything goes to temporary names; the final names
// appear in commit(), the index last: a data set without an index does not exist.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "trainctl/base/file_system.h"
#include "trainctl/data/token_type.h"

namespace trainctl {

// uint16 iff the vocabulary is below 65500, else int32 (Megatron's own rule).
TokenType megatron_token_type(std::int64_t vocab_size);

struct WrittenTokens {
    std::int64_t documents = 0;
    std::int64_t sequences = 0;
    std::int64_t tokens = 0;
    std::uint64_t bin_bytes = 0;
    std::uint64_t idx_bytes = 0;
    std::string bin_sha256;
    std::string idx_sha256;
};

// One thread at a time. The destructor removes what was not committed.
class MegatronWriter {
  public:
    // Sequence lengths are int32 in the index: a longer document becomes several sequences of one document.
    static constexpr std::int64_t longest_sequence = 0x7FFFFFFF;

    // Refuse: an existing PREFIX.bin, .idx or .json is Exit::Usage. Temporaries (PREFIX.*.tmp) are taken for
    // leftovers of a killed writer: the caller sees to it that no other one is at work.
    MegatronWriter(FileSystem& files, std::string prefix, std::int64_t vocab_size, Existing existing,
                   std::int64_t sequence_limit = longest_sequence);
    ~MegatronWriter();
    MegatronWriter(const MegatronWriter&) = delete;
    MegatronWriter& operator=(const MegatronWriter&) = delete;

    // Appends to the current document. Ids must be in [0, vocab_size): Exit::Internal otherwise.
    void append(std::span<const std::int32_t> ids);
    // Documents without tokens are not stored.
    void end_document();

    // Writes and syncs the index under its temporary name. After it only commit() may be called.
    WrittenTokens finish();
    // Gives the files their final names, with `sidecar` as PREFIX.json (none if empty), and syncs the
    // directory.
    void commit(const std::string& sidecar);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace trainctl
