"""The run directory: existing runs, two starts at once, dead owners, read-only and full disks."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import time

import harness
from harness import TrainctlTest

# Goes on until somebody ends it.
ENDLESS = ("job.steps=1000000",)


class RunDirectory(TrainctlTest):

    def test_existing_run(self):
        first = self.train()
        before = self.tree()
        refused = self.train(code=2)
        self.one_error(refused, "run already holds a run", "--resume auto", "job.run_dir")
        self.assertEqual(self.tree(), before)
        refused = self.train(code=2, ranks=2)
        self.one_error(refused, "run already holds a run", "--resume auto", "job.run_dir")
        self.assertEqual(self.tree(), before)
        self.one_error(self.train("--resume", "7", code=4), "--resume 7", "12, 8, 4")
        self.one_error(self.train("--resume", "soon", code=2), "never, auto or a step number", "'soon'")
        # Exactly the step that was asked for, also if there are newer ones.
        older = self.train("--resume", "8")
        self.assertEqual(older.loaded_state(), (8, first.saved_states()[8]))
        self.assertEqual(older.saved_states(), {12: first.saved_states()[12]})

    def test_new_directory(self):
        missing = self.train("--resume", "3", code=4)
        self.one_error(missing, "--resume", "there is no run in run")
        self.assertFalse(self.run_dir.exists())
        started = self.train("--resume", "auto")
        self.assertIn("starting at step 0", started.err)
        self.assertEqual(sorted(self.losses()), list(range(1, 13)))
        # A finished run has nothing left to do, and says so.
        finished = self.train("--resume", "auto")
        self.assertIn("finished at step 12", finished.err)
        self.assertEqual(len(self.checkpoints()), 3)

    def test_second_start(self):
        owner = self.start_train(settings=ENDLESS)
        self.wait_for_step(owner, 5)
        # Side by side: a start listens for the owner's next sign of life, which may take ten seconds.
        others = [self.start_train(settings=ENDLESS), self.start_train("--resume", "auto", ranks=2)]
        for other in others:
            self.assertEqual(other.wait(30), 8, other.describe())
            self.one_error(other, socket.gethostname(), str(owner.pid))
            self.assertIn(f"held by process {owner.pid} on {socket.gethostname()}", other.err)
        owner.signal(signal.SIGUSR1)
        self.assertEqual(owner.wait(), 3, owner.describe())
        self.assertEqual(owner.errors(), [])
        self.assertEqual([path.name for path in (self.run_dir / "attempts").iterdir()], ["a0001"])

    def test_killed_alone(self):
        killed = self.start_train(settings=ENDLESS)
        self.wait_for_step(killed, 9)
        killed.signal(signal.SIGKILL)
        killed.wait()
        listed = json.loads(self.run_trainctl("ckpt", "list", "run", "--json").out)["checkpoints"]
        newest, state = next((found["step"], found["state_hash"]) for found in listed if found["status"] == "complete")
        self.assertGreaterEqual(newest, 8)
        # A crash may tear the last line of the metrics.
        with open(self.run_dir / "metrics.jsonl", "a") as file:
            file.write('{"type":"step","v":1,"t":17')
        started = time.monotonic()
        self.one_error(self.train(settings=ENDLESS, code=2), "already holds a run")
        refused = self.train("--resume", "auto", settings=[f"job.steps={newest + 2}"], code=2)
        self.one_error(refused, "--allow-change job.steps")
        resumed = self.train("--resume", "auto", "--allow-change", "job.steps", settings=[f"job.steps={newest + 2}"])
        self.assertLess(time.monotonic() - started, 15, "the lease of a dead owner is taken at once")
        self.assertEqual(resumed.loaded_state(), (newest, state))
        lines = (self.run_dir / "metrics.jsonl").read_text().splitlines()
        torn = [line for line in lines if not line.endswith("}")]
        self.assertEqual(torn, ['{"type":"step","v":1,"t":17'])

    def test_killed_rank(self):
        killed = self.kill_and_resume(lambda mpirun: os.kill(mpirun.ranks()[1], signal.SIGKILL))
        # mpirun names the rank; the surviving one adds nothing.
        self.assertRegex(killed.err, r"process rank 1 .*exited on signal 9")
        self.assertEqual(killed.errors(), [])

    def test_killed_launcher(self):
        self.kill_and_resume(lambda mpirun: mpirun.signal(signal.SIGKILL))

    def kill_and_resume(self, kill):
        process = self.start_train(settings=ENDLESS, ranks=2)
        self.wait_for_step(process, 9)
        ranks = list(process.ranks().values())
        self.assertEqual(len(ranks), 2)
        killed = time.monotonic()
        kill(process)
        self.assertNotIn(process.wait(10), (0, 3), process.describe())
        while any(alive(pid) for pid in ranks):
            self.assertLess(time.monotonic() - killed, 10, f"ranks still running\n{process.describe()}")
            time.sleep(0.05)
        newest = self.checkpoints()[-1]
        step = int(newest.name[1:10])
        settings = [f"job.steps={step + 3}"]
        resumed = self.train("--resume", "auto", "--allow-change", "job.steps", settings=settings, ranks=2)
        self.assertEqual(resumed.loaded_state()[0], step)
        self.assertIn(f"finished at step {step + 3}", resumed.err)
        return process

    def tree(self):
        return sorted((str(path), path.stat().st_size) for path in self.run_dir.rglob("*") if path.is_file())


class Disk(TrainctlTest):

    def test_not_a_directory(self):
        (self.directory / "file").write_text("")
        for ranks in (None, 2):
            refused = self.train(settings=["job.run_dir='file/run'"], code=5, ranks=ranks)
            self.one_error(refused, "cannot create directory file", "check the path")

    def test_read_only_directory(self):
        if os.geteuid() == 0:
            self.on_a_mount("-o ro -t tmpfs none", "disk", code=5, parts=["disk/run", "ead-only"])
        else:
            (self.directory / "disk").mkdir(mode=0o555)
            refused = self.train(settings=["job.run_dir='disk/run'"], code=5)
            self.one_error(refused, "disk/run")

    def test_disk_too_small(self):
        process = self.on_a_mount("-t tmpfs -o size=1m none", "disk", code=5, parts=["disk/run", "checkpoint.directory"],
                                  after="test ! -e disk/run")
        self.assertNotIn("step=1 ", process.err)

    def test_disk_fills_up(self):
        # Room for two checkpoints of three: an alarm while training goes on, fatal at the end.
        settings = ["checkpoint.keep_latest=4", "model.layers=2"]
        process = self.on_a_mount("-t tmpfs -o size=4m none", "disk", code=5, settings=settings, parts=["disk/run", "space"],
                                  after="cp disk/run/metrics.jsonl . && trainctl ckpt verify disk/run && ls disk/run/*")
        self.assertEqual(sorted(process.saved_states()), [4, 8], process.describe())
        self.assertEqual(len(self.losses(self.directory)), 12)
        self.assertIn("step 8", process.out)

    def on_a_mount(self, mount, name, code, parts, settings=(), after="true"):
        """Trains into a file system of its own, which vanishes with the process."""
        (self.directory / name).mkdir()
        inside = ["unshare", "--mount", "--map-root-user"]
        if subprocess.run([*inside, "sh", "-c", f"mount {mount} {name}"], cwd=self.directory, capture_output=True).returncode != 0:
            self.skip("this user may not mount file systems")
        tool = pathlib.Path(harness.binary).parent
        script = f'mount {mount} {name} && PATH={tool}:$PATH && ("$@"; code=$?; {after} || exit 99; exit $code)'
        process = self.run_trainctl("train", "job.toml", *harness.set_options([f"job.run_dir='{name}/run'", *settings]),
                                    code=code, launcher=[*inside, "sh", "-c", script, "sh"])
        self.one_error(process, *parts)
        return process


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


if __name__ == "__main__":
    harness.main()
