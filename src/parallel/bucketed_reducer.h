// GradSink of all stages: hands out gradient memory, and sends a bucket as soon as all its units are
// ready.
//
// Who reads and writes what, and which event orders it (the host never waits):
//   producers (any streams)  write full(unit)                          one event per producer, at ready()
//   ready() stream           casts full into its image (BF16 only)     `cast`, after all producers
//   communication stream     reduces full or image into the owned part `sent`, after the producers or the
//   cast producers, next turn     wait for `sent` (or `cast`) of the units that had the slot before compute
//   stream           reads the reduced gradients               finish() waits for the last bucket
#pragma once

#include <memory>
#include <vector>

#include "parallel/gradient_memory.h"
#include "trainctl/comm/communicator.h"
#include "trainctl/model/param_source.h"

namespace trainctl {

class BucketedReducer : public GradSink {
  public:
    BucketedReducer(const ShardPlan& plan, const GradientMemory& memory, Device& device, Ops ops,
                    Communicator& data, Stream& compute, Stream& communication);

    void begin_micro(int part, int index, MicroKind kind) override;
    GradView grads(UnitId unit, Stream& stream) override;
    void ready(UnitId unit, Stream& stream) override;

    // The step's gradients are complete: later work of the compute stream sees them reduced. Exit::Internal
    // if a unit of the last micro-batch of any model part is missing.
    void finish();

  private:
    struct Producer {
        Stream* stream = nullptr;
        std::unique_ptr<Event> written;
        bool active = false;  // asked for this unit in the current micro-batch
    };
    enum class Progress : std::uint8_t { Untouched, Writing, Ready };
    struct Unit {
        Progress progress = Progress::Ready;
        std::vector<Producer> producers;
        Stream* ready_stream = nullptr;
        std::unique_ptr<Event> cast;
        std::unique_ptr<Event> sent;
        std::vector<Range> gaps;
    };
    // Where a model part of the rank stands.
    struct PartState {
        std::size_t next_bucket = 0;
        std::size_t units = 0;
        std::size_t ready_units = 0;
        int micro = 0;
        MicroKind kind = MicroKind::Last;
    };
    // Whose turn a slot is: the group that writes it now, and the units that were there before.
    struct Turn {
        int group = no_group;
        std::vector<std::size_t> before;
    };
    static constexpr int no_group = -1;

    [[nodiscard]] PartState& part_of(std::size_t index);
    [[nodiscard]] bool reduces_now(const PartState& part) const;
    void add_producer(Unit& unit, Stream& stream);
    void take_slot(std::size_t index, Stream& stream);
    void send_ready_buckets(int part);
    void send(const Bucket& bucket);
    void wait_for_producers(const Unit& unit, Stream& stream);
    void make_image(std::size_t index);
    void all_reduce(const Bucket& bucket);
    void reduce_scatter(const BucketPiece& piece);
    void require_complete(int part) const;

    const ShardPlan& plan_;
    const GradientMemory& memory_;
    Device& device_;
    Ops ops_;
    Communicator& data_;
    Stream& compute_;
    Stream& communication_;

    std::vector<Unit> units_;
    std::vector<Turn> slot_turns_;
    std::vector<Turn> image_turns_;
    std::vector<PartState> parts_;
    std::unique_ptr<Event> consumed_;  // the previous step's update has read its gradients
    std::unique_ptr<Event> reduced_;   // the newest bucket has been reduced
};

}  // namespace trainctl
