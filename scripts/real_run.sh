#!/usr/bin/env bash
# A real run for the README: 4 million parameters on about 40 MB of English (Debian's dict-gcide) on 2 ranks, stopped
# in the middle by a signal, resumed, and its loss curve printed as numbers.
#
#   scripts/real_run.sh [DIRECTORY]     default: ./real-run, which must not exist
source "$(dirname "$0")/common.sh"

trainctl=$root/build/trainctl
[ -x "$trainctl" ] || die "expected the binary at $trainctl; run scripts/smoke.sh first"
directory=${1:-$PWD/real-run}
[ ! -e "$directory" ] || die "$directory exists already; give another directory"
mkdir -p "$directory/data"
cd "$directory"
allow_root_for_mpirun

say "fetching the text (Debian package dict-gcide)"
(cd data && apt-get download dict-gcide && dpkg --fsys-tarfile dict-gcide_*.deb |
    tar -xO ./usr/share/dictd/gcide.dict.dz > gcide.txt.gz)  # dictzip files are gzip files
"$trainctl" data prepare --input data/gcide.txt.gz --output data/gcide --tokenizer byte

job=$root/configs/llama-4m-gcide-cpu.toml
metrics=runs/llama-4m-gcide/metrics.jsonl
losses() { grep '"type":"step"' "$metrics"; }
steps_done() { [ ! -f "$metrics" ] && echo 0 || grep -c '"type":"step"' "$metrics" || true; }

start_ranks 2 "$trainctl" train "$job" --set monitoring.log_interval=50 &
launcher=$!
while [ "$(steps_done)" -lt 1700 ] && kill -0 "$launcher" 2>/dev/null; do sleep 1; done
say "interrupting after step $(steps_done)"
kill -USR1 "$(pgrep -P "$launcher" mpirun || echo "$launcher")" 2>/dev/null || kill -USR1 "$launcher"
status=0
wait "$launcher" || status=$?
[ "$status" -eq 3 ] || die "expected exit 3 after the signal, got $status"

start_ranks 2 "$trainctl" train "$job" --resume auto --set monitoring.log_interval=50

say "loss by step (mean over 50 steps), attempt, median tokens/s"
losses | python3 -c '
import json, statistics, sys
steps = {}
for line in sys.stdin:
    record = json.loads(line)
    if record["step"] not in steps or steps[record["step"]]["attempt"] <= record["attempt"]:
        steps[record["step"]] = record
for last in sorted(s for s in steps if s % 50 == 0):
    window = [steps[s] for s in range(last - 49, last + 1)]
    print("%6d  %.4f  %d  %.0f" % (last, sum(r["loss"] for r in window) / 50, window[-1]["attempt"],
                                   statistics.median(r["tokens_per_s"] for r in window)))
'
grep '"type":"evaluation"' "$metrics" | python3 -c '
import json, sys
for line in sys.stdin:
    record = json.loads(line)
    print("validation at step %d: %.4f nats/byte" % (record["step"], record["loss"]))
'
