#!/usr/bin/env bash
# Installs what building and testing need. Quick when everything is there; safe to repeat.
#
#   scripts/install_deps.sh            to build, run and test
#   scripts/install_deps.sh --checks   also what .ci/run needs: linters, sanitizer and fuzzing tools, debootstrap
#
# Debian 12 only. Elsewhere it lists the packages and versions and exits 2.
source "$(dirname "$0")/common.sh"

# Debian package, and the least version of the project behind it (for other systems).
packages=(
    "g++ GCC >= 12 (C++20)"
    "cmake CMake >= 3.25"
    "ninja-build Ninja >= 1.10"
    "pkg-config pkg-config"
    "git git (records the revision; used by the tests)"
    "libopenmpi-dev Open MPI >= 4.1 (headers)"
    "openmpi-bin Open MPI >= 4.1 (mpirun)"
    "libdnnl-dev oneDNN >= 2.6, < 3"
    "libhwloc-dev hwloc >= 2.9"
    "libfmt-dev fmt >= 9.1"
    "libcli11-dev CLI11 >= 2.1"
    "nlohmann-json3-dev nlohmann-json >= 3.11"
    "libtomlplusplus-dev toml++ >= 3.3, < 3.5 (shared library)"
    "libsimdjson-dev simdjson >= 3.0"
    "libssl-dev OpenSSL >= 3.0"
    "libcurl4-openssl-dev libcurl >= 7.86 (OpenSSL flavour)"
    "zlib1g-dev zlib >= 1.2.13"
    "libzstd-dev zstd >= 1.5"
    "libisal-dev ISA-L >= 2.30"
    "libxxhash-dev xxHash >= 0.8"
    "catch2 Catch2 2.13 (version 2)"
    "libboost-context-dev Boost.Context >= 1.74 (tests of the CUDA sources, where the CUDA toolkit is there)"
    "python3 Python >= 3.9 (test scripts; not used at run time)"
)
checks=(
    "clang-14 Clang 14 (fuzz targets)"
    "libclang-rt-14-dev Clang 14 run-time libraries"
    "libomp-14-dev LLVM OpenMP 14"
    "clang-tidy-14 clang-tidy 14"
    "clang-format-14 clang-format 14"
    "debootstrap debootstrap"
    "ccache ccache >= 4 (optional)"
)

case "${1-}" in
    "") ;;
    --checks) packages+=("${checks[@]}") ;;
    *) printf 'usage: install_deps.sh [--checks]\n' >&2; exit 2 ;;
esac

system=$(. /etc/os-release 2>/dev/null && printf '%s %s' "${ID-unknown}" "${VERSION_ID-}") || system=unknown
if [ "$system" != "debian 12" ]; then
    {
        printf 'expected Debian 12, found "%s". Install these by hand, then configure with\n' "$system"
        printf '    cmake --preset release && cmake --build --preset release\n\n'
        printf '%-22s  %s\n' "Debian 12 package" "what it is"
        for entry in "${packages[@]}"; do printf '%-22s  %s\n' "${entry%% *}" "${entry#* }"; done
    } >&2
    exit 2
fi

missing=()
for entry in "${packages[@]}"; do
    name=${entry%% *}
    # "g++" has no architecture ambiguity; others may be installed for several.
    if ! dpkg-query -W -f='${db:Status-Status}\n' "$name" 2>/dev/null | grep -qx installed; then missing+=("$name"); fi
done
if [ ${#missing[@]} -eq 0 ]; then
    say "all ${#packages[@]} packages are installed"
    exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "not root and no sudo: as root, run apt-get install ${missing[*]}"
    as_root=(sudo)
fi
say "installing ${#missing[@]} packages: ${missing[*]}"
"${as_root[@]}" apt-get update -qq >&2
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 "${missing[@]}" >&2
