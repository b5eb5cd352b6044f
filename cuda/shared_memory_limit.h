// Kernels with much dynamic shared memory. Host code.
#pragma once

#include <cstddef>

namespace trainctl::cuda {

// Before a kernel (its entry) is started with more than 48 KiB on the calling thread's device: tells the run
// time, once per kernel and device. Exit::Resource with the kernel's name if the device has less.
void allow_shared_memory(const void* kernel, std::size_t bytes, const char* name);

}  // namespace trainctl::cuda
