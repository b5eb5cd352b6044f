// One thing goes wrong at a time, in each way that stores and networks know: what was asked for is done in
// the end, or an error says why, within a bound.
#include <filesystem>
#include <fstream>

#include "object_storage/store_fixture.h"
#include "support/catch.h"
#include "support/temporary_directory.h"
#include "trainctl/base/hash.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

using Names = std::vector<std::string>;

// One request whose name begins so, after `passed` such ones.
StrictS3::FaultChoice at(const std::string& begin, StoreFault fault, int passed = 0) {
    return [begin, fault, left = passed](const std::string& what, int /*before*/) mutable {
        return what.starts_with(begin) && left-- == 0 ? fault : StoreFault::None;
    };
}

// A whole life of objects: written small and in parts, listed, read, copied, removed.
void use_everything(StoreFixture& s) {
    s.publish("s3://bucket/d/small", "small");
    s.publish("s3://bucket/d/large", pattern(700));
    CHECK(s.store.objects().at("bucket/d/small") == "small");
    CHECK(s.store.objects().at("bucket/d/large") == pattern(700));
    CHECK(s.files->list("s3://bucket/d") == Names{"large", "small"});
    CHECK(read_text(*s.files, "s3://bucket/d/large") == pattern(700));
    s.files->rename("s3://bucket/d/small", "s3://bucket/d/moved");
    CHECK(s.store.objects().size() == 2);
    s.files->remove_file("s3://bucket/d/moved");
    s.files->remove_file("s3://bucket/d/large");
    CHECK(s.store.objects().empty());
}

bool ends_connection(StoreFault fault) {
    return fault == StoreFault::LostRequest || fault == StoreFault::LostAnswer ||
           fault == StoreFault::CutAnswer;
}

bool possible(const std::string& what, StoreFault fault) {
    const bool answers_early = what == "COMPLETE" || what == "COPY" || what == "PART" || what == "PUT";
    switch (fault) {
        case StoreFault::None:
            return false;
        case StoreFault::ErrorIn200:
        case StoreFault::LateErrorIn200:
            return answers_early;
        case StoreFault::WrongCrc:
            return what == "PART" || what == "PUT";
        case StoreFault::DamagedRequest:
        case StoreFault::Conflict:
            return what != "HEAD";  // explained in a body
        case StoreFault::SlowAnswer:
            return what == "GET" || what == "PUT" || what == "BEGIN";
        default:
            return true;
    }
}

}  // namespace

TEST_CASE("any single fault at any request is made good", "[threads]") {
    for (const bool says_whole_crc : {true, false}) {
        for (const bool knows_completed : {true, false}) {
            StrictS3Options options;
            options.says_whole_crc = says_whole_crc;
            options.knows_completed = knows_completed;
            options.slow_s = 0.7;
            for (const char* what :
                 {"HEAD", "GET", "LIST", "PUT", "BEGIN", "PART", "COMPLETE", "COPY", "DELETE"}) {
                for (int kind = 0; kind < fault_kinds; ++kind) {
                    const auto fault = static_cast<StoreFault>(kind);
                    const bool slow = fault == StoreFault::SlowAnswer;
                    if (!possible(what, fault) || (slow && (says_whole_crc || knows_completed))) continue;
                    CAPTURE(what, kind, says_whole_crc, knows_completed);
                    StoreFixture s(options);
                    if (slow) s.settings.answer_timeout_s = 0.25;
                    s.reconnect();
                    // The first two HEADs are of objects that are not there yet.
                    s.store.set_faults(at(what, fault, what == std::string("HEAD") ? 2 : 0));
                    const double start = s.clock.monotonic_s();
                    use_everything(s);
                    CHECK(s.store.violations() == Names{});
                    // It waits before it tries again. (Connections that end may be replaced by libcurl
                    // itself.)
                    CHECK((s.clock.monotonic_s() > start || ends_connection(fault)));
                    CHECK(s.clock.monotonic_s() < start + 3.0);
                    // A begun upload whose answer was lost stays for the bucket's lifecycle rule.
                    CHECK(s.store.open_uploads() <= (what == std::string("BEGIN") ? 1U : 0U));
                }
            }
        }
    }
}

TEST_CASE("an object that somebody else made is not taken for ours, whatever was lost", "[threads]") {
    for (const std::size_t size : {20, 700}) {
        const std::string what = size == 20 ? "PUT" : "COMPLETE";
        for (const StoreFault fault :
             {StoreFault::Error500, StoreFault::LostRequest, StoreFault::ErrorIn200}) {
            for (const bool same_size : {true, false}) {
                StoreFixture s;
                const auto file = s.files->publish("s3://bucket/f", Existing::Refuse);
                const std::string text = pattern(size);
                file->write(std::as_bytes(std::span(text)));
                const std::string theirs(same_size ? size : 5, 't');
                s.store.set_faults(at(what, fault));
                s.store.put("bucket/f", theirs);
                CHECK_THAT(thrown_by([&] { file->close(); }).text, Catch::Contains("exists"));
                CHECK(s.store.objects().at("bucket/f") == theirs);
                CHECK(s.store.open_uploads() == 0);
            }
        }
    }
}

TEST_CASE("a store that is down for good is given up within the bound, and says so", "[threads]") {
    StoreFixture s;
    s.store.put("bucket/f", "x");
    CHECK(read_text(*s.files, "s3://bucket/f") == "x");
    const auto down_for = [&](auto action) {
        const double start = s.clock.monotonic_s();
        const Thrown thrown = thrown_by(action);
        CHECK(thrown.code == Exit::Resource);
        CHECK_THAT(thrown.text, Catch::Contains(" in ") && Catch::Contains("127.0.0.1"));
        CHECK_THAT(thrown.text, !Catch::Contains(first_secret) && !Catch::Contains(first_token));
        return s.clock.monotonic_s() - start;
    };
    // One long wait; whatever follows is given up soon, until the store answers again.
    s.settings.first_contact_s = 5.0;
    s.settings.retry_for_s = 100.0;
    s.reconnect();
    CHECK(read_text(*s.files, "s3://bucket/f") == "x");
    s.store.set_faults([](const std::string&, int) { return StoreFault::Error500; });
    CHECK(down_for([&] { read_text(*s.files, "s3://bucket/f"); }) > 60.0);
    CHECK(down_for([&] { read_text(*s.files, "s3://bucket/f"); }) <= 5.0);
    CHECK(down_for([&] { s.publish("s3://bucket/g", pattern(700), Existing::Replace); }) <= 30.0);
    s.store.set_faults({});
    CHECK(read_text(*s.files, "s3://bucket/f") == "x");
    s.store.set_faults([](const std::string&, int) { return StoreFault::Error500; });
    CHECK(down_for([&] { read_text(*s.files, "s3://bucket/f"); }) > 60.0);
    s.settings.retry_for_s = 60.0;
    s.store.set_faults({});
    s.reconnect();

    for (const StoreFault fault :
         {StoreFault::Error500, StoreFault::SlowDown, StoreFault::LostAnswer, StoreFault::CutAnswer}) {
        s.store.set_faults([fault](const std::string&, int) { return fault; });
        CHECK(down_for([&] { read_text(*s.files, "s3://bucket/f"); }) <= 60.0);
        CHECK(down_for([&] { s.publish("s3://bucket/g", pattern(700), Existing::Replace); }) <= 200.0);
    }
    s.store.set_faults({});
    s.files->remove_file("s3://bucket/f");
    s.files->remove_file("s3://bucket/g");
    // What a try that counted as failed has left is removed when the store comes back for a moment.
    s.store.set_faults([](const std::string& what, int) {
        return what.starts_with("PUT") ? StoreFault::LostAnswer : StoreFault::None;
    });
    s.settings.retry_for_s = 0.0;
    s.reconnect();
    CHECK(down_for([&] { s.publish("s3://bucket/f", "x"); }) <= 60.0);
    CHECK(s.store.objects().empty());

    // Nobody answers at all: a mistyped endpoint is told soon.
    s.settings.endpoint = "http://127.0.0.1:1";
    s.settings.retry_for_s = 600.0;
    s.settings.first_contact_s = 10.0;
    s.reconnect();
    CHECK(down_for([&] { s.files->list("s3://bucket/d"); }) <= 10.0);
}

TEST_CASE("refusals are not repeated and are explained", "[threads]") {
    StoreFixture s;
    const auto refused = [&](Exit code, const std::string& expected) {
        s.reconnect();
        const std::size_t before = s.store.seen().size();
        const Thrown thrown = thrown_by([&] { s.files->list("s3://bucket/d"); });
        CHECK(thrown.code == code);
        CHECK_THAT(thrown.text, Catch::Contains(expected) && !Catch::Contains(first_secret));
        return s.store.seen().size() - before;
    };
    s.variables["AWS_ACCESS_KEY_ID"] = "AKIDOTHER";
    CHECK(refused(Exit::BadInput, "check the credentials") == 1);
    s.variables["AWS_ACCESS_KEY_ID"] = first_access_key;
    s.variables["AWS_SECRET_ACCESS_KEY"] = "wrong-secret";
    CHECK(refused(Exit::BadInput, "check the credentials") == 1);
    s.variables["AWS_SECRET_ACCESS_KEY"] = first_secret;
    s.variables["AWS_SESSION_TOKEN"] = "wrong-token";
    CHECK(refused(Exit::BadInput, "renew the credentials") == 2);  // looked for new ones once
    s.variables["AWS_SESSION_TOKEN"] = first_token;
    s.settings.endpoint.replace(0, 4, "https");  // the stub speaks no TLS: never tried in the clear
    CHECK(refused(Exit::Resource, "cannot list s3://bucket") == 0);
}

TEST_CASE("a clock that is wrong by an hour is named, either way", "[threads]") {
    for (const double skew : {3600.0, -3600.0}) {
        StoreFixture s;
        s.store.put("bucket/f", "x");
        s.store.set_skew(skew);
        const std::string expected =
            skew > 0 ? "clock is 1h0m0s behind the store's" : "clock is 1h0m0s ahead of the store's";
        CHECK_THAT(thrown_by([&] { s.files->list("s3://bucket"); }).text, Catch::Contains(expected));
        CHECK_THAT(thrown_by([&] { read_text(*s.files, "s3://bucket/f"); }).text,  // HEAD: without a body
                   Catch::Contains(expected));
        CHECK_THAT(thrown_by([&] { s.publish("s3://bucket/g", "x"); }).text,
                   Catch::Contains("set the clock"));
        s.store.set_skew(skew / 20);
        CHECK(read_text(*s.files, "s3://bucket/f") == "x");
    }
}

TEST_CASE("expired credentials are read again once, in the midst of an upload too", "[threads]") {
    const TemporaryDirectory directory;
    const std::string file = directory / "credentials";
    const auto write_keys = [&](const std::string& key, const std::string& secret, const std::string& token) {
        std::ofstream(file) << "[default]\naws_access_key_id=" << key << "\naws_secret_access_key=" << secret
                            << "\naws_session_token=" << token << "\n";
        std::filesystem::permissions(
            file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    };
    StoreFixture s;
    s.variables = {{"AWS_SHARED_CREDENTIALS_FILE", file}};
    write_keys(first_access_key, first_secret, first_token);
    const auto open = s.files->publish("s3://bucket/f", Existing::Refuse);
    const std::string text = pattern(2000);
    open->write(std::as_bytes(std::span(text)).first(1000));
    s.store.set_token("AKIDSECOND", "second-secret", "second-token");
    s.store.expire_token(first_token);
    write_keys("AKIDSECOND", "second-secret", "second-token");
    open->write(std::as_bytes(std::span(text)).subspan(1000));
    open->close();
    CHECK(s.store.objects().at("bucket/f") == text);
    s.store.expire_token("second-token");
    const Thrown thrown = thrown_by([&] { s.files->list("s3://bucket"); });
    CHECK_THAT(thrown.text, Catch::Contains("ExpiredToken") && Catch::Contains("renew the credentials"));
    CHECK(s.store.violations() == Names{});
}

TEST_CASE("no secret in anything that is said or kept", "[threads]") {
    StoreFixture s;
    std::string texts;
    const auto collect = [&](auto action) { texts += thrown_by(action).text + "\n"; };
    s.publish("s3://bucket/f", pattern(700));
    for (int kind = 1; kind < fault_kinds; ++kind) {
        s.settings.retry_for_s = 0.0;
        s.reconnect();
        s.store.set_faults([kind](const std::string&, int) { return static_cast<StoreFault>(kind); });
        collect([&] { s.publish("s3://bucket/g", pattern(700)); });
        collect([&] { read_text(*s.files, "s3://bucket/f"); });
        collect([&] { s.files->list("s3://bucket"); });
        collect([&] { s.files->rename("s3://bucket/f", "s3://bucket/h"); });
    }
    s.store.set_faults({});
    s.store.expire_token(first_token);
    collect([&] { s.files->list("s3://bucket"); });
    for (const auto& [path, bytes] : s.store.objects()) texts += path + bytes;
    texts += s.store.everything_said();
    for (const std::string& name : s.store.seen()) texts += name;
    CHECK(texts.size() > 1000);
    CHECK(texts.find(first_secret) == std::string::npos);
    CHECK(texts.find(first_token) == std::string::npos);
}
