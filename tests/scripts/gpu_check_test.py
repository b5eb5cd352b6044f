"""gpu_check.sh run: every stage tells what became of it, whatever the machine has; stand-ins for programs and tools."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "gpu_check.sh"

STEP = {"type": "bench_step", "tokens_per_s": 400000.0, "model_flops_per_s": 3.956e14, "gemm_flops_per_s": 6e14, "gemm_share": 0.66}
OPS = {
    "type": "bench_op",
    "rows": [
        {"name": "qkv forward", "seconds": 1e-3, "flops": 5e11, "bytes": 0.0, "worst_error": 0.0, "share_of_ceiling": 0.8},
        {"name": "swiglu forward", "seconds": 1e-4, "flops": 0.0, "bytes": 3e8, "worst_error": 0.0, "share_of_ceiling": 0.9},
    ],
}
NO_GPU = 'echo "SKIPPED: all cases: no CUDA device: no driver"; exit 77'
GOOD_TESTS = 'echo "All tests passed (9 assertions in 3 test cases)"'
GOOD_TRAINCTL = f"""case "$*" in
    smoke*) echo '{{"ok":true}}' ;;
    *op*) echo '{json.dumps(OPS, separators=(",", ":"))}' ;;
    *llama-7b*) echo 'error: expected 112 GB on the GPU, found 80 GB' >&2; exit 5 ;;
    *) echo '{json.dumps(STEP)}' ;;
esac"""


class GpuCheck(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        for name in ("bundle/bin", "bundle/lib", "tools"):
            (self.folder / name).mkdir(parents=True)
        shutil.copy(SCRIPT, self.folder / "bundle")
        self.write("bundle/bin/test_cuda", GOOD_TESTS)
        self.write("bundle/bin/trainctl", GOOD_TRAINCTL)
        self.write("tools/nvidia-smi", 'case "$*" in *memory*) echo 4321 ;; *driver*) echo 580.1 ;; *) echo "NVIDIA H200" ;; esac')
        # As `env PROGRAM` does without the tool; notes that it was asked.
        self.write("tools/compute-sanitizer", 'while [ "${1#--}" != "$1" ]; do shift 2; done; exec "$@"')
        self.write("tools/python3", "exit 1")  # no torch

    def write(self, name, text):
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def run_check(self, seconds=60):
        """Exit code, stages by name, what was printed."""
        environment = {"PATH": f"{self.folder}/tools:{os.environ['PATH']}", "TRAINCTL_GPU_CHECK_SECONDS": str(seconds)}
        done = subprocess.run(
            [self.folder / "bundle/gpu_check.sh", "run"], cwd=self.folder, env=environment, capture_output=True, text=True,
            timeout=50, check=False)
        record = json.loads((self.folder / "gpu_check.json").read_text())
        return done.returncode, {stage["stage"]: stage for stage in record["stages"]}, done.stdout

    def test_without_a_gpu_every_stage_says_so(self):
        self.write("bundle/bin/test_cuda", NO_GPU)
        code, stages, text = self.run_check()
        self.assertEqual(5, code)
        self.assertEqual(15, len(stages))
        for stage in stages.values():
            self.assertEqual("skipped", stage["state"])
            self.assertEqual("no CUDA device: no driver", stage["text"])
        self.assertIn("0 stages passed, 0 failed, 15 skipped", text)

    def test_with_a_gpu_every_stage_runs_and_leaves_its_numbers(self):
        code, stages, text = self.run_check()
        self.assertEqual(0, code, text)
        for name in ("machine", "tests", "fragments", "memcheck", "racecheck", "smoke", "ops", "step gpt2-124m", "step llama-3b",
                     "step gpt2-124m --cuda-graphs"):
            self.assertEqual("passed", stages[name]["state"], name)
        self.assertIn("625.0 TFLOP/s of products, 3.333 TB/s of copies", stages["ops"]["text"])
        step = stages["step gpt2-1558m"]
        self.assertEqual(0.4, step["data"]["mfu"])
        self.assertEqual(4321, step["data"]["memory_mib"])
        self.assertEqual(STEP, step["data"]["bench"])
        self.assertIn("MFU 40.0 %, 66.0 % of the rate of its products, 4321 MiB", step["text"])
        self.assertEqual("skipped", stages["step llama-7b"]["state"])
        self.assertIn("does not fit: error: expected 112 GB", stages["step llama-7b"]["text"])
        self.assertEqual("Python has no torch", stages["torch"]["text"])

    def test_a_failed_stage_fails_the_check_and_the_others_still_run(self):
        self.write("bundle/bin/test_cuda", 'case "$*" in *~*) echo "cuda norms: FAILED:"; exit 1 ;; *) echo "All tests passed" ;; esac')
        code, stages, _ = self.run_check()
        self.assertEqual(1, code)
        self.assertEqual("failed", stages["tests"]["state"])
        self.assertIn("cuda norms: FAILED", stages["tests"]["text"])
        self.assertEqual("passed", stages["step llama-3b"]["state"])

    def test_what_a_sanitizer_finds_fails_the_check(self):
        self.write("tools/compute-sanitizer", 'case "$*" in *racecheck*) echo "ERROR: Race reported"; exit 9 ;; esac')
        code, stages, _ = self.run_check()
        self.assertEqual(1, code)
        self.assertEqual("passed", stages["memcheck"]["state"])
        self.assertEqual("failed", stages["racecheck"]["state"])
        self.assertIn("Race reported", stages["racecheck"]["text"])

    def test_a_stage_that_hangs_is_cut_off_and_the_check_ends_in_time(self):
        self.write("bundle/bin/trainctl", 'case "$*" in smoke*) sleep 100 ;; *) echo "{}" ;; esac')
        code, stages, _ = self.run_check(seconds=4)
        self.assertEqual(1, code)
        self.assertEqual("failed", stages["smoke"]["state"])
        self.assertIn("ended by its limit", stages["smoke"]["text"])
        self.assertEqual("failed", stages["step gpt2-124m"]["state"])

    def test_libraries_that_the_programs_miss_are_named(self):
        (self.folder / "bundle/bin/test_cuda").unlink()
        compiler = shutil.which("cc")
        if compiler is None:
            self.skipTest("no C compiler")
        library = self.folder / "libnccl.so.99"
        source = self.folder / "program.c"
        source.write_text("int nothing(void) { return 0; }\n")
        subprocess.run([compiler, "-shared", "-Wl,-soname,libnccl.so.99", "-o", library, source], check=True)
        source.write_text("int nothing(void); int main(void) { return nothing(); }\n")
        subprocess.run([compiler, "-o", self.folder / "bundle/bin/test_cuda", source, library], check=True)
        code, stages, _ = self.run_check()
        self.assertEqual(5, code)
        self.assertIn("expected libnccl.so.99 in /usr/local/cuda*", stages["machine"]["text"])


if __name__ == "__main__":
    unittest.main()
