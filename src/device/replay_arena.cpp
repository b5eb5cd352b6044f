#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <exception>
#include <optional>
#include <string>

#include "device/arena_plan.h"
#include "trainctl/device/arena.h"

namespace trainctl {
namespace {

const char* pass_name(int kind) {
    constexpr std::array<const char*, pass_kinds> names{"only micro-batch",  "first micro-batch",
                                                        "inner micro-batch", "last micro-batch",
                                                        "pipeline step",     "evaluation"};
    return names[static_cast<std::size_t>(kind)];
}

class ReplayArena final : public Arena {
  public:
    ReplayArena(Device& device, ArenaPlan plan)
        : plan_(std::move(plan)), buffer_(device.allocate(plan_.peak_bytes, Memory::Device, "activations")) {
        std::size_t most = 0;
        for (const auto& pass : plan_.passes) most = std::max(most, pass.size());
        live_.reserve(most);
    }

    void begin(PassKind kind) override {
        invariant(kind_ < 0 || broken_, "arena: begin() inside a pass");
        kind_ = static_cast<int>(kind);
        broken_ = false;
        difference_.reset();
        live_.clear();
        next_slot_ = 0;
        sequence_ = 0;
    }

    void end() override {
        invariant(kind_ >= 0, "arena: end() without begin()");
        throw_difference();
        if (next_slot_ != slots().size() || !live_.empty()) {
            differ(fmt::format("the pass ended after {} of {} tensors with {} not released", next_slot_,
                               slots().size(), live_.size()));
            throw_difference();
        }
        kind_ = -1;
    }

    std::byte* allocate(std::size_t bytes) override {
        invariant(kind_ >= 0, "arena: allocate() outside a pass");
        if (next_slot_ == slots().size()) {
            differ(fmt::format("{} bytes are asked for after the last planned tensor", bytes));
        } else if (slots()[next_slot_].bytes != bytes) {
            differ(fmt::format("{} bytes are asked for, {} were planned", bytes, slots()[next_slot_].bytes));
        } else if (slots()[next_slot_].born != sequence_) {
            differ(fmt::format("the tensor of {} bytes was planned at sequence number {}", bytes,
                               slots()[next_slot_].born));
        }
        throw_difference();
        live_.push_back(next_slot_);
        ++sequence_;
        return buffer_.data() + slots()[next_slot_++].offset;
    }

    // Called by destructors: a difference is kept and thrown by the next allocate() or end().
    void release(std::byte* data) override {
        if (std::uncaught_exceptions() > 0) {
            broken_ = true;
            return;
        }
        const auto found = std::find_if(live_.begin(), live_.end(), [&](std::size_t index) {
            return buffer_.data() + slots()[index].offset == data;
        });
        if (found == live_.end()) {
            differ("an address that is not allocated is released");
            return;
        }
        if (slots()[*found].dies != sequence_) {
            differ(fmt::format("the tensor born at {} is released, which was planned at {}",
                               slots()[*found].born, slots()[*found].dies));
        }
        ++sequence_;
        *found = live_.back();
        live_.pop_back();
    }

  private:
    [[nodiscard]] const std::vector<ArenaSlot>& slots() const {
        return plan_.passes[static_cast<std::size_t>(kind_)];
    }

    void differ(const std::string& how) {
        if (difference_) return;
        difference_ = fmt::format("arena: the pass '{}' differs from its recording at sequence number {}: {}",
                                  pass_name(kind_), sequence_, how);
    }
    void throw_difference() {
        if (!difference_) return;
        broken_ = true;
        fail(Exit::Internal, *difference_);
    }

    ArenaPlan plan_;
    Buffer buffer_;
    int kind_ = -1;
    bool broken_ = false;  // an exception left the pass; begin() starts anew
    std::optional<std::string> difference_;
    std::vector<std::size_t> live_;  // indices of slots; few at any time
    std::size_t next_slot_ = 0;
    std::int64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<Arena> make_replay_arena(Device& device, ArenaPlan plan) {
    return std::make_unique<ReplayArena>(device, std::move(plan));
}

}  // namespace trainctl
