#include "object_storage/stub_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <utility>

namespace trainctl::test {
namespace {

// Bytes of one connection as they come; a request may end in the midst of a packet.
class Input {
  public:
    explicit Input(int connection) : connection_(connection) {}

    // Up to and without `end`; nullopt: the connection is over.
    std::optional<std::string> until(const std::string& end) {
        while (true) {
            const std::size_t at = buffer_.find(end);
            if (at != std::string::npos) return take(at, end.size());
            if (!more()) return std::nullopt;
        }
    }
    std::optional<std::string> exactly(std::size_t count) {
        while (buffer_.size() < count) {
            if (!more()) return std::nullopt;
        }
        return take(count, 0);
    }

  private:
    std::string take(std::size_t count, std::size_t dropped) {
        std::string taken = buffer_.substr(0, count);
        buffer_.erase(0, count + dropped);
        return taken;
    }
    // False: the end, or something that is no HTTP (a TLS handshake).
    bool more() {
        std::array<char, 65536> piece;
        const ssize_t got = ::recv(connection_, piece.data(), piece.size(), 0);
        if (got <= 0) return false;
        if (!started_ && (piece[0] < 'A' || piece[0] > 'Z')) return false;
        started_ = true;
        buffer_.append(piece.data(), static_cast<std::size_t>(got));
        return true;
    }

    int connection_;
    bool started_ = false;
    std::string buffer_;
};

std::optional<StubRequest> read_request(Input& input) {
    const auto head = input.until("\r\n\r\n");
    if (!head) return std::nullopt;
    StubRequest request;
    std::size_t end = head->find("\r\n");
    const std::string line = head->substr(0, end);
    const std::size_t first = line.find(' ');
    const std::size_t second = line.find(' ', first + 1);
    if (second == std::string::npos) return std::nullopt;
    request.method = line.substr(0, first);
    request.path = line.substr(first + 1, second - first - 1);
    const std::size_t mark = request.path.find('?');
    if (mark != std::string::npos) {
        request.query = request.path.substr(mark + 1);
        request.path.resize(mark);
    }
    while (end != std::string::npos) {
        const std::size_t begin = end + 2;
        end = head->find("\r\n", begin);
        const std::string field = head->substr(begin, end == std::string::npos ? end : end - begin);
        const std::size_t colon = field.find(':');
        if (colon == std::string::npos) continue;
        std::string name = field.substr(0, colon);
        std::transform(name.begin(), name.end(), name.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        const std::size_t value = field.find_first_not_of(' ', colon + 1);
        request.headers[name] = value == std::string::npos ? "" : field.substr(value);
    }
    const auto length = request.headers.find("content-length");
    if (length != request.headers.end()) {
        auto body = input.exactly(std::stoul(length->second));
        if (!body) return std::nullopt;
        request.body = std::move(*body);
    }
    return request;
}

bool send_all(int connection, const std::string& text) {
    for (std::size_t sent = 0; sent < text.size();) {
        const ssize_t put = ::send(connection, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
        if (put <= 0) return false;
        sent += static_cast<std::size_t>(put);
    }
    return true;
}

// Whether the connection goes on.
bool send_answer(int connection, const StubRequest& request, const StubAnswer& answer) {
    if (answer.wire == Wire::Closed) return false;
    std::string text = "HTTP/1.1 " + std::to_string(answer.status) + " X\r\n";
    for (const auto& [name, value] : answer.headers) text += name + ": " + value + "\r\n";
    if (answer.headers.count("content-length") == 0)
        text += "content-length: " + std::to_string(answer.body.size()) + "\r\n";
    if (answer.wire == Wire::Cut && answer.body.empty()) return send_all(connection, text) && false;
    text += "\r\n";
    if (request.method != "HEAD")
        text += answer.wire == Wire::Cut ? answer.body.substr(0, answer.body.size() / 2) : answer.body;
    return send_all(connection, text) && answer.wire == Wire::Whole;
}

}  // namespace

StubServer::StubServer(std::function<StubAnswer(const StubRequest&)> handle) : handle_(std::move(handle)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (listener_ < 0 || ::bind(listener_, generic, size) != 0 || ::listen(listener_, 64) != 0 ||
        ::getsockname(listener_, generic, &size) != 0) {
        throw std::runtime_error("no socket for the stub server");
    }
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
}

StubServer::~StubServer() {
    stopping_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    {
        const std::lock_guard lock(mutex_);
        for (const int connection : connections_) ::shutdown(connection, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
    ::close(listener_);
}

void StubServer::accept_all() {
    while (true) {
        const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (connection < 0) return;
        const int one = 1;
        ::setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        const std::lock_guard lock(mutex_);
        connections_.push_back(connection);
        threads_.emplace_back([this, connection] { serve(connection); });
        if (stopping_) ::shutdown(connection, SHUT_RDWR);
    }
}

void StubServer::serve(int connection) {
    Input input(connection);
    while (true) {
        const auto request = read_request(input);
        if (!request) break;
        const StubAnswer answer = handle_(*request);
        if (answer.delay_s > 0.0) std::this_thread::sleep_for(std::chrono::duration<double>(answer.delay_s));
        if (!send_answer(connection, *request, answer)) break;
    }
    const std::lock_guard lock(mutex_);
    connections_.erase(std::find(connections_.begin(), connections_.end(), connection));
    ::close(connection);
}

}  // namespace trainctl::test
