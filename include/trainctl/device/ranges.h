// Named, nested spans of what the host does for a step: for the times of its phases, for traces, and for the
// tools that come with a device.
#pragma once

#include <cstdint>
#include <string>

namespace trainctl {

enum class RangeKind : std::uint8_t {
    Step,
    Data,  // fetching a batch
    Forward,
    Backward,
    Optimizer,
    Evaluation,
    Checkpoint,
    Embedding,  // this and the next two lie within a phase
    Block,
    Head,
    CommunicationWait,  // a compute stream behind what another stream carries
};

struct RangeLabel {
    RangeKind kind = RangeKind::Step;
    std::int64_t number = 0;  // of the step or block, from 1; 0: none

    bool operator==(const RangeLabel& other) const = default;
};

const char* range_kind_name(RangeKind kind);
// "backward", "block 3"
std::string range_name(const RangeLabel& label);

// Whoever wants to know. Ranges nest; each push has its pop. Thread rule: the rank's compute thread.
class Ranges {
  public:
    virtual ~Ranges() = default;
    virtual void push(const RangeLabel& label) = 0;
    virtual void pop() noexcept = 0;
    // Between these lies what the user wants to look at; tools that record from outside may be told.
    virtual void begin_capture() {}
    virtual void end_capture() {}
};

// One range as long as the scope. No `ranges` (nullptr): nobody wants to know.
class RangeScope {
  public:
    RangeScope(Ranges* ranges, RangeKind kind, std::int64_t number = 0) : ranges_(ranges) {
        if (ranges_ != nullptr) ranges_->push({kind, number});
    }
    ~RangeScope() {
        if (ranges_ != nullptr) ranges_->pop();
    }
    RangeScope(const RangeScope&) = delete;
    RangeScope& operator=(const RangeScope&) = delete;

  private:
    Ranges* ranges_;
};

}  // namespace trainctl
