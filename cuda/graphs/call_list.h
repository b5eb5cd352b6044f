// Calls to be made later, in their order. They lie one behind the other in memory that is kept, so that
// adding one allocates nothing once the list has been as long before.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

namespace trainctl::cuda {

class CallList {
  public:
    // What `call` refers to stays until the call has been made.
    template <class Call>
    void add(const Call& call) {
        static_assert(std::is_trivially_copyable_v<Call>, "calls move when the list grows");
        static_assert(alignof(Call) <= alignment);
        const std::size_t begin = (memory_.size() + alignment - 1) / alignment * alignment;
        memory_.resize(begin + sizeof(Call));
        std::memcpy(memory_.data() + begin, &call, sizeof(Call));
        entries_.push_back({begin, [](const std::byte* at) { (*reinterpret_cast<const Call*>(at))(); }});
    }
    // Throws what a call throws; the calls behind it are not made then.
    void make_all() const {
        for (const Entry& entry : entries_) entry.make(memory_.data() + entry.begin);
    }
    [[nodiscard]] std::size_t size() const { return entries_.size(); }
    void clear() {
        memory_.clear();
        entries_.clear();
    }

  private:
    static constexpr std::size_t alignment =
        alignof(std::max_align_t);  // of what a vector of bytes allocates
    struct Entry {
        std::size_t begin = 0;
        void (*make)(const std::byte* at) = nullptr;
    };

    std::vector<std::byte> memory_;
    std::vector<Entry> entries_;
};

}  // namespace trainctl::cuda
