// What the collectives are built on: messages between the members of one communicator that complete some time
// after they were started. Two implementations: threads of one process, and MPI.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace trainctl {

// One member's answer to split().
struct SplitChoice {
    int colour = 0;
    int key = 0;
};

// Ranks of the parent with this colour in their new order (by key, then rank).
std::vector<int> split_members(const std::vector<SplitChoice>& choices, int colour);

// Messages of one (sender, receiver, tag) match in the order of their starts; lengths must agree.
// Thread rule: one thread at a time, normally the device's progress thread. Errors: Exit::Peer when the world
// was aborted or the network failed, Exit::Internal when lengths disagree.
class Transport {
  public:
    virtual ~Transport() = default;
    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;

    // Start a message; the memory stays in use until finished() has said true. Return its handle.
    virtual int send(int to, int tag, const std::byte* data, std::size_t bytes) = 0;
    virtual int receive(int from, int tag, std::byte* data, std::size_t bytes) = 0;
    // Moves messages on. Never blocks.
    virtual void poll() = 0;
    // True once per message: the handle is free afterwards.
    virtual bool finished(int handle) = 0;
    // Gives up a message that will never be waited for; frees the handle.
    virtual void cancel(int handle) noexcept = 0;

    // The communicator of this rank's colour (which is not negative). Called when all members have made their
    // choices; `serial` counts the splits of this communicator.
    virtual std::unique_ptr<Transport> split(const std::vector<SplitChoice>& choices, int serial) = 0;
};

// Tags stay below 32767, the least that MPI guarantees. Reuse is safe: far fewer operations are ever under
// way.
constexpr int tag_period = 1 << 14;
constexpr int collective_tag(unsigned sequence) { return static_cast<int>(sequence % tag_period) * 2; }
constexpr int pair_tag(unsigned sequence) { return static_cast<int>(sequence % tag_period) * 2 + 1; }

}  // namespace trainctl
