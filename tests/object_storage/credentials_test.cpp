#include "object_storage/credentials.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "object_storage/endpoint.h"
#include "object_storage/store_fixture.h"
#include "support/catch.h"
#include "support/temporary_directory.h"

using namespace trainctl;
using namespace trainctl::test;

namespace {

const std::string secret = "do/not+tell0123456789";

void write_secret_file(const std::string& path, const std::string& text, ::mode_t mode = 0600) {
    std::ofstream(path) << text;
    REQUIRE(::chmod(path.c_str(), mode) == 0);
}

Environment variables(std::map<std::string, std::string> values) {
    return [values = std::move(values)](const char* name) -> std::optional<std::string> {
        const auto found = values.find(name);
        if (found == values.end()) return std::nullopt;
        return found->second;
    };
}

}  // namespace

TEST_CASE("credentials: from the environment, or from a file, by profile") {
    const TemporaryDirectory directory;
    const std::string file = directory / "credentials";
    write_secret_file(
        file,
        "# comment\n[default]\naws_access_key_id = A1\naws_secret_access_key=" + secret +
            "\r\n\n[ two ]\naws_access_key_id=A2\naws_secret_access_key = s2\naws_session_token = t2\n");
    const auto key_of = [](const std::string& given, const Environment& environment) {
        const auto found = CredentialSource(given, environment).current();
        return found->access_key_id + " " + found->secret_key + " " + found->session_token;
    };
    CHECK(key_of("", variables({{"AWS_ACCESS_KEY_ID", "A"}, {"AWS_SECRET_ACCESS_KEY", "s"}})) == "A s ");
    CHECK(key_of("", variables({{"AWS_SHARED_CREDENTIALS_FILE", file}})) == "A1 " + secret + " ");
    CHECK(key_of("", variables({{"AWS_SHARED_CREDENTIALS_FILE", file}, {"AWS_PROFILE", "two"}})) ==
          "A2 s2 t2");
    CHECK(key_of(file, variables({{"AWS_ACCESS_KEY_ID", "A"}, {"AWS_SECRET_ACCESS_KEY", "s"}})) ==
          "A1 " + secret + " ");
    const Thrown none = thrown_by([&] { key_of("", variables({{"AWS_ACCESS_KEY_ID", "A"}})); });
    CHECK(none.code == Exit::Usage);
    CHECK_THAT(none.text, Catch::Contains("AWS_SECRET_ACCESS_KEY") && Catch::Contains("0600"));
}

TEST_CASE("credentials: a file that others can read, or that may be exchanged, is refused") {
    const TemporaryDirectory directory;
    const std::string good = "[default]\naws_access_key_id = A\naws_secret_access_key = " + secret + "\n";
    const std::string file = directory / "credentials";
    const auto read = [](const std::string& path) {
        return thrown_by([&] { CredentialSource(path, variables({})).current(); });
    };
    for (const ::mode_t mode : {0640U, 0604U, 0620U, 0660U, 0644U}) {
        write_secret_file(file, good, mode);
        const Thrown thrown = read(file);
        CHECK(thrown.code == Exit::Usage);
        CHECK_THAT(thrown.text, Catch::Contains("expected 0600") && Catch::Contains("chmod 600"));
    }
    write_secret_file(file, good, 0400);
    CHECK(read(file).code == Exit::Ok);
    REQUIRE(::symlink(file.c_str(), (directory / "link").c_str()) == 0);
    CHECK_THAT(read(directory / "link").text, Catch::Contains("symbolic link"));
    CHECK_THAT(read(directory / "none").text, Catch::Contains("ENOENT"));
    CHECK_THAT(read(directory.path()).text, Catch::Contains("regular file"));
    if (::geteuid() == 0) {
        REQUIRE(::chown(file.c_str(), 12345, 0) == 0);
        CHECK_THAT(read(file).text, Catch::Contains("belongs to user 12345"));
        REQUIRE(::chown(file.c_str(), 0, 0) == 0);
    }
    for (const std::string& bad : {std::string("[default]\n" + secret + "\n"),
                                   std::string("[other]\naws_secret_access_key = " + secret + "\n"),
                                   std::string("[default]\naws_secret_access_key = " + secret + "\n"),
                                   std::string("[default]\naws_access_key_id = A\naws_secret_access_key = " +
                                               secret + " " + secret + "\n"),
                                   std::string(100'000, 'x')}) {
        write_secret_file(file, bad, 0600);
        const Thrown thrown = read(file);
        CHECK(thrown.code == Exit::Usage);
        CHECK_THAT(thrown.text, !Catch::Contains(secret));
    }
}

TEST_CASE("credentials: renewed once for all that found them expired; no secret stays in a text") {
    const TemporaryDirectory directory;
    const std::string file = directory / "credentials";
    write_secret_file(file, "[default]\naws_access_key_id = A\naws_secret_access_key = " + secret + "\n");
    CredentialSource source(file, variables({}));
    const auto first = source.current();
    write_secret_file(file, "[default]\naws_access_key_id = B\naws_secret_access_key = other-secret\n");
    CHECK(source.current() == first);
    const auto second = source.renew(first);
    CHECK(second->access_key_id == "B");
    CHECK(source.renew(first) == second);
    CHECK(source.redacted("1 " + secret + " 2 " + secret + " 3 other-secret") ==
          "1 [secret] 2 [secret] 3 [secret]");
}

TEST_CASE("endpoints and paths: what is meant must be written") {
    CHECK(parse_endpoint("https://s3.example.com/").host == "s3.example.com");
    CHECK(parse_endpoint("http://127.0.0.1:9000").loopback);
    CHECK_FALSE(parse_endpoint("https://example.com").loopback);
    for (const char* wrong :
         {"", "s3.example.com", "ftp://h", "https://", "https://user:pw@h", "https://h/path"}) {
        const Thrown thrown = thrown_by([&] { parse_endpoint(wrong); });
        CHECK(thrown.code == Exit::Usage);
        CHECK_THAT(thrown.text, !Catch::Contains("pw"));
    }
    const ObjectPath path = parse_object_path("s3://my.bucket-1//a//b c/");
    CHECK(path.bucket == "my.bucket-1");
    CHECK(path.key == "a/b c");
    CHECK(to_string(path) == "s3://my.bucket-1/a/b c");
    CHECK(parse_object_path("s3://abc").key.empty());
    for (const std::string& wrong :
         {std::string("s3://"), std::string("s3://ab/x"), std::string("s3://Big/x"), std::string("s3:///x"),
          "s3://abc/" + std::string(1025, 'k')}) {
        CHECK(thrown_by([&] { parse_object_path(wrong); }).code == Exit::Usage);
    }
    const auto settings = with_environment({}, variables({{"AWS_ENDPOINT_URL", "https://a"},
                                                          {"AWS_ENDPOINT_URL_S3", "https://b"},
                                                          {"AWS_REGION", "eu-1"}}));
    CHECK(settings.endpoint == "https://b");
    CHECK(settings.region == "eu-1");
    CHECK(with_environment({}, variables({})).endpoint == "https://s3.us-east-1.amazonaws.com");
    ObjectStorageSettings given;
    given.endpoint = "https://mine";
    CHECK(with_environment(given, variables({{"AWS_ENDPOINT_URL", "https://a"}})).endpoint == "https://mine");
}
