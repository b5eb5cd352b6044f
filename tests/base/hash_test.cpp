#include "trainctl/base/hash.h"

#include <string>
#include <vector>

#include "support/catch.h"
#include "trainctl/base/error.h"
#include "trainctl/base/philox.h"

using namespace trainctl;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string sample(std::size_t size) {
    std::string text(size, '\0');
    for (std::size_t i = 0; i < size; ++i) {
        text[i] = static_cast<char>(philox4x32(philox_key(7), i, 1)[0] & 0xFFU);
    }
    return text;
}

}  // namespace

TEST_CASE("crc32c: published check values and a bitwise reference") {
    CHECK(crc32c(bytes_of("123456789")) == 0xE3069283U);
    CHECK(crc32c("123456789") == 0xE3069283U);
    CHECK(crc32c(bytes_of("")) == 0);
    CHECK(crc32c(bytes_of(std::string(32, '\0'))) == 0x8A9136AAU);  // RFC 3720 B.4
    CHECK(crc32c(bytes_of(std::string(32, '\xFF'))) == 0x62A8AB43U);

    const auto reference = [](const std::string& text) {
        std::uint32_t state = 0xFFFFFFFFU;
        for (const char c : text) {
            state ^= static_cast<unsigned char>(c);
            for (int bit = 0; bit < 8; ++bit) state = (state >> 1U) ^ ((state & 1U) != 0 ? 0x82F63B78U : 0U);
        }
        return ~state;
    };
    const std::string text = sample(777);
    for (std::size_t size = 0; size <= text.size(); size += 37) {
        CHECK(crc32c(bytes_of(text.substr(0, size))) == reference(text.substr(0, size)));
    }
}

TEST_CASE("crc32c: any split continues to the same value") {
    const std::string text = sample(1000);
    const std::uint32_t whole = crc32c(bytes_of(text));
    for (const std::size_t cut : {0, 1, 3, 8, 63, 500, 999, 1000}) {
        const std::uint32_t head = crc32c(bytes_of(text.substr(0, cut)));
        CHECK(crc32c(bytes_of(text.substr(cut)), head) == whole);
    }
}

TEST_CASE("every single-bit change is seen by every checksum") {
    std::string text = sample(300);
    const std::uint32_t crc = crc32c(bytes_of(text));
    const std::uint64_t hash = hash64(bytes_of(text));
    std::size_t unseen = 0;
    for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
        const auto flip = [&] { text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8))); };
        flip();
        unseen += crc32c(bytes_of(text)) == crc ? 1 : 0;
        unseen += hash64(bytes_of(text)) == hash ? 1 : 0;
        flip();
    }
    CHECK(unseen == 0);
}

TEST_CASE("hash64 is XXH3: published values, and the seed matters") {
    CHECK(hash64(bytes_of("")) == 0x2D06800538D394C2U);
    CHECK(hash64(bytes_of("abc"), 1) != hash64(bytes_of("abc"), 2));
}

TEST_CASE("name_hash is FNV-1a, never to change") {
    STATIC_REQUIRE(name_hash("") == 0xCBF29CE484222325U);
    STATIC_REQUIRE(name_hash("a") == 0xAF63DC4C8601EC8CU);
    STATIC_REQUIRE(name_hash("foobar") == 0x85944171F73967E8U);
}

TEST_CASE("sha256: FIPS 180-2 vectors; pieces equal the whole") {
    CHECK(sha256_hex(bytes_of("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(sha256_hex(bytes_of("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    const std::string text = sample(500);
    Sha256 digest;
    for (std::size_t at = 0; at < text.size(); at += 33) digest.update(bytes_of(text.substr(at, 33)));
    CHECK(digest.hex_digest() == sha256_hex(bytes_of(text)));
    CHECK_THROWS_AS(digest.hex_digest(), Error);
}

TEST_CASE("philox4x32-10: the authors' known answers") {
    // Random123, file tests/kat_vectors: counter, key, result.
    CHECK(philox4x32({0, 0}, PhiloxBlock{0, 0, 0, 0}) ==
          PhiloxBlock{0x6627E8D5U, 0xE169C58DU, 0xBC57AC4CU, 0x9B00DBD8U});
    CHECK(philox4x32({0xFFFFFFFFU, 0xFFFFFFFFU},
                     PhiloxBlock{0xFFFFFFFFU, 0xFFFFFFFFU, 0xFFFFFFFFU, 0xFFFFFFFFU}) ==
          PhiloxBlock{0x408F276DU, 0x41C83B0EU, 0xA20BC7C6U, 0x6D5451FDU});
    CHECK(philox4x32({0xA4093822U, 0x299F31D0U},
                     PhiloxBlock{0x243F6A88U, 0x85A308D3U, 0x13198A2EU, 0x03707344U}) ==
          PhiloxBlock{0xD16CFE09U, 0x94FDCCEBU, 0x5001E420U, 0x24126EA1U});
    CHECK(philox_uniform(0) == 0.0F);
    CHECK(philox_uniform(0xFFFFFFFFU) < 1.0F);
}
