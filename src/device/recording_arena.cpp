#include <fmt/core.h>

#include <exception>
#include <map>
#include <utility>

#include "device/arena_plan.h"
#include "device/pages.h"
#include "trainctl/device/arena.h"

namespace trainctl {
namespace {

// Address space, not memory: more than what can ever be alive at once.
constexpr std::size_t arena_reservation_bytes = std::size_t{4} << 40U;

class RecordingArenaImpl final : public RecordingArena {
  public:
    void begin(PassKind kind) override {
        invariant(current_ < 0 || std::exchange(broken_, false), "arena: begin() inside a pass");
        current_ = static_cast<int>(kind);
        slots_.clear();
        live_.clear();
        free_.clear();
        next_ = range_.begin();
        sequence_ = 0;
    }

    void end() override {
        invariant(current_ >= 0, "arena: end() without begin()");
        if (!live_.empty()) {
            const ArenaSlot& slot = slots_[live_.begin()->second];
            fail(Exit::Internal,
                 fmt::format("arena: {} tensors were not released by the end of the pass, the first being "
                             "allocation with sequence number {} ({} bytes)",
                             live_.size(), slot.born, slot.bytes));
        }
        passes_[static_cast<std::size_t>(current_)] = slots_;
        current_ = -1;
    }

    std::byte* allocate(std::size_t bytes) override {
        invariant(current_ >= 0, "arena: allocate() outside a pass");
        const std::size_t step = arena_slot_bytes(bytes);
        std::vector<std::byte*>& free = free_[step];
        if (!free.empty()) {
            // A pass may ask for far more in all than it has at once: a pipeline's covers a whole step.
            std::byte* data = free.back();
            free.pop_back();
            return born(data, bytes);
        }
        if (step < bytes || step > range_.bytes() - static_cast<std::size_t>(next_ - range_.begin())) {
            fail(Exit::Resource,
                 fmt::format("the activations of one pass need more than {} bytes of address space; "
                             "use a smaller micro-batch or sequence length",
                             range_.bytes()));
        }
        std::byte* data = next_;
        next_ += step;
        return born(data, bytes);
    }

    void release(std::byte* data) override {
        const auto found = live_.find(data);
        if (std::uncaught_exceptions() >
            0) {  // a scope left by an exception; throwing here would end the process
            broken_ = true;
            return;
        }
        invariant(found != live_.end(), "arena: release() of an address that is not allocated");
        slots_[found->second].dies = sequence_++;
        free_[arena_slot_bytes(slots_[found->second].bytes)].push_back(data);
        live_.erase(found);
    }

    [[nodiscard]] ArenaPlan plan() const override {
        ArenaPlan plan;
        for (std::size_t kind = 0; kind < passes_.size(); ++kind) {
            plan.passes[kind] = passes_[kind];
            plan.peak_bytes = std::max(plan.peak_bytes, plan_offsets(plan.passes[kind]));
        }
        return plan;
    }

  private:
    std::byte* born(std::byte* data, std::size_t bytes) {
        live_.emplace(data, slots_.size());
        slots_.push_back({0, bytes, sequence_++, -1});
        return data;
    }

    AddressRange range_{arena_reservation_bytes};
    std::array<std::vector<ArenaSlot>, pass_kinds> passes_;
    int current_ = -1;
    bool broken_ = false;
    std::vector<ArenaSlot> slots_;
    std::map<const std::byte*, std::size_t> live_;         // address -> index in slots_
    std::map<std::size_t, std::vector<std::byte*>> free_;  // released addresses by size
    std::byte* next_ = nullptr;
    std::int64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<RecordingArena> make_recording_arena() { return std::make_unique<RecordingArenaImpl>(); }

}  // namespace trainctl
