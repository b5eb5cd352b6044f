// Pages straight from the kernel: zeroed memory for buffers, and address ranges that nothing may touch.
#pragma once

#include <cstddef>

namespace trainctl {

inline constexpr std::size_t page_bytes = 4096;

// Zero-filled, aligned to page_bytes (large blocks to 2 MiB, with huge pages asked for); nullptr if the
// kernel refuses. Pages are placed at first touch, so each lies near the thread that first uses it.
std::byte* map_zeroed(std::size_t bytes);
// `bytes` as given to map_zeroed.
void unmap(std::byte* data, std::size_t bytes) noexcept;

// A range of addresses without memory behind them: reading or writing one faults.
// Where address space is limited the range is shorter than asked for: see bytes().
class AddressRange {
  public:
    explicit AddressRange(std::size_t bytes);  // Exit::Resource below 1 GiB
    ~AddressRange();
    AddressRange(const AddressRange&) = delete;
    AddressRange& operator=(const AddressRange&) = delete;
    [[nodiscard]] std::byte* begin() const { return begin_; }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }

  private:
    std::byte* begin_ = nullptr;
    std::size_t bytes_ = 0;
};

constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

}  // namespace trainctl
