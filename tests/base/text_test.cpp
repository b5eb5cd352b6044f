#include "trainctl/base/text.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "support/catch.h"
#include "trainctl/base/philox.h"

using namespace trainctl;

TEST_CASE("nearest_name finds slips of the finger and nothing else") {
    const std::vector<std::string> names{"micro_batch_size", "global_batch_size", "sequence_length", "lr",
                                         "kind"};
    CHECK(nearest_name("micro_batchsize", names) == "micro_batch_size");
    CHECK(nearest_name("squence_length", names) == "sequence_length");
    CHECK(nearest_name("knid", names) == "kind");  // a swap is one edit
    CHECK(nearest_name("rl", names) == "lr");
    CHECK(nearest_name("lr", names) == "lr");
    CHECK_FALSE(nearest_name("dropout", names));
    CHECK_FALSE(nearest_name("x", std::vector<std::string>{}));
    CHECK_FALSE(nearest_name("", names));
}

TEST_CASE("counts agree with their nouns") {
    CHECK(counted(0, "step") == "0 steps");
    CHECK(counted(1, "step") == "1 step");
    CHECK(counted(std::size_t{2}, "step") == "2 steps");
    CHECK(counted(std::int64_t{-1}, "token") == "-1 tokens");
    CHECK(counted(1, "entry", "entries") == "1 entry");
    CHECK(counted(3, "entry", "entries") == "3 entries");
}

TEST_CASE("bytes are printed for people") {
    CHECK(format_bytes(0) == "0 B");
    CHECK(format_bytes(1023) == "1023 B");
    CHECK(format_bytes(1536) == "1.50 KiB");
    CHECK(format_bytes((std::uint64_t{1} << 20U) - 1) == "1.00 MiB");  // never "1024.00 KiB"
    CHECK(format_bytes(std::uint64_t{80} << 30U) == "80.00 GiB");
    CHECK(format_bytes(std::numeric_limits<std::uint64_t>::max()) == "16.00 EiB");
}

TEST_CASE("counts are printed for people") {
    CHECK(format_count(999) == "999");
    CHECK(format_count(1'234'567) == "1.23M");
    CHECK(format_count(124'439'808) == "124.44M");
    CHECK(format_count(999'999) == "1.00M");
    CHECK(format_count(6'738'415'616) == "6.74B");
    CHECK(format_count(-2500) == "-2.50K");
    // Rates are no whole numbers.
    CHECK(format_count(37.4189906919765) == "37.42");
    CHECK(format_count(0.0421399) == "0.04214");
}

TEST_CASE("measured times have four significant digits, however short") {
    CHECK(format_seconds(1.06713) == "1.067 s");
    CHECK(format_seconds(0.99996) == "1 s");
    CHECK(format_seconds(0.0421399) == "42.14 ms");
    CHECK(format_seconds(0.0000180437) == "18.04 us");
    CHECK(format_seconds(3.5e-9) == "0.0035 us");
    CHECK(format_seconds(128.4567) == "128.5 s");
    CHECK(format_seconds(0) == "0 s");
}

TEST_CASE("durations are printed for people and can be read back") {
    CHECK(format_duration(12.34) == "12.3s");
    CHECK(format_duration(59.97) == "1m0s");
    CHECK(format_duration(3661) == "1h1m1s");
    CHECK(format_duration(125440) == "1d10h50m");
    CHECK(format_duration(-90) == "-1m30s");
    CHECK(format_duration(std::nan("")) == "unknown");
    for (const double seconds : {60.0, 3599.0, 3600.0, 86399.0, 86400.0, 90060.0, 1e7}) {
        const auto back = parse_duration_s(format_duration(seconds));
        REQUIRE(back);
        CHECK(std::abs(*back - seconds) < (seconds >= 86400 ? 60 : 1));
    }
}

TEST_CASE("parse_bytes") {
    CHECK(parse_bytes("0") == 0);
    CHECK(parse_bytes("512MiB") == std::uint64_t{512} << 20U);
    CHECK(parse_bytes("4K") == 4096);
    CHECK(parse_bytes("1GB") == 1'000'000'000);
    CHECK(parse_bytes("10 GiB") == std::uint64_t{10} << 30U);
    CHECK(parse_bytes("16383PiB") == std::nullopt);  // an unknown unit is an error, not a guess
    CHECK(parse_bytes("16777215TiB") == std::uint64_t{16777215} << 40U);
    CHECK(parse_bytes("16777216TiB") == std::nullopt);  // 2^64
    for (const char* bad : {"", "GiB", "-1", "1.5", "1 ", "1  K", "0x10", "1KiBx", "18446744073709551616"}) {
        CAPTURE(bad);
        CHECK_FALSE(parse_bytes(bad));
    }
}

TEST_CASE("parse_duration_s") {
    CHECK(parse_duration_s("90") == 90);
    CHECK(parse_duration_s("30m") == 1800);
    CHECK(parse_duration_s("1h30m") == 5400);
    CHECK(parse_duration_s("1.5h") == 5400);
    CHECK(parse_duration_s("2d") == 172800);
    for (const char* bad : {"", "m", "-5s", "30m1h", "1m2m", "5x", "1h30", "inf", "nan", "1e3s", "5 m"}) {
        CAPTURE(bad);
        CHECK_FALSE(parse_duration_s(bad));
    }
}

TEST_CASE("json_quote escapes what must be and repairs bad UTF-8") {
    CHECK(json_quote("a\"b\\c") == R"("a\"b\\c")");
    CHECK(json_quote(std::string("\n\t\x01\0", 4)) == R"("\n\t\u0001\u0000")");
    CHECK(json_quote("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80") == "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"");
    const std::string replaced = "\xEF\xBF\xBD";
    for (const std::string bad : {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xC3",
                                  "\x80", "\xF4\x90\x80\x80", "\xE2\x82"}) {
        std::string expected = "\"x";
        for (std::size_t i = 0; i < bad.size(); ++i) expected += replaced;
        CHECK(json_quote("x" + bad + "y") == expected + "y\"");
    }
}

TEST_CASE("json_number reads back to the same bits") {
    CHECK(json_number(0.1) == "0.1");
    CHECK(json_number(1) == "1");
    CHECK(json_number(std::numeric_limits<double>::infinity()) == "null");
    CHECK(json_number(std::nan("")) == "null");
    std::size_t different = 0;
    for (std::uint64_t i = 0; i < 20000; ++i) {
        const auto block = philox4x32(philox_key(3), i, 0);
        const auto value = std::bit_cast<double>((std::uint64_t{block[0]} << 32U) | block[1]);
        if (!std::isfinite(value)) continue;
        const double back = std::strtod(json_number(value).c_str(), nullptr);
        if (std::bit_cast<std::uint64_t>(back) != std::bit_cast<std::uint64_t>(value)) ++different;
    }
    CHECK(different == 0);
}
