"""Ranks that share every matrix, as processes."""

import harness
from harness import TrainctlTest


class Tensor(TrainctlTest):

    def assert_same_losses(self, found, expected):
        self.assertEqual(sorted(found), sorted(expected))
        for step, loss in expected.items():
            self.assertLess(abs(found[step] - loss), 2e-6 * loss, f"step {step}: {found[step]} instead of {loss}")

    def test_two_ranks_share_the_matrices_and_one_rank_goes_on(self):
        self.train(settings=["job.run_dir='alone'"])
        alone = self.losses(self.directory / "alone")
        tensor = self.train(settings=["parallel.tensor_parallel_size=2"], ranks=2)
        self.assert_same_losses(self.losses(), alone)
        # Key/value heads, vocabulary and feed-forward width come together again.
        resumed = self.train("--resume", "4")
        self.assertEqual(resumed.loaded_state(), (4, tensor.saved_states()[4]))
        self.assert_same_losses(self.losses(), alone)
        # And apart: two groups of two, rows not sharded, optimizer state sharded.
        again = self.train("--resume", "8", ranks=4,
                           settings=["parallel.tensor_parallel_size=2", "parallel.sequence_parallel=false", "memory.zero_stage=2"])
        self.assertEqual(again.loaded_state(), (8, resumed.saved_states()[8]))
        self.assert_same_losses(self.losses(), alone)

    def test_impossible_sizes(self):
        for ranks, size, parts in ((None, 3, ("model.heads 4", "model.kv_heads 2", "tensor_parallel_size 3")),
                                   (None, 2, ("1 rank ", "tensor_parallel_size 2")), (3, 2, ("3 ranks", "tensor_parallel_size 2"))):
            process = self.train(settings=[f"parallel.tensor_parallel_size={size}"], ranks=ranks, code=2)
            for part in parts:
                self.assertIn(part, process.err, process.describe())
            self.assertFalse(self.run_dir.exists(), process.describe())


if __name__ == "__main__":
    harness.main()
