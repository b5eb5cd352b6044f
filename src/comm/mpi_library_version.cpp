#include <mpi.h>

#include "trainctl/comm/world.h"

namespace trainctl {

std::string mpi_library_version() {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    MPI_Get_library_version(text, &length);  // allowed before MPI_Init
    const std::string version(text, static_cast<std::size_t>(length));
    return version.substr(0, version.find_first_of(",\n"));
}

}  // namespace trainctl
