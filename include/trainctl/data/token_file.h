// A file of token ids: Megatron .bin/.idx, nanoGPT (headerless), llm.c (both magics). One flat run of ids.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainctl/config/job_spec.h"
#include "trainctl/data/megatron_index.h"
#include "trainctl/data/open_files.h"
#include "trainctl/data/token_type.h"

namespace trainctl {

// Where the ids lie.
struct TokenLayout {
    std::string path;        // the file that holds the ids
    std::string index_path;  // Megatron .idx; empty for other formats
    TokenFormat format = TokenFormat::NanoGpt;
    TokenType type = TokenType::U16;
    std::uint64_t first_byte = 0;  // of token 0
    std::uint64_t file_bytes = 0;
    std::int64_t tokens = 0;
};

// In whose words a message asks for another format or dtype.
enum class Wording { JobKeys, Options };

struct TokenFileOptions {
    TokenFormat format = TokenFormat::Auto;
    std::optional<DType> dtype;   // required for headerless files, and only for them: U16 or U32
    std::int64_t vocab_size = 0;  // every id read must be below it; 0: unknown, not checked
    Wording wording = Wording::JobKeys;
};

std::string_view token_format_name(TokenFormat format);

// Thread-safe. Ids come out as int32.
class TokenFile {
  public:
    TokenFile(OpenFiles& files, TokenLayout layout, std::unique_ptr<MegatronIndex> index,
              std::int64_t vocab_size);

    [[nodiscard]] const TokenLayout& layout() const { return layout_; }
    [[nodiscard]] std::int64_t tokens() const { return layout_.tokens; }
    // Byte of the file at which token `token` starts.
    [[nodiscard]] std::uint64_t byte_of(std::int64_t token) const {
        return layout_.first_byte + static_cast<std::uint64_t>(token) * token_bytes(layout_.type);
    }
    // nullptr where the format keeps no documents.
    [[nodiscard]] const MegatronIndex* index() const { return index_.get(); }

    // Tokens [first, first + into.size()). An id that is negative or not below the vocabulary is
    // Exit::BadInput with file, token and byte offset. Precondition: the range lies inside the file.
    void read(std::int64_t first, std::span<std::int32_t> into) const;

  private:
    OpenFiles& files_;
    TokenLayout layout_;
    std::unique_ptr<MegatronIndex> index_;
    std::int64_t vocab_size_;
};

// Opens `path`: a file, or a Megatron prefix with or without .bin/.idx. Auto looks for an index, then for a
// magic number, else takes the file as headerless. Missing, empty, cut or contradictory files are
// Exit::BadInput; a headerless file without a dtype is Exit::Usage. Headerless files are sampled: ids beyond
// the vocabulary, or uint32 ids declared as uint16, are refused here rather than in the middle of training.
std::unique_ptr<TokenFile> open_token_file(OpenFiles& files, const std::string& path,
                                           const TokenFileOptions& options);

// Where no headerless file uses it, a dtype of another width than the header of `file` says is Exit::Usage.
void check_dtype(const TokenFile& file, const TokenFileOptions& options);

// Whether the last component holds a '*'.
bool is_pattern(const std::string& path);
// Files that `pattern` names: itself, or the files that match it in bytewise order (a Megatron pair counts
// once, as its .bin). No match is Exit::BadInput.
std::vector<std::string> expand_pattern(FileSystem& files, const std::string& pattern);

}  // namespace trainctl
