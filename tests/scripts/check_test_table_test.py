"""The check of the test table finds each kind of mistake, and nothing in a right table."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import check_test_table  # noqa: E402

FILES = {
    "a_test.cpp": 'TEST_CASE("adds, exactly", "[x]") {}\nTEST_CASE(\n    "a long name "\n    "in two parts") {}\n',
    "b_test.py": "class B(TestCase):\n    def test_it(self):\n        pass\n",
}


def problems_of(*rows):
    with tempfile.TemporaryDirectory() as directory:
        tests = pathlib.Path(directory) / "tests"
        tests.mkdir()
        for name, text in FILES.items():
            (tests / name).write_text(text, encoding="utf-8")
        (tests / "README.md").write_text("\n".join(["| no. | failure | tests |", "|---|---|---|", *rows]), encoding="utf-8")
        return check_test_table.check_tree(pathlib.Path(directory))


class CheckTestTable(unittest.TestCase):
    def test_right_table(self):
        self.assertEqual([], problems_of("| 1 | x | `a_test.cpp` adds, exactly<br>`b_test.py` B.test_it |",
                                         "| 2 | x | `a_test.cpp` a long name in two parts |"))

    def test_each_mistake_is_reported_at_its_line(self):
        for row, message in (("| 1 | x | `a_test.cpp` adds |", "a_test.cpp has no test 'adds'"),
                             ("| 1 | x | `b_test.py` C.test_it |", "has no test 'C.test_it'"),
                             ("| 1 | x | `c_test.cpp` adds, exactly |", "there is no file tests/c_test.cpp"),
                             ("| 1 | x | adds, exactly |", "expected `file` name"),
                             ("| 1 | x | |", "expected | number | failure | tests |")):
            found = problems_of(row)
            self.assertEqual(1, len(found), row)
            self.assertTrue(found[0].startswith("tests/README.md:3: "), found)
            self.assertIn(message, found[0])

    def test_two_rows_of_one_number_and_no_row(self):
        row = "| 1 | x | `b_test.py` B.test_it |"
        self.assertIn("1 has a row already", problems_of(row, row)[0])
        self.assertEqual(["tests/README.md: has no table of tests"], problems_of())

    def test_this_tree(self):
        self.assertEqual([], check_test_table.check_tree(pathlib.Path(__file__).resolve().parents[2]))


if __name__ == "__main__":
    unittest.main()
