#include "support/catch.h"
#include "trainctl/device/cpu_device.h"

using namespace trainctl;

TEST_CASE("the level asked for is honoured or refused") {
    const CpuIsa best = detect_cpu_isa();
    CHECK(choose_cpu_isa("auto") == best);
    for (const CpuIsa isa : {CpuIsa::V3, CpuIsa::V4, CpuIsa::Avx512Bf16}) {
        const std::string name = cpu_isa_name(isa);
        INFO(name);
        if (isa <= best) {
            CHECK(choose_cpu_isa(name) == isa);
        } else {
            CHECK_THROWS_WITH(choose_cpu_isa(name), Catch::Contains(cpu_isa_name(best)));
        }
    }
    CHECK_THROWS_WITH(choose_cpu_isa("avx2"), Catch::Contains("x86-64-v3"));
}

TEST_CASE("the detected level agrees with the compiler's own detection") {
    __builtin_cpu_init();
    const CpuIsa best = detect_cpu_isa();
    CHECK((best >= CpuIsa::V3) ==
          (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0));
    CHECK((best >= CpuIsa::V4) ==
          (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0));
    CHECK((best >= CpuIsa::Avx512Bf16) == (__builtin_cpu_supports("avx512bf16") != 0));
}
