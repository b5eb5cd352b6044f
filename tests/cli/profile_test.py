"""--profile steps=A:B: traces of exactly these steps from every rank."""

import json

import harness
from harness import TrainctlTest


def ranges(path):
    """(path of names, event) of every range in the trace, nested by their times."""
    trace = json.loads(path.read_text())
    assert trace["otherData"]["ranges_left_out"] == 0
    rounding = 0.001  # microseconds
    found, around = [], []
    for event in trace["traceEvents"]:
        if event["ph"] != "X":
            continue
        while around and event["ts"] >= around[-1][1] - rounding / 2:
            around.pop()
        end = event["ts"] + event["dur"]
        assert not around or end <= around[-1][1] + rounding, (event, around)
        around.append((event["name"], end))
        found.append(("/".join(name for name, _ in around), event))
    return found


class Profile(TrainctlTest):

    def test_two_ranks_profile_the_same_steps(self):
        process = self.train("--profile", "steps=6:9", ranks=2)
        self.assertIn("profile of steps 6 to 9 written", process.err)
        for rank in range(2):
            found = ranges(self.run_dir / "profile" / "a0001" / f"rank-{rank}.trace.json")
            names = [name for name, _ in found]
            self.assertEqual(["step 6", "step 7", "step 8", "step 9"], [name for name in names if "/" not in name])
            for part in ("step 6/data", "step 6/forward/embedding", "step 6/forward/block 1", "step 6/forward/head",
                         "step 6/backward/block 1", "step 7/optimizer", "step 7/evaluation", "step 9/checkpoint"):
                self.assertIn(part, names)
            # Evaluation comes after step 7, checkpoints after 4 and 8: when the ranks agree on the next step.
            self.assertNotIn("step 6/evaluation", names)
            self.assertNotIn("step 7/checkpoint", names)
            self.assertNotIn("step 8/checkpoint", names)
            self.assertEqual({rank}, {event["pid"] for _, event in found})
        self.assertEqual(12, max(self.losses()))

    def test_a_profile_changes_no_bit(self):
        plain = self.train(settings=["job.run_dir='plain'"])
        profiled = self.train("--profile", "steps=1:12")
        self.assertEqual(plain.saved_states(), profiled.saved_states())

    def test_steps_that_are_not_the_jobs(self):
        for text in ("steps=0:3", "steps=5:4", "steps=3:13", "steps=3", "steps=a:b", "steps=3:4x", "3:4", "steps=-1:4"):
            process = self.train("--profile", text, code=2)
            self.one_error(process, "--profile", "steps=A:B", "12", text)
            self.assertFalse(self.run_dir.exists(), process.describe())

    def test_steps_that_have_passed(self):
        self.train(settings=["job.steps=8"])
        how = ("--resume", "auto", "--allow-change", "job.steps")
        process = self.train(*how, "--profile", "steps=7:9", settings=["job.steps=10"])
        self.assertIn("only steps 9 to 9 are profiled", process.err)
        names = [name for name, _ in ranges(self.run_dir / "profile" / "a0002" / "rank-0.trace.json")]
        self.assertEqual(["step 9"], [name for name in names if "/" not in name])
        process = self.train(*how, "--profile", "steps=2:4", settings=["job.steps=12"])
        self.assertIn("nothing is profiled", process.err)
        self.assertFalse((self.run_dir / "profile" / "a0003").exists())


if __name__ == "__main__":
    harness.main()
