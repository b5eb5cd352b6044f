#include "cuda_double/device_memory.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace trainctl::cuda_double {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t alignment = 16;  // the least that 16-byte accesses need; CUDA gives 256
constexpr auto poison = std::byte{0xFF};
// Nobody may touch the addresses between allocations, so that also an index that is far off meets nothing
// else.
constexpr std::size_t gap = std::size_t{64} << 20U;
constexpr std::size_t reserved = std::size_t{1} << 40U;

}  // namespace

DeviceMemory::DeviceMemory() {
    void* range = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) throw std::bad_alloc();
    range_ = static_cast<std::byte*>(range);
}

DeviceMemory::~DeviceMemory() { munmap(range_, reserved); }

std::byte* DeviceMemory::allocate(std::size_t bytes, std::size_t limit) {
    if (bytes > limit - used_) return nullptr;
    const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    const std::size_t pages = (rounded + page - 1) / page * page;
    if (next_ + gap + pages + gap > reserved) return nullptr;
    const Block block{range_ + next_ + gap, pages, bytes};
    next_ += gap + pages;
    protect(block, PROT_READ | PROT_WRITE);
    std::memset(block.first, static_cast<int>(poison), pages);
    if (opened_ == 0) protect(block, PROT_NONE);
    std::byte* data = block.first + pages - rounded;
    blocks_.emplace(data, block);
    used_ += bytes;
    return data;
}

bool DeviceMemory::release(const std::byte* data) {
    const auto found = blocks_.find(data);
    if (found == blocks_.end()) return false;
    used_ -= found->second.bytes;
    // The address range stays reserved, so that a pointer that is used too late never meets a newer
    // allocation.
    protect(found->second, PROT_NONE);
    madvise(found->second.first, found->second.pages, MADV_DONTNEED);
    blocks_.erase(found);
    return true;
}

void DeviceMemory::open() {
    if (opened_++ > 0) return;
    for (const auto& [data, block] : blocks_) protect(block, PROT_READ | PROT_WRITE);
}

void DeviceMemory::close() {
    if (--opened_ > 0) return;
    for (const auto& [data, block] : blocks_) protect(block, PROT_NONE);
}

bool DeviceMemory::reserves(const std::byte* data) const {
    return data >= range_ && data < range_ + reserved;
}

bool DeviceMemory::holds(const std::byte* data, std::size_t bytes) const {
    auto next = blocks_.upper_bound(data);
    if (next == blocks_.begin()) return false;
    const auto& [start, block] = *--next;
    return data + bytes <= start + block.bytes;
}

std::string DeviceMemory::overrun() const {
    for (const auto& [data, block] : blocks_) {
        const std::byte* begin = block.first;
        for (const std::byte* byte = begin; byte < begin + block.pages; ++byte) {
            if (byte == data) byte += block.bytes;
            if (byte == begin + block.pages || *byte == poison) continue;
            const bool before = byte < data;
            return "something was written " +
                   std::to_string(before ? data - byte : byte - data - block.bytes) +
                   (before ? " bytes before the start" : " bytes behind the end") + " of an allocation of " +
                   std::to_string(block.bytes) + " bytes";
        }
    }
    return {};
}

void DeviceMemory::protect(const Block& block, int access) { mprotect(block.first, block.pages, access); }

}  // namespace trainctl::cuda_double
