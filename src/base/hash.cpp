#include "trainctl/base/hash.h"

#include <isa-l/crc.h>
#include <openssl/evp.h>

#define XXH_INLINE_ALL  // NOLINT(cppcoreguidelines-macro-usage): selects xxHash's header-only form, 2x faster
                        // here
#include <xxhash.h>

#include <algorithm>
#include <array>

#include "trainctl/base/error.h"

namespace trainctl {

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed) {
    // ISA-L takes an int length and works on the inverted register; chunks keep it correct beyond 2 GiB.
    constexpr std::size_t chunk = std::size_t{1} << 30U;
    std::uint32_t state = ~seed;
    while (!bytes.empty()) {
        const std::size_t count = std::min(bytes.size(), chunk);
        // The library only reads; its prototype lacks the const.
        auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
        state = crc32_iscsi(data, static_cast<int>(count), state);
        bytes = bytes.subspan(count);
    }
    return ~state;
}

std::uint32_t crc32c(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed) {
    return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

struct Sha256::State {
    struct Free {
        void operator()(EVP_MD_CTX* freed) const { EVP_MD_CTX_free(freed); }
    };
    std::unique_ptr<EVP_MD_CTX, Free> context{EVP_MD_CTX_new()};
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
    invariant(
        state_->context != nullptr && EVP_DigestInit_ex(state_->context.get(), EVP_sha256(), nullptr) == 1,
        "OpenSSL could not start a SHA-256 digest");
}

Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
    invariant(state_->context != nullptr, "Sha256::update after hex_digest");
    invariant(EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size()) == 1,
              "OpenSSL could not extend a SHA-256 digest");
}

std::string Sha256::hex_digest() {
    invariant(state_->context != nullptr, "Sha256::hex_digest may be called once");
    std::array<unsigned char, 32> digest{};
    unsigned int size = 0;
    invariant(EVP_DigestFinal_ex(state_->context.get(), digest.data(), &size) == 1 && size == digest.size(),
              "OpenSSL could not finish a SHA-256 digest");
    state_->context.reset();
    constexpr std::string_view digits = "0123456789abcdef";
    std::string hex;
    hex.reserve(2 * digest.size());
    for (const unsigned char byte : digest) {
        hex.push_back(digits[byte >> 4U]);
        hex.push_back(digits[byte & 15U]);
    }
    return hex;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
    Sha256 digest;
    digest.update(bytes);
    return digest.hex_digest();
}

}  // namespace trainctl
