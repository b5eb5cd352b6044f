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
        for step in ("7", "0", "100000"):
            self.one_error(self.train("--resume", step, code=4), f"--resume {step}", "12, 8, 4")
        for words in ("soon", "-1", "1.5"):
            self.one_error(self.train(f"--resume={words}", code=2), "never, auto or a step number", f"'{words}'", "12, 8, 4")
        self.assertEqual(self.tree(), before, "a start that is refused leaves nothing behind")
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
        attempts = sorted((self.run_dir / "attempts").iterdir())
        self.one_error(self.train(settings=ENDLESS, code=2), "already holds a run")
        self.assertEqual(sorted((self.run_dir / "attempts").iterdir()), attempts)
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

    def test_killed_rank_of_three_axes(self):
        # In the middle of a step, whose messages its stage, its tensor group and its replicas wait for.
        layout = ("model.layers=4", "parallel.tensor_parallel_size=2", "parallel.pipeline_parallel_size=2", "training.micro_batch_size=1")
        for victim, attempt in ((1, 1), (2, 3)):
            killed = self.kill_and_resume(lambda mpirun, rank=victim: os.kill(mpirun.ranks()[rank], signal.SIGKILL), ranks=4,
                                          settings=layout, attempt=attempt)
            self.assertRegex(killed.err, rf"process rank {victim} .*exited on signal 9")
            self.assertEqual(killed.errors(), [])

    def test_killed_launcher(self):
        self.kill_and_resume(lambda mpirun: mpirun.signal(signal.SIGKILL))

    def kill_and_resume(self, kill, ranks=2, settings=(), attempt=1):
        """Kills attempt number `attempt`, a new run if it is the first; the next one goes on for three steps."""
        resume = () if attempt == 1 else ("--resume", "auto", "--allow-change", "job.steps")
        begun = 0 if attempt == 1 else int(self.checkpoints()[-1].name[1:10])
        process = self.start_train(*resume, settings=[*ENDLESS, *settings], ranks=ranks)
        self.wait_for_step(process, begun + 9, attempt)
        pids = list(process.ranks().values())
        self.assertEqual(len(pids), ranks)
        killed = time.monotonic()
        kill(process)
        self.assertNotIn(process.wait(10), (0, 3), process.describe())
        while any(alive(pid) for pid in pids):
            self.assertLess(time.monotonic() - killed, 10, f"ranks still running\n{process.describe()}")
            time.sleep(0.05)
        newest = self.checkpoints()[-1]
        step = int(newest.name[1:10])
        self.assertGreaterEqual(step, begun + 4)
        resumed = self.train("--resume", "auto", "--allow-change", "job.steps", settings=[f"job.steps={step + 3}", *settings], ranks=ranks)
        self.assertEqual(resumed.loaded_state()[0], step)
        self.assertIn(f"finished at step {step + 3}", resumed.err)
        return process

    def test_files_of_others(self):
        # What a run would write to, without run.json: of another program, or of a run that lost it.
        for name in ("metrics.jsonl", "checkpoints/model.bin", "journal/a.log", "record/x", "profile/x"):
            run_dir = self.directory / name.replace("/", "-")
            (run_dir / name).parent.mkdir(parents=True, exist_ok=True)
            (run_dir / name).write_text("theirs")
            for resume in ("never", "auto"):
                refused = self.train("--resume", resume, settings=[f"job.run_dir='{run_dir.name}'"], code=2)
                self.one_error(refused, "not a run of trainctl", f"{run_dir.name}/{name.split('/')[0]}", "job.run_dir")
            self.assertEqual([path.name for path in run_dir.rglob("*") if path.is_file()], [name.rpartition("/")[2]])
        # A run whose run.json was damaged says so, and how to go on.
        self.train(settings=["job.run_dir='hurt'", "job.steps=4"])
        whole = (self.directory / "hurt" / "run.json").read_text()
        (self.directory / "hurt" / "run.json").write_text("{")
        for resume in ("never", "auto", "4"):
            refused = self.train("--resume", resume, settings=["job.run_dir='hurt'"], code=4)
            self.one_error(refused, "hurt/run.json is damaged", "ckpt list hurt")
        listed = json.loads(self.run_trainctl("ckpt", "list", "hurt", "--json").out)["checkpoints"][0]["run_id"]
        self.assertIn(listed, whole)
        line = {"format": "trainctl-run", "version": 1, "run_id": listed, "spec_hash": "", "created": ""}
        (self.directory / "hurt" / "run.json").write_text(json.dumps(line) + "\n")
        self.train("--resume", "auto", "--allow-change", "job.steps", settings=["job.run_dir='hurt'", "job.steps=6"])
        # Logs of a batch system, and a place that was made ready.
        (self.run_dir / "checkpoints").mkdir(parents=True)
        (self.run_dir / "slurm-17.out").write_text("theirs")
        self.train(settings=["job.steps=4"])
        self.assertEqual((self.run_dir / "slurm-17.out").read_text(), "theirs")

    def test_interrupted_save(self):
        self.train(settings=["job.steps=8"])
        name = "s000000009-a0001-0badcafe"
        left = self.run_dir / "checkpoints" / name
        left.mkdir()
        (left / "r00000.st").write_text("part")
        # As the journal of a killed attempt has it; only what it tells of is ours to remove.
        self.assertIn("incomplete", self.run_trainctl("ckpt", "list", "run").out)
        self.journal_begins(name)
        resumed = self.train("--resume", "auto", "--allow-change", "job.steps")
        self.assertIn(f"checkpoint {name} was never completed and is removed", resumed.err)
        self.assertFalse(left.exists())

    def journal_begins(self, name):
        """Appends the line of a save that begins to the journal of the first attempt."""
        path = self.run_dir / "journal" / "a0001.log"
        last = json.loads(path.read_text().splitlines()[-1][9:])
        last.update(event="begin", step=9, directory=name, text="", sequence=last["sequence"] + 1)
        line = json.dumps(last)
        with open(path, "a") as file:
            file.write(f"{crc32c(line.encode()):08x} {line}\n")

    def tree(self):
        return sorted((str(path), path.stat().st_size) for path in self.run_dir.rglob("*") if path.is_file())


class RemovedUnderTheRun(TrainctlTest):
    """Somebody cleans up while a training runs: it notices, says so, and can be resumed."""

    def remove_and_stop(self, name, expected):
        settings = [*ENDLESS, "checkpoint.interval_steps=50", "checkpoint.keep_latest=2"]
        running = self.start_train(settings=settings)
        self.wait_for_step(running, 51)
        subprocess.run(["rm", "-rf", str(self.run_dir / name)], stderr=subprocess.DEVNULL, check=False)  # files may still come
        self.wait_until(lambda: expected in running.err, running, expected)
        running.signal(signal.SIGUSR1)
        self.assertEqual(running.wait(), 3, running.describe())
        for part in ("run.json", "LEASE", "attempts", "journal", "checkpoints", "metrics.jsonl"):
            self.assertTrue((self.run_dir / part).exists(), part)
        self.assertEqual(self.run_trainctl("ckpt", "list", "run").code, 0)
        self.run_trainctl("ckpt", "verify", "run")
        stopped, states = running.stopped_at(), running.saved_states()
        resumed = self.train("--resume", "auto", "--allow-change", "job.steps", settings=[f"job.steps={stopped + 2}", *settings[1:]])
        self.assertEqual(resumed.loaded_state(), (stopped, states[stopped]))
        return running

    def test_everything(self):
        running = self.remove_and_stop("", "somebody removed")
        self.assertIn("run/run.json", running.err)
        self.assertIn("run/attempts/a0001", running.err)
        self.assertIn("run/LEASE", running.err)
        self.assertIn("the metrics file was removed", running.err)

    def test_identity(self):
        self.assertIn("somebody removed run/run.json under", self.remove_and_stop("run.json", "somebody removed").err)

    def test_checkpoints(self):
        self.assertIn("removed by somebody else", self.remove_and_stop("checkpoints", "removed by somebody else").err)


class Disk(TrainctlTest):

    def test_not_a_directory(self):
        (self.directory / "file").write_text("")
        for ranks in (None, 2):
            refused = self.train(settings=["job.run_dir='file/run'"], code=2, ranks=ranks)
            self.one_error(refused, "cannot create directory file", "check the path")

    def test_read_only_directory(self):
        if os.geteuid() == 0:
            self.on_a_mount("-o ro -t tmpfs none", "disk", code=5, parts=["disk/run", "ead-only"],
                            after="{ trainctl config check job.toml --set job.run_dir=disk/run >check.txt 2>&1; test $? = 5; }")
            self.assertIn("job.run_dir: cannot create directory disk/run: Read-only", (self.directory / "check.txt").read_text())
        else:
            (self.directory / "disk").mkdir(mode=0o555)
            refused = self.train(settings=["job.run_dir='disk/run'"], code=5)
            self.one_error(refused, "disk/run")

    def test_disk_too_small(self):
        process = self.on_a_mount("-t tmpfs -o size=1m none", "disk", code=5, parts=["disk/run", "checkpoint.directory"],
                                  after="test ! -e disk/run")
        self.assertNotIn("step=1 ", process.err)

    def test_room_for_what_is_kept(self):
        # 1.4 MiB each: one fits, but four will be there at a time.
        settings = ["checkpoint.keep_latest=3", "model.layers=2"]
        process = self.on_a_mount("-t tmpfs -o size=4m none", "disk", code=5, settings=settings,
                                  parts=["6 x ", "checkpoint.keep_latest 3, 2 older ones that are kept", "0 of them there already"],
                                  after="test ! -e disk/run && { trainctl config check job.toml --set job.run_dir=disk/run "
                                        "--set model.layers=2 2>&1; test $? = 5; }")
        self.assertEqual(process.saved_states(), {})
        # config check says the same before anything is started.
        self.assertIn("checkpoint.keep_latest 3, 2 older ones that are kept", process.out)

    def test_disk_fills_up(self):
        # Somebody else takes 10.5 MiB after the first of three checkpoints of 1.5 MiB: one more fits, the last one does not.
        settings = ["checkpoint.keep_latest=2", "model.layers=2", "job.steps=120", "checkpoint.interval_steps=40"]
        filler = ('(until grep -q "commit.*step.: 40" disk/run/journal/a0001.log 2>/dev/null; do sleep 0.01; done; '
                  'head -c 10752k /dev/zero > disk/filler) & ')
        process = self.on_a_mount("-t tmpfs -o size=14848k none", "disk", code=5, settings=settings,
                                  parts=["disk/run", "space", "step 120 was not saved", "that of step 80", "bytes more"],
                                  before=filler, after="cp disk/run/metrics.jsonl . ; trainctl ckpt verify disk/run && ls disk/run/*")
        self.assertEqual(sorted(process.saved_states()), [40, 80], process.describe())
        self.assertEqual(len(self.losses(self.directory)), 120)
        self.assertIn("step 80", process.out)

    def test_smoke_leaves_nothing(self):
        self.run_trainctl("smoke", "--directory", "work/of/smoke")
        self.assertFalse((self.directory / "work").exists())
        (self.directory / "there").mkdir()
        self.run_trainctl("smoke", "--directory", "there")
        self.assertEqual(list((self.directory / "there").iterdir()), [])
        (self.directory / "file").write_text("")
        self.one_error(self.run_trainctl("smoke", "--directory", "file/x", code=5), "file", "--directory")
        self.on_a_mount("-t tmpfs -o size=256k none", "disk", code=5, parts=["disk/sub/trainctl-smoke-", "space"],
                        after="test -z \"$(ls disk)\"", command=("smoke", "--directory", "disk/sub"))

    def on_a_mount(self, mount, name, code, parts, settings=(), before="", after="true", command=None):
        """Trains (or runs `command`) into a file system of its own, which vanishes with the process."""
        (self.directory / name).mkdir()
        inside = ["unshare", "--mount", "--map-root-user"]
        if subprocess.run([*inside, "sh", "-c", f"mount {mount} {name}"], cwd=self.directory, capture_output=True).returncode != 0:
            self.skip("this user may not mount file systems")
        tool = pathlib.Path(harness.binary).parent
        script = f'mount {mount} {name} && PATH={tool}:$PATH && ({before}"$@"; code=$?; {after} || exit 99; exit $code)'
        train = ("train", "job.toml", *harness.set_options([f"job.run_dir='{name}/run'", *settings]))
        process = self.run_trainctl(*(command or train), code=code, launcher=[*inside, "sh", "-c", script, "sh"])
        self.one_error(process, *parts)
        return process


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


if __name__ == "__main__":
    harness.main()
