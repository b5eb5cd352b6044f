// An arena for tests: every tensor is an allocation of its own, filled with NaN when it is handed out and
// again when it is released, so that reading unwritten or dead memory shows. Counts live bytes independently
// of any plan.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "trainctl/device/arena.h"

namespace trainctl {

class PoisonArena final : public Arena {
  public:
    void begin(PassKind /*kind*/) override {}
    void end() override { invariant(live_.empty(), "poison arena: a tensor was not released"); }
    std::byte* allocate(std::size_t bytes) override {
        const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
        std::vector<Line> memory(rounded / alignment);
        auto* data = reinterpret_cast<std::byte*>(memory.data());
        std::memset(data, 0xFF, rounded);
        live_bytes_ += rounded;
        peak_bytes_ = std::max(peak_bytes_, live_bytes_);
        live_.emplace(data, std::move(memory));
        return data;
    }
    void release(std::byte* data) override {
        const auto found = live_.find(data);
        if (found == live_.end()) {
            strays_ = true;
            return;
        }
        const std::size_t rounded = found->second.size() * alignment;
        std::memset(data, 0xFF, rounded);
        live_bytes_ -= rounded;
        live_.erase(found);
    }
    [[nodiscard]] std::size_t peak_bytes() const { return peak_bytes_; }
    [[nodiscard]] std::size_t live_bytes() const { return live_bytes_; }
    // Something was released that is not allocated.
    [[nodiscard]] bool strays() const { return strays_; }

  private:
    struct alignas(alignment) Line {
        std::byte bytes[alignment];
    };
    std::map<std::byte*, std::vector<Line>> live_;
    std::size_t live_bytes_ = 0;
    std::size_t peak_bytes_ = 0;
    bool strays_ = false;
};

}  // namespace trainctl
