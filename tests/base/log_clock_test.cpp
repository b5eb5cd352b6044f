#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "support/temporary_directory.h"
#include "trainctl/base/clock.h"
#include "trainctl/base/file_system.h"
#include "trainctl/base/log.h"

using namespace trainctl;

namespace {

// What `use` writes to a log on a real descriptor.
template <class Use>
std::string logged(LogLevel threshold, const LogOrigin& origin, Use use) {
    const test::TemporaryDirectory directory;
    const int fd = ::open((directory / "log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    REQUIRE(fd >= 0);
    DescriptorLog log(fd, threshold, origin);
    use(log);
    ::close(fd);
    return read_text(*make_posix_file_system(), directory / "log");
}

}  // namespace

TEST_CASE("log lines carry rank and host only in a world of several ranks") {
    const auto speak = [](Log& log) {
        log.info("one");
        log.warn("two\nthree");
        log.write(LogLevel::Debug, "hidden");
        log.error("");
    };
    CHECK(logged(LogLevel::Info, {}, speak) == "one\nwarning: two\nwarning: three\nerror: \n");
    CHECK(logged(LogLevel::Warning, {3, 8, "hostA"}, speak) ==
          "[rank 3 hostA] warning: two\n[rank 3 hostA] warning: three\n[rank 3 hostA] error: \n");
}

TEST_CASE("lines of several threads stay whole", "[threads]") {
    constexpr int threads = 4;
    constexpr int lines = 200;
    const std::string text = logged(LogLevel::Info, {}, [](Log& log) {
        std::vector<std::thread> speakers;
        for (int t = 0; t < threads; ++t) {
            speakers.emplace_back([&log, t] {
                for (int i = 0; i < lines; ++i) log.info(std::string(60, static_cast<char>('a' + t)));
            });
        }
        for (std::thread& speaker : speakers) speaker.join();
    });
    REQUIRE(text.size() == static_cast<std::size_t>(61 * threads * lines));
    std::size_t mixed = 0;
    for (std::size_t at = 0; at < text.size(); at += 61) {
        mixed += text.substr(at, 61) != std::string(60, text[at]) + "\n" ? 1 : 0;
    }
    CHECK(mixed == 0);
}

TEST_CASE("logging to a closed descriptor is harmless") {
    DescriptorLog log(-1, LogLevel::Info, {});
    CHECK_NOTHROW(log.info("nobody listens"));
}

TEST_CASE("the monotonic clock never falls; sleeping passes at least the time asked for") {
    SystemClock clock;
    const double before = clock.monotonic_s();
    clock.sleep_s(0.01);
    CHECK(clock.monotonic_s() - before >= 0.01);
    CHECK_NOTHROW(clock.sleep_s(-1));
    CHECK(clock.unix_s() > 1.7e9);
}

TEST_CASE("UTC timestamps") {
    CHECK(utc_timestamp(0) == "1970-01-01T00:00:00Z");
    CHECK(utc_timestamp(951782400.9) == "2000-02-29T00:00:00Z");
    CHECK(utc_timestamp(-0.5) == "1969-12-31T23:59:59Z");
}
