#!/bin/sh
# Runs nvcc and keeps what ptxas says of each kernel (registers, spills, stack) beside the object, where
# scripts/check_kernels.py reads it; everything else is passed on.
#
#   keep_ptxas_report.sh nvcc ... -o OBJECT
object=
previous=
for argument in "$@"; do
    [ "$previous" = -o ] && object=$argument
    previous=$argument
done
report=$object.ptxas
errors=$object.stderr
"$@" 2>"$errors"
status=$?
grep -E '^ptxas info|bytes stack frame' "$errors" >"$report"
grep -vE '^ptxas info|bytes stack frame' "$errors" >&2
rm -f "$errors"
exit "$status"
