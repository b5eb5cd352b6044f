#!/usr/bin/env bash
# Trains a small job whose checkpoints go to an S3-compatible store, lists, verifies and resumes from them: that the room
# object_storage means what a real server means.
#
#   scripts/s3_check.sh s3://BUCKET/PREFIX    the store of AWS_ENDPOINT_URL_S3 (credentials as the README says); what is
#                                             under the prefix and of other runs is not touched
#   scripts/s3_check.sh --moto                a moto_server of this machine (pip install 'moto[server,s3crc32c]'), on a free port
source "$(dirname "$0")/common.sh"

trainctl=$root/build/trainctl
[ -x "$trainctl" ] || die "expected the binary at $trainctl; run scripts/smoke.sh first"
[ $# -eq 1 ] || die "usage: s3_check.sh s3://BUCKET/PREFIX | --moto"
work=$(mktemp -d "${TMPDIR:-/tmp}/trainctl-s3-XXXXXX")
server=
clean_up() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT

prefix=$1
if [ "$1" = --moto ]; then
    command -v moto_server >/dev/null || die "expected moto_server in PATH, found none: pip install 'moto[server,s3crc32c]'"
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    moto_server -H 127.0.0.1 -p "$port" >"$work/server.log" 2>&1 &
    server=$!
    export AWS_ENDPOINT_URL_S3=http://127.0.0.1:$port AWS_REGION=us-east-1
    export AWS_ACCESS_KEY_ID=s3-check AWS_SECRET_ACCESS_KEY=s3-check-secret
    unset AWS_SESSION_TOKEN AWS_SHARED_CREDENTIALS_FILE AWS_PROFILE
    for _ in $(seq 100); do
        # moto takes unsigned requests: the bucket is all that is made without us.
        if python3 -c 'import sys, urllib.request as u; u.urlopen(u.Request(sys.argv[1], method="PUT"))' \
            "$AWS_ENDPOINT_URL_S3/trainctl-check" 2>/dev/null; then break; fi
        sleep 0.2
    done
    prefix=s3://trainctl-check/some/prefix
fi
place=$prefix/$(basename "$work")

cd "$work"
python3 -c 'import random; random.seed(1); print(" ".join(str(random.randrange(1000)) for _ in range(200000)))' >text.txt
"$trainctl" data prepare --input text.txt --output text --tokenizer byte 2>prepare.log || { cat prepare.log >&2; exit 1; }
sed -E 's|^train *=.*|train = ["text"]|; s|^run_dir *=.*|run_dir = "run"|' "$root/configs/tiny-cpu.toml" >job.toml
# 3.3 million parameters: a checkpoint of 38 MiB, which takes three parts.
train() {
    "$trainctl" train job.toml --set "checkpoint.directory=$place" --set checkpoint.async=false \
        --set checkpoint.interval_steps=5 --set checkpoint.keep_latest=2 --set schedule.warmup_steps=2 \
        --set training.sequence_length=64 --set model.hidden_size=256 --set model.layers=4 "$@" >>train.log 2>&1 ||
        { tail -n 20 train.log >&2; die "training into $place failed"; }
}

say "training 20 steps, a checkpoint every 5, into $place"
train --set job.steps=20
"$trainctl" ckpt list "$place"
"$trainctl" ckpt verify "$place"
say "going on from step 20 to step 30"
train --set job.steps=30 --resume auto --allow-change job.steps
grep -q '^loaded step 20, state ' train.log || die "expected a load of step 20: $(tail -n 20 train.log)"
"$trainctl" ckpt verify "$place"
"$trainctl" ckpt list "$place" --json >list.json
python3 - list.json <<'END'
import json, sys
steps = sorted(c["step"] for c in json.load(open(sys.argv[1]))["checkpoints"])
# The two newest, and the one that was read back in full.
assert steps == [20, 25, 30], f"expected the checkpoints of steps 20, 25 and 30, found {steps}"
END
if [ -n "${AWS_SECRET_ACCESS_KEY-}" ] && grep -rqsF "$AWS_SECRET_ACCESS_KEY" run train.log list.json; then
    die "the secret key is in the run or its output"
fi
say "the store passed: $place"
