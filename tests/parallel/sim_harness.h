// One rank of a data axis of any size on the sim device: nothing moves, everything is counted and timed.
#pragma once

#include <memory>
#include <vector>

#include "trainctl/comm/communicator.h"
#include "trainctl/device/sim_device.h"
#include "trainctl/parallel/zero.h"

namespace trainctl::test {

// Which collectives take the profile's message time; the others take none.
enum class Timed : std::uint8_t { Nothing, Gradients, Weights };

// Every rank of the axis seen from one of them. Counts gradient messages; sums of the norm and the loss, a
// few hundred bytes, are not among them.
class TimedCommunicator : public Communicator {
  public:
    TimedCommunicator(SimDevice& device, int rank, int size, Timed timed)
        : device_(device), rank_(rank), size_(size), timed_(timed) {}

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return size_; }
    [[nodiscard]] std::string_view name() const override { return "data"; }
    void all_reduce(TensorView tensor, Reduce reduce, Stream& stream) override;
    void reduce_scatter(TensorView shard, TensorView full, Into into, Stream& stream) override;
    void all_gather(TensorView full, TensorView shard, Stream& stream) override;
    void broadcast(TensorView, int, Stream&) override { unused(); }
    void send(TensorView, int, Stream&) override { unused(); }
    void receive(TensorView, int, Stream&) override { unused(); }
    void group_begin(Stream&) override { unused(); }
    void group_end(Stream&) override { unused(); }
    void barrier() override { unused(); }
    std::unique_ptr<Communicator> split(int, int, std::string_view) override { unused(); }
    void abort(const std::string&) override { unused(); }

    int gradient_messages = 0;
    std::int64_t gradient_elements = 0;

  private:
    [[noreturn]] static void unused() { fail(Exit::Internal, "not used by the state of ZeRO 0 to 2"); }
    void gradients(std::int64_t elements, Stream& stream);

    SimDevice& device_;
    int rank_;
    int size_;
    Timed timed_;
};

// `units` units of one matrix each, all of the same size.
std::vector<ParamSpec> equal_units(int units, std::int64_t elements);

}  // namespace trainctl::test
