#!/usr/bin/env bash
# Builds every fuzz target and runs each for a while, starting from the corpora in tests/fuzz/corpus. Inputs that make
# one fail are left in build-fuzz/artifacts: add them to the corpus together with the repair.
#
#   scripts/fuzz.sh [SECONDS per target, default 20]
source "$(dirname "$0")/common.sh"
cd "$root"

seconds=${1:-20}
configure fuzz
build fuzz
shopt -s nullglob
targets=(build-fuzz/fuzz/fuzz_*)
[ ${#targets[@]} -gt 0 ] || die "no fuzz target was built"
mkdir -p build-fuzz/artifacts
export seconds

run_one() {
    local name=${1##*/fuzz_}
    local found=build-fuzz/found/$name
    mkdir -p "$found" "tests/fuzz/corpus/$name"
    if "$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
        -artifact_prefix="build-fuzz/artifacts/$name-" "$found" "tests/fuzz/corpus/$name" \
        >"build-fuzz/$name.log" 2>&1; then
        printf 'fuzz %s: %s\n' "$name" "$(grep -o 'stat::number_of_executed_units: .*' "build-fuzz/$name.log")"
    else
        printf 'fuzz %s: FAILED\n' "$name"
        tail -n 40 "build-fuzz/$name.log"
        return 1
    fi
}
export -f run_one
say "fuzzing ${#targets[@]} targets, $seconds s each"
# UBSan and ASan of the system's libraries' leaks are of no interest here.
LSAN_OPTIONS=suppressions=$root/scripts/sanitizers/lsan.supp:print_suppressions=0 \
    xargs -a <(printf '%s\n' "${targets[@]}") -n 1 -P "$(cores)" bash -c 'run_one "$1"' fuzz
