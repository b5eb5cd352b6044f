// Memory of one emulated device: closed to everybody except while work of the device runs.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace trainctl::cuda_double {

// Thread rule: the caller locks.
class DeviceMemory {
  public:
    DeviceMemory();
    ~DeviceMemory();
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    // Filled with 0xFF. nullptr if `bytes` more than `limit` would be in use.
    std::byte* allocate(std::size_t bytes, std::size_t limit);
    // False if `data` is not the start of an allocation. The addresses are never given again.
    bool release(const std::byte* data);

    void open();  // counted
    void close();
    // Whether the address is this device's, allocated or not.
    [[nodiscard]] bool reserves(const std::byte* data) const;
    // Whether the bytes lie in one allocation.
    [[nodiscard]] bool holds(const std::byte* data, std::size_t bytes) const;
    [[nodiscard]] std::size_t used() const { return used_; }
    // Text about bytes beside an allocation that have changed; empty if none have.
    [[nodiscard]] std::string overrun() const;

  private:
    struct Block {
        std::byte* first;
        std::size_t pages;  // bytes from there that may be accessed: whole pages
        std::size_t bytes;
    };
    static void protect(const Block& block, int access);

    std::byte* range_ = nullptr;  // where all allocations are
    std::size_t next_ = 0;        // in it
    std::map<const std::byte*, Block> blocks_;
    std::size_t used_ = 0;
    int opened_ = 0;
};

}  // namespace trainctl::cuda_double
