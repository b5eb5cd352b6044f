#!/usr/bin/env bash
# Everything that only a GPU can tell, in one go: are the CUDA sources right there, and how fast are they?
#
#   scripts/gpu_check.sh bundle [FILE]   on a build machine: builds, and packs what the check needs (at most 40 MB)
#   gpu_check.sh run [FILE]              on a GPU machine: unpacks FILE (default: gpu_check.tar.gz beside this script)
#                                        and checks; in an unpacked bundle it uses what lies beside it
#
# `run` needs no network, compiler or MPI launcher, only the driver, cuBLASLt and NCCL (looked for in /usr/local/cuda*,
# the loader's cache and Python's site-packages). It prints after every stage, keeps gpu_check.json in the current
# directory up to date, and ends within TRAINCTL_GPU_CHECK_SECONDS (default 360).
# exit codes: 0 every stage passed or says why this machine cannot run it; 1 a stage failed or passed its limit; 2 usage;
# 5 no CUDA device or libraries: no stage could run
set -euo pipefail

die() { printf 'error: %s\n' "$*" >&2; exit 1; }
usage() { printf 'usage: gpu_check.sh bundle|run [FILE]\n' >&2; exit 2; }

# --- bundle ----------------------------------------------------------------------------------------------------------

largest_bundle=$((40 * 1000 * 1000))

# What belongs to the C library (the binaries take that machine's), to the driver and to CUDA.
not_packed='^(ld-linux|linux-vdso|libc|libm|libmvec|libdl|libpthread|librt|libresolv|libutil|libcuda|libcudart|libcublas|libcublasLt|libnccl|libnv[a-z-]*)(-[a-z0-9-]+)?\.so'

bundle() {
    source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
    local file=$1
    configure release -DBUILD_TESTING=ON -DTRAINCTL_CUDA=ON
    build release trainctl test_cuda
    packed=$(mktemp -d)
    trap 'rm -rf "$packed"' EXIT
    local folder=$packed/gpu_check
    mkdir -p "$folder/bin" "$folder/lib"
    cp "$root/scripts/gpu_check.sh" "$root/scripts/gpu_reference.py" "$folder/"
    local program name path
    for program in trainctl test_cuda; do
        cp "$(find "$root/build" -name "$program" -type f -perm -u+x | head -n 1)" "$folder/bin/"
        ldd "$folder/bin/$program" | sed -nE 's/^\s*(\S+) => (\/\S+) .*/\1 \2/p'
    done | sort -u | while read -r name path; do
        [[ $name =~ $not_packed ]] || cp -L "$path" "$folder/lib/$name"
    done
    strip "$folder"/bin/* "$folder"/lib/*
    git -C "$root" describe --always --dirty >"$folder/COMMIT" 2>/dev/null || echo unknown >"$folder/COMMIT"
    tar -C "$packed" -c gpu_check | gzip -9 >"$file"
    local bytes
    bytes=$(stat -c %s "$file")
    if [ "$bytes" -gt "$largest_bundle" ]; then
        rm -f "$file"
        die "the bundle has $bytes bytes; expected at most $largest_bundle. $folder: $(du -sb "$folder"/*/* | sort -n | tail -n 3 | xargs)"
    fi
    say "$file: $bytes bytes of at most $largest_bundle"
    tar -tzf "$file"
}

# --- run: what every stage uses --------------------------------------------------------------------------------------

seconds_left() { echo $((total_seconds - SECONDS)); }

# json_text TEXT: as a JSON string.
json_text() {
    local text=$1
    text=${text//\\/\\\\}
    text=${text//\"/\\\"}
    printf '"%s"' "${text//[[:cntrl:]]/ }"
}

# field NAME JSON: the first number of that name.
field() { sed -nE "s/.*\"$1\": ?(-?[0-9][0-9.eE+-]*).*/\1/p" <<<"$2" | head -n 1; }

write_json() {
    {
        printf '{"type":"gpu_check","v":1,"date":%s,"commit":%s,"gpu":%s,"driver":%s,"cuda_libraries":%s,"stages":[' \
            "$(json_text "$(date -u +%FT%TZ)")" "$(json_text "$commit")" "$(json_text "$gpu")" \
            "$(json_text "$driver")" "$(json_text "$cuda_libraries")"
        local IFS=,
        printf '%s' "${stages[*]-}"
        printf ']}\n'
    } >gpu_check.json.new
    mv gpu_check.json.new gpu_check.json
}

# report STAGE passed|failed|skipped TEXT [JSON]
report() {
    local stage=$1 state=$2 text=$3 data=${4:-null}
    printf '[%3d s] %-22s %-8s %s\n' "$SECONDS" "$stage" "$state" "$text"
    stages+=("{\"stage\":$(json_text "$stage"),\"state\":\"$state\",\"text\":$(json_text "$text"),\"data\":$data}")
    case "$state" in
        failed) failed=$((failed + 1)) ;;
        passed) passed=$((passed + 1)) ;;
    esac
    write_json
}

# limited SECONDS COMMAND...: stdout to $log, both to $log.all; 124 past the limit or the time of the whole check.
limited() {
    local limit=$1 status=0
    shift
    [ "$limit" -lt "$(seconds_left)" ] || limit=$(seconds_left)
    : >"$log"
    [ "$limit" -gt 0 ] || { echo "no time left" >"$log.all"; return 124; }
    timeout -k 2 "$limit" "$@" >"$log" 2>"$log.all" || status=$?
    cat "$log" >>"$log.all"
    [ "$status" -ne 137 ] || status=124
    return "$status"
}

# ours PROGRAM ARGUMENTS...: a command line with the libraries of the bundle and CUDA's.
ours() { command_line=(env "LD_LIBRARY_PATH=$here/lib$cuda_path" "GOMP_SPINCOUNT=300" "$here/bin/$1" "${@:2}"); }

# The most telling line of what a stage printed.
last_words() {
    local line
    line=$(grep -iE '^ *(error|.*SKIPPED:|.*FAILED)' "$log.all" | head -n 1) || line=$(grep -v '^ *$' "$log.all" | tail -n 1) || true
    printf '%s' "${line:0:300}"
}

# ended STAGE STATUS LIMIT: reports a stage that did not pass.
ended() {
    if [ "$2" -eq 124 ]; then
        report "$1" failed "ended by its limit of $3 s (or of $total_seconds s for all): $(last_words)"
    else
        report "$1" failed "exit $2: $(last_words)"
    fi
}

# --- run: the machine ------------------------------------------------------------------------------------------------

# Folders in which CUDA's libraries may be.
library_folders() {
    local folder
    for folder in /usr/local/cuda*/lib64 /usr/local/cuda*/lib /usr/local/cuda*/targets/x86_64-linux/lib; do
        [ ! -d "$folder" ] || printf '%s\n' "$folder"
    done
    ldconfig -p 2>/dev/null | sed -nE 's/.*=> (\/.*)\/lib(cublasLt|nccl)\.so.*/\1/p' | sort -u
    if command -v python3 >/dev/null; then
        python3 -c 'import glob, sys
for folder in sys.path:
    print("\n".join(sorted(glob.glob(folder + "/nvidia/*/lib"))))' 2>/dev/null | sed '/^$/d' || true
    fi
}

# Sets cuda_path, cuda_libraries and missing.
find_cuda_libraries() {
    local name folder found
    while read -r name; do
        found=
        while read -r folder; do
            if [ -e "$folder/$name" ]; then
                found=$folder
                break
            fi
        done < <(library_folders)
        if [ -z "$found" ]; then
            missing+=" $name"
        else
            cuda_libraries+="${cuda_libraries:+, }$found/$name"
            [[ ":$cuda_path:" == *":$found:"* ]] || cuda_path+=":$found"
        fi
    done < <(for program in "$here"/bin/*; do LD_LIBRARY_PATH="$here/lib" ldd "$program" 2>/dev/null || true; done |
        sed -nE 's/^\s*((libcublas|libcublasLt|libnccl)\.so\S*) =>.*/\1/p' | sort -u)
}

# Sets no_device to why nothing can run; empty if something can.
check_machine() {
    find_cuda_libraries
    if command -v nvidia-smi >/dev/null; then
        gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1) || gpu=
        driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1) || driver=
    fi
    if [ -n "$missing" ]; then
        no_device="no CUDA libraries: expected$missing in /usr/local/cuda*, the loader's cache or Python's nvidia/*/lib"
        report machine skipped "$no_device"
        return
    fi
    local status=0
    ours test_cuda --help
    limited 30 "${command_line[@]}" || status=$?
    if [ "$status" -eq 77 ]; then
        no_device="no CUDA device: $(sed -nE 's/.*no CUDA device: //p' "$log.all" | head -n 1)"
        report machine skipped "$no_device"
    elif [ "$status" -ne 0 ]; then
        no_device="the programs do not start here"
        report machine failed "$no_device: $(last_words)"
    else
        report machine passed "${gpu:-GPU}, driver ${driver:-unknown}; ${cuda_libraries:-CUDA libraries of the loader}"
    fi
}

# --- run: the stages -------------------------------------------------------------------------------------------------

# test_stage STAGE LIMIT CASES...
test_stage() {
    local stage=$1 limit=$2 status=0
    shift 2
    ours test_cuda -w NoTests "$@"
    limited "$limit" "${command_line[@]}" || status=$?
    [ "$status" -eq 0 ] || { ended "$stage" "$status" "$limit"; cat "$log.all" >&2; return; }
    report "$stage" passed "$(last_words)"
}

# sanitizer_stage TOOL LIMIT: as many families of ops as fit into the limit.
sanitizer_stage() {
    local tool=$1 end=$((SECONDS + $2)) sanitizer status=0 done_families=0 family
    sanitizer=$(PATH=$PATH:$(printf '%s:' /usr/local/cuda*/bin) command -v compute-sanitizer) || { report "$tool" skipped "compute-sanitizer is not here"; return; }
    local families=("golden fragments*" "cuda norms*" "cuda activations*" "cuda rotary*" "cuda embedding*" "cuda cross-entropy*"
                    "cuda attention*")
    for family in "${families[@]}"; do
        [ "$SECONDS" -lt "$end" ] || break
        ours test_cuda -w NoTests "$family"
        status=0
        limited $((end - SECONDS)) env "${command_line[1]}" "$sanitizer" --tool "$tool" --error-exitcode 9 "${command_line[@]:3}" || status=$?
        [ "$status" -ne 124 ] || break
        [ "$status" -eq 0 ] || { ended "$tool" "$status" "$2"; return; }
        done_families=$((done_families + 1))
    done
    if [ "$done_families" -eq 0 ]; then
        report "$tool" skipped "no family of ops was through within $2 s"
    else
        report "$tool" passed "nothing found in $done_families of ${#families[@]} families of ops"
    fi
}

smoke_stage() {
    local status=0
    ours trainctl smoke --device cuda --json
    limited 30 "${command_line[@]}" || status=$?
    [ "$status" -eq 0 ] || { ended smoke "$status" 30; return; }
    report smoke passed "judged good" "$(tail -n 1 "$log")"
}

op_stage() {
    local status=0
    ours trainctl bench op --device cuda --preset gpt2-124m --batch 8 --sequence 1024 --json
    limited 40 "${command_line[@]}" || status=$?
    [ "$status" -eq 0 ] || { ended ops "$status" 40; return; }
    # A share and a rate give the ceiling.
    op_table=$(sed 's/},{/\n/g' "$log" | awk '
        function number(name) {
            return match($0, "\"" name "\": ?[-0-9.eE+]+") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0 : 0
        }
        match($0, /"name": ?"[^"]*"/) {
            name = substr($0, RSTART, RLENGTH)
            sub(/"name": ?"/, "", name)
            sub(/"$/, "", name)
            rate = number("flops") > 0 ? number("flops") : number("bytes")
            rate /= number("seconds")
            share = number("share_of_ceiling")
            if (share > 0 && number("flops") > 0) gemm = rate / share
            else if (share > 0) copy = rate / share
            unit = number("flops") > 0 ? "TFLOP/s" : "TB/s   "
            printf "  %-46s %9.3f %s %6.1f %%\n", name, rate / 1e12, unit, 100 * share
        }
        END { printf "  ceilings measured here: %.1f TFLOP/s of products, %.3f TB/s of copies\n", gemm / 1e12, copy / 1e12 }')
    report ops passed "$(tail -n 1 <<<"$op_table" | sed 's/^ *//')" "$(tail -n 1 "$log")"
    printf '%s\n' "$op_table"
}

# The largest use of the GPU's memory while $1 runs, in MiB, to $log.memory.
watch_memory() {
    local used largest=0
    while kill -0 "$1" 2>/dev/null; do
        used=$(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null | head -n 1) || used=0
        [[ $used =~ ^[0-9]+$ ]] && [ "$used" -gt "$largest" ] && largest=$used
        echo "$largest" >"$log.memory"
        sleep 0.3
    done
}

# FLOP/s of dense bf16 products, from the data sheet; empty for a GPU that is not listed.
data_sheet_peak() {
    case "$gpu" in
        *H100*PCIe*) echo 756e12 ;;
        *H100*NVL*) echo 835e12 ;;
        *H100* | *H200*) echo 989e12 ;;
        *GB200*) echo 2.5e15 ;;
        *B200*) echo 2.25e15 ;;
        *A100*) echo 312e12 ;;
        *L40S*) echo 362e12 ;;
    esac
}

# step_stage PRESET MICRO_BATCH SEQUENCE [OPTION]
step_stage() {
    local preset=$1 name="step $1${4:+ $4}" status=0 peak memory=null result tokens mfu=null mfu_text='unknown (no data sheet)' line
    ours trainctl bench step --device cuda --preset "$preset" --micro-batch "$2" --sequence "$3" ${4:+"$4"} --rounds 3 --steps 4 --json
    rm -f "$log.memory"
    limited 25 "${command_line[@]}" &
    local job=$!
    if command -v nvidia-smi >/dev/null; then watch_memory "$job"; fi
    wait "$job" || status=$?
    if [ "$status" -eq 5 ]; then
        report "$name" skipped "does not fit: $(last_words)"
        return
    fi
    [ "$status" -eq 0 ] || { ended "$name" "$status" 25; return; }
    [ ! -s "$log.memory" ] || memory=$(cat "$log.memory")
    result=$(tail -n 1 "$log")
    tokens=$(field tokens_per_s "$result")
    peak=$(data_sheet_peak)
    if [ -n "$peak" ]; then
        mfu=$(awk "BEGIN { printf \"%.4f\", $(field model_flops_per_s "$result") / $peak }")
        mfu_text=$(awk "BEGIN { printf \"%.1f %%\", 100 * $mfu }")
    fi
    line=$(printf '%10.0f tokens/s, MFU %s, %.1f %% of the rate of its products, %s MiB' "$tokens" \
        "$mfu_text" \
        "$(awk "BEGIN { print 100 * $(field gemm_share "$result") }")" "$memory")
    report "$name" passed "$line" "{\"preset\":\"$preset\",\"micro_batch\":$2,\"sequence\":$3,\"mfu\":$mfu,\"memory_mib\":$memory,\"bench\":$result}"
}

# The same shapes by PyTorch.
reference_stage() {
    local status=0 shape limit
    command -v python3 >/dev/null || { report torch skipped "python3 is not here"; return; }
    python3 -c 'import torch' 2>/dev/null || { report torch skipped "Python has no torch"; return; }
    for shape in "${shapes[@]}"; do
        read -r preset batch sequence <<<"$shape"
        status=0
        limit=40
        limited "$limit" python3 "$here/gpu_reference.py" "$preset" "$batch" "$sequence" || status=$?
        case "$status" in
            0) report "torch $preset" passed "$(printf '%10.0f tokens/s' "$(field tokens_per_s "$(tail -n 1 "$log")")")" "$(tail -n 1 "$log")" ;;
            5) report "torch $preset" skipped "$(last_words)" ;;
            # The reference is not what is checked.
            *) report "torch $preset" skipped "did not get through (exit $status): $(last_words)" ;;
        esac
    done
}

shapes=("gpt2-124m 16 1024" "gpt2-350m 8 1024" "gpt2-1558m 4 1024" "llama-1b 4 2048" "llama-3b 2 2048" "llama-7b 1 4096")

all_stages() {
    local shape stage
    check_machine
    if [ -n "$no_device" ]; then
        for stage in tests fragments memcheck racecheck smoke ops; do report "$stage" skipped "$no_device"; done
        for shape in "${shapes[@]}"; do report "step ${shape%% *}" skipped "$no_device"; done
        report "step gpt2-124m --cuda-graphs" skipped "$no_device"
        report torch skipped "$no_device"
        return
    fi
    test_stage tests 90 '~[fragments]'
    test_stage fragments 15 '[fragments]'
    sanitizer_stage memcheck 30
    sanitizer_stage racecheck 30
    smoke_stage
    op_stage
    for shape in "${shapes[@]}"; do
        # shellcheck disable=SC2086  # three words
        step_stage $shape
    done
    step_stage gpt2-124m 16 1024 --cuda-graphs
    reference_stage
}

run() {
    local file=$1
    SECONDS=0
    total_seconds=${TRAINCTL_GPU_CHECK_SECONDS:-360}
    here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    if [ -n "$file" ] || [ ! -x "$here/bin/test_cuda" ]; then
        [ -n "$file" ] || file=$here/gpu_check.tar.gz
        [ -f "$file" ] || die "expected a bundle at $file; make one with: scripts/gpu_check.sh bundle"
        tar -C "$work" -xzf "$file" 2>"$work/tar.log" || true
        [ -x "$work/gpu_check/bin/test_cuda" ] ||
            die "expected a bundle, found something else in $file; make one with: scripts/gpu_check.sh bundle"
        here=$work/gpu_check
    fi
    log=$work/log
    commit=$(cat "$here/COMMIT" 2>/dev/null || echo unknown)
    gpu='' driver='' cuda_path='' cuda_libraries='' missing='' no_device=''
    failed=0 passed=0
    stages=()
    printf 'gpu_check of %s on %s\n' "$commit" "$(uname -n)"
    all_stages
    printf '%d stages passed, %d failed, %d skipped; gpu_check.json has everything\n' "$passed" "$failed" \
        "$((${#stages[@]} - passed - failed))"
    [ "$failed" -eq 0 ] || exit 1
    [ -z "$no_device" ] || exit 5
}

case "${1:-}" in
    bundle) bundle "${2:-$PWD/gpu_check.tar.gz}" ;;
    run) run "${2:-}" ;;
    *) usage ;;
esac
