"""Every command as its user meets it: help, misspellings, JSON, smoke, bench."""

import json
import os
import re
import subprocess
import tempfile

import harness
from harness import TrainctlTest


class Help(TrainctlTest):

    def verbs(self, *path):
        """The commands that a help text lists."""
        text = self.run_trainctl(*path, "--help").out
        listed = re.search(r"^Subcommands:\n((?:  .*\n)+)", text, re.MULTILINE)
        return re.findall(r"^  ([a-z]+)", listed[1], re.MULTILINE) if listed else []

    def test_every_command(self):
        found = [()]
        for path in found:  # grows while it is walked
            found += [(*path, verb) for verb in self.verbs(*path)]
        self.assertTrue({("train",), ("smoke",), ("data", "prepare"), ("ckpt", "verify"), ("config", "check"), ("bench", "step"),
                         ("version",)} <= set(found), found)
        for path in found:
            process = self.run_trainctl(*path, "--help")
            self.assertEqual(process.err, "")
            for part in ("exit codes:", "0 ok", "4 ", "8 "):
                self.assertIn(part, process.out, path)

    def test_unknown(self):
        for words, hint in ((("trian",), "did you mean `train`?"), (("data", "prepair"), "did you mean `prepare`?"),
                            (("train", "job.toml", "--resum", "auto"), "did you mean `--resume`?"),
                            (("train", "job.toml", "--sett=a=b"), "did you mean `--set`?"), (("ckpt",), "list, inspect, verify"),
                            ((), "train"), (("plan",), "not in this build"), (("train",), "JOB"),
                            (("data", "prepare", "--output", "x"), "--input"),
                            (("bench", "step", "--rounds", "many"), "--rounds")):
            process = self.run_trainctl(*words, code=2)
            self.one_error(process, hint)
            self.assertEqual(process.out, "")

    def test_numbers(self):
        # Every numeric option of these commands has a range of its own, and says it in words.
        seen = 0
        for group in ("config", "data", "bench"):
            for verb in self.verbs(group):
                text = self.run_trainctl(group, verb, "--help").out
                for option in re.findall(r"(--[a-z-]+) INT", text):
                    seen += 1
                    for value in ("-1", "many", "1.5", "99999999999999999999"):
                        line = self.one_error(self.run_trainctl(group, verb, option, value, code=2), value)
                        self.assertRegex(line, f"^error: {option}: expected (a whole number|at least|between)")
                        self.assertNotRegex(line, r"e\+|\d{19}\.|\[")
        self.assertGreater(seen, 20)

    def test_unknown_op(self):
        process = self.run_trainctl("bench", "op", "matmull", code=2)
        self.one_error(process, "found 'matmull'", "ops: ", "matmul")
        self.assertLess(process.seconds, 20)

    def test_errors_as_json(self):
        (self.directory / "bad.toml").write_text("[job]\nstepps = 1\n")
        (self.directory / "text.bin").write_bytes(b"")
        for words, code in ((("trian", "--json"), 2), (("ckpt", "list", "nowhere", "--json"), 4),
                            (("data", "inspect", "nowhere", "--json"), 4), (("bench", "step", "--preset", "tinny", "--json"), 2),
                            (("train", "nowhere.toml", "--json"), 2), (("config", "explain", "nosuch", "--json"), 2),
                            (("config", "init", "--preset", "tinny", "--json"), 2), (("config", "show", "bad.toml", "--json"), 2),
                            (("config", "check", "bad.toml", "--json"), 2), (("data", "verify", "text", "--json"), 4),
                            (("data", "prepare", "--input", "nowhere", "--output", "x", "--json"), 4),
                            (("data", "verify", "--job", "job.toml", "--json"), 4), (("bench", "op", "nosuch", "--batch", "0", "--json"), 2)):
            process = self.run_trainctl(*words, code=code)
            answer = json.loads(process.err)
            self.assertEqual(answer["exit"], code, process.describe())
            self.assertTrue(answer["error"]["message"])
            self.assertTrue(answer["error"]["code"])
            if process.out:  # an answer of the command's own, which agrees
                self.assertFalse(json.loads(process.out)["ok"])

    def test_checkpoint_errors_as_json(self):
        self.train(settings=["job.steps=4"])
        (self.directory / "elsewhere").mkdir()
        (self.directory / "elsewhere" / "notes.txt").write_text("")
        (self.directory / "empty").mkdir()
        checkpoint = next((self.run_dir / "checkpoints").iterdir())
        paths = ["nowhere", "elsewhere", "job.toml", "empty"]
        cases = [(verb, path) for verb in ("list", "inspect", "verify") for path in paths if (verb, path) != ("list", "empty")]
        (checkpoint / "MANIFEST").write_text("{}")
        cases += [(verb, path) for verb in ("inspect", "verify") for path in ("run", str(checkpoint))]
        for verb, path in cases:
            process = self.run_trainctl("ckpt", verb, path, "--json", code=4)
            answer = json.loads(process.err)
            self.assertEqual((answer["exit"], process.out), (4, ""), process.describe())
            self.assertTrue(answer["error"]["code"])
            # The same words as without --json.
            text = self.run_trainctl("ckpt", verb, path, code=4)
            self.assertEqual(text.err, f"error: {answer['error']['message']}\n")
        for words in (("list",), ("list", "run", "more"), ("lst", "run"), ("verify", "--jsn", "run")):
            answer = json.loads(self.run_trainctl("ckpt", *words, "--json", code=2).err)
            self.assertEqual(answer["exit"], 2)

    def test_json_answers(self):
        self.train(settings=["job.steps=4"])
        for words in (("version", "--json"), ("config", "show", "job.toml", "--json"), ("config", "explain", "job.seed", "--json"),
                      ("config", "schema"), ("ckpt", "list", "run", "--json"), ("ckpt", "inspect", "run", "--json"),
                      ("ckpt", "verify", "run", "--json"), ("data", "inspect", "text", "--json"), ("data", "verify", "text", "--json"),
                      ("data", "inspect", "--job", "job.toml", "--step", "2", "--json")):
            process = self.run_trainctl(*words)
            self.assertIsInstance(json.loads(process.out), dict, process.describe())

    def test_closed_output(self):
        with open("/dev/full", "w") as device:
            full = subprocess.run([harness.binary, "version"], stdout=device, stderr=subprocess.PIPE, timeout=10)
        self.assertEqual(full.returncode, 5)
        self.assertIn(b"standard output", full.stderr)

    def test_training_outlives_its_terminal(self):
        reader, writer = os.pipe()
        process = subprocess.Popen([harness.binary, "train", "job.toml"], cwd=self.directory, stdout=writer, stderr=writer)
        os.close(writer)
        os.read(reader, 1)
        os.close(reader)
        self.assertEqual(process.wait(60), 0)
        self.assertEqual(len(self.losses()), 12)


class Smoke(TrainctlTest):

    def test_alone_and_on_ranks(self):
        for ranks in (None, 2, 3):
            with tempfile.TemporaryDirectory(dir=self.directory) as temporary:
                launcher = ["env", f"TMPDIR={temporary}", *(harness.mpirun(ranks) if ranks else [])]
                process = self.run_trainctl("smoke", "--json", launcher=launcher, seconds=120)
                answer = json.loads(process.out)
                self.assertTrue(answer["passed"], process.describe())
                self.assertEqual(answer["ranks"], ranks or 1)
                self.assertEqual([name for name in os.listdir(temporary) if name.startswith("trainctl")], [])


class Cores(TrainctlTest):

    def test_all_cores_under_mpirun(self):
        cores = len(os.sched_getaffinity(0))
        if cores < 2:
            self.skip("needs two cores")
        settings = ["device.threads='auto'", "job.steps=4"]
        process = self.train(settings=settings, launcher=["mpirun", "-n", "1"])
        self.assertIn(f"{cores} threads on cpus", process.err)
        self.assertRegex(process.err, rf"kernels, {cores} threads?,")
        # A binding that the user asked for is kept.
        bound = self.train(settings=[*settings, "job.run_dir='bound'"], launcher=["taskset", "-c", str(min(os.sched_getaffinity(0)))])
        self.assertIn("kernels, 1 thread,", bound.err)
        bound = self.train(settings=[*settings, "job.run_dir='bound2'"], launcher=["mpirun", "--bind-to", "core", "-n", "1"])
        self.assertIn("kernels, 1 thread,", bound.err)


class Stages(TrainctlTest):

    def test_the_stage_that_was_asked_for_is_the_one_that_runs(self):
        # Three ranks divide neither the parameters nor any unit of them.
        held = []
        for stage in (0, 1, 2):
            settings = [f"memory.zero_stage={stage}", f"job.run_dir='run-{stage}'", "training.global_batch_size=12", "job.steps=4",
                        "training.eval_interval=0"]
            process = self.train(settings=settings, ranks=3)
            self.assertIn(f"3 ranks = data 3 x tensor 1 x pipeline 1, ZeRO stage {stage},", process.err)
            table = dict(re.findall(r"\]   ([a-z ]*[a-z]) +(\d+)  ", process.err))
            held.append((int(table["optimizer first moment"]), int(table["gradients"])))
        (moment_0, gradients_0), (moment_1, gradients_1), (moment_2, gradients_2) = held
        # Padded to equal thirds.
        self.assertEqual((moment_0, moment_0), (3 * moment_1, 3 * moment_2))
        self.assertEqual((gradients_0, gradients_0), (gradients_1, 3 * gradients_2))


class Bench(TrainctlTest):

    def test_step(self):
        process = self.run_trainctl("bench", "step", "--preset", "tiny", "--sequence", "64", "--rounds", "2", "--steps", "5", "--threads",
                                    "1", "--json")
        answer = json.loads(process.out)
        self.assertGreater(answer["gemm_share"], 0.0)
        self.assertGreater(answer["tokens_per_s"], 0.0)
        self.assertLess(answer["loss_last"], answer["loss_first"])
        self.assertEqual(process.errors(), [])
        shown = self.run_trainctl("bench", "step", "--preset", "tiny", "--sequence", "64", "--rounds", "1", "--threads", "1").out
        self.assertNotRegex(shown, r"\d\.\d{4,}|\b0\.0+\b")

    def test_memory(self):
        answer = json.loads(self.run_trainctl("bench", "memory", "--json").out)
        self.assertTrue(answer["ok"])
        self.assertEqual([(row["zero_stage"], row["data_ranks"]) for row in answer["states"]],
                         [(stage, ranks) for stage in range(4) for ranks in (1, 2, 4, 8)])
        self.assertEqual([row["checkpointing"] for row in answer["activations"]], ["none", "selective", "full"])
        for row in answer["states"]:
            self.assertLess(abs(row["found"] / row["expected"] - 1), 0.02, row)
        for row in answer["activations"]:
            self.assertLessEqual(row["found"], row["at_most"], row)
        shown = self.run_trainctl("bench", "memory").out
        self.assertEqual((shown.count(" ok"), shown.count("WRONG")), (19, 0))
        # Of a very small model padding is more than the tolerance.
        self.one_error(self.run_trainctl("bench", "memory", "--preset", "tiny", "--sequence", "64", code=2), "choose a larger --preset")

    def test_step_of_two_ranks(self):
        for layout in (("--overlap", "off"), ("--tensor", "2"), ("--pipeline", "2", "--accumulation", "2")):
            answer = json.loads(self.run_trainctl("bench", "step", "--preset", "tiny", "--sequence", "64", "--rounds", "2", "--threads", "1",
                                                  *layout, "--json", ranks=2).out)
            self.assertEqual(answer["ranks"], 2)
            self.assertGreater(answer["communication_share"], 0.0, layout)
            self.assertLess(answer["communication_share"], 1.0, layout)

    def test_the_option_is_named_that_was_typed(self):
        for verb, option, value in (("step", "--preset", "tinny"), ("op", "--preset", "tinny"), ("step", "--compute", "fp64"),
                                    ("op", "--compute", "fp64"), ("step", "--zero-stage", "4"), ("step", "--sequence", "99999999"),
                                    ("op", "--batch", "99999999"), ("step", "--micro-batch", "99999999"),
                                    ("step", "--threads", "99999"), ("memory", "--preset", "tinny")):
            process = self.run_trainctl("bench", verb, option, value, code=2)
            line = self.one_error(process, f"error: {option} {value}: {option} ")
            for wrong in ("--set", "model.", "precision.compute ", "training."):
                self.assertNotIn(wrong, line.partition("; ")[0])
        self.one_error(self.run_trainctl("bench", "step", "--tensor", "3", code=2), "error: --tensor 3, --pipeline 1: 1 rank cannot be split")


if __name__ == "__main__":
    harness.main()
