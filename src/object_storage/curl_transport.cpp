#include "object_storage/curl_transport.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <ctime>

#include "trainctl/base/error.h"

namespace trainctl {
namespace {

// libcurl takes its numbers as long.
using CurlNumber = long;  // NOLINT(google-runtime-int)

constexpr CurlNumber connect_timeout_ms = 10'000;

// OpenSSL writes to a socket that the peer has closed with a plain write(): SIGPIPE would end the process.
class WithoutSigpipe {
  public:
    WithoutSigpipe() {
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        sigset_t pending;
        sigpending(&pending);
        was_pending_ = sigismember(&pending, SIGPIPE) == 1;
        pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    ~WithoutSigpipe() {
        const timespec now{};
        while (!was_pending_ && sigtimedwait(&pipe_, nullptr, &now) > 0) {
        }
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    WithoutSigpipe(const WithoutSigpipe&) = delete;
    WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

  private:
    sigset_t pipe_{};
    sigset_t before_{};
    bool was_pending_ = false;
};

// What the callbacks fill. They are called from C: nothing may leave them, so a lack of memory is a failure.
struct Received {
    HttpAnswer answer;
    std::uint64_t longest = 0;
    bool too_long = false;
};

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == '\r' || text.back() == '\n' || text.back() == ' '))
        text.remove_suffix(1);
    return text;
}

std::size_t take_body(const char* data, std::size_t one, std::size_t count, void* user) noexcept {
    auto& received = *static_cast<Received*>(user);
    received.too_long = received.answer.body.size() + one * count > received.longest;
    if (received.too_long) return 0;  // ends the exchange
    try {
        received.answer.body.append(data, one * count);
        return one * count;
    } catch (...) {
        return 0;
    }
}

std::size_t take_header(const char* data, std::size_t one, std::size_t count, void* user) noexcept {
    auto& answer = static_cast<Received*>(user)->answer;
    try {
        const std::string_view line(data, one * count);
        if (line.starts_with("HTTP/")) answer.headers.clear();  // the answer after an interim one
        const std::size_t colon = line.find(':');
        if (colon != std::string_view::npos && answer.headers.size() < 200) {
            std::string name(line.substr(0, colon));
            std::transform(name.begin(), name.end(), name.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
            answer.headers[name] = trimmed(line.substr(colon + 1));
        }
        return one * count;
    } catch (...) {
        return 0;
    }
}

std::optional<double> http_date(const HttpAnswer& answer, const char* header) {
    const auto found = answer.headers.find(header);
    if (found == answer.headers.end()) return std::nullopt;
    const std::time_t time = curl_getdate(found->second.c_str(), nullptr);
    if (time < 0) return std::nullopt;
    return static_cast<double>(time);
}

bool never_works(CURLcode code) {
    switch (code) {
        case CURLE_PEER_FAILED_VERIFICATION:
        case CURLE_SSL_CACERT_BADFILE:
        case CURLE_SSL_ISSUER_ERROR:
        case CURLE_UNSUPPORTED_PROTOCOL:
        case CURLE_URL_MALFORMAT:
        case CURLE_WRITE_ERROR:
            return true;
        default:
            return false;
    }
}

}  // namespace

// One connection's state. Options that cannot fail with these types are set without a look at the result.
class CurlTransport::Handle {
  public:
    Handle() : curl_(curl_easy_init()) {
        if (curl_ == nullptr) fail(Exit::Resource, "cannot start libcurl: out of memory");
    }
    ~Handle() {
        curl_easy_cleanup(curl_);
        curl_slist_free_all(headers_);
    }
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;

    HttpAnswer send(const HttpRequest& request, Proxy proxy, const std::string& ca_file) {
        curl_easy_reset(curl_);  // keeps the connection
        curl_slist_free_all(headers_);
        headers_ = nullptr;
        // libcurl adds these two by itself where it sees a body; the first would cost a round trip per part.
        add_header("Expect:");
        if (!request.body.empty()) add_header("Content-Type: application/octet-stream");
        for (const auto& [name, value] : request.headers)
            add_header(fmt::format("{}: {}", name, value).c_str());

        Received received;
        received.longest = request.longest_answer;
        why_.fill('\0');
        set(CURLOPT_ERRORBUFFER, why_.data());
        set(CURLOPT_URL, request.url.c_str());
        set(CURLOPT_PATH_AS_IS, 1L);  // "a/../b" is a key like any other
        set(CURLOPT_PROTOCOLS_STR, "https,http");
        set(CURLOPT_NOSIGNAL, 1L);
        set(CURLOPT_SSL_VERIFYPEER, 1L);
        set(CURLOPT_SSL_VERIFYHOST, 2L);
        set(CURLOPT_FOLLOWLOCATION, 0L);  // a signature is made for one host
        set(CURLOPT_TCP_KEEPALIVE, 1L);
        set(CURLOPT_CONNECTTIMEOUT_MS, connect_timeout_ms);
        set(CURLOPT_TIMEOUT_MS, static_cast<CurlNumber>(request.timeout_s * 1000.0) + 1);
        set(CURLOPT_HTTPHEADER, headers_);
        set(CURLOPT_HTTP_VERSION, static_cast<CurlNumber>(CURL_HTTP_VERSION_1_1));
        set(CURLOPT_WRITEFUNCTION, &take_body);
        set(CURLOPT_WRITEDATA, static_cast<void*>(&received));
        set(CURLOPT_HEADERFUNCTION, &take_header);
        set(CURLOPT_HEADERDATA, static_cast<void*>(&received));
        if (request.connection == Connection::Fresh) set(CURLOPT_FRESH_CONNECT, 1L);
        if (!ca_file.empty()) set(CURLOPT_CAINFO, ca_file.c_str());
        if (proxy == Proxy::Never) set(CURLOPT_PROXY, "");
        if (request.method == "HEAD") {
            set(CURLOPT_NOBODY, 1L);
        } else {
            if (request.method != "GET" && request.method != "DELETE") {
                set(CURLOPT_POSTFIELDS, request.body.data() == nullptr ? "" : text_of(request.body));
                set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
            }
            set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
        }
        const CURLcode code = curl_easy_perform(curl_);
        HttpAnswer answer = std::move(received.answer);
        if (code != CURLE_OK) {
            answer.transport = never_works(code) ? Transport::Impossible : Transport::Failed;
            answer.failure = why_.front() != '\0' ? why_.data() : curl_easy_strerror(code);
            if (received.too_long)
                answer.failure = fmt::format("an answer of more than {} bytes", received.longest);
            return answer;
        }
        CurlNumber status = 0;
        curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &status);
        answer.transport = Transport::Done;
        answer.status = static_cast<int>(status);
        answer.date_unix_s = http_date(answer, "date");
        answer.last_modified_unix_s = http_date(answer, "last-modified");
        return answer;
    }

  private:
    static const char* text_of(std::span<const std::byte> bytes) {
        return reinterpret_cast<const char*>(bytes.data());
    }
    template <class Value>
    void set(CURLoption option, Value value) {
        const CURLcode code = curl_easy_setopt(curl_, option, value);
        if (code != CURLE_OK)
            fail(Exit::Internal, fmt::format("libcurl refused option {}: {}", static_cast<int>(option),
                                             curl_easy_strerror(code)));
    }
    void add_header(const char* line) {
        curl_slist* longer = curl_slist_append(headers_, line);
        if (longer == nullptr) fail(Exit::Resource, "cannot send a request: out of memory");
        headers_ = longer;
    }

    std::array<char, CURL_ERROR_SIZE> why_{};
    CURL* curl_;
    curl_slist* headers_ = nullptr;
};

CurlTransport::CurlTransport(Proxy proxy, std::string ca_file) : proxy_(proxy), ca_file_(std::move(ca_file)) {
    // Counted and thread-safe since libcurl 7.84.
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        fail(Exit::Resource, "cannot start libcurl: out of memory or no TLS library");
}

CurlTransport::~CurlTransport() {
    idle_.clear();
    curl_global_cleanup();
}

std::unique_ptr<CurlTransport::Handle> CurlTransport::take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<Handle>();
    std::unique_ptr<Handle> handle = std::move(idle_.back());
    idle_.pop_back();
    return handle;
}

void CurlTransport::give_back(std::unique_ptr<Handle> handle) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(handle));
}

HttpAnswer CurlTransport::send(const HttpRequest& request) {
    const WithoutSigpipe guard;
    std::unique_ptr<Handle> handle = take();
    HttpAnswer answer = handle->send(request, proxy_, ca_file_);
    give_back(std::move(handle));
    return answer;
}

}  // namespace trainctl
