"""kill -9 of one rank or all at named points of a save, its commit and the removal of old checkpoints.

Whatever was killed where, a start with --resume auto trains on to the very weights of a run that nothing happened to.
TRAINCTL_TRIALS=FIRST:END chooses trials (scripts/fault_campaign.sh); by default there are a few.
"""

import os
import unittest

import harness
from harness import TrainctlTest

# What a point is called, the call, the beginning of the last part of its path. Temporary names are `.NAME.part`.
CALLS = (
    ("the checkpoint's directory", "mkdir", "s0000"),
    ("the payload is created", "create", ".r0000"),
    ("the payload is written", "write", ".r0000"),
    ("the payload is synced", "fsync", ".r0000"),
    ("the payload is named", "rename", "r0000"),
    ("MANIFEST is created", "create", ".MANIFEST"),
    ("MANIFEST is synced", "fsync", ".MANIFEST"),
    ("MANIFEST is named", "rename", "MANIFEST"),
    ("COMMIT is created", "create", ".COMMIT"),
    ("COMMIT is synced", "fsync", ".COMMIT"),
    ("COMMIT is named", "rename", "COMMIT"),
    ("the directory of checkpoints is synced", "fsync", "checkpoints"),
    ("the journal is written", "write", "a0001.log"),
    ("the journal is synced", "fsync", "a0001.log"),
    ("COMMIT of an old one is removed", "unlink", "COMMIT"),
    ("the payload of an old one is removed", "unlink", "r0000"),
    ("MANIFEST of an old one is removed", "unlink", "MANIFEST"),
    ("the directory of an old one is removed", "rmdir", "s0000"),
)
POINTS = [(when, *call) for call in CALLS for when in ("before", "after")]
VICTIMS = ("0", "1", "all")
# Of POINTS x VICTIMS x saves; by default around the commit and the removal, one rank or all.
USUAL = (21 + 36 * 2, 28 + 36 * 2, 8 + 36)


def trials():
    asked = os.environ.get("TRAINCTL_TRIALS")
    if asked is None:
        return USUAL
    first, end = asked.split(":")
    return range(int(first), int(end))


class KilledAtAPoint(TrainctlTest):

    settings = ("job.steps=7", "checkpoint.interval_steps=1", "checkpoint.keep_latest=2", "training.eval_interval=0")

    def trial(self, number, straight):
        when, what, call, name = POINTS[number % len(POINTS)]
        victims = VICTIMS[number // len(POINTS) % len(VICTIMS)]
        turn = number // (len(POINTS) * len(VICTIMS))  # which save it is
        behind = ("checkpoint.async=true" if turn % 2 else "checkpoint.async=false",)
        folder = self.directory / f"trial-{number}"
        folder.mkdir()
        settings = (f"job.run_dir='{folder}/run'", *self.settings, *behind)
        launcher = [*harness.mpirun(2), "-x", f"LD_PRELOAD={os.environ['TRAINCTL_KILL_SHIM']}",
                    "-x", f"TRAINCTL_KILL_AT={when}:{call}:{name}:{2 + turn}:{victims}:{folder}"]
        killed = self.start("train", "job.toml", *harness.set_options(settings), launcher=launcher)
        self.assertNotIn(killed.wait(60), (0, 3), killed.describe())
        self.assertTrue((folder / "reached").exists(), killed.describe())
        resumed = self.train("--resume", "auto", settings=settings, ranks=2)
        self.assertEqual(resumed.saved_states()[7], straight, resumed.describe())

    def test_resumed_run_has_the_same_weights(self):
        straight = self.train(settings=("job.run_dir='straight'", *self.settings), ranks=2).saved_states()[7]
        done = 0
        for number in trials():
            when, what, _, _ = POINTS[number % len(POINTS)]
            with self.subTest(trial=number, point=f"{when}: {what}"):
                self.trial(number, straight)
                done += 1
        print(f"fault trials: C2 {done} kills at named points", flush=True)


if __name__ == "__main__":
    harness.main()
