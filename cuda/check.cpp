#include "cuda/check.h"

#include <fmt/core.h>

namespace trainctl::cuda {
namespace {

bool context_is_lost(cudaError_t code) {
    switch (code) {
        case cudaErrorIllegalAddress:
        case cudaErrorLaunchFailure:
        case cudaErrorHardwareStackError:
        case cudaErrorIllegalInstruction:
        case cudaErrorMisalignedAddress:
        case cudaErrorInvalidAddressSpace:
        case cudaErrorInvalidPc:
        case cudaErrorAssert:
        case cudaErrorECCUncorrectable:
            return true;
        default:
            return false;
    }
}

}  // namespace

void check(cudaError_t code, const char* what, Where where) {
    if (code == cudaSuccess) return;
    int device = -1;
    static_cast<void>(cudaGetDevice(&device));
    static_cast<void>(cudaGetLastError());  // else the next call would answer for this one
    const char* next = "";
    if (code == cudaErrorMemoryAllocation) {
        next =
            "; lower training.micro_batch_size, raise memory.zero_stage or set memory.gradient_checkpointing";
    } else if (context_is_lost(code)) {
        next =
            "; the device's state is lost: start again from the newest checkpoint, and check the GPU "
            "(`nvidia-smi -q`, Xid lines of the kernel log) if it happens again";
    }
    fail(Exit::Resource,
         fmt::format("{} on CUDA device {} failed with {} ({}){}", what, device, cudaGetErrorName(code),
                     cudaGetErrorString(code), next),
         where);
}

}  // namespace trainctl::cuda
