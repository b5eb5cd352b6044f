// Where layers keep what backward needs. The slots are made once, so that a step allocates no host memory.
#pragma once

#include <utility>
#include <vector>

#include "trainctl/base/error.h"

namespace trainctl {

// Claim on one saved state; backward consumes it. Move-only, so that a state cannot be consumed twice.
class SavedRef {
  public:
    SavedRef() = default;
    explicit SavedRef(int slot) : slot_(slot) {}
    SavedRef(SavedRef&& other) noexcept : slot_(std::exchange(other.slot_, empty)) {}
    SavedRef& operator=(SavedRef&& other) noexcept {
        slot_ = std::exchange(other.slot_, empty);
        return *this;
    }
    SavedRef(const SavedRef&) = delete;
    SavedRef& operator=(const SavedRef&) = delete;
    ~SavedRef() = default;
    [[nodiscard]] int slot() const { return slot_; }

  private:
    static constexpr int empty = -1;
    int slot_ = empty;
};

// One slot per micro-batch in flight. T holds views of arena memory; dropping one frees nothing, so a pass
// that ended in an exception leaves only slots behind, which clear() takes back.
template <class T>
class SavedSlots {
  public:
    explicit SavedSlots(int in_flight) : slots_(static_cast<std::size_t>(in_flight)) {}

    SavedRef store(T state) {
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            if (slots_[i].taken) continue;
            slots_[i] = {std::move(state), true};
            return SavedRef(static_cast<int>(i));
        }
        fail(Exit::Internal, "more micro-batches in flight than saved-state slots");
    }
    T consume(SavedRef&& ref) {
        const SavedRef consumed = std::move(ref);
        invariant(consumed.slot() >= 0 && slots_[static_cast<std::size_t>(consumed.slot())].taken,
                  "a saved state was consumed twice");
        Slot& slot = slots_[static_cast<std::size_t>(consumed.slot())];
        slot.taken = false;
        return std::exchange(slot.state, T{});
    }
    void clear() {
        for (Slot& slot : slots_) slot = {};
    }

  private:
    struct Slot {
        T state{};
        bool taken = false;
    };
    std::vector<Slot> slots_;
};

}  // namespace trainctl
