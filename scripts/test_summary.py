#!/usr/bin/env python3
"""Prints what passed, failed and was skipped, and why, from a ctest JUnit file.

usage: test_summary.py JUNIT.xml [CAMPAIGN_COUNT]

A test program reports a case that it cannot run here by printing a line "SKIPPED: <case>: <why>". The last line
is "N passed, N failed, N skipped", counted in ctest entries plus skipped cases; exit 1 if any failed or none ran.
"""

import sys
import xml.etree.ElementTree


def main(arguments):
    passed, failed, skipped = [], [], []
    for case in xml.etree.ElementTree.parse(arguments[0]).getroot().iter("testcase"):
        name = case.get("name")
        output = case.findtext("system-out") or ""
        lines = [line.strip() for line in output.splitlines()]
        reasons = [line[len("SKIPPED:"):].strip() for line in lines if line.startswith("SKIPPED:")]
        skipped += [f"{name}: {reason}" for reason in reasons]
        status = case.get("status")
        if status == "run":
            passed.append(name)
        elif status in ("notrun", "disabled"):
            note = case.find("skipped")
            why = (note.get("message") if note is not None else None) or status
            # "Not Run" without our own reason means that the program is missing: that is a failure. With one, the
            # program skipped itself as a whole, and the reason is in the list.
            if status == "disabled":
                skipped.append(f"{name}: {why}")
            elif not reasons:
                failed.append(f"{name}: {why}")
        else:
            note = case.find("failure")
            failed.append(f"{name}: {(note.get('message') if note is not None else None) or 'failed'}")
    for label, entries in (("failed", failed), ("skipped", skipped)):
        for entry in entries:
            print(f"{label}: {entry}")
    if len(arguments) > 1 and int(arguments[1]) > 0:
        print(f"not part of this command: {arguments[1]} long tests (ctest --test-dir build -L campaign)")
    if not passed and not failed:
        print("failed: no test ran")
        failed.append("no test ran")
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
