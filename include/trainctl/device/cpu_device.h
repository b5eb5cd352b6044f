// The cpu device: real memory, an inline compute stream, communication streams advanced by one progress
// thread.
#pragma once

#include <memory>
#include <string>

#include "trainctl/device/device.h"

namespace trainctl {

enum class CpuIsa { V3, V4, Avx512Bf16 };  // x86-64-v3 (AVX2, FMA), x86-64-v4 (AVX-512), v4 + AVX512_BF16

// Highest level of this machine; Exit::Resource below x86-64-v3.
CpuIsa detect_cpu_isa();
// "auto", "x86-64-v3", "x86-64-v4", "avx512_bf16"; Exit::Resource if this machine lacks the one asked for.
CpuIsa choose_cpu_isa(const std::string& wanted);
std::string cpu_isa_name(CpuIsa isa);

struct CpuDeviceOptions {
    int threads = 1;  // compute threads of this rank (OpenMP num_threads of every region, and oneDNN's)
    CpuIsa isa = CpuIsa::V3;
};

// Also starts the progress thread (which never opens an OpenMP region). Several devices may live in one
// process, one per rank thread.
class CpuDevice : public Device {
  public:
    [[nodiscard]] virtual int threads() const = 0;
    [[nodiscard]] virtual CpuIsa isa() const = 0;
    // Fails every pending and later operation with `error`; waits on the host rethrow it. Any thread.
    virtual void abort(const Error& error) = 0;
};

std::unique_ptr<CpuDevice> make_cpu_device(const CpuDeviceOptions& options);

}  // namespace trainctl
