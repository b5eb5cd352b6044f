// What layers say to the ranks that share their matrices, in the order of the compute stream.
#pragma once

#include <memory>

#include "trainctl/device/device.h"
#include "trainctl/model/tensor_axis.h"

namespace trainctl {

// Every message waits for the compute stream and is waited for by it: memory that a message uses may be
// released as soon as the call has returned. Not called without other ranks.
class TensorRanks {
  public:
    TensorRanks(Device& device, const TensorAxis& axis);

    [[nodiscard]] const TensorPart& part() const { return part_; }
    [[nodiscard]] bool alone() const { return part_.size == 1; }
    [[nodiscard]] bool shards_rows() const { return !alone() && part_.residual == ResidualRows::Sharded; }

    // As in TensorPart.
    [[nodiscard]] std::int64_t residual_rows(std::int64_t rows) const { return part_.residual_rows(rows); }
    // Where this rank's begin.
    [[nodiscard]] std::int64_t first_residual_row(std::int64_t rows) const {
        return shards_rows() ? part_.rank * residual_rows(rows) : 0;
    }

    // As in Communicator.
    void all_gather(Stream& compute, TensorView full, TensorView shard) const;
    void reduce_scatter(Stream& compute, TensorView shard, TensorView full) const;
    void all_reduce(Stream& compute, TensorView tensor, Reduce reduce) const;

  private:
    template <class Message>
    void send(Stream& compute, const Message& message) const;

    TensorAxis axis_;
    TensorPart part_;
    std::unique_ptr<Event> computed_;
    std::unique_ptr<Event> arrived_;
};

}  // namespace trainctl
