// One collective or group of messages on its way: an Operation made of many messages, with a deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/core.h"
#include "trainctl/device/host_stream.h"

namespace trainctl {

class CommOperation : public Operation {
  public:
    // `what` is a literal ("all_gather"); `bytes` and `sequence` only name the operation in errors.
    CommOperation(std::shared_ptr<CommCore> core, const char* what, std::size_t bytes, unsigned sequence);
    ~CommOperation() override;
    CommOperation(const CommOperation&) = delete;
    CommOperation& operator=(const CommOperation&) = delete;

    bool advance() final;

  protected:
    // Starts whatever can be started. True when everything was started and nothing is open any more.
    virtual bool step() = 0;
    // A message has come to its end; `cookie` is what it was started with.
    virtual void sent(int /*to*/, std::int64_t /*cookie*/) {}
    virtual void received(int /*from*/, std::int64_t /*cookie*/) {}

    void send(int to, int tag, const std::byte* data, std::size_t bytes, std::int64_t cookie = 0);
    void receive(int from, int tag, std::byte* data, std::size_t bytes, std::int64_t cookie = 0);
    // The same in pieces of at most tuning.message_bytes; at least one, so that empty messages travel too.
    void send_pieces(int to, int tag, const std::byte* data, std::size_t bytes);
    void receive_pieces(int from, int tag, std::byte* data, std::size_t bytes);

    [[nodiscard]] bool settled() const { return open_.empty(); }
    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int size() const { return size_; }
    // The k-th peer (k = 1 .. size-1) in an order that differs from rank to rank, so that not all start with
    // rank 0.
    [[nodiscard]] int peer(int k) const { return (rank_ + k) % size_; }
    [[nodiscard]] CommCore& core() const { return *core_; }

  private:
    enum class Direction { Send, Receive };
    struct Open {
        int handle;
        int peer;
        Direction direction;
        std::int64_t cookie;
    };

    bool retire();
    void check_deadline();

    std::shared_ptr<CommCore> core_;
    const char* what_;
    std::size_t bytes_;
    unsigned sequence_;
    int rank_;
    int size_;
    std::vector<Open> open_;
    std::chrono::steady_clock::time_point last_progress_;  // zero before the first visit
};

}  // namespace trainctl
