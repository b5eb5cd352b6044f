"""What goes wrong while a job trains: numbers that are none, an error on one rank only, jobs beside each other."""

import os
import shutil
import socket
import struct

import harness
from harness import TrainctlTest


# For four ranks; their samples are the same.
LAYOUT = ("model.layers=2", "parallel.tensor_parallel_size=2", "parallel.pipeline_parallel_size=2")


class Faults(TrainctlTest):

    def test_loss_is_not_a_number(self):
        # The first update makes weights whose products are beyond what a float can hold.
        settings = ["optimizer.lr=1e15", "schedule.warmup_steps=0", "schedule.kind='constant'",
                    "fault_tolerance.nonfinite_max_consecutive=3"]
        for ranks, layout in ((None, ()), (2, ()), (4, LAYOUT)):
            run_dir = self.directory / f"run-{ranks}"
            process = self.train(settings=[*settings, *layout, f"job.run_dir='{run_dir.name}'"], ranks=ranks, code=7)
            self.one_error(process, "diverged at step 5", "4 non-finite steps in a row", "optimizer.lr")
            steps = [record for record in harness.metrics(run_dir) if record["type"] == "step"]
            self.assertEqual([(step["loss"], step["applied"], step["skipped"]) for step in steps[1:]],
                             [("nan", False, count) for count in (1, 2, 3, 4)])
            self.assertRegex(process.err, r" step=2 .* loss=nan .* skipped=1 applied=0")
            self.assertRegex(process.err, r"step 2: loss nan .*1 in a row, 1 in the last 1000 steps")

    def test_bad_data_on_one_rank_in_the_middle(self):
        # The last rank works where a file of the same name is damaged.
        elsewhere = self.directory / "elsewhere"
        elsewhere.mkdir()
        for name in ("text.bin", "text.idx", "job.toml"):
            shutil.copy(self.directory / name, elsewhere / name)
        size = os.path.getsize(elsewhere / "text.bin")
        (elsewhere / "text.bin").write_bytes(struct.pack("<H", 300) * (size // 2))
        for ranks, layout in ((2, ()), (4, LAYOUT)):
            job = [harness.binary, "train", "job.toml", *harness.set_options([*layout, f"job.run_dir='{self.run_dir}'"])]
            launcher = [*harness.mpirun(ranks - 1), *job, ":", "-n", "1", "-wdir", elsewhere, *job]
            process = harness.Process(launcher, self.directory)
            self.addCleanup(process.end)
            self.assertEqual(process.wait(), 4, process.describe())
            self.assertLess(process.seconds, 30)
            line = self.one_error(process, "text.bin", "300")
            self.assertTrue(line.startswith(f"error: [rank {ranks - 1} {socket.gethostname()}] "), line)
            self.assertEqual(self.checkpoints(), [])
            shutil.rmtree(self.run_dir)

    def test_data_cut_under_the_run(self):
        # Files of many shards are opened again and again; one that is open is cut.
        for ranks in (None, 2):
            shutil.copy(self.shared / "text.bin", self.directory)
            settings = ["job.steps=1000000", "checkpoint.interval_steps=100000", f"job.run_dir='run-{ranks}'"]
            running = self.start_train(settings=settings, ranks=ranks)
            run_dir = self.directory / f"run-{ranks}"
            self.wait_for_step(running, 5, run_dir=run_dir)
            os.truncate(self.directory / "text.bin", 1000)
            self.assertEqual(running.wait(), 4, running.describe())
            (step, state), = running.saved_states().items()
            self.one_error(running, "text.bin", "expected", "found", f"that of step {step}", "--resume auto")
            self.assertGreaterEqual(step, 5)
            self.one_error(self.train("--resume", "auto", settings=settings, code=4, ranks=ranks), "text.bin")
            shutil.copy(self.shared / "text.bin", self.directory)
            resumed = self.train("--resume", "auto", "--allow-change", "job.steps", ranks=ranks,
                                 settings=[*settings, f"job.steps={step + 2}"])
            self.assertEqual(resumed.loaded_state(), (step, state))

    def test_no_update_at_all(self):
        settings = ["precision.compute='fp16'", "precision.loss_scale.initial=1e12", "precision.loss_scale.hysteresis=1"]
        process = self.train(settings=settings, code=7)
        self.one_error(process, "0 of 12 steps applied an update", "precision.loss_scale.initial")
        steps = [record for record in harness.metrics(self.run_dir) if record["type"] == "step"]
        self.assertEqual([(step["applied_updates"], step["skipped"]) for step in steps], [(0, step) for step in range(1, 13)])
        self.assertRegex(process.err, r" step=12 .* updates=0")
        self.assertRegex(self.train(settings=["job.run_dir='fine'"]).err, r"finished at step 12, 12 updates applied")

    def test_two_jobs_on_the_same_data(self):
        # Nothing is kept beside the data, so there is nothing to race for.
        before = self.data_files()
        jobs = [self.start_train(settings=[f"job.run_dir='{name}'"], ranks=2) for name in ("one", "two")]
        for job in jobs:
            self.assertEqual(job.wait(), 0, job.describe())
        self.assertEqual(self.losses(self.directory / "one"), self.losses(self.directory / "two"))
        self.assertEqual(self.data_files(), before)

    def data_files(self):
        """Everything in the test's directory but the jobs' own; with sizes and times of change."""
        found = [path for path in self.directory.iterdir() if path.name not in ("one", "two") and path.name[0] != "."]
        return sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in found)


class RanksThatDisagree(TrainctlTest):
    """One mpirun, ranks with different arguments: as with job files or data of one name on different hosts."""

    def both(self, first, second, code):
        def rank(settings):
            return ["-n", "1", harness.binary, "train", "job.toml", *harness.set_options(settings)]
        process = harness.Process([*harness.mpirun(1)[:-2], *rank(first), ":", *rank(second)], self.directory)
        self.addCleanup(process.end)
        self.assertEqual(process.wait(), code, process.describe())
        return process

    def test_other_jobs(self):
        for setting, text in (("job.seed=2", "seed"), ("optimizer.lr=1e-5", "lr"), ("training.sequence_length=64", "sequence_length"),
                              ("memory.zero_stage=2", "zero_stage"), ("job.steps=1000", "steps"), ("precision.compute='bf16'", "compute")):
            process = self.both([], [setting], 2)
            self.one_error(process, "rank 1", "was given another job than rank 0", text)
            self.assertFalse(self.run_dir.exists(), process.describe())

if __name__ == "__main__":
    harness.main()
