#!/usr/bin/env python3
"""Checks that every room includes only what the ladder allows, and a few rules that belong to it.

usage: check_layers.py [ROOT]     prints file:line: message for each violation; exit 1 if there are any
"""

import pathlib
import re
import sys

# room -> rooms right below it; it also sees what those see. The order is from the ground up.
LADDER = {
    "base": [],
    "tensor": ["base"],
    "config": ["tensor", "base"],  # a job names element types
    "object_storage": ["base"],
    "rundir": ["config", "base"],
    "device": ["tensor"],
    "ops": ["device"],
    "comm": ["device", "rundir"],
    "model": ["ops", "comm", "config"],
    "data": ["config", "tensor"],
    "observe": ["rundir", "config"],
    "checkpoint": ["model", "rundir"],
    "parallel": ["model"],
    "train": ["parallel", "data", "checkpoint", "observe"],
    "plan": ["train"],
    "bench": ["train"],
    "supervise": ["observe", "rundir", "config"],
    "cli": ["plan", "bench", "supervise", "object_storage"],
}

# cuda/ is a leaf: it implements interfaces of these rooms and sees nothing that they see.
CUDA_SEES = {"base", "tensor", "device", "ops", "comm"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CONDITIONAL = re.compile(r"^\s*#\s*(?:el)?if.*\b\w*(?:CUDA|MPI|NCCL)\w*")
BACKEND_HEADER = re.compile(r"^(?:cuda|cublas|cudnn|nccl|nvml|nvtx|cooperative_groups|mma\.h)")
SUFFIXES = {".h", ".hpp", ".cpp", ".cc", ".cu", ".cuh"}


def visible(room, ladder=None):
    """The room itself and everything it reaches downward."""
    ladder = LADDER if ladder is None else ladder
    seen, open_rooms = set(), [room]
    while open_rooms:
        current = open_rooms.pop()
        if current not in seen:
            seen.add(current)
            open_rooms += ladder[current]
    return seen


def find_cycle(ladder):
    """A room that sees itself through others, or None."""
    for room, below in ladder.items():
        if any(room in visible(lower, ladder) for lower in below):
            return room
    return None


def room_of(relative):
    """(room, is_public_header) of a source file, room None for main.cpp, or an error text."""
    parts = relative.parts
    if parts[0] == "cuda":
        return "cuda", False
    if parts == ("src", "main.cpp"):
        return None, False
    if parts[:2] == ("include", "trainctl") and len(parts) > 3:
        return parts[2], True
    if parts[0] == "src" and len(parts) > 2:
        return parts[1], False
    raise ValueError("lies in no room: expected include/trainctl/<room>/, src/<room>/ or cuda/")


def check_file(root, relative):
    """Yields (line number, message) for one file."""
    try:
        room, public = room_of(relative)
    except ValueError as error:
        yield 1, str(error)
        return
    if room is None:
        allowed = {"cli"}
    elif room == "cuda":
        allowed = CUDA_SEES
    elif room in LADDER:
        allowed = visible(room)
    else:
        yield 1, f"'{room}' is no room of the ladder in scripts/check_layers.py; add it there or move the file"
        return

    own_name = "main.cpp" if room is None else room
    text = (root / relative).read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        if CONDITIONAL.match(line):
            yield number, "a preprocessor condition chooses a backend; put it into another file chosen by CMake"
        match = INCLUDE.match(line)
        if not match:
            continue
        quoted, name = match.group(1) == '"', match.group(2)
        parts = name.split("/")
        if parts[0] == "trainctl" and len(parts) > 2:
            if parts[1] != room and parts[1] not in allowed:
                yield number, f"{own_name} must not see {parts[1]} (it sees: {', '.join(sorted(allowed))})"
        elif quoted and len(parts) > 1 and parts[0] in LADDER and parts[0] != room:
            yield number, f"{own_name} includes a private header of {parts[0]}; only include/trainctl/ is public"
        if BACKEND_HEADER.match(name) and room != "cuda":
            yield number, f"<{name}> may appear only under cuda/"
        if public and parts[0] == "fmt":
            yield number, "fmt belongs into .cpp files: a header that reaches a .cu file must not include it"
        if name == "fstream" and room != "base":
            yield number, "<fstream>: base's FileSystem is the only door to files"


def check_tree(root):
    """Sorted list of 'file:line: message'."""
    problems = []
    for top in ("include", "src", "cuda"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                relative = path.relative_to(root)
                problems += [f"{relative}:{line}: {message}" for line, message in check_file(root, relative)]
    return problems


def main(arguments):
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).resolve().parent.parent)
    if find_cycle(LADDER):
        print(f"the ladder in {__file__} has a cycle through {find_cycle(LADDER)}")
        return 1
    problems = check_tree(root)
    print("\n".join(problems) if problems else "layers: no violation")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
