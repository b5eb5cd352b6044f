#include "trainctl/rundir/manifest.h"

#include <cmath>
#include <limits>
#include <random>

#include "support/catch.h"
#include "trainctl/base/error.h"

using namespace trainctl;

namespace {

Manifest example() {
    Manifest manifest;
    manifest.run_id = "run-1";
    manifest.directory = "s000000010-a0001-00000001";
    manifest.step = 10;
    manifest.attempt = 1;
    manifest.created = "2026-01-01T00:00:00Z";
    manifest.counters = {{"consumed_samples", 320}, {"applied_updates", 9}};
    manifest.scalars = {
        {"loss_scale", 65536.0}, {"ema", 0.1}, {"bad", std::numeric_limits<double>::infinity()}};
    manifest.layout = {{"world", 2}};
    manifest.spec = "[job]\nname = \"x\"\n";
    manifest.data_fingerprint = "f00";
    manifest.state_hash = 0xFEDCBA9876543210U;
    manifest.chunk_bytes = 4096;
    manifest.files = {{"r00000.st", 5000, {1, 0xFFFFFFFF}}, {"r00001.st", 4096 + 32, {3, 4}}};
    manifest.tensors = {
        {"a",
         "F32",
         {4, 4},
         7,
         {{0, 4096, {0, 0}, {4, 2}, 0, 8}, {1, 4096, {0, 2}, {4, 2}, 0, 3}, {1, 4108, {0, 2}, {4, 2}, 3, 8}}},
        {"b", "BF16", {}, 8, {{0, 4200, {}, {}, 0, 1}}}};
    return manifest;
}

std::string refusal(const Manifest& manifest) {
    try {
        parse_manifest(manifest_text(manifest), "M");
    } catch (const Error& error) {
        CHECK(error.code() == Exit::BadInput);
        return error.what();
    }
    return "accepted";
}

bool mentions(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("MANIFEST is read back exactly") {
    const Manifest manifest = example();
    const std::string text = manifest_text(manifest);
    const Manifest read = parse_manifest(text, "M");
    CHECK(manifest_text(read) == text);
    CHECK(read.scalars.at("ema") == 0.1);
    CHECK(std::isinf(read.scalars.at("bad")));
    CHECK(read.total_bytes() == 5000 + 4096 + 32);
    REQUIRE(read.find("b") != nullptr);
    CHECK(read.find("b")->slices.size() == 1);
    CHECK(read.find("c") == nullptr);
}

TEST_CASE("MANIFEST: every way in which slices can be wrong is refused, naming the tensor") {
    const auto with = [](const std::function<void(Manifest&)>& change) {
        Manifest manifest = example();
        change(manifest);
        return refusal(manifest);
    };
    CHECK(with([](Manifest&) {}) == "accepted");
    CHECK(
        mentions(with([](Manifest& m) { m.tensors[0].slices.pop_back(); }), "\"a\" misses elements 3 to 8"));
    CHECK(mentions(with([](Manifest& m) { m.tensors[0].slices.erase(m.tensors[0].slices.begin()); }),
                   "stored in part only: 8 of 16"));
    CHECK(mentions(with([](Manifest& m) { m.tensors[0].slices[2].flat_begin = 2; }),
                   "has twice elements 2 to 3"));
    CHECK(mentions(with([](Manifest& m) { m.tensors[0].slices[0].begin = {0, 1}; }), "overlapping boxes"));
    CHECK(mentions(with([](Manifest& m) { m.tensors[0].slices[0].begin = {1, 0}; }), "outside of its shape"));
    CHECK(mentions(with([](Manifest& m) { m.tensors[0].slices[0].begin = {0}; }), "outside of its shape"));
    CHECK(mentions(with([](Manifest& m) { m.tensors[0].slices[0].flat_end = 9; }), "outside of its box"));
    CHECK(mentions(with([](Manifest& m) { m.tensors[0].slices[0].file = 2; }), "field 'file'"));
    CHECK(mentions(with([](Manifest& m) { m.tensors[0].slices[0].offset = 4990; }),
                   "beyond the end of r00000.st"));
    CHECK(mentions(with([](Manifest& m) { m.tensors[0].slices[0].offset = UINT64_MAX; }), "beyond the end"));
    CHECK(mentions(with([](Manifest& m) { m.tensors[0].shape = {INT64_MAX, 3}; }), "impossible shape"));
    CHECK(mentions(with([](Manifest& m) { m.tensors[0].shape = {-4, -4}; }), "impossible shape"));
    CHECK(mentions(with([](Manifest& m) { m.tensors[0].shape = {1, 1, 1, 1, 16}; }), "four extents"));
    CHECK(mentions(with([](Manifest& m) { m.tensors[0].dtype = "F4"; }), "dtype"));
    CHECK(mentions(with([](Manifest& m) { m.tensors[1].name = "a"; }), "twice"));
    CHECK(mentions(with([](Manifest& m) { m.files[1].name = "r00000.st"; }), "listed twice"));
    CHECK(mentions(with([](Manifest& m) { m.files[1].chunk_crcs.pop_back(); }), "2 chunks but 1 checksums"));
    for (const char* name : {"", "../x", "/etc/passwd", "a/b", ".hidden"}) {
        CHECK(mentions(with([&](Manifest& m) { m.files[0].name = name; }), "plain file name"));
    }
    CHECK(mentions(with([](Manifest& m) { m.chunk_bytes = 0; }), "chunk_bytes"));
}

TEST_CASE("MANIFEST: syntax, duplicate keys, missing fields and numbers that are none are refused") {
    const std::string text = manifest_text(example());
    const auto refused = [](const std::string& changed) {
        try {
            parse_manifest(changed, "M");
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    const auto replaced = [&](const std::string& from, const std::string& to) {
        std::string changed = text;
        changed.replace(changed.find(from), from.size(), to);
        return refused(changed);
    };
    CHECK(mentions(replaced("\"step\":10", "\"step\":10,\"step\":11"), "appears twice"));
    CHECK(mentions(replaced("\"step\":10", "\"stop\":10"), "field 'step' is missing"));
    CHECK(mentions(replaced("\"step\":10", "\"step\":-1"), "field 'step'"));
    CHECK(mentions(replaced("\"step\":10", "\"step\":1e3"), "field 'step'"));
    CHECK(mentions(replaced("\"step\":10", "\"step\":18446744073709551615"), "field 'step'"));
    CHECK(mentions(replaced("\"version\":1", "\"version\":2"), "newer trainctl"));
    CHECK(mentions(replaced("\"applied_updates\":9", "\"applied_updates\":9.5"), "applied_updates"));
    CHECK(mentions(replaced("fedcba9876543210", "fedcba987654321g"), "state_hash"));
    CHECK(mentions(refused(std::string(100000, '[')), "deeper"));
    for (std::size_t length = 0; length + 2 < text.size(); length += 7) {
        CAPTURE(length);
        CHECK(refused(text.substr(0, length)) != "accepted");
    }
}
