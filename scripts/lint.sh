#!/usr/bin/env bash
# clang-format on every source file, clang-tidy on src/ and include/.
#
#   scripts/lint.sh [--changed | --all | --format] [--deep] [--fix-format]
#
# --format: clang-format alone.
# --deep: the static analyzer as well, which takes about six times as long.
# --changed (default): clang-tidy looks at what differs from the merge base with origin/main (or with
# TRAINCTL_LINT_BASE), and at everything if there is no such base or it is the current commit.
source "$(dirname "$0")/common.sh"
cd "$root"

scope=changed
fix=no
export TRAINCTL_TIDY_EXTRA=
for option in "$@"; do
    case "$option" in
        --changed) scope=changed ;;
        --all) scope=all ;;
        --format) scope=none ;;
        --fix-format) fix=yes ;;
        --deep) TRAINCTL_TIDY_EXTRA=--checks=clang-analyzer-*,-clang-analyzer-optin.performance.Padding ;;
        *) printf 'usage: lint.sh [--changed | --all | --format] [--deep] [--fix-format]\n' >&2; exit 2 ;;
    esac
done
for tool in clang-format-14 clang-tidy-14; do
    command -v "$tool" >/dev/null || die "$tool is missing; run scripts/install_deps.sh --checks"
done

# Tracked files and new ones that git does not ignore.
sources() {
    git ls-files --cached --others --exclude-standard -- "$@" |
        grep -E '\.(h|cpp|cu|cuh)$' | while read -r file; do [ -f "$file" ] && printf '%s\n' "$file"; done || true
}

mapfile -t all < <(sources include src cuda tests)
[ ${#all[@]} -gt 0 ] || die "no source files found under $root"
say "clang-format on ${#all[@]} files"
status=0
if [ "$fix" = yes ]; then
    printf '%s\0' "${all[@]}" | xargs -0 clang-format-14 -i
else
    printf '%s\0' "${all[@]}" | xargs -0 clang-format-14 --dry-run -Werror --ferror-limit=3 || status=1
fi

if [ "$scope" = none ]; then
    [ "$status" -eq 0 ] && say "format: clean"
    exit "$status"
fi

if [ "$scope" = changed ]; then
    base=$(git merge-base HEAD "${TRAINCTL_LINT_BASE:-origin/main}" 2>/dev/null || true)
    if [ -z "$base" ]; then
        say "clang-tidy: no merge base, looking at everything"
        scope=all
    elif [ "$base" = "$(git rev-parse HEAD)" ] && git diff --quiet HEAD -- src include; then
        say "clang-tidy: nothing differs from the merge base, looking at everything"
        scope=all
    fi
fi
if [ "$scope" = all ]; then
    # Headers are looked at through the sources that include them.
    mapfile -t wanted < <(sources src | grep -E '\.cpp$' || true)
else
    mapfile -t wanted < <({
        git diff --name-only --diff-filter=d "$base" -- src include
        git ls-files --others --exclude-standard -- src include
    } | grep -E '\.(h|cpp)$' | sort -u || true)
fi

# clang-tidy needs the command line that a file is compiled with; headers have one through the lone-header target.
configure lint
build lint trainctl_version_header
mapfile -t units < <(python3 - "${wanted[@]}" <<'PYTHON'
import json, os, sys
known = {os.path.realpath(entry["file"]) for entry in json.load(open("build-lint/compile_commands.json"))}
for name in sys.argv[1:]:
    unit = os.path.realpath(name)
    if name.endswith(".h"):
        unit = os.path.realpath(os.path.join("build-lint/lone_headers", name + ".cpp"))
    if unit in known:
        print(unit)
    else:
        print(f"no command line for {name}: not built here", file=sys.stderr)
PYTHON
)
say "clang-tidy on ${#units[@]} of ${#wanted[@]} files"
if [ ${#units[@]} -gt 0 ]; then
    # Each file's warnings appear together; the count of suppressed ones in system headers is noise.
    printf '%s\0' "${units[@]}" | xargs -0 -n 1 -P "$(cores)" \
        sh -c 'out=$(clang-tidy-14 --quiet -p build-lint $TRAINCTL_TIDY_EXTRA --extra-arg=-Wno-unknown-warning-option "$1" 2>/dev/null) ||
               { printf "%s\n" "$out"; exit 1; }' tidy || status=1
fi
[ "$status" -eq 0 ] && say "lint: clean"
exit "$status"
