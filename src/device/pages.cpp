#include "device/pages.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <system_error>

#include "trainctl/base/error.h"

namespace trainctl {
namespace {

constexpr std::size_t huge_page_bytes = std::size_t{2} << 20U;

std::size_t mapped_bytes(std::size_t bytes) { return round_up(std::max<std::size_t>(bytes, 1), page_bytes); }

std::byte* map(std::size_t bytes, int protection, int extra_flags) {
    void* data = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | extra_flags, -1, 0);
    return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

}  // namespace

std::byte* map_zeroed(std::size_t bytes) {
    const std::size_t length = mapped_bytes(bytes);
    if (length < bytes) return nullptr;  // overflow
    if (length < 2 * huge_page_bytes) return map(length, PROT_READ | PROT_WRITE, 0);

    // Older kernels do not align large mappings, and huge pages need it: map more, and give back both ends.
    std::byte* data = map(length + huge_page_bytes, PROT_READ | PROT_WRITE, 0);
    if (data == nullptr) return nullptr;
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    const std::size_t front = round_up(address, huge_page_bytes) - address;
    if (front > 0) munmap(data, front);
    if (front < huge_page_bytes) munmap(data + front + length, huge_page_bytes - front);
    madvise(data + front, length, MADV_HUGEPAGE);  // only a wish
    return data + front;
}

void unmap(std::byte* data, std::size_t bytes) noexcept {
    if (data != nullptr) munmap(data, mapped_bytes(bytes));
}

AddressRange::AddressRange(std::size_t bytes) : bytes_(round_up(bytes, page_bytes)) {
    constexpr std::size_t least = std::size_t{1} << 30U;
    while ((begin_ = map(bytes_, PROT_NONE, MAP_NORESERVE)) == nullptr) {
        if (bytes_ < 2 * least) {
            fail(Exit::Resource,
                 fmt::format("cannot reserve {} bytes of address space (no memory is used): {}; raise "
                             "or remove the address space limit (ulimit -v)",
                             bytes_, std::generic_category().message(errno)));
        }
        bytes_ = round_up(bytes_ / 2, page_bytes);
    }
}

AddressRange::~AddressRange() { munmap(begin_, bytes_); }

}  // namespace trainctl
