// The activation arena. A dry pass on the sim device records every allocation with its lifetime; offsets are
// planned by best fit; real passes replay the plan by sequence number and fail on any difference. So the
// steady state makes no allocation, and the planned peak is the real one to the byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "trainctl/device/device.h"

namespace trainctl {

// What one pass is: a micro-batch through the model, or all micro-batches of a step through one stage of a
// pipeline, which has several of them in flight. Every kind has a recording of its own.
enum class PassKind : std::uint8_t {
    OnlyMicro,
    FirstMicro,
    InnerMicro,
    LastMicro,
    PipelineStep,
    Evaluation,
};
inline constexpr int pass_kinds = 6;

// Thread rule: the rank's compute thread only.
class Arena {
  public:
    static constexpr std::size_t alignment = 256;

    virtual ~Arena() = default;
    virtual void begin(PassKind kind) = 0;
    // Every allocation of the pass must have been released.
    virtual void end() = 0;
    virtual std::byte* allocate(std::size_t bytes) = 0;
    virtual void release(std::byte* data) = 0;

    // A tensor in the arena; release(view.data) ends it.
    TensorView tensor(const Shape& shape, DType dtype) {
        TensorView view{nullptr, shape, dtype};
        view.data = allocate(view.bytes());
        return view;
    }
};

// A tensor (or scratch bytes) released at the end of the scope.
class ArenaScope {
  public:
    ArenaScope(Arena& arena, const Shape& shape, DType dtype)
        : arena_(arena), view_(arena.tensor(shape, dtype)) {}
    ArenaScope(Arena& arena, std::size_t scratch_bytes)
        : ArenaScope(arena, Shape{static_cast<std::int64_t>(scratch_bytes)}, DType::U8) {}
    ~ArenaScope() { arena_.release(view_.data); }
    ArenaScope(const ArenaScope&) = delete;
    ArenaScope& operator=(const ArenaScope&) = delete;
    [[nodiscard]] TensorView view() const { return view_; }

  private:
    Arena& arena_;
    TensorView view_;
};

struct ArenaSlot {
    std::size_t offset = 0;  // planned place, bytes
    std::size_t bytes = 0;   // as asked for
    std::int64_t born = 0;   // sequence numbers of allocate and release within the pass
    std::int64_t dies = 0;
};

struct ArenaPlan {
    std::array<std::vector<ArenaSlot>, pass_kinds>
        passes;                  // in order of allocation; empty: that kind was never recorded
    std::size_t peak_bytes = 0;  // size of the one buffer that serves every kind
};

// Hands out addresses inside a PROT_NONE reservation (touching them faults), released ones again, and records
// lifetimes.
class RecordingArena : public Arena {
  public:
    // Best-fit offsets for everything recorded so far. The recording may go on afterwards.
    [[nodiscard]] virtual ArenaPlan plan() const = 0;
};
std::unique_ptr<RecordingArena> make_recording_arena();

// Replays `plan` inside one Buffer of plan.peak_bytes allocated from `device` ("activations"). A pass that
// asks for other sizes, another order or another number of tensors is Exit::Internal, naming the sequence
// number.
std::unique_ptr<Arena> make_replay_arena(Device& device, ArenaPlan plan);

}  // namespace trainctl
