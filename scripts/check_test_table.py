#!/usr/bin/env python3
"""Checks that every test named in the table of tests/README.md exists.

usage: check_test_table.py [ROOT]     prints tests/README.md:line: message for each that does not; exit 1 if there are any

A row is "| number | failure | tests |"; a test is "`file below tests/` name", several are separated by <br>. The name is
that of a Catch2 case, or Class.method in a Python file.
"""

import ast
import pathlib
import re
import sys

ROW = re.compile(r"^\| (\d+) \| (.+) \| (.+) \|$")
TEST = re.compile(r"^`([^`]+)` (.+)$")
CASE = re.compile(r'TEST_CASE\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)')
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')


def names_in(path):
    """The tests of a file, as the table names them."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
        return {f"{node.name}.{part.name}" for node in classes for part in node.body if isinstance(part, ast.FunctionDef)}
    # A long name is written as several literals.
    return {"".join(LITERAL.findall(literals)) for literals in CASE.findall(text)}


def check_row(tests, cell):
    """Yields a message for each test of a row that is not there."""
    for entry in cell.split("<br>"):
        test = TEST.match(entry.strip())
        if not test:
            yield f"expected `file` name, found: {entry.strip()}"
        elif not (tests / test.group(1)).is_file():
            yield f"there is no file tests/{test.group(1)}"
        elif test.group(2) not in names_in(tests / test.group(1)):
            yield f"tests/{test.group(1)} has no test '{test.group(2)}'"


def check_tree(root):
    """List of 'tests/README.md:line: message'."""
    tests = root / "tests"
    problems, seen = [], set()
    for number, line in enumerate((tests / "README.md").read_text(encoding="utf-8").splitlines(), 1):
        if not re.match(r"^\|\s*\d", line):
            continue
        row = ROW.match(line)
        if not row:
            problems.append(f"tests/README.md:{number}: expected | number | failure | tests |")
            continue
        if row.group(1) in seen:
            problems.append(f"tests/README.md:{number}: {row.group(1)} has a row already")
        seen.add(row.group(1))
        problems += [f"tests/README.md:{number}: {message}" for message in check_row(tests, row.group(3))]
    return problems if seen or problems else ["tests/README.md: has no table of tests"]


def main(arguments):
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).resolve().parent.parent)
    problems = check_tree(root)
    print("\n".join(problems) if problems else "test table: every test exists")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
