// HTTP by libcurl: TLS verified always, no redirects, connections kept between requests.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "object_storage/http.h"

namespace trainctl {

// Proxy: as libcurl takes it from the environment, except for this host itself (`loopback`).
enum class Proxy { FromEnvironment, Never };

class CurlTransport final : public HttpTransport {
  public:
    // `ca_file`: certificates (PEM) to trust instead of the system's; empty: those.
    CurlTransport(Proxy proxy, std::string ca_file);
    ~CurlTransport() override;
    CurlTransport(const CurlTransport&) = delete;
    CurlTransport& operator=(const CurlTransport&) = delete;

    HttpAnswer send(const HttpRequest& request) override;

  private:
    class Handle;
    std::unique_ptr<Handle> take();
    void give_back(std::unique_ptr<Handle> handle);

    Proxy proxy_;
    std::string ca_file_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Handle>> idle_;
};

}  // namespace trainctl
