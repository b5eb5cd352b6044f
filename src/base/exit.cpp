#include "trainctl/base/exit.h"

namespace trainctl {

std::string_view exit_name(Exit code) {
    switch (code) {
        case Exit::Ok:
            return "ok";
        case Exit::Internal:
            return "internal";
        case Exit::Usage:
            return "usage";
        case Exit::Interrupted:
            return "interrupted";
        case Exit::BadInput:
            return "bad_input";
        case Exit::Resource:
            return "resource";
        case Exit::Peer:
            return "peer";
        case Exit::Diverged:
            return "diverged";
        case Exit::Fenced:
            return "fenced";
    }
    return "internal";  // a value that no enumerator has can only be a defect
}

}  // namespace trainctl
