#include <cerrno>
#include <set>
#include <string>

#include "support/catch.h"
#include "trainctl/base/build_info.h"
#include "trainctl/base/io_error.h"
#include "trainctl/base/result.h"

using namespace trainctl;

TEST_CASE("every exit code has its own name and its documented value") {
    const std::pair<Exit, int> codes[] = {{Exit::Ok, 0},          {Exit::Internal, 1}, {Exit::Usage, 2},
                                          {Exit::Interrupted, 3}, {Exit::BadInput, 4}, {Exit::Resource, 5},
                                          {Exit::Peer, 6},        {Exit::Diverged, 7}, {Exit::Fenced, 8}};
    std::set<std::string_view> names;
    for (const auto& [code, value] : codes) {
        CHECK(static_cast<int>(code) == value);
        names.insert(exit_name(code));
    }
    CHECK(names.size() == std::size(codes));
    CHECK(exit_name(Exit::BadInput) == "bad_input");
}

TEST_CASE("fail and invariant carry code, text and the caller's place") {
    const int line = __LINE__ + 2;
    try {
        fail(Exit::Peer, "rank 3 is gone");
    } catch (const Error& error) {
        CHECK(error.code() == Exit::Peer);
        CHECK(error.what() == std::string("rank 3 is gone"));
        CHECK(error.where().line == line);
        CHECK(std::string(error.where().file).find("error_test.cpp") != std::string::npos);
    }
    CHECK_NOTHROW(invariant(true, "holds"));
    CHECK_THROWS_AS(invariant(false, "broken"), Error);
}

TEST_CASE("Result holds a value or throws the stored error") {
    const auto half = [](int x) -> Result<int> {
        if (x % 2 != 0) return Error(Exit::BadInput, "odd", Where::here());
        return x / 2;
    };
    CHECK(half(4).value() == 2);
    CHECK_FALSE(half(3).ok());
    CHECK(half(3).error().code() == Exit::BadInput);
    CHECK_THROWS_WITH(half(3).value(), "odd");
}

TEST_CASE("io errors name operation, path, errno and a next step; the side decides the exit code") {
    for (const int number : {ENOSPC, EDQUOT, EROFS, EACCES, ENOENT, EIO, ESTALE, EMFILE, 9999}) {
        const Error reading = io_error("open", "/data/a b", number, IoSide::Reading);
        const Error writing = io_error("open", "/data/a b", number, IoSide::Writing);
        CAPTURE(number, reading.what());
        CHECK(std::string(reading.what()).find("cannot open /data/a b: ") == 0);
        const std::string text = writing.what();
        CHECK(text.size() > text.rfind(": ") + 8);  // there is advice behind the last colon
        CHECK(writing.code() == Exit::Resource);
        CHECK(reading.code() == (number == EMFILE ? Exit::Resource : Exit::BadInput));
    }
    CHECK(std::string(io_error("write", "x", ENOSPC, IoSide::Writing).what()).find("ENOSPC") !=
          std::string::npos);
}

TEST_CASE("the build names its version, revision, type and compiler") {
    const BuildInfo info = build_info();
    CHECK(info.version.find('.') != std::string_view::npos);
    CHECK_FALSE(info.revision.empty());
    CHECK_FALSE(info.build_type.empty());
    CHECK(info.compiler.find_first_of("0123456789") != std::string_view::npos);
}
