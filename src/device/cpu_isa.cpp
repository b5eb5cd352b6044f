#include <cpuid.h>
#include <fmt/core.h>

#include <cstdint>

#include "trainctl/device/cpu_device.h"

namespace trainctl {
namespace {

struct Registers {
    std::uint32_t a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(std::uint32_t leaf, std::uint32_t subleaf) {
    Registers r;
    if (__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d) == 0) return {};
    return r;
}

constexpr bool all(std::uint32_t value, std::uint32_t bits) { return (value & bits) == bits; }
constexpr std::uint32_t bit(unsigned index) { return 1U << index; }

// Register state that the operating system saves (XCR0); 0 without OSXSAVE.
std::uint32_t saved_state() {
    if (!all(cpuid(1, 0).c, bit(27))) return 0;
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

// The feature sets of the x86-64 psABI. Bits by the processor manuals' names.
bool has_v3() {
    const Registers basic = cpuid(1, 0);
    const Registers extended = cpuid(7, 0);
    const Registers amd = cpuid(0x80000001U, 0);
    return all(saved_state(), bit(1) | bit(2)) &&  // XMM, YMM
           all(basic.c, bit(12) | bit(20) | bit(22) | bit(23) | bit(28) |
                            bit(29)) &&                  // FMA SSE4.2 MOVBE POPCNT AVX F16C
           all(extended.b, bit(3) | bit(5) | bit(8)) &&  // BMI1 AVX2 BMI2
           all(amd.c, bit(5));                           // LZCNT
}

bool has_v4() {
    return has_v3() && all(saved_state(), bit(5) | bit(6) | bit(7)) &&           // opmask, ZMM
           all(cpuid(7, 0).b, bit(16) | bit(17) | bit(28) | bit(30) | bit(31));  // AVX512 F DQ CD BW VL
}

bool has_avx512_bf16() { return has_v4() && all(cpuid(7, 1).a, bit(5)); }

}  // namespace

CpuIsa detect_cpu_isa() {
    if (has_avx512_bf16()) return CpuIsa::Avx512Bf16;
    if (has_v4()) return CpuIsa::V4;
    if (has_v3()) return CpuIsa::V3;
    fail(Exit::Resource,
         "this processor lacks x86-64-v3 (AVX2, FMA, F16C, BMI2), the lowest level the cpu device is built "
         "for; "
         "use a machine from about 2013 or later");
}

CpuIsa choose_cpu_isa(const std::string& wanted) {
    const CpuIsa best = detect_cpu_isa();
    if (wanted == "auto") return best;
    for (const CpuIsa isa : {CpuIsa::V3, CpuIsa::V4, CpuIsa::Avx512Bf16}) {
        if (wanted != cpu_isa_name(isa)) continue;
        if (isa <= best) return isa;
        fail(Exit::Resource,
             fmt::format(
                 "device.cpu_isa = \"{}\", but this processor only has {}; set device.cpu_isa to \"{}\" or "
                 "\"auto\"",
                 wanted, cpu_isa_name(best), cpu_isa_name(best)));
    }
    fail(Exit::Usage,
         fmt::format("device.cpu_isa = \"{}\" is unknown; use \"auto\", \"x86-64-v3\", \"x86-64-v4\" or "
                     "\"avx512_bf16\"",
                     wanted));
}

std::string cpu_isa_name(CpuIsa isa) {
    switch (isa) {
        case CpuIsa::V3:
            return "x86-64-v3";
        case CpuIsa::V4:
            return "x86-64-v4";
        case CpuIsa::Avx512Bf16:
            return "avx512_bf16";
    }
    return "unknown";
}

}  // namespace trainctl
