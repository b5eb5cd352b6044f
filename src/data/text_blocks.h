// Input files cut into numbered blocks of text: the unit of parallel tokenization.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/byte_input.h"
#include "trainctl/base/file_system.h"
#include "trainctl/data/tokenizer.h"

namespace trainctl::data_detail {

enum class TextKind { Document, JsonLines };

struct InputFile {
    std::string path;
    TextKind kind = TextKind::Document;
    std::uint64_t bytes = 0;  // as stored
};

// The files behind `inputs`: files as they are, directories searched through for known suffixes, in bytewise
// order. Missing or empty places are Exit::BadInput.
std::vector<InputFile> find_inputs(FileSystem& files, const std::vector<std::string>& inputs);

struct Block {
    std::int64_t number = 0;
    std::size_t file = 0;  // of the list of inputs
    TextKind kind = TextKind::Document;
    std::string text;  // JsonLines: whole lines; Document: up to a safe cut. Has spare capacity for simdjson
    std::int64_t first_line = 1;  // JsonLines
    bool ends_document = false;   // Document: the last block of its file
    bool empty_document = false;  // Document: nothing in the whole file
};

// Not thread-safe: callers take turns.
class BlockReader {
  public:
    static constexpr std::size_t target_bytes = 1024 * 1024;
    static constexpr std::size_t limit_bytes =
        256 * 1024 * 1024;  // of one line, or of text without a safe cut

    BlockReader(FileSystem& files, const std::vector<InputFile>& inputs, const Tokenizer& tokenizer)
        : files_(files), inputs_(inputs), tokenizer_(tokenizer) {}

    // False at the end of the last file.
    bool next(Block& block);
    [[nodiscard]] std::uint64_t stored_bytes_read() const {
        return finished_bytes_ + (input_ ? input_->stored_bytes_read() : 0);
    }

  private:
    bool fill(std::size_t wanted);  // carry_ grows to `wanted` bytes; false if the file ended before
    [[nodiscard]] std::size_t cut(const InputFile& file) const;

    FileSystem& files_;
    const std::vector<InputFile>& inputs_;
    const Tokenizer& tokenizer_;
    std::unique_ptr<ByteInput> input_;
    std::size_t file_ = 0;
    std::string carry_;  // read but not yet handed out
    std::int64_t line_ = 1;
    std::int64_t number_ = 0;
    bool document_has_text_ = false;
    std::uint64_t finished_bytes_ = 0;
};

}  // namespace trainctl::data_detail
