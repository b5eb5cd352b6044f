// Text block -> token ids with document ends. Pure; called by worker threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/text_blocks.h"
#include "trainctl/data/tokenizer.h"

namespace trainctl::data_detail {

struct EncodedBlock {
    std::size_t file = 0;
    std::vector<std::int32_t> ids;
    std::vector<std::size_t> document_ends;  // positions in ids just behind an end-of-document token
    std::int64_t empty_documents = 0;        // left out
    std::int64_t text_bytes = 0;             // of the documents' texts
};

// JSON that is damaged or has no string under `key` is Exit::BadInput with file and line. Reuse one encoder
// per thread: it keeps the JSON parser's memory.
class BlockEncoder {
  public:
    BlockEncoder(const Tokenizer& tokenizer, std::string key, const std::vector<InputFile>& inputs);
    ~BlockEncoder();
    BlockEncoder(const BlockEncoder&) = delete;
    BlockEncoder& operator=(const BlockEncoder&) = delete;
    EncodedBlock encode(const Block& block);

  private:
    void encode_lines(const Block& block, EncodedBlock& encoded);

    struct Parser;
    const Tokenizer& tokenizer_;
    std::string key_;
    const std::vector<InputFile>& inputs_;
    std::unique_ptr<Parser> parser_;
};

}  // namespace trainctl::data_detail
