#!/usr/bin/env python3
"""What every CUDA kernel needs of the hardware, from ptxas's own reports, as a table; fails on spills where they cost.

usage: check_kernels.py BUILD_FOLDER      writes BUILD_FOLDER/kernels.txt and prints the kernels that spill;
                                          exit 1 if one of those that must not does, or if there is no report
"""

import pathlib
import re
import subprocess
import sys

# Kernels in which a spilled register is read or written in the innermost loop: pattern of the demangled name.
MUST_NOT_SPILL = [
    re.compile(pattern)
    for pattern in (r"attention\w*<.*\b(64|128)\b", r"norm", r"cross_entropy|softmax|exponential", r"adamw")
]

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(sm_\d+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")


def read_reports(folder):
    """(mangled name, architecture, registers, stack bytes, bytes of spill stores + loads) of every kernel."""
    kernels = []
    for report in sorted(folder.rglob("*.ptxas")):
        entry, stack = None, (0, 0, 0)
        for line in report.read_text().splitlines():
            if match := ENTRY.search(line):
                entry, stack = match.groups(), (0, 0, 0)
            elif entry and (match := STACK.search(line)):
                stack = tuple(map(int, match.groups()))
            elif entry and (match := REGISTERS.search(line)):
                kernels.append((*entry, int(match.group(1)), stack[0], stack[1] + stack[2]))
                entry = None
    return kernels


def demangled(names):
    result = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    shorter = result.stdout.replace("trainctl::cuda::", "").replace("(anonymous namespace)::", "")
    return [re.sub(r"_GLOBAL__N__\w+::", "", name.split("(")[0]) for name in shorter.replace("trainctl::", "").split("\n")]


def main(arguments):
    folder = pathlib.Path(arguments[0])
    kernels = read_reports(folder)
    if not kernels:
        print(f"no *.ptxas report under {folder}: build the target trainctl_cuda first", file=sys.stderr)
        return 1
    names = demangled([kernel[0] for kernel in kernels])
    lines, failures = [], 0
    for name, (_, architecture, registers, stack, spills) in sorted(zip(names, kernels)):
        line = f"{architecture}  {registers:3} registers  {stack:5} B stack  {spills:5} B spilled  {name}"
        lines.append(line)
        if spills == 0:
            continue
        forbidden = any(pattern.search(name) for pattern in MUST_NOT_SPILL)
        failures += forbidden
        print(("error: must not spill: " if forbidden else "spills: ") + line)
    (folder / "kernels.txt").write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} kernels in {folder / 'kernels.txt'}, {failures} that spill and must not")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
