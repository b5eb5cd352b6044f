#include <fmt/core.h>

#include "trainctl/base/error.h"
#include "trainctl/data/tokenizer.h"

namespace trainctl {
namespace {

constexpr std::int32_t byte_values = 256;

class ByteTokenizer final : public Tokenizer {
  public:
    [[nodiscard]] std::string_view name() const override { return "byte"; }
    [[nodiscard]] std::int64_t vocab_size() const override { return byte_values + 1; }
    [[nodiscard]] std::int32_t end_of_document() const override { return byte_values; }

    void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
        const std::size_t before = ids.size();
        ids.resize(before + text.size());
        for (std::size_t i = 0; i < text.size(); ++i) ids[before + i] = static_cast<unsigned char>(text[i]);
    }

    [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override {
        std::string text;
        text.reserve(ids.size());
        for (const std::int32_t id : ids) {
            if (id >= 0 && id < byte_values) {
                text.push_back(static_cast<char>(id));
            } else if (id != byte_values) {
                text += "\xEF\xBF\xBD";
            }
        }
        return text;
    }

    [[nodiscard]] std::size_t safe_cut(std::string_view text) const override { return text.size(); }
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name) {
    if (name == "byte") return make_byte_tokenizer();
    fail(Exit::Usage, fmt::format("unknown tokenizer \"{}\": expected \"byte\" (others are not in this "
                                  "build); give --tokenizer byte",
                                  name));
}

}  // namespace trainctl
