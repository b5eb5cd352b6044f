"""Stopping by signals and going on: to the bit, alone and under mpirun."""

import signal
import time

import harness
from harness import TrainctlTest

# Long enough that a signal sent at step 3 arrives before the end.
LONG = ("job.steps=60", "training.global_batch_size=64")


class Signals(TrainctlTest):

    straight_runs = {}

    def straight(self, ranks):
        """Losses and last state of the run that nobody interrupts; made once."""
        if ranks not in self.straight_runs:
            process = self.train(settings=[*LONG, "job.run_dir='straight'"], ranks=ranks)
            self.straight_runs[ranks] = (self.losses(self.directory / "straight"), process.saved_states()[60])
        return self.straight_runs[ranks]

    def stop_by(self, process, send, attempt, after):
        """Sends a signal once `attempt` closed step `after`; returns the step it stopped at."""
        self.wait_for_step(process, after, attempt)
        send(process)
        self.assertEqual(process.wait(), 3, process.describe())
        step = process.stopped_at()
        self.assertIsNotNone(step, process.describe())
        self.assertLess(step, 60)
        self.assertGreaterEqual(step, after)
        self.assertEqual(process.errors(), [])
        self.assertIn(step, process.saved_states())
        self.assertEqual(max(self.losses()), step, "a step was begun and not saved, or saved and not reported")
        return step

    def resumed(self, before, step, **how):
        process = self.start_train("--resume", "auto", settings=LONG, **how)
        self.wait_until(lambda: process.loaded_state(), process, "a loaded state")
        self.assertEqual(process.loaded_state(), (step, before.saved_states()[step]), process.describe())
        return process

    def chain(self, senders, ranks):
        losses, state = self.straight(ranks)
        process = self.start_train(settings=LONG, ranks=ranks)
        for attempt, send in enumerate(senders, start=1):
            step = self.stop_by(process, send, attempt, 1 + max(self.losses(), default=0) if attempt > 1 else 3)
            process = self.resumed(process, step, ranks=ranks)
        self.assertEqual(process.wait(), 0, process.describe())
        self.assertEqual(self.losses(), losses)
        self.assertEqual(process.saved_states()[60], state)

    def test_under_mpirun(self):
        self.chain([lambda mpirun: mpirun.signal(signal.SIGUSR1),
                    # As srun and scancel do it: to a rank; here to one only, and all agree.
                    lambda mpirun: harness.os.kill(mpirun.ranks()[1], signal.SIGTERM)], ranks=2)

    def test_alone(self):
        self.chain([lambda process, number=number: process.signal(number)
                    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)], ranks=None)

    def test_hangup_and_echoes(self):
        def hang_up(process):
            process.signal(signal.SIGHUP)

        def as_timeout_does(process):
            process.signal(signal.SIGTERM)
            process.signal(signal.SIGTERM)

        self.chain([hang_up, as_timeout_does], ranks=None)

    def test_nohup(self):
        process = self.start_train(settings=LONG, launcher=["nohup"])
        self.wait_for_step(process, 3)
        process.signal(signal.SIGHUP)
        self.assertEqual(process.wait(), 0, process.describe())

    def test_fewer_steps_than_done(self):
        self.train(settings=["job.steps=6"])
        process = self.train("--resume", "auto", "--allow-change", "job.steps", settings=["job.steps=4"], code=2)
        self.one_error(process, "the checkpoint is at step 6, but job.steps is 4", "--resume STEP")

    def test_save_and_go_on(self):
        losses, state = self.straight(2)
        process = self.start_train(settings=[*LONG, "checkpoint.interval_steps=1000"], ranks=2)
        self.wait_for_step(process, 3)
        process.signal(signal.SIGUSR2)
        self.assertEqual(process.wait(), 0, process.describe())
        steps = sorted(process.saved_states())
        self.assertEqual(len(steps), 2, process.describe())
        self.assertLess(steps[0], 60)
        self.assertEqual(self.losses(), losses)
        self.assertEqual(process.saved_states()[60], state)

    def held_directory(self):
        """A run directory claimed by a process that left no trace: whoever starts listens for 45 s."""
        (self.run_dir / "attempts").mkdir(parents=True)
        (self.run_dir / "attempts" / "a0001").touch()

    def test_stop_while_waiting_for_the_run_directory(self):
        self.held_directory()
        ways = [(None, lambda process, number=number: process.signal(number))
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)]
        # mpirun passes USR1 on to all; srun and scancel may signal one rank only, and it need not be the one that waits.
        ways += [(2, lambda process: process.signal(signal.SIGUSR1)),
                 (2, lambda process: harness.os.kill(process.ranks()[1], signal.SIGTERM))]
        for ranks, send in ways:
            process = self.start_train(ranks=ranks, settings=["communication.timeout_s=5"])
            self.wait_until(lambda process=process: "waiting up to 45 s" in process.err, process, "the wait")
            sent = time.monotonic()
            send(process)
            self.assertEqual(process.wait(20), 3, process.describe())
            # A second or two on an idle machine; the wait would have lasted for 45.
            self.assertLess(time.monotonic() - sent, 8.0, process.describe())
            self.assertIn("nothing was started", process.err)
            self.assertEqual(process.errors(), [])
        self.assertEqual([path.name for path in self.run_dir.rglob("*")], ["attempts", "a0001"])

    def test_ranks_outlast_a_long_wait(self):
        # The wait is longer than what the ranks allow a message that makes no progress.
        self.held_directory()
        process = self.start_train(ranks=2, settings=["communication.timeout_s=2"])
        self.wait_until(lambda: "waiting up to 45 s" in process.err, process, "the wait")
        time.sleep(5)
        self.assertTrue(process.running(), process.describe())
        process.signal(signal.SIGUSR1)
        self.assertEqual(process.wait(20), 3, process.describe())

    def test_stop_before_the_first_step(self):
        # Whenever it comes during the start: nothing is trained, and the run can be gone on with.
        for delay in (0.0, 0.05, 0.1, 0.2):
            run_dir = self.directory / f"early-{delay}"
            settings = [*LONG, "model.layers=4", "model.vocab_size=32000", f"job.run_dir='{run_dir.name}'"]
            process = self.start_train(settings=settings, ranks=2)
            self.wait_until(lambda process=process: "cpus" in process.err, process, "the ranks")
            time.sleep(delay)
            process.signal(signal.SIGUSR1)
            self.assertEqual(process.wait(), 3, process.describe())
            self.assertEqual(process.errors(), [])
            trained = run_dir.exists() and (run_dir / "metrics.jsonl").exists() and self.losses(run_dir)
            self.assertEqual(bool(trained), "after saving" in process.err, process.describe())
            if not trained:
                self.assertRegex(process.err, "nothing was (started|trained)|nothing to save")

    def test_second_signal_leaves_at_once(self):
        # One step of this takes seconds.
        process = self.start_train(settings=["training.global_batch_size=16384", "training.micro_batch_size=8"])
        self.wait_until(lambda: "starting a new run at step 0" in process.err, process, "the start")
        time.sleep(0.3)
        process.signal(signal.SIGTERM)
        self.wait_until(lambda: "a second signal leaves at once" in process.err, process, "the answer to the first signal")
        sent = time.monotonic()
        process.signal(signal.SIGINT)
        self.assertEqual(process.wait(), 128 + signal.SIGINT, process.describe())
        self.assertLess(time.monotonic() - sent, 1.0)
        self.assertEqual(self.checkpoints(), [])
        # The lease of the dead process does not keep the next start waiting.
        again = self.train("--resume", "auto", settings=["job.steps=4"], seconds=20.0)
        self.assertIn("no checkpoint was ever committed, starting at step 0", again.err)
        self.assertEqual(len(self.losses()), 4)


if __name__ == "__main__":
    harness.main()
