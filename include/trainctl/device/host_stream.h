// Streams of devices whose work is host code (cpu, and test doubles built on it).
#pragma once

#include <functional>
#include <memory>

#include "trainctl/device/device.h"

namespace trainctl {

// One piece of work that may need several visits, for example a message on its way.
class Operation {
  public:
    virtual ~Operation() = default;
    // Called repeatedly until it returns true (done). Never blocks; throws on failure.
    virtual bool advance() = 0;
};

class HostStream : public Stream {
  public:
    // Appends an operation. On a Communication stream the progress thread advances it; on a Compute stream
    // the call hands it to the progress thread and returns when it is done, so that all messages are driven
    // by one thread.
    virtual void submit(std::unique_ptr<Operation> operation) = 0;
    // Appends plain work. On a Compute stream it normally runs at once, on the calling thread. `work` holds
    // its arguments by value: it may run after this call has returned.
    virtual void run(std::function<void()> work) = 0;
};

// The stream as a HostStream; Exit::Internal if it belongs to another kind of device.
HostStream& host_stream(Stream& stream);

}  // namespace trainctl
