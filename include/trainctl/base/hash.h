// Checksums and digests over bytes. All little-endian independent; thread-safe pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trainctl {

// CRC-32C (Castagnoli), as in iSCSI; crc32c("123456789") == 0xE3069283. `seed` continues a running value.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed = 0);
std::uint32_t crc32c(std::string_view text);

// XXH3 64-bit. Not cryptographic: change detection of large states.
std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed = 0);
// FNV-1a 64-bit: stable key of a short name (parameter names, random streams). Never change.
constexpr std::uint64_t name_hash(std::string_view name) {
    std::uint64_t hash = 0xCBF29CE484222325U;
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
    return hash;
}

// Incremental SHA-256.
class Sha256 {
  public:
    Sha256();
    ~Sha256();
    Sha256(const Sha256&) = delete;
    Sha256& operator=(const Sha256&) = delete;
    void update(std::span<const std::byte> bytes);
    std::string hex_digest();  // 64 lower-case hex digits; call once

  private:
    struct State;
    std::unique_ptr<State> state_;
};

std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace trainctl
