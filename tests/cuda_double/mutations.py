#!/usr/bin/env python3
"""Plants faults in copies of the sources of cuda/, one at a time, and checks that test_cuda_double sees each.

usage: mutations.py BUILD_FOLDER [--all] [--only PATTERN]

Without --all only the mutations marked quick, one of each kind; with --only those whose "file: kind" the pattern is found in.
The patched source is compiled as the build compiles it, except for -O1, and linked in front of the library that holds the
healthy one, so that the test program uses it in its place. Exit 1 if a mutation survives, if something does not compile, if the
healthy program fails the same cases, or if any entry of the whole list is out of date: its text to replace is not found exactly
once, or a test case that it names does not exist.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

from mutation_list import MUTATIONS

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = "tests/cuda_double/test_cuda_double"
WORKERS = 2
LONGEST_RUN_S = 300


class Unusable(Exception):
    """The mutation, or the build, is not what this script needs; nothing is known about the tests."""


class Build:
    """How the build compiles the sources of the backend and links the test program."""

    def __init__(self, folder):
        self.folder = folder
        self.compile = {
            entry["file"]: shlex.split(entry["command"])
            for entry in json.loads((folder / "compile_commands.json").read_text())
            if "trainctl_test_cuda_backend.dir" in entry["command"]
        }
        listing = subprocess.run(
            ["ninja", "-C", folder, "-t", "commands", "-s", PROGRAM], capture_output=True, text=True, check=True
        )
        # ": && c++ ... && :"
        self.link = [word for word in shlex.split(listing.stdout.splitlines()[-1]) if word not in (":", "&&")]

    def compile_command(self, source, include, output):
        """For `source`, a path below the root; headers below `include` stand for those of the same name."""
        command = list(self.compile[str(ROOT / source)])
        command[command.index("-o") + 1] = str(output)
        # What the double replaces stays replaced.
        first = next(i for i, word in enumerate(command) if word == f"-I{ROOT}")
        command.insert(first, f"-I{include}")
        patched = include / source
        if patched.exists():
            command[command.index("-c") + 1] = str(patched)
        return command + ["-O1", "-w"]

    def link_command(self, mutant, output):
        command = list(self.link)
        command[command.index("-o") + 1] = str(output)
        first = next(i for i, word in enumerate(command) if word.endswith(".o"))
        command.insert(first, str(mutant))
        return command


def run_checked(command, folder):
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if result.returncode != 0:
        raise Unusable((result.stderr or result.stdout).strip()[:1500])


def run_cases(program, cases, folder):
    """(exit status, output) of the named test cases."""
    names = ",".join(case.replace(",", "\\,") for case in cases)
    environment = dict(os.environ, GOMP_SPINCOUNT="300")
    try:
        result = subprocess.run(
            [program, names, "--abort"], cwd=folder, env=environment, capture_output=True, text=True,
            errors="replace", timeout=LONGEST_RUN_S,
        )
    except subprocess.TimeoutExpired:
        raise Unusable(f"the test program did not end within {LONGEST_RUN_S} s") from None
    return result.returncode, result.stdout


def check_healthy(build, cases):
    status, output = run_cases(build.folder / PROGRAM, cases, build.folder)
    if status != 0:
        raise Unusable(f"the healthy program fails:\n{output[-1500:]}")
    passed = re.search(r"All tests passed \(.* in (\d+) test cases?\)", output)
    if not passed or int(passed.group(1)) != len(cases):
        raise Unusable(f"expected {len(cases)} test cases, found another number; correct the names in mutation_list.py:\n"
                       + "\n".join(cases))


def patched_text(mutation):
    text = (ROOT / mutation.file).read_text()
    found = text.count(mutation.before)
    if found != 1:
        raise Unusable(f"expected the text to replace once in {mutation.file}, found it {found} times; bring "
                       f"mutation_list.py up to date:\n{mutation.before}")
    return text.replace(mutation.before, mutation.after)


def check_plantable(build, mutation, names):
    """Whether the list is right about the sources and the test cases, short of compiling anything."""
    patched_text(mutation)
    unit = mutation.unit or mutation.file
    if str(ROOT / unit) not in build.compile:
        raise Unusable(f"{unit} is not compiled by itself; give the source that includes it as unit")
    missing = [case for case in mutation.cases if case not in names]
    if missing:
        raise Unusable("no test case has the name " + ", ".join(missing))


def unusable(build):
    """What is wrong with the whole list, whichever mutations are chosen: it costs nothing to ask, so that every run does."""
    listing = subprocess.run(
        [build.folder / PROGRAM, "--list-test-names-only"], cwd=build.folder, capture_output=True, text=True
    )
    names = set(listing.stdout.splitlines())
    problems = []
    for mutation in MUTATIONS:
        try:
            check_plantable(build, mutation, names)
        except Unusable as error:
            problems.append(f"{mutation.file}: {mutation.kind}: UNUSABLE: {error}")
    return problems


def is_seen(build, mutation):
    """Whether the test program fails with the mutation in it."""
    text = patched_text(mutation)
    with tempfile.TemporaryDirectory(prefix="mutation-") as name:
        folder = pathlib.Path(name)
        patched = folder / mutation.file
        patched.parent.mkdir(parents=True)
        patched.write_text(text)
        run_checked(build.compile_command(mutation.unit or mutation.file, folder, folder / "mutant.o"), build.folder)
        run_checked(build.link_command(folder / "mutant.o", folder / "program"), build.folder)
        status, output = run_cases(folder / "program", mutation.cases, folder)
    if status == 0:
        return False
    # A signal, or a failed assertion: any other end says nothing about the mutation.
    if status > 0 and not re.search(r"^test cases:.* failed", output, re.MULTILINE):
        raise Unusable(f"the test program ended with {status} and no result:\n{output[-1500:]}")
    return True


def main(arguments):
    parser = argparse.ArgumentParser(usage="mutations.py BUILD_FOLDER [--all] [--only PATTERN]")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", type=re.compile, default="")
    options = parser.parse_args(arguments)
    build = Build(options.build.resolve())
    problems = unusable(build)
    if problems:
        print(*problems, f"{len(problems)} of {len(MUTATIONS)} mutations cannot be planted", sep="\n")
        return 1
    chosen = [
        mutation for mutation in MUTATIONS
        if (mutation.quick or options.all) and re.search(options.only, f"{mutation.file}: {mutation.kind}")
    ]
    bad = 0 if chosen else 1

    def verdict(mutation):
        begin = time.monotonic()
        try:
            word = "seen" if is_seen(build, mutation) else "SURVIVED"
        except Unusable as error:
            word = f"UNUSABLE: {error}"
        return word, time.monotonic() - begin

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        healthy = pool.submit(check_healthy, build, sorted({case for m in chosen for case in m.cases}))
        for mutation, (word, seconds) in zip(chosen, pool.map(verdict, chosen)):
            bad += word != "seen"
            print(f"{seconds:5.1f} s  {mutation.file}: {mutation.kind}: {word}", flush=True)
        try:
            healthy.result()
        except Unusable as error:
            print(error)
            bad += 1
    print(f"{len(chosen)} mutations, {bad} not seen or unusable")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
