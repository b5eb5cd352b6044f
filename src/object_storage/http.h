// One HTTP exchange, as the S3 client sees it. Tests may answer without a network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace trainctl {

// libcurl sends a request again, unasked, when a connection that it kept ends without an answer. Whoever must
// know that a request may have been carried out twice takes a fresh one.
enum class Connection { Kept, Fresh };

struct HttpRequest {
    std::string method;
    std::string url;
    std::vector<std::pair<std::string, std::string>> headers;
    std::span<const std::byte> body;   // must stay until send() has returned
    std::uint64_t longest_answer = 0;  // bytes; a longer body is a failure
    double timeout_s = 0.0;            // for the whole exchange
    Connection connection = Connection::Kept;
};

enum class Transport {
    Done,       // `status` and what follows are the server's
    Failed,     // no whole answer: refused, cut, timed out; the server may have done what was asked
    Impossible  // will not work the next time either: the certificate, the protocol
};

struct HttpAnswer {
    Transport transport = Transport::Failed;
    std::string failure;  // why, unless Done
    int status = 0;
    std::map<std::string, std::string> headers;  // names in lower case
    std::string body;
    std::optional<double> date_unix_s;  // the server's clock
    std::optional<double> last_modified_unix_s;
};

// Thread-safe. Never throws for what the network does.
class HttpTransport {
  public:
    virtual ~HttpTransport() = default;
    virtual HttpAnswer send(const HttpRequest& request) = 0;
};

}  // namespace trainctl
