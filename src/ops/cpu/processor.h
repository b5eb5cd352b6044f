// What every x86 level does alike beside its vectors. Internal to the including source (see loops.h).
#pragma once

#include <immintrin.h>

namespace trainctl::cpu {
namespace {  // NOLINT

// While it lives, its thread reads and writes subnormals as 0: each would cost some hundred cycles.
class FlushSubnormals {
  public:
    FlushSubnormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040U); }
    ~FlushSubnormals() { _mm_setcsr(before_); }
    FlushSubnormals(const FlushSubnormals&) = delete;
    FlushSubnormals& operator=(const FlushSubnormals&) = delete;

  private:
    unsigned before_;
};

// A hint that the line of `p` is wanted soon; any address is allowed.
inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

// After simd::stream and before another thread reads what it wrote.
inline void fence_streams() { _mm_sfence(); }

}  // namespace
}  // namespace trainctl::cpu
