"""The closing line tells the truth about failures, skips and runs without tests."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import test_summary  # noqa: E402

PASSED = '<testcase name="a" status="run"><system-out>ok</system-out></testcase>'
SKIPPED_CASE = '<testcase name="b" status="run"><system-out>x\nSKIPPED: chroot: not root\n</system-out></testcase>'
FAILED = '<testcase name="c" status="fail"><failure message="Timeout"/><system-out></system-out></testcase>'
MISSING = '<testcase name="d" status="notrun"><skipped message="Unable to find executable"/></testcase>'
SKIPPED_PROGRAM = (
    '<testcase name="cuda" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>'
    "<system-out>SKIPPED: all cases: no CUDA device: no driver\n</system-out></testcase>"
)
DISABLED = '<testcase name="e" status="disabled"><skipped message="Disabled"/></testcase>'


def summary_of(*cases):
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(f'<testsuite>{"".join(cases)}</testsuite>')
        file.flush()
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = test_summary.main([file.name, "2"])
    return code, output.getvalue().splitlines()


class Summary(unittest.TestCase):
    def test_passed_and_skipped_with_reason(self):
        code, lines = summary_of(PASSED, SKIPPED_CASE, DISABLED)
        self.assertEqual(0, code)
        self.assertIn("skipped: b: chroot: not root", lines)
        self.assertEqual("2 passed, 0 failed, 2 skipped", lines[-1])

    def test_a_program_that_skips_itself_counts_once_with_its_reason(self):
        code, lines = summary_of(PASSED, SKIPPED_PROGRAM)
        self.assertEqual(0, code)
        self.assertIn("skipped: cuda: all cases: no CUDA device: no driver", lines)
        self.assertEqual("1 passed, 0 failed, 1 skipped", lines[-1])

    def test_failures_and_missing_programs_fail(self):
        code, lines = summary_of(PASSED, FAILED, MISSING)
        self.assertEqual(1, code)
        self.assertIn("failed: c: Timeout", lines)
        self.assertEqual("1 passed, 2 failed, 0 skipped", lines[-1])

    def test_no_test_is_a_failure(self):
        self.assertEqual(1, summary_of()[0])


if __name__ == "__main__":
    unittest.main()
