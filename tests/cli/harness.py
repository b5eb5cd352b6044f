"""Runs the built trainctl as a process, alone or under mpirun, for the tests of this folder.

usage of every test file: FILE.py TRAINCTL [unittest arguments]
"""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

binary = ""  # absolute path of trainctl, set by main()

JOB = """
[job]
name = "cli-test"
run_dir = "run"
steps = 12
[model]
preset = "tiny"
layers = 1
[data]
train = ["text"]
validation_split = 0.02
[training]
micro_batch_size = 4
global_batch_size = 16
sequence_length = 32
eval_interval = 7
eval_batches = 1
[precision]
compute = "fp32"
[schedule]
warmup_steps = 3
[checkpoint]
interval_steps = 4
async = false
keep_latest = 3
[monitoring]
plain_interval_s = 0.001
[device]
kind = "cpu"
threads = 1
"""

WORDS = """the of a sailor and sea wind house old river to in was black night morning stone went said under light
she he with from harbour ship rope letter garden never long before again""".split()


def english_like(paragraphs, seed):
    """Text with words and sentences, the same for the same seed."""
    draw = random.Random(seed)
    lines = []
    for _ in range(paragraphs):
        words = [draw.choice(WORDS) for _ in range(draw.randint(5, 60))]
        lines.append(" ".join(words).capitalize() + ".")
    return "\n\n".join(lines) + "\n"


def mpirun(ranks):
    return ["mpirun", "--oversubscribe", "-n", str(ranks)]


class Process:
    """A started command. Its output goes to files, so that it never waits for us."""

    def __init__(self, command, directory):
        self.directory = pathlib.Path(directory)
        self.command = [str(word) for word in command]
        self.outputs = [tempfile.mkstemp(dir=self.directory, prefix=".output-") for _ in range(2)]
        self.started = time.monotonic()
        self.process = subprocess.Popen(self.command, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=self.outputs[0][0],
                                        stderr=self.outputs[1][0], start_new_session=True)
        for descriptor, _ in self.outputs:
            os.close(descriptor)
        self.pid = self.process.pid
        self.code = None
        self.seconds = None

    def _read(self, which):
        return pathlib.Path(self.outputs[which][1]).read_text(errors="replace")

    @property
    def out(self):
        return self._read(0)

    @property
    def err(self):
        return self._read(1)

    def running(self):
        return self.process.poll() is None

    def wait(self, seconds=60.0):
        """The exit code; 128 + N when a signal ended the process, as shells say."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(f"still running after {seconds} s: {self.describe()}") from None
        self.code = code if code >= 0 else 128 - code
        self.seconds = time.monotonic() - self.started
        return self.code

    def signal(self, number):
        os.kill(self.pid, number)

    def end(self):
        if self.running():
            # mpirun gives every rank a process group of its own.
            for pid in [*self.ranks().values(), self.pid]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.process.wait()

    def ranks(self):
        """Process ids of the ranks below mpirun, by rank."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if parent != self.pid:
                    continue
                variables = (entry / "environ").read_bytes().split(b"\0")
            except (OSError, IndexError, ValueError):
                continue
            for variable in variables:
                if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                    found[int(variable.partition(b"=")[2])] = int(entry.name)
        return found

    def describe(self):
        return f"$ {' '.join(self.command)}\nexit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"

    # What trainctl said.

    def errors(self):
        """First lines of the error messages."""
        return [line for line in self.err.splitlines() if line.startswith("error:")]

    def saved_states(self):
        """Step -> state hash of each checkpoint that was reported as saved."""
        return {int(step): state for step, state in re.findall(r"checkpoint step (\d+): .* state ([0-9a-f]{16}),", self.err)}

    def loaded_state(self):
        found = re.search(r"loaded step (\d+), state ([0-9a-f]{16})", self.err)
        return (int(found[1]), found[2]) if found else None

    def stopped_at(self):
        found = re.search(r"stopped at step (\d+) of \d+ after saving; continue with --resume auto", self.err)
        return int(found[1]) if found else None


class TrainctlTest(unittest.TestCase):
    """Every test has a directory of its own with job.toml and the token files text.bin, text.idx."""

    paragraphs = 400

    @classmethod
    def setUpClass(cls):
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="trainctl-cli-"))
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        (cls.shared / "text.txt").write_text(english_like(cls.paragraphs, 1))
        subprocess.run([binary, "data", "prepare", "--input", "text.txt", "--output", "text", "--tokenizer", "byte"],
                       cwd=cls.shared, check=True, capture_output=True, timeout=60)

    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="trainctl-cli-"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        for name in ("text.bin", "text.idx", "text.json"):
            shutil.copy(self.shared / name, self.directory)
        (self.directory / "job.toml").write_text(JOB)
        self.run_dir = self.directory / "run"

    def start(self, *arguments, ranks=None, launcher=None):
        """Starts trainctl alone, or on `ranks` ranks. It is ended, if need be, when the test is over."""
        prefix = launcher if launcher is not None else mpirun(ranks) if ranks else []
        process = Process([*prefix, binary, *arguments], self.directory)
        self.addCleanup(process.end)
        return process

    def run_trainctl(self, *arguments, code=0, seconds=60.0, **how):
        process = self.start(*arguments, **how)
        self.assertEqual(process.wait(seconds), code, process.describe())
        return process

    def train(self, *arguments, settings=(), **how):
        return self.run_trainctl("train", "job.toml", *set_options(settings), *arguments, **how)

    def start_train(self, *arguments, settings=(), **how):
        return self.start("train", "job.toml", *set_options(settings), *arguments, **how)

    def one_error(self, process, *parts):
        """Exactly one message, and it holds all `parts`."""
        self.assertEqual(len(process.errors()), 1, process.describe())
        text = process.err[process.err.index("error:"):]
        for part in parts:
            self.assertIn(part, text, process.describe())
        return process.errors()[0]

    def losses(self, run_dir=None):
        """Step -> loss in metrics.jsonl, of the last attempt that made the step."""
        newest = {}
        for record in metrics(run_dir or self.run_dir):
            self.assertGreaterEqual(record["attempt"], 1, record)
            if record["type"] == "step" and record["attempt"] >= newest.get(record["step"], (0, 0.0))[0]:
                newest[record["step"]] = (record["attempt"], record["loss"])
        return {step: loss for step, (_, loss) in newest.items()}

    def checkpoints(self, run_dir=None):
        """Directories of committed checkpoints, oldest first."""
        found = ((run_dir or self.run_dir) / "checkpoints").glob("s*/COMMIT")
        return sorted(path.parent for path in found)

    def wait_until(self, holds, process, what, seconds=30.0):
        deadline = time.monotonic() + seconds
        while not holds():
            self.assertTrue(process.running(), f"ended before {what}\n{process.describe()}")
            self.assertLess(time.monotonic(), deadline, f"no {what} in {seconds} s\n{process.describe()}")
            time.sleep(0.003)

    def wait_for_step(self, process, step, attempt=1, run_dir=None):
        path = (run_dir or self.run_dir) / "metrics.jsonl"
        text = f'"attempt":{attempt},"step":{step},'
        self.wait_until(lambda: path.exists() and text in path.read_text(), process, f"step {step}")

    def skip(self, why):
        """Visible in the summary of the whole test command."""
        print(f"SKIPPED: {self.id()}: {why}", flush=True)
        self.skipTest(why)


def set_options(settings):
    return [word for setting in settings for word in ("--set", setting)]


def metrics(run_dir):
    lines = (pathlib.Path(run_dir) / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def main():
    global binary
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    binary = os.path.abspath(sys.argv.pop(1))
    # A test must not inherit a launcher's view of the world.
    for name in list(os.environ):
        if name.startswith(("OMPI_COMM", "OMPI_MCA_orte", "PMIX_", "SLURM_")):
            del os.environ[name]
    unittest.main(module="__main__", verbosity=2)
