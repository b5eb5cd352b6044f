"""Checkpoints in several places: on a disk of the node, copied to shared storage behind the training."""

import json
import shutil

import harness
from harness import TrainctlTest


class Tiers(TrainctlTest):

    def setUp(self):
        super().setUp()
        self.local = self.directory / "nvme" / "ck"
        self.shared = self.directory / "shared" / "ck"

    def tiers(self, *more):
        return ["--set", f'checkpoint.tiers=["local:{self.local}","shared:{self.shared}"]', "--set", "checkpoint.async=true",
                *more]

    def steps_in(self, root):
        listed = json.loads(self.run_trainctl("ckpt", "list", str(root), "--json").out)["checkpoints"]
        return sorted(each["step"] for each in listed if each["status"] == "complete")

    def records(self, kind):
        lines = (self.directory / "run" / "metrics.jsonl").read_text().splitlines()
        return [record for record in map(json.loads, lines) if record["type"] == kind]

    def test_every_place_has_the_last_checkpoint_and_resumes(self):
        first = self.train(*self.tiers(), ranks=2)
        state = first.saved_states()[12]
        self.assertEqual(max(self.steps_in(self.local)), 12)
        self.assertEqual(max(self.steps_in(self.shared)), 12)
        self.run_trainctl("ckpt", "verify", str(self.shared))
        # The run's record says where saves go.
        self.assertEqual(json.loads(self.run_trainctl("ckpt", "list", "run", "--json").out)["root"], str(self.local))
        listed = json.loads(self.run_trainctl("ckpt", "list", "run", "--json").out)["checkpoints"]
        self.assertEqual(listed[0]["places"], [f"local:{self.local}", f"shared:{self.shared}"])
        self.assertIn(f"replica     shared:{self.shared}: complete", self.run_trainctl("ckpt", "inspect", "run").out)
        copies = self.records("checkpoint_copy")
        self.assertEqual((copies[-1]["step"], copies[-1]["copied"], copies[-1]["tier"]), (12, True, f"shared:{self.shared}"))

        shutil.rmtree(self.local)
        resumed = self.train(*self.tiers("--resume", "auto"))
        self.assertEqual(resumed.loaded_state(), (12, state))

    def test_a_damaged_file_is_read_from_the_copy(self):
        first = self.train(*self.tiers())
        newest = max(self.local.iterdir())
        data = bytearray((newest / "r00000.st").read_bytes())
        data[-1000] ^= 1
        (newest / "r00000.st").write_bytes(bytes(data))
        resumed = self.train(*self.tiers("--resume", "auto"))
        self.assertEqual(resumed.loaded_state(), (12, first.saved_states()[12]))
        self.assertIn("chunk", resumed.err)
        self.assertIn("read from another replica", resumed.err)
        self.assertIn("suspect", self.run_trainctl("ckpt", "list", str(self.local)).out)
        inspected = self.run_trainctl("ckpt", "inspect", "run").out
        self.assertIn("chunk", inspected)
        self.assertIn(f"replica     shared:{self.shared}: complete", inspected)

    def test_a_place_that_cannot_be_written_is_an_alarm(self):
        self.shared.parent.mkdir(parents=True)
        self.shared.write_text("a file")
        trained = self.train(*self.tiers())
        self.assertIn("was not copied to shared:", trained.err)
        self.assertIn("finished at step 12", trained.err)
        self.assertEqual(max(self.steps_in(self.local)), 12)
        self.assertFalse(any(record["copied"] for record in self.records("checkpoint_copy")))
        # Mended, the next start brings the copy.
        self.shared.unlink()
        self.train(*self.tiers("--resume", "auto"))
        self.assertEqual(self.steps_in(self.shared), [12])

    def test_what_config_check_says(self):
        alone = self.run_trainctl("config", "check", "job.toml", "--set", f'checkpoint.tiers=["local:{self.local}"]')
        self.assertIn("a lost node takes its part", alone.out + alone.err)
        wrong = self.run_trainctl("config", "check", "job.toml", "--set", 'checkpoint.tiers=["nvme"]', code=2)
        self.assertIn("is no place for checkpoints", wrong.out + wrong.err)


if __name__ == "__main__":
    harness.main()
