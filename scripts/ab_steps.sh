#!/usr/bin/env bash
# Two ways to train, compared on a machine that other work shares: `trainctl bench step` on 2 ranks runs with A's and
# B's options in turn, 7 pairs, and the median of the ratios of their step times is printed, A / B.
#
#   scripts/ab_steps.sh "A's OPTIONS" "B's OPTIONS" [options of both]
#   scripts/ab_steps.sh "--overlap on" "--overlap off" --preset gpt2-124m
source "$(dirname "$0")/common.sh"

[ $# -ge 2 ] || die "expected the options of A and of B, found $# argument(s); see the head of $0"
trainctl=$root/build/trainctl
[ -x "$trainctl" ] || die "expected the binary at $trainctl; run scripts/smoke.sh first"
read -ra a <<<"$1"
read -ra b <<<"$2"
shift 2
pairs=7
allow_root_for_mpirun

results=$(mktemp)
trap 'rm -f "$results"' EXIT
# measure NAME PAIR OPTIONS...
measure() {
    local name=$1 pair=$2
    shift 2
    printf '%s %s ' "$name" "$pair" >>"$results"
    mpirun -n 2 "$trainctl" bench step --rounds 1 --steps 5 "$@" --json 2>/dev/null >>"$results" ||
        die "$name failed: mpirun -n 2 $trainctl bench step --rounds 1 --steps 5 $* --json"
}
say "$pairs pairs on 2 ranks: A = ${a[*]}, B = ${b[*]}, both = $*"
for ((pair = 1; pair <= pairs; ++pair)); do
    # Whatever comes first may be favoured: they take turns at that too.
    if ((pair % 2)); then
        measure A "$pair" "$@" "${a[@]}"
        measure B "$pair" "$@" "${b[@]}"
    else
        measure B "$pair" "$@" "${b[@]}"
        measure A "$pair" "$@" "${a[@]}"
    fi
done
python3 - "$results" <<'PYTHON'
import json
import statistics
import sys

steps = {"A": {}, "B": {}}
with open(sys.argv[1], encoding="utf-8") as results:
    for line in results:
        name, pair, answer = line.split(" ", 2)
        steps[name][pair] = json.loads(answer)
ratios = []
for pair, a in steps["A"].items():
    b = steps["B"][pair]
    ratios.append(a["step_s"] / b["step_s"])
    print(f"pair {pair}: A {a['step_s']:.3f} s, B {b['step_s']:.3f} s, A / B {ratios[-1]:.3f}")
for name, answers in steps.items():
    median = statistics.median(answer["step_s"] for answer in answers.values())
    exposed = statistics.median(answer["communication_share"] for answer in answers.values())
    print(f"{name}: median step {median:.3f} s, exposed communication {100 * exposed:.1f} %")
print(f"median of A / B: {statistics.median(ratios):.3f} (from {min(ratios):.3f} to {max(ratios):.3f})")
PYTHON
