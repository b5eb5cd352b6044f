#include "trainctl/comm/mpi_ports.h"

#include <array>
#include <cstdlib>

namespace trainctl {
namespace {

// mpirun hands its --mca options to the ranks under the same names.
constexpr std::array lowest_port = {"OMPI_MCA_btl_tcp_port_min_v4", "OMPI_MCA_btl_tcp_port_min_v6"};
constexpr std::array port_count = {"OMPI_MCA_btl_tcp_port_range_v4", "OMPI_MCA_btl_tcp_port_range_v6"};

}  // namespace

// NOLINTBEGIN(concurrency-mt-unsafe): no other thread exists yet
std::optional<std::string> limit_mpi_ports(int first, int last) {
    for (const auto& names : {lowest_port, port_count}) {
        for (const char* name : names) {
            if (const char* chosen = std::getenv(name)) return std::string(name) + "=" + chosen;
        }
    }
    for (const char* name : lowest_port) setenv(name, std::to_string(first).c_str(), 1);
    for (const char* name : port_count) setenv(name, std::to_string(last - first + 1).c_str(), 1);
    return std::nullopt;
}
// NOLINTEND(concurrency-mt-unsafe)

}  // namespace trainctl
