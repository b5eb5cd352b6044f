// How long idle compute threads spin before they sleep.
#pragma once

#include <string>
#include <vector>

namespace trainctl {

// libgomp lets threads spin for milliseconds at every barrier, which is ruinous as soon as a core is shared
// with anything else (measured: a small job 20 times slower), and it reads its settings only when it is
// loaded. So unless the user chose (GOMP_SPINCOUNT or OMP_WAIT_POLICY), this sets a spin of some microseconds
// and starts the program once more, with the same process id and arguments. Returns at once the second time.
// Call it before any thread or file is opened.
void restart_with_short_spin(const std::vector<std::string>& arguments);

}  // namespace trainctl
