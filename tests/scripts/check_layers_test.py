"""The layer check finds each kind of violation, and nothing in a tree that keeps the rules."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import check_layers  # noqa: E402


def problems_of(files):
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return check_layers.check_tree(root)


class CheckLayers(unittest.TestCase):
    def test_allowed_includes(self):
        self.assertEqual([], problems_of({
            "include/trainctl/train/t.h": '#include "trainctl/base/error.h"\n#include "trainctl/ops/ops.h"\n',
            "src/ops/a.cpp": '#include "ops/kernel.h"\n#include "trainctl/device/device.h"\n#include <fmt/format.h>\n',
            "src/base/b.cpp": "#include <fstream>\n",
            "src/main.cpp": '#include "trainctl/cli/main.h"\n',
            "cuda/ops.cu": '#include <cuda_runtime.h>\n#include "trainctl/ops/ops.h"\n',
            "src/base/notes.md": '#include "trainctl/train/t.h"\n',
        }))

    def test_each_violation_is_reported_at_its_line(self):
        cases = {
            "src/base/a.cpp": '// comment\n#include "trainctl/tensor/shape.h"\n',
            "include/trainctl/ops/a.h": '\n#include "trainctl/comm/communicator.h"\n',  # siblings
            "src/model/a.cpp": '\n  #  include "trainctl/parallel/buckets.h"\n',
            "src/main.cpp": '\n#include "trainctl/train/trainer.h"\n',
            "cuda/a.cu": '\n#include "trainctl/rundir/lease.h"\n',
            "src/device/a.cpp": "\n#include <cuda_runtime.h>\n",
            "src/comm/a.cpp": "\n#if defined(HAVE_MPI)\n",
            "src/train/a.cpp": '\n#include "model/block.h"\n',
            "include/trainctl/data/a.h": "\n#include <fmt/core.h>\n",
            "src/data/a.cpp": "\n#include <fstream>\n",
        }
        for name, text in cases.items():
            with self.subTest(name):
                found = problems_of({name: text})
                self.assertEqual(1, len(found), found)
                self.assertTrue(found[0].startswith(f"{name}:2: "), found)

    def test_files_outside_the_rooms(self):
        for name in ("src/stray.cpp", "include/other/a.h", "src/unknown/a.cpp", "include/trainctl/unknown/a.h"):
            with self.subTest(name):
                self.assertEqual(1, len(problems_of({name: "\n"})))

    def test_the_ladder_has_no_cycle_and_a_cycle_is_found(self):
        self.assertIsNone(check_layers.find_cycle(check_layers.LADDER))
        self.assertIsNotNone(check_layers.find_cycle({"a": ["b"], "b": ["c"], "c": ["a"]}))


if __name__ == "__main__":
    unittest.main()
