// Text <-> token ids. `byte` is the first one; others implement the same interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

// Immutable after construction: every method may be called from several threads at once.
class Tokenizer {
  public:
    virtual ~Tokenizer() = default;

    [[nodiscard]] virtual std::string_view name() const = 0;
    // Ids are in [0, vocab_size()), the end-of-document token included.
    [[nodiscard]] virtual std::int64_t vocab_size() const = 0;
    [[nodiscard]] virtual std::int32_t end_of_document() const = 0;

    // Appends the ids of `text`; never the end-of-document token.
    virtual void encode(std::string_view text, std::vector<std::int32_t>& ids) const = 0;
    // The bytes of `ids`; end of document gives nothing, an id outside the vocabulary gives U+FFFD.
    [[nodiscard]] virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

    // Largest n <= text.size() such that encode(text + more) == encode(first n bytes) + encode(the rest +
    // more) whatever `more` is. Lets a document larger than memory be encoded in pieces. 0: more text is
    // needed.
    [[nodiscard]] virtual std::size_t safe_cut(std::string_view text) const = 0;
};

// 257 ids: the 256 byte values and 256 = end of document.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

// "byte". Any other name is Exit::Usage with the known names.
std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name);

}  // namespace trainctl
