#!/usr/bin/env bash
# From a bare Debian 12 to a trained model: installs what is missing, builds, and trains the built-in 100-step job on
# 2 MPI ranks. Options are passed on to `trainctl smoke` (for example --json).
#
#   scripts/smoke.sh [--ranks N] [options of trainctl smoke]
source "$(dirname "$0")/common.sh"

ranks=2
if [ "${1-}" = --ranks ]; then
    ranks=${2:?--ranks needs a number}
    shift 2
fi

"$root/scripts/install_deps.sh"
configure release
build release trainctl
allow_root_for_mpirun
start_ranks "$ranks" "$root/build/trainctl" smoke "$@"
