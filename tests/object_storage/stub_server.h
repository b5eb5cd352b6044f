// An HTTP/1.1 server in this process, on a port of the loopback interface that the system chose: just enough
// for a client that keeps connections, and able to be as rude as a network.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace trainctl::test {

struct StubRequest {
    std::string method;
    std::string path;                            // as sent
    std::string query;                           // as sent, without '?'
    std::map<std::string, std::string> headers;  // names in lower case
    std::string body;
};

enum class Wire {
    Whole,
    Cut,     // the headers, half of the body, then the connection is closed
    Closed,  // not a byte, then the connection is closed
};

struct StubAnswer {
    int status = 200;
    std::map<std::string, std::string> headers;
    std::string body;
    Wire wire = Wire::Whole;
    double delay_s = 0.0;  // of real time, before the first byte
};

// `handle` is called from a thread per connection.
class StubServer {
  public:
    explicit StubServer(std::function<StubAnswer(const StubRequest&)> handle);
    ~StubServer();  // ends all connections and waits for their threads
    StubServer(const StubServer&) = delete;
    StubServer& operator=(const StubServer&) = delete;

    [[nodiscard]] int port() const { return port_; }

  private:
    void accept_all();
    void serve(int connection);

    std::function<StubAnswer(const StubRequest&)> handle_;
    int listener_ = -1;
    int port_ = 0;
    std::atomic<bool> stopping_{false};
    std::mutex mutex_;
    std::vector<int> connections_;
    std::vector<std::thread> threads_;
    std::thread acceptor_;
};

}  // namespace trainctl::test
