// Messages between threads of one process: a room of mailboxes per communicator.
#pragma once

#include <memory>
#include <string>

#include "comm/transport.h"
#include "trainctl/comm/world.h"

namespace trainctl {

// The first error that ended the world, and the rooms that its members meet in. Any thread.
class InProcessHub : public std::enable_shared_from_this<InProcessHub> {
  public:
    explicit InProcessHub(int size);
    ~InProcessHub();
    InProcessHub(const InProcessHub&) = delete;
    InProcessHub& operator=(const InProcessHub&) = delete;

    [[nodiscard]] int size() const { return size_; }
    // The first call counts.
    void abort(const Error& error);
    // Throws the error given to abort(), if any.
    void check() const;

    // This rank's end of the communicator called `key`; every member asks once with the same arguments.
    std::unique_ptr<Transport> enter(const std::string& key, int rank, int size);

  private:
    friend class MailboxTransport;
    struct Registry;

    int size_;
    std::unique_ptr<Registry> registry_;
};

}  // namespace trainctl
