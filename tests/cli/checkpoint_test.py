"""Damaged checkpoints, and resuming with another job or another layout."""

import json
import os
import shutil
import signal
import socket

import harness
from harness import TrainctlTest


class Damaged(TrainctlTest):

    def setUp(self):
        super().setUp()
        self.first = self.train()
        self.oldest, self.middle, self.newest = self.checkpoints()

    def flip(self, checkpoint, name="r00000.st", at=-1000):
        """Changes one byte; returns its place."""
        data = bytearray((checkpoint / name).read_bytes())
        data[at] ^= 0x10
        (checkpoint / name).write_bytes(bytes(data))

    def test_one_byte_of_the_newest(self):
        self.assertIn("12", self.run_trainctl("ckpt", "verify", "run").out)
        self.flip(self.newest)
        verified = self.run_trainctl("ckpt", "verify", "run", code=4)
        self.assertIn("r00000.st", verified.out + verified.err)
        self.assertIn("chunk", verified.out + verified.err)
        self.assertEqual(json.loads(self.run_trainctl("ckpt", "verify", "run", "--json", code=4).out)["ok"], False)
        self.run_trainctl("ckpt", "verify", str(self.middle))
        resumed = self.train("--resume", "auto", ranks=2)
        self.assertEqual(resumed.loaded_state(), (8, self.first.saved_states()[8]))
        for part in (self.newest.name, "r00000.st", "chunk"):
            self.assertIn(part, resumed.err)
        self.assertIn("finished at step 12", resumed.err)
        # What was asked for by number is never replaced by something else.
        exact = self.train("--resume", "4")
        self.assertEqual(exact.loaded_state()[0], 4)

    def test_truncated_newest(self):
        data = (self.newest / "r00000.st").read_bytes()
        (self.newest / "r00000.st").write_bytes(data[:-4])
        verified = self.run_trainctl("ckpt", "verify", "run", code=4)
        self.assertIn("r00000.st", verified.out + verified.err)
        self.assertIn("damaged", self.run_trainctl("ckpt", "list", "run").out)
        resumed = self.train("--resume", "auto")
        self.assertEqual(resumed.loaded_state()[0], 8)
        self.assertIn(self.newest.name, resumed.err)

    def test_no_commit(self):
        (self.newest / "COMMIT").unlink()
        self.assertEqual(self.train("--resume", "auto").loaded_state()[0], 8)

    def test_damage_is_remembered(self):
        self.flip(self.newest)
        self.run_trainctl("ckpt", "verify", "run", code=4)
        listed = json.loads(self.run_trainctl("ckpt", "list", "run", "--json").out)["checkpoints"]
        self.assertEqual([(found["step"], found["status"]) for found in listed],
                         [(12, "suspect"), (8, "complete"), (4, "complete")])
        self.assertIn("chunk", listed[0]["reason"])
        text = self.run_trainctl("ckpt", "list", "run").out
        for part in ("suspect: ", "probation: ", "ckpt verify"):
            self.assertIn(part, text)
        # It fills no place among the three that are kept.
        self.train("--resume", "8", "--allow-change", "job.steps", settings=["job.steps=14"])
        self.assertEqual([path.name[:10] for path in self.checkpoints()],
                         ["s000000008", "s000000012", "s000000012", "s000000014"])
        self.flip(self.newest)
        self.assertIn("every checksum right", self.run_trainctl("ckpt", "verify", str(self.newest)).out)
        self.assertNotIn("suspect", self.run_trainctl("ckpt", "list", "run").out)

    def test_step_that_is_not_right(self):
        (self.middle / "COMMIT").unlink()
        self.one_error(self.train("--resume", "8", code=4), "no COMMIT", "newest first: 12, 4;")
        (self.oldest / "r00000.st").write_bytes(b"short")
        self.one_error(self.train("--resume", "4", code=4), "r00000.st is truncated", "newest first: 12;")
        self.flip(self.newest)
        self.one_error(self.train("--resume", "12", code=4), self.newest.name, "chunk", "No other step is complete")
        self.one_error(self.train("--resume", "5", code=4), "found none", "newest first: 12 (suspect);")

    def test_directory_elsewhere(self):
        self.train(settings=["job.run_dir='other'", "checkpoint.directory='kept'"])
        listed = self.run_trainctl("ckpt", "list", "kept").out
        self.assertIn("s000000012", listed)
        self.assertEqual(self.run_trainctl("ckpt", "list", "other").out, listed)
        self.run_trainctl("ckpt", "verify", "other")
        (self.directory / "kept").rename(self.directory / "moved")
        for verb in ("list", "inspect", "verify"):
            self.one_error(self.run_trainctl("ckpt", verb, "other", code=4), 'checkpoint.directory = "kept"', "Give that directory")

    def test_step_with_wrong_bytes(self):
        self.flip(self.newest)
        self.one_error(self.train("--resume", "12", code=4), self.newest.name, "chunk", "newest first: 8, 4;")

    def test_shard_that_one_rank_cannot_read(self):
        # The second rank works elsewhere, as on a host whose storage is ill.
        elsewhere = self.directory / "elsewhere"
        elsewhere.mkdir()
        for name in ("text.bin", "text.idx", "job.toml"):
            shutil.copy(self.directory / name, elsewhere / name)
        for where in (self.directory, elsewhere):
            shutil.copytree(self.run_dir / "checkpoints", where / "kept")
        for checkpoint in (elsewhere / "kept").iterdir():
            (checkpoint / "r00000.st").unlink()
        job = [harness.binary, "train", "job.toml", "--resume", "auto",
               *harness.set_options([f"job.run_dir='{self.run_dir}'", "checkpoint.directory='kept'"])]
        launcher = [*harness.mpirun(1), *job, ":", "-n", "1", "-wdir", elsewhere, *job]
        process = harness.Process(launcher, self.directory)
        self.addCleanup(process.end)
        self.assertEqual(process.wait(), 4, process.describe())
        self.assertLess(process.seconds, 30)
        self.one_error(process, "no checkpoint can be loaded", f"[rank 1 {socket.gethostname()}] ", "kept/", "r00000.st")

    def test_all_damaged(self):
        self.flip(self.oldest)
        self.flip(self.middle, "MANIFEST", 100)
        (self.newest / "r00000.st").unlink()
        before = self.losses()
        for how in ({}, {"ranks": 2}):
            failed = self.train("--resume", "auto", code=4, **how)
            self.one_error(failed, "not starting", self.oldest.name, self.middle.name, self.newest.name)
            self.assertNotIn("step=1 ", failed.err)
        self.assertEqual(self.losses(), before)
        self.one_error(self.train("--resume", "4", code=4), self.oldest.name, "r00000.st")

    def test_all_gone(self):
        shutil.rmtree(self.run_dir / "checkpoints")
        failed = self.train("--resume", "auto", code=4)
        self.one_error(failed, "progress", "not starting again at step 0")


class Kept(TrainctlTest):
    """What is kept and what goes, by wish of the user."""

    def listed(self):
        """(step, status, pinned), newest first."""
        found = json.loads(self.run_trainctl("ckpt", "list", "run", "--json").out)["checkpoints"]
        return [(entry["step"], entry["status"], entry.get("pinned")) for entry in found]

    def test_pin_and_prune(self):
        self.train()
        self.assertIn("is now pinned", self.run_trainctl("ckpt", "pin", "run", "--step", "4").out)
        self.assertIn("pinned: by", self.run_trainctl("ckpt", "list", "run").out)
        dry = self.run_trainctl("ckpt", "prune", "run", "--keep-latest", "1", "--dry-run").out
        self.assertIn("1 checkpoint would be removed of 3", dry)
        self.assertEqual(len(self.listed()), 3)
        self.assertIn("0 checkpoints removed", self.run_trainctl("ckpt", "prune", "run").out)  # the job keeps 3
        pruned = json.loads(self.run_trainctl("ckpt", "prune", "run", "--keep-latest", "1", "--json").out)
        self.assertEqual([(entry["step"], entry["keep"]) for entry in pruned["checkpoints"]], [(12, True), (8, False), (4, True)])
        self.assertEqual(self.listed(), [(12, "complete", False), (4, "complete", True)])
        self.run_trainctl("ckpt", "unpin", "run/checkpoints", "--step", "4")
        resumed = self.train("--resume", "auto", "--allow-change", "job.steps", settings=["job.steps=13"])
        self.assertEqual(resumed.loaded_state()[0], 12)
        self.one_error(self.run_trainctl("ckpt", "pin", "run", "--step", "5", code=4), "no complete checkpoint of step 5", "13, 12")
        self.one_error(self.run_trainctl("ckpt", "prune", ".", code=4), "expected a run directory")
        self.one_error(self.run_trainctl("ckpt", "prune", "run", "--keep-latest", "0", code=2), "at least 1")
        self.assertIn("8 fenced", self.run_trainctl("ckpt", "prune", "--help").out)

    def test_diff(self):
        self.train()
        self.train(settings=["job.run_dir='again'"], ranks=2)
        older, _, newest = self.checkpoints()
        self.assertIn("the same state", self.run_trainctl("ckpt", "diff", "run", str(newest)).out)
        differs = json.loads(self.run_trainctl("ckpt", "diff", str(older), "run", "--values", "--json", code=4).out)
        self.assertFalse(differs["same_state"])
        self.assertTrue(all(0 < tensor["max_absolute"] < 1 for tensor in differs["tensors"]), differs)
        # Two ranks round otherwise than one.
        for tensor in json.loads(self.run_trainctl("ckpt", "diff", "run", "again", "--values", "--json", code=4).out)["tensors"]:
            self.assertLess(tensor["max_absolute"], 1e-4, tensor)
        self.assertIn("job:\n  job.run_dir", self.run_trainctl("ckpt", "diff", "run", "again", code=4).out)

    def test_rollback(self):
        straight = self.train()
        self.assertIn("would become", self.run_trainctl("ckpt", "rollback", "run", "--to", "4", "--dry-run").out)
        self.assertEqual(self.listed()[0][:2], (12, "complete"))
        self.assertEqual(self.run_trainctl("ckpt", "rollback", "run", "--to", "4").out.count("set aside  s0000000"), 2)
        self.assertEqual([entry[:2] for entry in self.listed()], [(12, "set aside"), (8, "set aside"), (4, "complete")])
        self.one_error(self.train("--resume", "12", code=4), "set aside by the rollback to step 4", "rollback RUN --to 12")
        resumed = self.train("--resume", "auto")
        self.assertEqual(resumed.loaded_state()[0], 4)
        self.assertIn("set aside by the rollback to step 4: 12, 8", resumed.err)
        self.assertEqual(resumed.saved_states()[12], straight.saved_states()[12])
        self.assertEqual([entry[:2] for entry in self.listed()],
                         [(12, "complete"), (12, "set aside"), (8, "complete"), (8, "set aside"), (4, "complete")])
        set_aside = [path.name for path in self.checkpoints() if "-a0001-" in path.name][-1]
        self.one_error(self.run_trainctl("ckpt", "rollback", "run", "--to", "16", code=4), "no such complete checkpoint", "12, 8, 4")
        self.assertIn("current checkpoint already", self.run_trainctl("ckpt", "rollback", "run", "--to", "12").out)
        again = json.loads(self.run_trainctl("ckpt", "rollback", "run", "--to", set_aside, "--json").out)
        self.assertEqual([name[:16] for name in again["set_aside"]], ["s000000012-a0003", "s000000008-a0003"])

    def test_copy_and_restore(self):
        straight = self.train()
        self.assertIn("would be written", self.run_trainctl("ckpt", "copy", "run", "kept", "--dry-run").out)
        self.assertFalse((self.directory / "kept").exists())
        for step in ("12", "8"):
            self.assertIn("1 of 1 file", self.run_trainctl("ckpt", "copy", "run", "kept", "--step", step).out)
        self.assertIn("there already", self.run_trainctl("ckpt", "copy", "run", "kept").out)
        self.assertIn("step 12 is good", self.run_trainctl("ckpt", "verify", "kept").out)
        shutil.rmtree(self.run_dir / "checkpoints")
        self.run_trainctl("ckpt", "restore", "kept", "run", "--step", "8")
        back = json.loads(self.run_trainctl("ckpt", "restore", "kept", "run", "--json").out)
        self.assertEqual((back["step"], back["was"], back["files"]), (12, "absent", 1))
        self.assertEqual([entry[:2] for entry in self.listed()], [(12, "complete"), (8, "complete")])
        newest = self.checkpoints()[-1] / "r00000.st"
        newest.write_bytes(newest.read_bytes()[:-4])
        self.assertEqual(self.listed()[0][:2], (12, "damaged"))
        self.assertIn("damaged, and only that was replaced", self.run_trainctl("ckpt", "restore", "kept", "run").out)
        self.assertEqual(self.train("--resume", "auto").loaded_state(), (12, straight.saved_states()[12]))
        self.train(settings=["job.run_dir='other'"])
        self.one_error(self.run_trainctl("ckpt", "restore", "other", "run", code=4), "no complete checkpoint")
        other = str(self.checkpoints(self.directory / "other")[-1])
        self.one_error(self.run_trainctl("ckpt", "restore", other, "run", code=4), "is of run")

    def test_beside_a_living_run(self):
        running = self.start_train(settings=["job.steps=100000"])
        self.wait_until(lambda: len(self.checkpoints()) > 1, running, "two checkpoints")
        refused = self.run_trainctl("ckpt", "prune", "run", "--keep-latest", "1", code=8)
        self.one_error(refused, str(running.pid))
        self.assertLess(refused.seconds, 5)
        running.signal(signal.SIGUSR1)
        self.assertEqual(running.wait(30), 3, running.describe())
        self.assertEqual(self.run_trainctl("ckpt", "prune", "run", "--keep-latest", "1").out.count("remove  "), 2)


class InitFrom(TrainctlTest):
    """model.init_from: a new run from the weights of another one."""

    # Steps that change no weight.
    still = ("job.run_dir='fine'", "job.seed=5", "job.steps=1", "optimizer.lr=1e-30", "schedule.min_lr=1e-30", "schedule.warmup_steps=0")

    def test_weights_and_nothing_else(self):
        self.train("--json")
        oldest, _, newest = self.checkpoints()
        for path, source, ranks in (("run", newest, None), (str(oldest), oldest, 2)):
            shutil.rmtree(self.directory / "fine", ignore_errors=True)
            process = self.train(settings=[*self.still, f"model.init_from='{path}'"], ranks=ranks)
            self.assertIn("moments start at zero", process.err)
            differs = json.loads(self.run_trainctl("ckpt", "diff", str(source), "fine", "--json", code=4).out)
            names = [tensor["name"] for tensor in differs["tensors"]]
            self.assertTrue(names and all(name.endswith((".m", ".v")) for name in names), names)
            record = (self.directory / "fine/record/a0001/initial_weights.txt").read_text()
            self.assertIn(source.name, record)
            self.assertIn(record.strip(), (self.directory / "fine/journal/a0001.log").read_text())
            inspected = json.loads(self.run_trainctl("ckpt", "inspect", "fine", "--json").out)
            self.assertEqual(inspected["step"], 1)
        # A resume has weights of its own, whatever became of the others.
        shutil.rmtree(self.run_dir)
        resumed = self.train("--resume", "auto", "--allow-change", "job.steps", settings=[*self.still, "job.steps=2", "model.init_from='run'"])
        self.assertIn("model.init_from is not used", resumed.err)
        self.assertEqual(resumed.loaded_state()[0], 1)
        self.one_error(self.train(settings=[*self.still, "model.init_from='run'"], code=2), "--resume auto")

    def test_refused_before_anything_is_created(self):
        self.train(settings=["job.steps=4"])
        for settings, code, parts in ((["model.init_from='nowhere'"], 4, ["model.init_from", "nowhere does not exist"]),
                                      (["model.init_from='text.bin'"], 4, ["model.init_from", "is a file"]),
                                      (["model.init_from='run'", "model.layers=2"], 2, ["another model", "model.layers: 1 there, 2 in this job"]),
                                      (["model.init_from='run'", "model.norm_epsilon=1e-3"], 2, ["model.norm_epsilon"])):
            process = self.train(settings=["job.run_dir='fine'", *settings], code=code)
            self.one_error(process, *parts)
            self.assertFalse((self.directory / "fine").exists(), process.describe())
            checked = self.run_trainctl("config", "check", "job.toml", "--strict", *harness.set_options(["job.run_dir='fine'", *settings]), code=code)
            for part in parts:
                self.assertIn(part.replace("nowhere does not exist", "nowhere is not on this machine"), checked.out + checked.err)
        self.run_trainctl("config", "check", "job.toml", *harness.set_options(["job.run_dir='fine'", "model.init_from='nowhere'"]))
        (self.checkpoints()[-1] / "r00000.st").write_bytes(b"short")
        self.one_error(self.train(settings=["job.run_dir='fine'", "model.init_from='run'"], code=4), "model.init_from", "r00000.st")

    def test_damaged(self):
        self.train(settings=["job.steps=4"])
        data = bytearray((self.checkpoints()[-1] / "r00000.st").read_bytes())
        data[5000] ^= 1
        (self.checkpoints()[-1] / "r00000.st").write_bytes(bytes(data))
        failed = self.train(settings=["job.run_dir='fine'", "model.init_from='run'"], ranks=2, code=4)
        self.one_error(failed, "chunk", "choose another checkpoint")


class OtherJob(TrainctlTest):
    """What may change on resume, and what comes out then."""

    def setUp(self):
        super().setUp()
        self.train(settings=["job.run_dir='straight'"])
        self.straight = self.losses(self.directory / "straight")
        self.train(settings=["checkpoint.keep_latest=2"])
        shutil.rmtree(self.checkpoints()[-1])
        self.assertEqual(self.checkpoints()[-1].name[:10], "s000000008")

    def go_on(self, *arguments, code=0, **how):
        return self.train("--resume", "auto", *arguments, code=code, **how)

    def refused_before_anything_long(self, *parts, code=2, **how):
        """Before the peak is measured, the banner shown and an attempt claimed."""
        attempts = sorted((self.run_dir / "attempts").iterdir())
        process = self.go_on(code=code, **how)
        line = self.one_error(process, *parts)
        for late in ("to stop:", "GFLOP/s"):
            self.assertNotIn(late, process.err)
        self.assertEqual(sorted((self.run_dir / "attempts").iterdir()), attempts)
        return line

    def test_refused_early(self):
        self.refused_before_anything_long("schedule.kind", settings=["schedule.kind='constant'"])
        self.refused_before_anything_long("job.seed", settings=["job.seed=3"])
        with open(self.directory / "text.bin", "r+b") as file:
            file.seek(100)
            file.write(b"\x01\x00")
        self.refused_before_anything_long("training data differ", code=4)

    def test_refused(self):
        for setting, key in (("job.seed=3", "job.seed: 1234 -> 3"), ("model.layers=2", "model.layers: 1 -> 2"),
                             ("model.ffn_size=256", "model.ffn_size: 192 -> 256"),
                             ("training.global_batch_size=32", "training.global_batch_size: 16 -> 32")):
            process = self.go_on(settings=[setting], code=2)
            self.one_error(process, key)
            self.assertNotIn("allow-change", process.err)
        on_ranks = self.go_on(settings=["job.seed=3"], code=2, ranks=2)
        self.assertIn("job.seed: 1234 -> 3", on_ranks.err)
        self.one_error(on_ranks)
        self.one_error(self.go_on("--allow-change", "job.seed", code=2), "job.seed", "must not change")
        self.one_error(self.go_on("--allow-change", "job.sed", code=2), "did you mean job.seed?")

    def test_with_consent(self):
        settings = ["schedule.kind='constant'"]
        self.one_error(self.go_on(settings=settings, code=2), "--allow-change schedule.kind")
        process = self.go_on("--allow-change", "schedule.kind", settings=settings)
        self.assertEqual(process.loaded_state()[0], 8)
        steps = [record for record in harness.metrics(self.run_dir) if record["type"] == "step"]
        rates = {record["step"]: record["lr"] for record in steps if record["attempt"] == steps[-1]["attempt"]}
        self.assertEqual(list(rates), [9, 10, 11, 12])
        self.assertEqual(len(set(rates.values())), 1, "the rate of a constant schedule")

    def other_layout(self, *settings, ranks=None):
        process = self.go_on(settings=settings, ranks=ranks)
        self.assertEqual(process.loaded_state()[0], 8)
        losses = self.losses()
        self.assertEqual(sorted(losses), sorted(self.straight))
        for step, loss in self.straight.items():
            self.assertAlmostEqual(losses[step], loss, delta=2e-6 * abs(loss))

    def test_other_micro_batch(self):
        self.other_layout("training.micro_batch_size=2")

    def test_other_ranks_and_back(self):
        self.other_layout(ranks=2)
        shutil.rmtree(self.checkpoints()[-1])
        self.other_layout("memory.zero_stage=2")

    def test_other_zero_stage(self):
        self.other_layout("memory.zero_stage=0", ranks=2)


class Fp16(TrainctlTest):
    """The loss scale is part of the state."""

    def test_interrupted(self):
        settings = ["precision.compute='fp16'", "precision.loss_scale.initial=1073741824.0",
                    "precision.loss_scale.growth_interval=2"]
        straight = self.train(settings=["job.run_dir='straight'", *settings], ranks=2)
        self.assertRegex(straight.err, r"loss_scale=\d+")
        self.assertIn("bytes, as planned", straight.err)
        self.assertRegex(straight.err, r"loss scale 1073741824 -> 536870912")

        def curve(run_dir):
            steps = [record for record in harness.metrics(run_dir) if record["type"] == "step"]
            for record in steps:  # the coefficient of the true gradient, without the scale
                self.assertTrue(0.01 < record["clip"] <= 1.0 or not record["applied"], record)
            return {r["step"]: (r["loss"], r["grad_norm"], r["applied"], r["loss_scale"]) for r in steps}

        self.train(settings=settings, ranks=2)
        shutil.rmtree(self.checkpoints()[-1])
        resumed = self.train("--resume", "auto", settings=settings, ranks=2)
        self.assertEqual(resumed.loaded_state()[0], 8)
        self.assertEqual(curve(self.run_dir), curve(self.directory / "straight"))
        self.assertEqual(resumed.saved_states()[12], straight.saved_states()[12])
        self.one_error(self.train("--resume", "auto", code=2), 'precision.compute: "fp16" -> "fp32"')


class Behind(TrainctlTest):
    """Checkpoints that are written while training goes on, the default."""

    settings = ("checkpoint.async=true", "checkpoint.interval_steps=1", "job.steps=40")

    def saves(self, run_dir=None):
        return [record for record in harness.metrics(run_dir or self.run_dir) if record["type"] == "checkpoint"]

    def test_killed_and_resumed(self):
        straight = self.train(settings=["job.run_dir='straight'", *self.settings], ranks=2)
        final = straight.saved_states()[40]
        for attempt, step in ((1, 6), (2, 15), (3, 24)):
            resume = () if attempt == 1 else ("--resume", "auto")
            running = self.start_train(*resume, settings=self.settings, ranks=2)
            self.wait_for_step(running, step, attempt)
            os.kill(running.ranks()[attempt % 2], signal.SIGKILL)
            self.assertNotIn(running.wait(20), (0, 3), running.describe())
        resumed = self.train("--resume", "auto", settings=self.settings, ranks=2)
        self.assertGreater(resumed.loaded_state()[0], 6)
        self.assertEqual(resumed.saved_states()[40], final)
        self.assertEqual(self.losses(), self.losses(self.directory / "straight"))

    def test_metrics(self):
        self.train(settings=self.settings)
        saves = self.saves()
        self.assertEqual(saves[-1]["step"], 40)
        left_out = saves[-1]["skipped"]
        self.assertEqual(len(saves) + left_out, 40)
        for save in saves:
            self.assertTrue(save["saved"], save)
            self.assertGreater(save["bytes_per_s"], 0)
            self.assertGreaterEqual(save["age_s"], save["write_s"])
            self.assertIn(f"s{save['step']:09}-", save["directory"])
        listed = json.loads(self.run_trainctl("ckpt", "list", "run", "--json").out)["checkpoints"]
        self.assertEqual(listed[0]["state_hash"], saves[-1]["state"])


if __name__ == "__main__":
    harness.main()
