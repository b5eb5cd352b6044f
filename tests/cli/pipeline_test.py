"""Pipeline stages as processes under mpirun."""

import re

import harness
from harness import TrainctlTest


class Pipeline(TrainctlTest):

    shape = ("model.layers=5", "model.tie_embeddings=false", "training.micro_batch_size=2", "training.eval_interval=4", "job.steps=8",
             "checkpoint.interval_steps=4")

    def stages(self, stages, *arguments, ranks, run_dir, settings=()):
        settings = [*self.shape, f"parallel.pipeline_parallel_size={stages}", f"job.run_dir='{run_dir}'", *settings]
        process = self.train(*arguments, settings=settings, ranks=ranks, seconds=120)
        self.assertIn("bytes, as planned", process.err)
        return process

    def test_stages_train_what_one_rank_trains(self):
        # Neither two nor four stages divide five blocks.
        alone = self.train(settings=[*self.shape, "job.run_dir='alone'"])
        expected = self.losses(self.directory / "alone")
        validation = re.findall(r"validation loss [0-9.]+", alone.err)
        self.assertEqual(len(validation), 2)
        for stages in (2, 4):
            process = self.stages(stages, ranks=stages, run_dir=f"stages-{stages}")
            self.assertEqual(self.losses(self.directory / f"stages-{stages}"), expected)
            self.assertEqual(re.findall(r"validation loss [0-9.]+", process.err), validation)
            self.assertIn(f"{stages} ranks = data 1 x tensor 1 x pipeline {stages}", process.err)
            self.assertRegex(process.err, r"  0 \(0,0,0\)  1 \(0,0,1\)")
            self.assertRegex(process.err, r"weights +\d+ +\d+")
        both = self.stages(2, ranks=4, run_dir="both")
        self.assertRegex(both.err, r"  0 \(0,0,0\)  1 \(1,0,0\)  2 \(0,0,1\)  3 \(1,0,1\)")
        for step, loss in self.losses(self.directory / "both").items():
            self.assertAlmostEqual(loss, expected[step], delta=2e-6 * expected[step])

    def test_another_number_of_stages_continues(self):
        self.train(settings=[*self.shape, "job.run_dir='alone'"])
        self.stages(2, ranks=2, run_dir="run")
        before = self.losses()
        self.stages(4, "--resume", "4", ranks=4, run_dir="run")
        self.assertEqual([record["step"] for record in harness.metrics(self.run_dir) if record["type"] == "step" and record["attempt"] == 2],
                         [5, 6, 7, 8])
        self.assertEqual(self.losses(), before)
        self.assertEqual(before, self.losses(self.directory / "alone"))

    def test_what_does_not_fit_is_refused_with_the_numbers(self):
        for settings, ranks, parts in (
            (["parallel.pipeline_parallel_size=2"], 2, ("model.layers 1", "pipeline_parallel_size 2")),
            (["model.layers=5", "parallel.pipeline_parallel_size=2"], 3, ("3 ranks", "pipeline_parallel_size 2 = 2")),
            (["model.layers=5", "parallel.pipeline_parallel_size=2", "parallel.pipeline_schedule='interleaved'",
              "parallel.virtual_stages=2", "training.micro_batch_size=16"], 2, ("pipeline_parallel_size 2 micro-batches", "found 1")),
        ):
            self.one_error(self.train(settings=settings, ranks=ranks, code=2), *parts)
            self.assertFalse(self.run_dir.exists())


if __name__ == "__main__":
    harness.main()
