// What works on files works on objects: the calls of FileSystem against a strict store.
#include <algorithm>

#include "object_storage/s3_upload.h"
#include "object_storage/store_fixture.h"
#include "support/catch.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

using Names = std::vector<std::string>;

std::string read_all(FileSystem& files, const std::string& path) {
    const auto file = files.open(path, Open::Read);
    std::string text(file->size(), '\0');
    file->read_at(0, std::as_writable_bytes(std::span(text)));
    return text;
}

std::ptrdiff_t count(const Names& names, const std::string& begin) {
    return std::count_if(names.begin(), names.end(),
                         [&](const std::string& name) { return name.starts_with(begin); });
}

}  // namespace

TEST_CASE("objects of every size around a part's are written and read whole and in pieces", "[threads]") {
    StoreFixture s;
    for (const std::size_t size : {0, 1, 127, 128, 129, 255, 256, 257, 1000, 1280}) {
        const std::string path = "s3://bucket/d/" + std::to_string(size);
        const std::string text = pattern(size);
        s.publish(path, text);
        CAPTURE(size);
        CHECK(s.store.objects().at("bucket/d/" + std::to_string(size)) == text);
        CHECK(read_all(*s.files, path) == text);
        CHECK(s.files->status(path)->size == size);
        CHECK(read_text(*s.files, path) == text);
        const auto file = s.files->open(path, Open::Read);
        std::string piece(100, '\0');
        const std::size_t at = size / 2;
        const std::size_t got = file->read_some_at(at, std::as_writable_bytes(std::span(piece)));
        CHECK(piece.substr(0, got) == text.substr(at, 100));
        CHECK(file->read_some_at(size, std::as_writable_bytes(std::span(piece))) == 0);
        const Thrown beyond = thrown_by([&] { file->read_at(at, std::as_writable_bytes(std::span(piece))); });
        CHECK((size - at >= 100 || beyond.code == Exit::BadInput));
    }
    // At most a part: one request; more: parts, never an empty one.
    CHECK(count(s.store.seen(), "BEGIN ") == 6);
    CHECK(count(s.store.seen(), "PART bucket/d/129 ") == 2);
    CHECK(count(s.store.seen(), "PART bucket/d/256 ") == 2);
    CHECK(s.store.open_uploads() == 0);
    CHECK(s.store.violations() == Names{});
}

TEST_CASE("an object appears when it is closed, or not at all", "[threads]") {
    StoreFixture s;
    const std::string path = "s3://bucket/run/file";
    for (const std::size_t size : {10, 1000}) {
        const std::string text = pattern(size);
        {
            const auto file = s.files->publish(path, Existing::Refuse);
            file->write(std::as_bytes(std::span(text)));
            CHECK(file->size() == size);
            CHECK_FALSE(s.files->status(path));
        }
        CHECK(s.store.objects().empty());
        CHECK(s.store.open_uploads() == 0);  // taken back

        s.publish(path, text);
        const Thrown exists = thrown_by([&] { s.publish(path, "other"); });
        CHECK(exists.code == Exit::Resource);
        CHECK_THAT(exists.text, Catch::Contains("s3://bucket/run/file") && Catch::Contains("exists"));
        s.publish(path, "third", Existing::Replace);
        CHECK(read_text(*s.files, path) == "third");
        s.files->remove_file(path);
        s.files->remove_file(path);  // a missing one is success
        CHECK(s.store.objects().empty());

        // Somebody else is faster: theirs stays.
        const auto late = s.files->publish(path, Existing::Refuse);
        late->write(std::as_bytes(std::span(text)));
        s.store.put("bucket/run/file", "theirs");
        CHECK_THAT(thrown_by([&] { late->close(); }).text, Catch::Contains("exists"));
        CHECK(s.store.objects().at("bucket/run/file") == "theirs");
        CHECK(s.store.open_uploads() == 0);
        CHECK(thrown_by([&] { late->close(); }).code == Exit::Internal);
        s.files->remove_file(path);
    }
    CHECK(s.store.violations() == Names{});
}

TEST_CASE("directories are prefixes of keys", "[threads]") {
    StoreFixture s;
    for (const char* key : {"bucket/r/b", "bucket/r/a", "bucket/r/c/1", "bucket/r/c/2", "bucket/r/d e+%/x",
                            "bucket/r/f", "bucket/r/c", "bucket/r/\xC3\xA9", "bucket/ra", "bucket/r/"}) {
        s.store.put(key, "x");
    }
    CHECK(s.files->list("s3://bucket/r") == Names{"a", "b", "c", "d e+%", "f", "\xC3\xA9"});
    CHECK(count(s.store.seen(), "LIST bucket/r/") == 3);  // pages of three
    CHECK(s.files->list("s3://bucket") == Names{"r", "ra"});
    CHECK(s.files->list("s3://bucket/r/c/") == Names{"1", "2"});
    CHECK(thrown_by([&] { s.files->list("s3://bucket/none"); }).code == Exit::BadInput);
    CHECK(s.files->status("s3://bucket/r")->directory);
    CHECK(s.files->status("s3://bucket")->directory);
    CHECK_FALSE(s.files->status("s3://bucket/r/a")->directory);
    CHECK(s.files->status("s3://bucket/r/a")->modified_unix_s == 1796097966);
    CHECK_FALSE(s.files->status("s3://bucket/no"));
    CHECK_FALSE(s.files->status("s3://elsewhere"));
    CHECK_FALSE(s.files->status("s3://elsewhere/x"));
    CHECK(read_text(*s.files, "s3://bucket/r/d e+%/x") == "x");
    s.files->make_directories("s3://bucket/new/deep");
    s.files->sync_directory("s3://bucket/new");
    s.files->remove_directory("s3://bucket/new");
    CHECK_NOTHROW(s.files->require_creatable("s3://bucket/new"));
    CHECK_THAT(thrown_by([&] { s.files->require_creatable("s3://elsewhere/new"); }).text,
               Catch::Contains("no bucket"));
    CHECK(s.files->space("s3://bucket").free_bytes > (std::uint64_t{1} << 60U));
    CHECK(s.store.violations() == Names{});
}

TEST_CASE("what a store cannot do is refused or said", "[threads]") {
    StoreFixture s;
    s.store.put("bucket/a", pattern(300));
    s.files->rename("s3://bucket/a", "s3://bucket/b c");
    CHECK(s.store.objects() == std::map<std::string, std::string>{{"bucket/b c", pattern(300)}});
    CHECK(thrown_by([&] { s.files->open("s3://bucket/b c", Open::Append); }).code == Exit::Resource);
    CHECK(thrown_by([&] { s.files->open("s3://bucket/none", Open::Read); }).code == Exit::BadInput);
    CHECK(thrown_by([&] { s.files->open("s3://bucket", Open::Read); }).code == Exit::Usage);
    CHECK_THAT(thrown_by([&] { s.publish("s3://elsewhere/x", "x"); }).text,
               Catch::Contains("NoSuchBucket") && Catch::Contains("make the bucket"));
    {
        const auto file = s.files->open("s3://bucket/new", Open::CreateNew);
        file->write(std::as_bytes(std::span("abc", 3)));
        file->close();
        CHECK(thrown_by([&] { s.files->open("s3://bucket/new", Open::CreateNew); }).code == Exit::Resource);
        s.files->open("s3://bucket/new", Open::Truncate)->close();
        CHECK(s.store.objects().at("bucket/new").empty());
    }
    const auto file = s.files->open("s3://bucket/b c", Open::Read);
    s.store.put("bucket/b c", pattern(301));
    std::string text(300, '\0');
    CHECK_THAT(thrown_by([&] { file->read_at(0, std::as_writable_bytes(std::span(text))); }).text,
               Catch::Contains("replaced while it was being read"));

    StrictS3Options whole;
    whole.heeds_ranges = false;
    StoreFixture w(whole);
    w.store.put("bucket/a", pattern(70'000));
    const auto wrong = w.files->open("s3://bucket/a", Open::Read);
    CHECK(thrown_by([&] { wrong->read_at(5, std::as_writable_bytes(std::span(text))); }).code ==
          Exit::Resource);
}

TEST_CASE("only object paths go to the store, which nobody needs to have", "[threads]") {
    StoreFixture s;
    s.variables.clear();
    s.settings.endpoint = "no endpoint";
    s.reconnect();
    s.files->make_directories("run");
    s.publish("run/file", "x");
    CHECK(s.local.contents("run/file") == "x");
    CHECK(s.files->list("run") == Names{"file"});
    CHECK_THAT(thrown_by([&] { s.files->list("s3://bucket"); }).text, Catch::Contains("AWS_ENDPOINT_URL_S3"));
    s.settings.endpoint = s.store.endpoint();
    s.files->configure(s.settings);
    CHECK_THAT(thrown_by([&] { s.files->list("s3://bucket"); }).text, Catch::Contains("AWS_ACCESS_KEY_ID"));
    CHECK(s.store.seen().empty());
    s.variables["AWS_ACCESS_KEY_ID"] = first_access_key;
    s.variables["AWS_SECRET_ACCESS_KEY"] = first_secret;
    s.variables["AWS_SESSION_TOKEN"] = first_token;
    s.publish("s3://bucket/f", "x");
    const auto open = s.files->open("s3://bucket/f", Open::Read);
    s.settings.endpoint = "https://elsewhere.invalid";
    s.files->configure(s.settings);  // what is open stays where it is
    std::string text(1, '\0');
    open->read_at(0, std::as_writable_bytes(std::span(text)));
    CHECK(text == "x");
    CHECK(thrown_by([&] { s.files->rename("s3://bucket/a", "run/a"); }).code == Exit::Internal);
}

TEST_CASE("parts grow so that 10,000 of them make the largest object") {
    constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20U;
    std::uint64_t written = 0;
    std::uint64_t previous = 0;
    for (int number = 1; number <= 10'000; ++number) {
        const std::uint64_t size = next_part_bytes(16 * mebibyte, written);
        REQUIRE(size >= previous);
        REQUIRE((number > 1500 || size == 16 * mebibyte));
        previous = size;
        written += size;
    }
    CHECK(written >= 5 * mebibyte * mebibyte);
    CHECK(previous <= 5 * 1024 * mebibyte);
    CHECK(next_part_bytes(16 * mebibyte, 156 * 1024 * mebibyte) <= 112 * mebibyte);
}
