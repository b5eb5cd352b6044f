"""Wrong job files: all problems at once, with their places; and what this build does not do yet."""

import json
import os
import socket
import time

import harness
from harness import TrainctlTest, set_options


class JobFiles(TrainctlTest):

    def problems(self, *settings, code=2, **how):
        process = self.train(settings=settings, code=code, **how)
        self.assertFalse(self.run_dir.exists(), process.describe())
        return process.err

    def write_job(self, *changes):
        text = harness.JOB
        for before, after in changes:
            self.assertIn(before, text)
            text = text.replace(before, after)
        (self.directory / "job.toml").write_text(text)

    def test_all_problems_at_once(self):
        self.write_job(("steps = 12", 'steps = "twelve"'), ("layers = 1", "layer = 1"),
                       ("sequence_length = 32", "sequence_length = -1"), ("keep_latest = 3", "keep_latest = 1"))
        for ranks in (None, 2):
            text = self.problems(ranks=ranks)
            for part in ("the job has 4 problems", "job.toml:5:9", "job.toml:8:1", "did you mean model.layers?", "job.toml:15:19",
                         "job.toml:25:15"):
                self.assertEqual(text.count(part), 1, f"{part}\n{text}")

    def test_batch_sizes(self):
        text = self.problems("training.micro_batch_size=3", ranks=2)
        for part in ("global_batch_size 16", "micro_batch_size 3", "ranks 2", "12", "18"):
            self.assertIn(part, text)
        text = self.problems("training.gradient_accumulation_steps=3")
        for part in ("16", "4", "3"):
            self.assertIn(part, text)

    def test_not_in_this_build(self):
        for setting in ("precision.gradient='bf16'", "fault_tolerance.max_restarts=1"):
            process = self.train(settings=[setting], code=2)
            self.one_error(process, "not in this build", setting.partition("=")[0])
            self.assertFalse(self.run_dir.exists(), process.describe())

    def test_files(self):
        for name, content, code in (("missing.toml", None, 2), ("broken.toml", "[job\nname=", 2), ("empty.toml", "", 2)):
            if content is not None:
                (self.directory / name).write_text(content)
            process = self.run_trainctl("train", name, code=code)
            self.assertIn(name, process.err)
            self.assertGreaterEqual(len(process.errors()), 1)

    def test_settings(self):
        self.assertIn("did you mean training.micro_batch_size?", self.problems("training.micro_batch=1"))
        self.assertIn("--set", self.problems("nonsense"))
        self.assertIn("optimizer.lr", self.problems("optimizer.lr='fast'"))

    def test_one_rank_only(self):
        # Before the ranks have met, and the first one has nothing to complain about.
        job = [harness.binary, "train", "job.toml"]
        process = harness.Process([*harness.mpirun(1), *job, ":", "-n", "1", *job, "--set", "job.sed=1"], self.directory)
        self.addCleanup(process.end)
        self.assertEqual(process.wait(), 2, process.describe())
        self.assertLess(process.seconds, 10)
        line = self.one_error(process, "did you mean job.seed?")
        self.assertTrue(line.startswith(f"error: [rank 1 {socket.gethostname()}] "), line)
        self.assertFalse(self.run_dir.exists())

    def test_json(self):
        self.write_job(("steps = 12", 'steps = "twelve"'))
        answer = json.loads(self.run_trainctl("config", "check", "job.toml", "--json", code=2).out)
        self.assertFalse(answer["ok"])
        self.assertEqual(answer["problems"][0]["key"], "job.steps")
        for ranks in (None, 2):
            process = self.train("--json", code=2, ranks=ranks)
            lines = [json.loads(line) for line in process.err.splitlines() if line.startswith("{")]
            self.assertEqual(len(lines), 1, process.describe())
            self.assertEqual(lines[0]["exit"], 2)
            self.assertIn("job.toml:5:9", lines[0]["error"]["message"])

    def test_check_agrees_with_train(self):
        self.run_trainctl("config", "check", "job.toml")
        checked = self.run_trainctl("config", "check", "job.toml", "--ranks", "2", *set_options(["training.micro_batch_size=3"]), code=2)
        trained = self.problems("training.micro_batch_size=3", ranks=2)
        line = next(line for line in checked.err.splitlines() if line.startswith("error: global_batch_size"))
        self.assertIn(line.removeprefix("error: "), trained)
        # A machine without the data can check the rest; --strict wants everything.
        absent = set_options(["data.train=['nowhere']"])
        warned = self.run_trainctl("config", "check", "job.toml", *absent).err
        for part in ("warning: not checked here: nowhere", "--> --set data.train", "check the path", "--strict"):
            self.assertIn(part, warned)
        self.run_trainctl("config", "check", "job.toml", "--strict", *absent, code=4)

    def test_directories_that_cannot_be_made(self):
        (self.directory / "file").write_text("")
        wrong = [(key, path, where) for path, where in (("file", "file"), ("file/run", "file"), ("n" * 300, "ENAMETOOLONG"),
                                                        ("new/" + "n" * 300, "ENAMETOOLONG"), ("long/" * 1000, "ENAMETOOLONG"))
                 for key in ("job.run_dir", "checkpoint.directory")]
        for key, path, where in wrong:
            setting = f"{key}='{path}'"
            process = self.run_trainctl("config", "check", "job.toml", "--set", setting, code=2)
            self.one_error(process, f"{key}: cannot create directory", where, f"--> --set {setting}")
            self.one_error(self.train(settings=[setting], code=2), f"{key}: cannot create directory", where)
        self.write_job(('run_dir = "run"', 'run_dir = "file/run"'))
        self.one_error(self.run_trainctl("config", "check", "job.toml", code=2), "--> job.toml:4:11", "is a file")
        # A longer path than the system takes comes of a run_dir that it would take.
        deep = "/".join(["d" * 200] * 20 + ["d" * 60])
        self.write_job()
        self.one_error(self.run_trainctl("config", "check", "job.toml", *set_options([f"job.run_dir='{deep}'"]), code=2), "ENAMETOOLONG")
        self.assertEqual(sorted(path.name for path in self.directory.glob("[!.]*")),
                         ["file", "job.toml", "text.bin", "text.idx", "text.json"])

    def test_directory_without_permission(self):
        if os.geteuid() == 0:
            self.skip("permissions do not bind root")
        (self.directory / "closed").mkdir(mode=0o555)
        for setting in ("job.run_dir='closed/run'", "checkpoint.directory='closed/here'"):
            self.one_error(self.run_trainctl("config", "check", "job.toml", "--set", setting, code=5), "ermission", setting)
            self.one_error(self.train(settings=[setting], code=5), "ermission")

    def test_data_that_cannot_be_read(self):
        for key, path, part in (("data.train", "n" * 300, "ENAMETOOLONG"), ("data.train", "job.toml/text", "is a file"),
                                ("data.validation", "job.toml/new/*.bin", "is a file")):
            settings = [f"{key}=['{path}']", *(["data.validation_split=0"] if key == "data.validation" else [])]
            process = self.run_trainctl("config", "check", "job.toml", *set_options(settings), code=4)
            self.one_error(process, path, part, f"--> --set {settings[0]}")
            self.one_error(self.train(settings=settings, code=4), path)
        if os.geteuid() == 0:
            self.skip("permissions do not bind root")
        os.chmod(self.directory / "text.bin", 0)
        self.one_error(self.run_trainctl("config", "check", "job.toml", code=4), "text.bin", "ermission", "--> job.toml:10:9")

    def test_this_machine_is_no_measure_for_another(self):
        # Checkpoints that no disk holds, and a directory that cannot be made.
        (self.directory / "file").write_text("")
        huge = ["model.layers=10000", "model.hidden_size=65536"]
        unmakable = ["job.run_dir='file/run'"]
        found = self.run_trainctl("config", "check", "job.toml", *set_options(huge), code=5)
        self.assertEqual(len(found.errors()), 2, found.describe())
        for part in ("checkpoints need", "more than any rank can hold"):
            self.assertIn(part, found.err)
        absent = ["data.train=['nowhere']"]
        for problem in (huge, unmakable):
            options = set_options([*absent, *problem])
            process = self.run_trainctl("config", "check", "job.toml", *options)
            for part in ("warning: not checked here: the machine that will run the job; on this one", "its data are not here"):
                self.assertIn(part, process.err)
            self.run_trainctl("config", "check", "job.toml", "--strict", *options, code=4)
        # More ranks than processors.
        ranks = ["parallel.tensor_parallel_size=4", "parallel.pipeline_parallel_size=1024", "model.layers=1024", "training.micro_batch_size=16"]
        process = self.run_trainctl("config", "check", "job.toml", *set_options([*ranks, *unmakable]))
        self.assertIn("it needs 4096 ranks, and this machine has", process.err)
        self.run_trainctl("config", "check", "job.toml", "--strict", *set_options([*ranks, *unmakable]), code=2)

    def test_memory(self):
        # Sizes beyond any machine that runs tests, and one beyond what can be planned at all.
        def batch(micro, length, ranks=1):
            return [f"training.micro_batch_size={micro}", f"training.global_batch_size={micro * ranks}",
                    f"training.sequence_length={length}", "model.max_sequence_length=4096"]
        for settings in (batch(1 << 20, 256), batch(1 << 20, 4096)):
            checked = self.run_trainctl("config", "check", "job.toml", *set_options(settings), code=5)
            self.one_error(checked, "bytes", "sequence")
            began = time.monotonic()
            refused = self.train(settings=settings, code=5)
            self.assertLess(time.monotonic() - began, 10)
            self.one_error(refused, "bytes", "sequence")
            self.assertFalse(self.run_dir.exists(), "refused before anything is created")
        # Two ranks of one host are asked for together.
        refused = self.train(settings=batch(1 << 20, 256, 2), ranks=2, code=5)
        self.one_error(refused, "2 ranks on", "need", "may be used there")
        self.assertFalse(self.run_dir.exists())
        # Jobs for other machines: more ranks than processors (here also than samples), or data that are not here.
        settings = set_options(batch(1 << 18, 256, 4096))
        warned = self.run_trainctl("config", "check", "job.toml", "--ranks", "4096", *settings, code=2)
        self.one_error(warned, "more ranks than samples")
        self.assertIn("1 rank on this machine needs", warned.err)
        (self.directory / "large.toml").write_text(self.run_trainctl("config", "init", "--preset", "llama3-70b").out)
        warned = self.run_trainctl("config", "check", "large.toml")
        self.assertIn("1 rank on this machine needs", warned.err)

    def test_check_goes_on_behind_an_error(self):
        # The file, its contradictions, the data and this machine: all in one go.
        os.truncate(self.directory / "text.bin", 1000)
        settings = set_options(["optimizer.lr=nan", "training.micro_batch_size=3", "device.threads=4000"])
        process = self.run_trainctl("config", "check", "job.toml", "--ranks", "2", *settings, code=2)
        for part in ("optimizer.lr must be a finite number", "micro_batch_size 3 x data-parallel ranks 2 = 6", "job.toml:14:21",
                     "text.bin: expected", "device.threads 4000 exceeds", "job.toml: 3 errors"):
            self.assertIn(part, process.err)

    def test_ranks_that_share_a_model_share_its_data(self):
        # Four ranks, but two or one that read data of their own.
        for layout in (["parallel.tensor_parallel_size=2", "training.micro_batch_size=8"],
                       ["model.layers=2", "parallel.tensor_parallel_size=2", "parallel.pipeline_parallel_size=2", "training.micro_batch_size=16"]):
            self.assertEqual(self.run_trainctl("config", "check", "job.toml", "--ranks", "4", *set_options(layout)).err, "")
            self.train(settings=[*layout, "job.steps=4", f"job.run_dir='run-{len(layout)}'"], ranks=4)
            for command in (("verify",), ("inspect", "--step", "3")):
                self.run_trainctl("data", *command, "--job", "job.toml", *set_options(layout))
        samples = self.run_trainctl("data", "inspect", "--step", "3", "--job", "job.toml", "--ranks", "2",
                                    *set_options(["parallel.tensor_parallel_size=2"])).out
        self.assertEqual([samples.count(f"  rank {rank}  ") for rank in range(3)], [8, 8, 0])

    def test_sizes_of_the_data(self):
        many = set_options(["training.global_batch_size=4096", "training.micro_batch_size=1", "parallel.data_parallel_size=4096"])
        for ranks in ([], ["--ranks", "4096"]):
            process = self.run_trainctl("config", "check", "job.toml", *ranks, *many, code=2)
            self.one_error(process, "4096 data-parallel ranks", "windows", "fewer ranks")
        process = self.run_trainctl("config", "check", "job.toml", *set_options(["data.validation_split=0.99999"]), code=4)
        self.one_error(process, "windows", "leave none", "smaller split")
        process = self.run_trainctl("config", "check", "job.toml", *set_options(["data.dtype=uint32"]), code=2)
        self.one_error(process, "text.bin", "leave data.dtype out")
        self.assertEqual(self.run_trainctl("config", "check", "job.toml", *set_options(["data.dtype=uint16"])).err, "")

    def test_patterns_of_data(self):
        def check(pattern, *options, code=0):
            return self.run_trainctl("config", "check", "job.toml", *options, *set_options([f"data.train=['{pattern}']"]), code=code)

        for pattern in ("te*", "*.bin", str(self.directory / "t*t.bin")):
            self.assertEqual(check(pattern, "--strict", "--ranks", "2").err, "")
        # Here is the directory, and nothing in it has such a name: the job cannot run.
        for path in ("nothing-*.bin", str(self.directory / "nothing-*.bin")):
            self.one_error(check(path, code=4), f"{path}: no file matches")
            self.one_error(self.train(settings=[f"data.train=['{path}']"], code=4), f"{path}: no file matches")
        # The data may lie on another machine.
        self.assertIn("not checked here: /nowhere/*.bin", check("/nowhere/*.bin").err)
        self.one_error(self.train(settings=["data.train=['/nowhere/*.bin']"], code=4), "/nowhere/*.bin: no file matches")

    def test_init_gives_a_job_that_checks(self):
        refused = self.run_trainctl("config", "init", "--preset", "zzzzzzzzzzzz", code=2).err
        presets = refused.partition("presets: ")[2].split()
        self.assertGreater(len(presets), 15)
        for preset in presets:
            text = self.run_trainctl("config", "init", "--preset", preset.rstrip(",")).out
            self.assertIn("# Relative paths begin", text)
            (self.directory / "mine.toml").write_text(text)
            self.run_trainctl("config", "check", "mine.toml")
        self.assertEqual(self.run_trainctl("config", "init", "--preset", "tinny", code=2).errors()[0].count("tinny"), 1)


if __name__ == "__main__":
    harness.main()
