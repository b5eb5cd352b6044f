// Which TCP ports MPI listens on.
#pragma once

#include <optional>
#include <string>

namespace trainctl {

// Lets OpenMPI bind only the TCP ports first to last (IPv4 and IPv6) in this process, by its environment:
// call it before MPI starts and before there is another thread. If the user has chosen ports himself, in the
// environment or on mpirun's command line, nothing is changed and his setting comes back, "NAME=value".
std::optional<std::string> limit_mpi_ports(int first, int last);

}  // namespace trainctl
