#include "trainctl/base/log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

namespace trainctl {
namespace {

std::string_view level_prefix(LogLevel level) {
    switch (level) {
        case LogLevel::Debug:
            return "debug: ";
        case LogLevel::Info:
            return "";
        case LogLevel::Warning:
            return "warning: ";
        case LogLevel::Error:
            return "error: ";
    }
    return "";
}

}  // namespace

void write_text(int descriptor, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(descriptor, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return;
        text.remove_prefix(static_cast<std::size_t>(written));
    }
}

void DescriptorLog::write(LogLevel level, std::string_view text) {
    if (level < threshold_) return;
    std::string prefix;
    if (origin_.ranks > 1) {
        prefix = origin_.host.empty() ? fmt::format("[rank {}] ", origin_.rank)
                                      : fmt::format("[rank {} {}] ", origin_.rank, origin_.host);
    }
    prefix += level_prefix(level);

    // A text of several lines gets the prefix on each, and still goes out in one write.
    std::string out;
    out.reserve(prefix.size() + text.size() + 1);
    while (true) {
        const std::size_t end = text.find('\n');
        out.append(prefix).append(text.substr(0, end)).push_back('\n');
        if (end == std::string_view::npos || end + 1 == text.size()) break;
        text.remove_prefix(end + 1);
    }

    write_text(fd_, out);
}

}  // namespace trainctl
