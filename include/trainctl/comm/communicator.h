// Moves bytes between ranks. Knows no parameter, no layer, no job.
//
// Collectives are asynchronous on a Stream (normally a Communication stream), must be issued in the same
// order by all ranks of the communicator, and keep their tensors in use until the stream has passed them.
// Sums are added in rank order by the owner of each part, in F32 for F32 and BF16 (F64 and I64 in their own
// type): the same bits for any bucket size and any number of threads. Max and Min give NaN if any rank has
// one. Sends and receives of one pair of ranks match in the order in which they were issued.
//
// Errors: a peer that died, a deadline, or abort() fails the stream; the next host wait throws Exit::Peer
// naming the communicator, the operation and the ranks that are missing as far as known.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "trainctl/device/device.h"
#include "trainctl/tensor/into.h"
#include "trainctl/tensor/tensor_view.h"

namespace trainctl {

enum class Reduce { Sum, Max, Min };

// Thread rule: issued from the rank's compute thread.
class Communicator {
  public:
    virtual ~Communicator() = default;

    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;
    [[nodiscard]] virtual std::string_view name() const = 0;

    // In place.
    virtual void all_reduce(TensorView tensor, Reduce reduce, Stream& stream) = 0;
    // shard (=, +=) rank()-th of size() equal parts of the sum of `full` over ranks. shard may be F32 while
    // full is BF16. `shard` may be the rank's own part of `full`. Where it is not, an accumulating or
    // widening one may leave sums in `full`.
    virtual void reduce_scatter(TensorView shard, TensorView full, Into into, Stream& stream) = 0;
    // full = the shards in rank order; `shard` may be the rank's own part of `full`.
    virtual void all_gather(TensorView full, TensorView shard, Stream& stream) = 0;
    virtual void broadcast(TensorView tensor, int root, Stream& stream) = 0;
    virtual void send(TensorView tensor, int to, Stream& stream) = 0;
    virtual void receive(TensorView tensor, int from, Stream& stream) = 0;
    // Between begin and end, sends and receives of one stream are issued together (no order among them, no
    // deadlock). Prefer the scope object CommGroup.
    virtual void group_begin(Stream& stream) = 0;
    virtual void group_end(Stream& stream) = 0;

    // Blocks the host until all ranks have arrived.
    virtual void barrier() = 0;
    // Collective. Ranks with the same colour, ordered by key then rank. A negative colour gives nullptr.
    virtual std::unique_ptr<Communicator> split(int color, int key, std::string_view name) = 0;
    // Fails this and every other communicator of the world, here and at all peers, with one message. Any
    // thread.
    virtual void abort(const std::string& reason) = 0;
};

class CommGroup {
  public:
    CommGroup(Communicator& communicator, Stream& stream) : communicator_(communicator), stream_(stream) {
        communicator_.group_begin(stream_);
    }
    // Issues the group, which on a Compute stream waits for it and throws its failure. Left by an exception,
    // the group is issued as well (peers expect its messages) but adds no second exception.
    ~CommGroup() noexcept(false) {
        if (std::uncaught_exceptions() == exceptions_) {
            communicator_.group_end(stream_);
            return;
        }
        try {
            communicator_.group_end(stream_);
        } catch (...) {  // the first exception tells the cause
        }
    }
    CommGroup(const CommGroup&) = delete;
    CommGroup& operator=(const CommGroup&) = delete;

  private:
    Communicator& communicator_;
    Stream& stream_;
    int exceptions_ = std::uncaught_exceptions();
};

}  // namespace trainctl
