# Sourced by the other scripts: messages, build settings, how to start ranks.
# shellcheck shell=bash

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export root

say() { printf '== %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

cores() { nproc; }

# configure PRESET [cmake options]: uses ccache where it is installed, with paths relative to the tree, so that a clone
# elsewhere shares the cache, and with what ccache asks for before it accepts precompiled headers.
configure() {
    local preset=$1
    shift
    local options=("$@")
    if command -v ccache >/dev/null; then
        local settings="CCACHE_BASEDIR=$root;CCACHE_NOHASHDIR=1;CCACHE_SLOPPINESS=pch_defines,time_macros"
        options+=("-DCMAKE_CXX_COMPILER_LAUNCHER=env;$settings;ccache")
    fi
    say "configuring ($preset)"
    (cd "$root" && cmake --preset "$preset" "${options[@]}" >&2)
}

# build PRESET [targets]
build() {
    local preset=$1
    shift
    local targets=()
    if [ $# -gt 0 ]; then targets=(--target "$@"); fi
    say "building ($preset${*:+: $*})"
    (cd "$root" && cmake --build --preset "$preset" --parallel "$(cores)" "${targets[@]}" >&2)
}

# OpenMPI refuses to start as root unless it is told twice. In a container root is the only user there is, so the
# scripts (never the program) allow it, and say so.
allow_root_for_mpirun() {
    if [ "$(id -u)" -eq 0 ]; then
        say "running as root: setting OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 for mpirun"
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    fi
}

# start_ranks N COMMAND...: mpirun, with --oversubscribe where there are fewer cores than ranks.
start_ranks() {
    local ranks=$1
    shift
    local options=(-n "$ranks")
    if [ "$ranks" -gt "$(cores)" ]; then options+=(--oversubscribe); fi
    say "mpirun ${options[*]} $*"
    mpirun "${options[@]}" "$@"
}
