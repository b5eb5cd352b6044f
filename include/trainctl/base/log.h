// Log lines on stderr, one write(2) per line so that ranks do not interleave. Passed by reference, no global.
#pragma once

#include <string>
#include <string_view>

namespace trainctl {

enum class LogLevel { Debug, Info, Warning, Error };

// Which process speaks; put in front of every line as "[rank 3 hostA] ".
struct LogOrigin {
    int rank = 0;
    int ranks = 1;  // with one rank no prefix is printed
    std::string host;
};

// All of `text`, as it is. Errors are ignored on purpose: a closed stderr must not end a training run.
void write_text(int descriptor, std::string_view text);

// Thread-safe.
class Log {
  public:
    virtual ~Log() = default;
    virtual void write(LogLevel level, std::string_view text) = 0;
    void info(std::string_view text) { write(LogLevel::Info, text); }
    void warn(std::string_view text) { write(LogLevel::Warning, text); }
    void error(std::string_view text) { write(LogLevel::Error, text); }
};

// Lines to file descriptor `fd` (normally 2) at `threshold` and above.
class DescriptorLog final : public Log {
  public:
    DescriptorLog(int fd, LogLevel threshold, LogOrigin origin)
        : fd_(fd), threshold_(threshold), origin_(std::move(origin)) {}
    void write(LogLevel level, std::string_view text) override;

  private:
    int fd_;
    LogLevel threshold_;
    LogOrigin origin_;
};

}  // namespace trainctl
