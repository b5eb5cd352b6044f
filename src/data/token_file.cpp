#include "trainctl/data/token_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "data/little_endian.h"
#include "trainctl/base/error.h"

namespace trainctl {
namespace {

constexpr std::size_t piece_tokens = 64 * 1024;

// Calls f with a value of the C++ type behind `type`.
template <class F>
void with_type(TokenType type, F&& f) {
    switch (type) {
        case TokenType::U8:
            f(std::uint8_t{});
            return;
        case TokenType::I8:
            f(std::int8_t{});
            return;
        case TokenType::U16:
            f(std::uint16_t{});
            return;
        case TokenType::I16:
            f(std::int16_t{});
            return;
        case TokenType::U32:
            f(std::uint32_t{});
            return;
        case TokenType::I32:
            f(std::int32_t{});
            return;
        case TokenType::I64:
            f(std::int64_t{});
            return;
    }
}

// Widens raw ids; returns the first position whose id is negative or not below `limit`, else into.size().
template <class T>
std::size_t widen(std::span<const std::byte> raw, std::span<std::int32_t> into, std::uint64_t limit) {
    std::uint64_t worst = 0;  // one compare per piece in the good case, vectorised
    for (std::size_t i = 0; i < into.size(); ++i) {
        const T id = data_detail::load<T>(raw, i * sizeof(T));
        into[i] = static_cast<std::int32_t>(id);  // NOLINT(bugprone-signed-char-misuse): I8 is a type of ids
        worst = std::max(worst, static_cast<std::uint64_t>(static_cast<std::int64_t>(id)));
    }
    if (worst < limit) return into.size();
    for (std::size_t i = 0; i < into.size(); ++i) {
        const T id = data_detail::load<T>(raw, i * sizeof(T));
        if (static_cast<std::uint64_t>(static_cast<std::int64_t>(id)) >= limit) return i;
    }
    return into.size();
}

}  // namespace

std::string_view token_format_name(TokenFormat format) {
    switch (format) {
        case TokenFormat::Auto:
            return "auto";
        case TokenFormat::Megatron:
            return "megatron";
        case TokenFormat::NanoGpt:
            return "nanogpt";
        case TokenFormat::LlmC:
            return "llmc";
    }
    return "?";
}

TokenFile::TokenFile(OpenFiles& files, TokenLayout layout, std::unique_ptr<MegatronIndex> index,
                     std::int64_t vocab_size)
    : files_(files), layout_(std::move(layout)), index_(std::move(index)), vocab_size_(vocab_size) {}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> into) const {
    invariant(first >= 0 && first + static_cast<std::int64_t>(into.size()) <= tokens(),
              "TokenFile::read: the range is outside the file");
    // Without a known vocabulary ids must still fit int32.
    const std::uint64_t limit =
        vocab_size_ > 0 ? static_cast<std::uint64_t>(vocab_size_) : std::uint64_t{1} << 31U;
    const std::size_t item = token_bytes(layout_.type);
    std::vector<std::byte> raw(std::min(into.size(), piece_tokens) * item);
    while (!into.empty()) {
        const std::size_t count = std::min(into.size(), piece_tokens);
        const auto bytes = std::span(raw).first(count * item);
        files_.read_at(layout_.path, byte_of(first), bytes);
        with_type(layout_.type, [&](auto zero) {
            using T = decltype(zero);
            const std::size_t bad = widen<T>(bytes, into.first(count), limit);
            if (bad == count) return;
            const std::int64_t token = first + static_cast<std::int64_t>(bad);
            fail(
                Exit::BadInput,
                fmt::format(
                    "{}: token {} at byte {} has id {}, but ids must be at least 0 and less than {}{}. The "
                    "file was made with "
                    "another tokenizer or type ({} assumed), or is damaged; check these, or prepare the data "
                    "again",
                    layout_.path, token, byte_of(token),
                    static_cast<std::int64_t>(data_detail::load<T>(bytes, bad * sizeof(T))), limit,
                    vocab_size_ > 0 ? ", the vocabulary (model.vocab_size, --vocab-size or PREFIX.json)" : "",
                    token_type_name(layout_.type)));
        });
        first += static_cast<std::int64_t>(count);
        into = into.subspan(count);
    }
}

}  // namespace trainctl
