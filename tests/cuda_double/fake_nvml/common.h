// Inside the fake library: types and values as the API reference of NVML gives them, written down apart from
// cuda/nvml.h so that a slip there shows.
#pragma once

#include "cuda_double/fake_nvml/state.h"

namespace trainctl::test {

using nvmlReturn_t = int;
using nvmlDevice_t = void*;
using nvmlEventSet_t = void*;

struct nvmlUtilization_t {
    unsigned int gpu;
    unsigned int memory;
};
struct nvmlMemory_t {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
};
struct nvmlEventData_t {
    nvmlDevice_t device;
    unsigned long long eventType;
    unsigned long long eventData;
    unsigned int gpuInstanceId;
    unsigned int computeInstanceId;
};

inline constexpr nvmlReturn_t success = 0;
inline constexpr nvmlReturn_t invalid_argument = 2;
inline constexpr nvmlReturn_t not_supported = 3;
inline constexpr nvmlReturn_t not_found = 6;
inline constexpr nvmlReturn_t timeout = 10;

// What a question `name` about `device` is answered with; `success`: with a value.
nvmlReturn_t answer(const char* name, nvmlDevice_t device);

// What newer and older libraries have under different names.
nvmlReturn_t start();
nvmlReturn_t find_device(const char* bus, nvmlDevice_t* device);
nvmlReturn_t next_event(nvmlEventSet_t set, nvmlEventData_t* event, unsigned int milliseconds);

}  // namespace trainctl::test
