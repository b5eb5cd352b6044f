#include "cuda/cuda_bench.h"

namespace trainctl::cuda_test {

void start_cuda_machine(std::uint64_t /*seed*/) {}

}  // namespace trainctl::cuda_test
