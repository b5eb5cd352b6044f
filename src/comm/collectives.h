// The collectives as operations over a Transport. Each takes its views by value and keeps its staging alive.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/operation.h"
#include "trainctl/comm/communicator.h"

namespace trainctl {

// What every collective needs beside its tensors.
struct CollectiveContext {
    std::shared_ptr<CommCore> core;
    unsigned sequence = 0;            // of this communicator; also gives the tag
    std::shared_ptr<Buffer> staging;  // as staging.h asks for; nullptr if nothing is staged
};

std::unique_ptr<Operation> make_reduce_scatter(CollectiveContext context, TensorView shard, TensorView full,
                                               Into into);
std::unique_ptr<Operation> make_all_reduce(CollectiveContext context, TensorView tensor, Reduce reduce);
std::unique_ptr<Operation> make_all_gather(const CollectiveContext& context, TensorView full,
                                           TensorView shard);
std::unique_ptr<Operation> make_broadcast(const CollectiveContext& context, TensorView tensor, int root);

// Sends and receives that are issued together.
struct PairMessage {
    enum class Kind { Send, Receive } kind = Kind::Send;
    int peer = 0;
    unsigned sequence = 0;  // per pair and direction
    TensorView tensor;
};
std::unique_ptr<Operation> make_pair_messages(std::shared_ptr<CommCore> core,
                                              std::vector<PairMessage> messages);

}  // namespace trainctl
