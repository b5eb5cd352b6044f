// This process's MPI library: started once, called by one thread at a time. The only header of the project
// that knows MPI, private to src/comm/mpi_*.cpp.
#pragma once

#include <mpi.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/transport.h"
#include "trainctl/base/error.h"

namespace trainctl {

// Every call happens under `mutex`: by the progress thread, and in the end by whoever aborts.
struct MpiContext {
    std::timed_mutex mutex;
    // Duplicates of MPI_COMM_WORLD, and all splits; freed together before MPI_Finalize, in the order of their
    // creation, which is the same on all ranks that share one.
    std::vector<MPI_Comm> communicators;
    bool running = false;  // between MPI_Init and MPI_Finalize
};

// Exit::Peer naming the call and MPI's own text unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

// Takes a communicator over into the context: errors are returned, not fatal.
MPI_Comm adopt(MpiContext& context, MPI_Comm communicator);

std::unique_ptr<Transport> make_mpi_transport(std::shared_ptr<MpiContext> context, MPI_Comm communicator);

}  // namespace trainctl
