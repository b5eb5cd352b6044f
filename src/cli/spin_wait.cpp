#include "cli/spin_wait.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace trainctl {

void restart_with_short_spin(const std::vector<std::string>& arguments) {
    // NOLINTBEGIN(concurrency-mt-unsafe): no other thread exists yet
    if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
    std::string program(PATH_MAX, '\0');
    const ssize_t length = readlink("/proc/self/exe", program.data(), program.size());
    if (length <= 0 || length >= static_cast<ssize_t>(program.size())) return;
    program.resize(static_cast<std::size_t>(length));
    setenv("GOMP_SPINCOUNT", "300", 1);
    // NOLINTEND(concurrency-mt-unsafe)
    std::vector<char*> argv;
    std::vector<std::string> copies = arguments;
    argv.reserve(copies.size() + 1);
    for (std::string& argument : copies) argv.push_back(argument.data());
    argv.push_back(nullptr);
    execv(program.c_str(), argv.data());
    // Could not: training goes on with the library's own setting.
}

}  // namespace trainctl
