// Remembers the newest hashes that were put into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <vector>

namespace trainctl::cuda {

class RecentHashes {
  public:
    explicit RecentHashes(std::size_t most) : order_(most) {}

    // Whether it was there already; it is afterwards.
    bool put(std::uint64_t hash) {
        if (!known_.insert(hash).second) return true;
        if (full_) known_.erase(order_[next_]);
        order_[next_] = hash;
        if (++next_ == order_.size()) {
            next_ = 0;
            full_ = true;
        }
        return false;
    }

  private:
    std::unordered_set<std::uint64_t> known_;
    std::vector<std::uint64_t> order_;
    std::size_t next_ = 0;
    bool full_ = false;
};

}  // namespace trainctl::cuda
