#!/usr/bin/env bash
# The fault injection of the checkpoint room in full counts. The default test command runs a part of it.
#
#   scripts/fault_campaign.sh [CLASS...]      (default: all)
#
#   C1   crash states of lease, journal, saves, retention and copies
#   C2   kill -9 of one rank or all at named points of save, commit and removal
#   C8   full disks and write errors at every operation
#   C9   corrupted checkpoints
#   C10  a network file system that shows late, loses replies and reports wrongly
#
# Results: build/fault_campaign, a file per class and range of trials. What is there is not run again, so that a campaign
# that was interrupted goes on; delete the folder to begin anew. A class that has used up 75 minutes
# (TRAINCTL_CLASS_SECONDS) stops before its next range. The last lines say, per class, how many trials there were and
# the bound: no failure in N trials means a failure rate below 3/N, with 95 % confidence. Exit 1 if any trial failed.
source "$(dirname "$0")/common.sh"

results=$root/build/fault_campaign
limit=${TRAINCTL_CLASS_SECONDS:-4500}
declare -A last=([C1]=34 [C2]=540 [C8]=2452 [C9]=2900 [C10]=2000)  # trials; of C1 each is thousands of states
declare -A piece=([C1]=2 [C2]=12 [C8]=500 [C9]=2900 [C10]=250)     # of one file
classes=("$@")
[ ${#classes[@]} -gt 0 ] || classes=(C1 C2 C8 C9 C10)
for class in "${classes[@]}"; do
    [ -n "${last[$class]:-}" ] || die "$class is no class; there are: ${!last[*]}"
done

configure release -DBUILD_TESTING=ON
build release trainctl test_checkpoint trainctl_kill_at
allow_root_for_mpirun
mkdir -p "$results"

run_piece() { # class, first:end
    if [ "$1" = C2 ]; then
        TRAINCTL_TRIALS=$2 TRAINCTL_KILL_SHIM=$root/build/tests/cli/libtrainctl_kill_at.so PYTHONDONTWRITEBYTECODE=1 \
            python3 "$root/tests/cli/kill_test.py" "$root/build/trainctl"
    else
        TRAINCTL_TRIALS=$2 GOMP_SPINCOUNT=300 "$root/build/tests/checkpoint/test_checkpoint" "[$1]"
    fi
}

status=0
for class in "${classes[@]}"; do
    begun=$SECONDS
    for ((first = 0; first < last[$class]; first += piece[$class])); do
        end=$((first + piece[$class]))
        [ "$end" -le "${last[$class]}" ] || end=${last[$class]}
        result=$results/$class.$first-$end
        [ ! -f "$result" ] || continue
        if [ $((SECONDS - begun)) -ge "$limit" ]; then
            say "$class: $limit s are over before trial $first; run it again for the rest"
            break
        fi
        say "$class: trials $first to $end"
        if run_piece "$class" "$first:$end" >"$result.part" 2>&1; then
            rm -f "$result.failed"
            mv "$result.part" "$result"
        else
            mv "$result.part" "$result.failed"
            say "$class: FAILED, see $result.failed"
            status=1
        fi
    done
done

shopt -s nullglob
for class in "${classes[@]}"; do
    failures=("$results/$class".*.failed)
    for failed in "${failures[@]}"; do
        printf 'failed: %s\n' "$failed"
        status=1
    done
    # A test prints its line wherever it is in the output of its runner.
    { sed -n 's/.*fault trials: //p' /dev/null "$results/$class".*[0-9]; } |
        awk -v class="$class" -v failures="${#failures[@]}" '
            { count += $2; what = ""; for (i = 3; i <= NF; ++i) what = what " " $i }
            END {
                if (count == 0) printf "%s: nothing was run\n", class
                else if (failures > 0) printf "%s: %d%s passed, and see above\n", class, count, what
                else printf "%s: %d%s, none failed: rate below %.3g\n", class, count, what, 3 / count
            }'
done
exit "$status"
