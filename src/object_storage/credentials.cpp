#include "object_storage/credentials.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "trainctl/base/error.h"
#include "trainctl/base/private_file.h"

namespace trainctl {
namespace {

std::string_view without_spaces(std::string_view text) {
    constexpr std::string_view spaces = " \t\r";
    const std::size_t begin = text.find_first_not_of(spaces);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(spaces) - begin + 1);
}

// Printable ASCII without spaces: they become header values.
void require_token(const std::string& value, const std::string& what) {
    const bool fine = std::all_of(value.begin(), value.end(), [](char c) { return c > ' ' && c < '\x7f'; });
    if (!fine) fail(Exit::Usage, what + " has spaces or unusual characters in it; was it cut or quoted?");
}

std::string value_of(const Environment& environment, const char* name) {
    return environment(name).value_or(std::string());
}

}  // namespace

Credentials parse_credentials(const std::string& text, const std::string& profile, const std::string& path) {
    Credentials credentials;
    bool ours = false;
    bool found = false;
    int number = 0;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        const std::string_view line = without_spaces(std::string_view(text).substr(begin, end - begin));
        begin = end + 1;
        ++number;
        if (line.empty() || line.front() == '#' || line.front() == ';') continue;
        if (line.front() == '[') {
            ours = line.back() == ']' && without_spaces(line.substr(1, line.size() - 2)) == profile;
            found = found || ours;
            continue;
        }
        if (!ours) continue;
        const std::size_t sign = line.find('=');
        if (sign == std::string_view::npos) {
            fail(Exit::Usage,
                 fmt::format("{}:{}: expected NAME = VALUE in profile [{}]", path, number, profile));
        }
        const std::string_view name = without_spaces(line.substr(0, sign));
        const std::string value(without_spaces(line.substr(sign + 1)));
        if (name == "aws_access_key_id") credentials.access_key_id = value;
        if (name == "aws_secret_access_key") credentials.secret_key = value;
        if (name == "aws_session_token") credentials.session_token = value;
    }
    if (!found) {
        fail(Exit::Usage,
             fmt::format("{} has no profile [{}]; add it or choose one by AWS_PROFILE", path, profile));
    }
    if (credentials.access_key_id.empty() || credentials.secret_key.empty()) {
        fail(Exit::Usage,
             fmt::format("{}: profile [{}] lacks {}", path, profile,
                         credentials.access_key_id.empty() ? "aws_access_key_id" : "aws_secret_access_key"));
    }
    require_token(credentials.access_key_id, path + ": aws_access_key_id");
    require_token(credentials.secret_key, path + ": aws_secret_access_key");
    require_token(credentials.session_token, path + ": aws_session_token");
    return credentials;
}

CredentialSource::CredentialSource(std::string file, Environment environment)
    : file_(std::move(file)), environment_(std::move(environment)) {}

Credentials CredentialSource::read() const {
    std::string file = file_;
    if (file.empty()) {
        Credentials given{value_of(environment_, "AWS_ACCESS_KEY_ID"),
                          value_of(environment_, "AWS_SECRET_ACCESS_KEY"),
                          value_of(environment_, "AWS_SESSION_TOKEN")};
        if (!given.access_key_id.empty() && !given.secret_key.empty()) {
            require_token(given.access_key_id, "AWS_ACCESS_KEY_ID");
            require_token(given.secret_key, "AWS_SECRET_ACCESS_KEY");
            require_token(given.session_token, "AWS_SESSION_TOKEN");
            return given;
        }
        file = value_of(environment_, "AWS_SHARED_CREDENTIALS_FILE");
    }
    if (file.empty()) {
        fail(
            Exit::Usage,
            "no credentials for the object store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a "
            "file of mode 0600 by AWS_SHARED_CREDENTIALS_FILE or checkpoint.object_storage.credentials_file");
    }
    const std::string profile = value_of(environment_, "AWS_PROFILE");
    return parse_credentials(read_private_text(file), profile.empty() ? "default" : profile, file);
}

std::shared_ptr<const Credentials> CredentialSource::remember(Credentials credentials) {
    constexpr std::size_t shortest_secret = 6;  // less is a word of a test, and of many other texts
    for (const std::string* secret : {&credentials.secret_key, &credentials.session_token}) {
        if (secret->size() >= shortest_secret &&
            std::find(secrets_.begin(), secrets_.end(), *secret) == secrets_.end())
            secrets_.push_back(*secret);
    }
    current_ = std::make_shared<const Credentials>(std::move(credentials));
    return current_;
}

std::shared_ptr<const Credentials> CredentialSource::current() {
    const std::lock_guard lock(mutex_);
    return current_ ? current_ : remember(read());
}

std::shared_ptr<const Credentials> CredentialSource::renew(
    const std::shared_ptr<const Credentials>& expired) {
    const std::lock_guard lock(mutex_);
    return current_ != expired ? current_ : remember(read());
}

std::string CredentialSource::redacted(std::string text) {
    const std::lock_guard lock(mutex_);
    constexpr std::string_view hidden = "[secret]";
    for (const std::string& secret : secrets_) {
        for (std::size_t at = text.find(secret); at != std::string::npos;
             at = text.find(secret, at + hidden.size()))
            text.replace(at, secret.size(), hidden);
    }
    return text;
}

}  // namespace trainctl
