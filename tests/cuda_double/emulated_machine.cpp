#include "cuda/cuda_bench.h"
#include "cuda_double/machine.h"

namespace trainctl::cuda_test {

void start_cuda_machine(std::uint64_t seed) { cuda_double::start_machine({.devices = 8, .seed = seed}); }

}  // namespace trainctl::cuda_test
