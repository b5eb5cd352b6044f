// HTTP by libcurl: TLS verified always, no redirects, connections kept between requests.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "object_storage/http.h"

namespace trainctl {

// Proxy: as libcurl takes it from the environment, except for this host itself (`loopback`).
enum class Proxy { FromEnvironment, Never };

class CurlTransport final : public HttpTransport {
  public:
    explicit CurlTransport(Proxy proxy);
    ~CurlTransport() override;
    CurlTransport(const CurlTransport&) = delete;
    CurlTransport& operator=(const CurlTransport&) = delete;

    HttpAnswer send(const HttpRequest& request) override;

  private:
    class Handle;
    std::unique_ptr<Handle> take();
    void give_back(std::unique_ptr<Handle> handle);

    Proxy proxy_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Handle>> idle_;
};

}  // namespace trainctl
