#include "model/tensor_ranks.h"

#include "trainctl/base/error.h"

namespace trainctl {

TensorRanks::TensorRanks(Device& device, const TensorAxis& axis)
    : axis_(axis), part_(axis.part()), computed_(device.make_event()), arrived_(device.make_event()) {
    invariant(alone() || axis.stream != nullptr, "a tensor axis of several ranks needs a stream");
}

template <class Message>
void TensorRanks::send(Stream& compute, const Message& message) const {
    compute.record(*computed_);
    axis_.stream->wait(*computed_);
    message(*axis_.ranks, *axis_.stream);
    axis_.stream->record(*arrived_);
    compute.wait(*arrived_);
}

void TensorRanks::all_gather(Stream& compute, TensorView full, TensorView shard) const {
    send(compute, [&](Communicator& ranks, Stream& stream) { ranks.all_gather(full, shard, stream); });
}

void TensorRanks::reduce_scatter(Stream& compute, TensorView shard, TensorView full) const {
    send(compute, [&](Communicator& ranks, Stream& stream) {
        ranks.reduce_scatter(shard, full, Into::Overwrite, stream);
    });
}

void TensorRanks::all_reduce(Stream& compute, TensorView tensor, Reduce reduce) const {
    send(compute, [&](Communicator& ranks, Stream& stream) { ranks.all_reduce(tensor, reduce, stream); });
}

}  // namespace trainctl
