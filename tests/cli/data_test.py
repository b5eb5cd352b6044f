"""Data that are missing or broken: one message that names the file, exit 4, within seconds, nothing created."""

import os
import shutil
import signal
import socket
import struct

import harness
from harness import TrainctlTest


class BadData(TrainctlTest):

    def refused(self, *parts, settings=(), code=4, **how):
        """The error line. The job must fail soon, with one message, before it creates anything."""
        process = self.train(settings=settings, code=code, **how)
        self.assertLess(process.seconds, 30)
        self.assertFalse(self.run_dir.exists(), process.describe())
        return self.one_error(process, *parts)

    def alone_and_on_ranks(self, *parts, **how):
        alone = self.refused(*parts, **how)
        on_ranks = self.refused(*parts, ranks=2, **how)
        # What all ranks found alike is nobody's in particular.
        self.assertEqual(on_ranks, alone)

    def patch(self, name, offset, data):
        with open(self.directory / name, "r+b") as file:
            file.seek(offset)
            file.write(data)

    def test_missing(self):
        self.alone_and_on_ranks("no such file", "nowhere", settings=["data.train=['nowhere']"])

    def test_index_missing(self):
        os.remove(self.directory / "text.idx")
        self.refused("text")

    def test_empty(self):
        (self.directory / "text.bin").write_bytes(b"")
        size = os.path.getsize(self.shared / "text.bin")
        self.refused("text.bin: expected", f"{size} bytes", "found 0")

    def test_truncated(self):
        size = os.path.getsize(self.directory / "text.bin")
        for cut in (10, 11):
            os.truncate(self.directory / "text.bin", size - cut)
            self.alone_and_on_ranks(f"text.bin: expected {size} bytes", f"found {size - cut}", "data verify")

    def test_index_is_something_else(self):
        self.patch("text.idx", 0, b"NOTANIDX")
        self.refused("text.idx")

    def test_index_is_corrupt(self):
        # The count of sequences (after magic 9, version 8, type 1) is far more than the file can hold.
        self.patch("text.idx", 18, struct.pack("<Q", 1 << 40))
        self.refused("text.idx")

    def test_ids_beyond_the_vocabulary(self):
        # Known from text.json before anything is read...
        self.refused("vocab", "257", "100", settings=["model.vocab_size=100"])

    def test_id_beyond_the_vocabulary_in_the_middle(self):
        # ... and found in the batch when the file holds another id than its description says.
        size = os.path.getsize(self.directory / "text.bin")
        self.patch("text.bin", 0, struct.pack("<H", 300) * (size // 2))
        for ranks in (None, 2):
            process = self.train(settings=[f"job.run_dir='run-{ranks}'"], code=4, ranks=ranks)
            self.assertLess(process.seconds, 30)
            self.one_error(process, "text.bin", "300", "257")
            self.assertEqual(list(self.directory.glob("run-*/checkpoints/s*")), [])

    def test_unreadable(self):
        if os.geteuid() == 0:
            self.skip("permissions do not bind root")
        os.chmod(self.directory / "text.bin", 0)
        self.refused("text.bin", "ermission")

    def test_one_rank_only(self):
        # As on a host without the file: the second rank works elsewhere.
        elsewhere = self.directory / "elsewhere"
        elsewhere.mkdir()
        shutil.copy(self.directory / "job.toml", elsewhere)
        both = [harness.binary, "train", "job.toml", *harness.set_options([f"job.run_dir='{self.run_dir}'"])]
        launcher = [*harness.mpirun(1), *both, ":", "-n", "1", "-wdir", elsewhere, *both]
        process = harness.Process(launcher, self.directory)
        self.addCleanup(process.end)
        self.assertEqual(process.wait(), 4, process.describe())
        self.assertLess(process.seconds, 30)
        line = self.one_error(process, "no such file", "text")
        self.assertTrue(line.startswith(f"error: [rank 1 {socket.gethostname()}] "), line)
        self.assertFalse(self.run_dir.exists())

    def test_more_ranks_than_samples(self):
        settings = ["training.micro_batch_size=1", "training.global_batch_size=1"]
        self.refused("ranks", settings=settings, code=2, ranks=2)
        (self.directory / "little.txt").write_text("one window, and no more than that")
        self.run_trainctl("data", "prepare", "--input", "little.txt", "--output", "little", "--tokenizer", "byte")
        self.refused("more ranks than samples", "1 window ", code=2, ranks=2,
                     settings=["data.train=['little']", "data.validation_split=0", "training.eval_interval=0"])

    def test_other_data_than_the_run_began_with(self):
        self.train(settings=["job.steps=8"])
        self.patch("text.bin", 100, b"\x01\x00")
        process = self.train("--resume", "auto", "--allow-change", "job.steps", code=4)
        self.one_error(process, "training data differ", "fingerprint")


class Commands(TrainctlTest):

    def test_verify_and_inspect(self):
        self.run_trainctl("data", "verify", "text")
        self.run_trainctl("data", "verify", "--job", "job.toml", "--ranks", "2")
        text = self.run_trainctl("data", "inspect", "--job", "job.toml", "--step", "3", "--ranks", "2").out
        self.assertIn("text", text)
        with open(self.directory / "text.bin", "r+b") as file:
            file.write(struct.pack("<H", 90))
        damaged = self.run_trainctl("data", "verify", "text", code=4)
        self.assertRegex(damaged.out, "FAILED +checksum")

    def start_long_prepare(self):
        """A prepare of so much text that it will still be at work when it is signalled."""
        with open(self.directory / "zeros.txt", "wb") as file:
            file.truncate(1 << 30)
        process = self.start("data", "prepare", "--input", "zeros.txt", "--output", "long")
        self.wait_until(lambda: (self.directory / "long.documents.tmp").exists(), process, "temporary files")
        return process

    def made(self):
        return sorted(path.name for path in self.directory.glob("long*"))

    def test_prepare_is_interrupted(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            process = self.start_long_prepare()
            process.signal(number)
            self.assertEqual(process.wait(20), 3, process.describe())
            self.one_error(process, "stopped on request: nothing was written to long")
            self.assertNotIn("checkpoint", process.err)
            self.assertEqual(self.made(), [])

    def test_prepare_after_a_killed_one(self):
        process = self.start_long_prepare()
        process.signal(signal.SIGSTOP)
        short = ("data", "prepare", "--input", "job.toml", "--output", "long")
        # While it lives its output is its own, --overwrite or not.
        for options in ((), ("--overwrite",)):
            self.one_error(self.run_trainctl(*short, *options, code=2), "another `trainctl data prepare` is writing long")
        process.signal(signal.SIGKILL)
        process.wait()
        self.assertIn("long.bin.tmp", self.made())
        self.run_trainctl(*short)
        self.assertEqual(self.made(), ["long.bin", "long.idx", "long.json"])
        self.run_trainctl("data", "verify", "long")
        self.one_error(self.run_trainctl(*short, code=2), "long.bin exists already", "--overwrite")
        self.run_trainctl(*short, "--overwrite")

    def test_options_are_named_as_options(self):
        (self.directory / "plain.bin").write_bytes(bytes(1000))
        for verb in ("inspect", "verify"):
            self.one_error(self.run_trainctl("data", verb, "plain.bin", code=2), "--dtype uint16")
            self.run_trainctl("data", verb, "plain.bin", "--dtype", "uint16")
            self.one_error(self.run_trainctl("data", verb, "text", "--dtype", "uint32", code=2), "text.bin", "leave --dtype out")
        os.remove(self.directory / "text.idx")
        self.one_error(self.run_trainctl("data", "inspect", "text", code=4), "text.idx: no such file")
        self.assertIn("text.idx: no such file", self.run_trainctl("data", "verify", "text", code=4).out)

    def test_prepare_leaves_nothing_half_written(self):
        process = self.run_trainctl("data", "prepare", "--input", "nowhere.txt", "--output", "new", "--tokenizer", "byte", code=4)
        self.one_error(process, "nowhere.txt")
        process = self.run_trainctl("data", "prepare", "--input", "job.toml", "--output", "text", "--tokenizer", "byte", code=2)
        self.one_error(process, "text", "--overwrite")
        process = self.run_trainctl("data", "prepare", "--input", "job.toml", "--output", "job.toml/new", "--tokenizer", "byte", code=5)
        self.one_error(process, "job.toml")
        self.assertEqual(list(self.directory.glob("new*")), [])


if __name__ == "__main__":
    harness.main()
