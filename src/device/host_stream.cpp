#include "trainctl/device/host_stream.h"

#include <fmt/core.h>

namespace trainctl {

HostStream& host_stream(Stream& stream) {
    if (auto* host = dynamic_cast<HostStream*>(&stream)) return *host;
    fail(Exit::Internal,
         fmt::format("stream '{}' does not run host code: cpu work was issued to another kind of device",
                     stream.name()));
}

}  // namespace trainctl
