#!/usr/bin/env bash
# Installs what is missing, builds (Release) and runs the test suite. The last line says what passed, failed and was
# skipped. Options are passed on to ctest (for example -R checkpoint).
#
#   scripts/test.sh [options of ctest]
source "$(dirname "$0")/common.sh"

"$root/scripts/install_deps.sh"
configure release -DBUILD_TESTING=ON
build release
allow_root_for_mpirun

report=$root/build/tests.xml
rm -f "$report"
say "running the tests"
status=0
(cd "$root" && ctest --preset release --output-junit "$report" --test-output-size-passed 65536 "$@") || status=$?
[ -f "$report" ] || die "ctest wrote no report; it exited with $status"
campaign=$(ctest --test-dir "$root/build" -N -L '^campaign$' | sed -n 's/^Total Tests: //p')
"$root/scripts/test_summary.py" "$report" "${campaign:-0}" || status=1
exit "$status"
