#!/usr/bin/env python3
"""Golden values for tests/model: an independent implementation of the model families in PyTorch, float64.

Usage: /usr/bin/python3 scripts/reference.py [OUTPUT_DIRECTORY]     (Debian: python3-torch, python3-numpy)

Writes one file per case into tests/model/golden. It knows nothing of the C++: torch.nn.functional, autograd and
torch.optim.AdamW. What both sides share is written down here:

File    a line "trainctl-golden 1", then arrays: a line "<name> <count>" and <count> little-endian float64.
        "logits" [batch * length * vocabulary] of the first batch, "loss" (its sum over targets), "grad:<parameter>"
        of loss / targets, "losses" (mean per target) and "norms" (before clipping) of 10 steps, "final:<parameter>".
Weights parameter number k (in the order of the arrays), element i:  u = (31 i^2 + 7919 i + 104729 k) mod 2003,
        p = u / 1001 - 1;  value = 0.2 p (matrices), 0.5 p (embeddings), 1 + 0.1 p (norm gains), 0.1 p (biases).
Batch   of step s:  token[b][t] = (131 s + 17 b + 7 t^2 + 3 t) mod vocabulary for t = 0..length; inputs are
        t < length, targets t + 1, except that targets at (2 b + t) mod 11 in {0, 4, 7} are ignored: 16 are left.
AdamW   lr 3e-3, betas 0.9 / 0.95, eps 1e-8, decay 0.1 on matrices and embeddings; gradient norm clipped to 1.
"""

import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F

BATCH, LENGTH, STEPS = 2, 11, 10
EPSILON = float(np.float32(1e-5))  # settings are carried in single precision

COMMON = dict(layers=2, hidden=16, ffn=24, vocabulary=61, head_dim=4, max_length=13)
CASES = {
    "gpt2_tied": dict(COMMON, family="gpt2", heads=4, kv_heads=4, tied=True),
    "gpt2_untied": dict(COMMON, family="gpt2", heads=4, kv_heads=4, tied=False),
    "llama_tied": dict(COMMON, family="llama", heads=4, kv_heads=2, tied=True),
    "llama_untied": dict(COMMON, family="llama", heads=6, kv_heads=2, tied=False),
}


def parameter_shapes(c):
    """Name -> (shape, kind) in the order of the files."""
    gpt2 = c["family"] == "gpt2"
    queries, keys = c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
    shapes = {"embedding.tokens.weight": ((c["vocabulary"], c["hidden"]), "embedding")}
    if gpt2:
        shapes["embedding.positions.weight"] = ((c["max_length"], c["hidden"]), "embedding")

    def norm(name):
        shapes[name + ".weight"] = ((c["hidden"],), "gain")
        if gpt2:
            shapes[name + ".bias"] = ((c["hidden"],), "bias")

    def linear(name, out, inner):
        shapes[name + ".weight"] = ((out, inner), "matrix")
        if gpt2:
            shapes[name + ".bias"] = ((out,), "bias")

    for layer in range(c["layers"]):
        block = f"blocks.{layer}."
        norm(block + "attention_norm")
        linear(block + "attention.q", queries, c["hidden"])
        linear(block + "attention.k", keys, c["hidden"])
        linear(block + "attention.v", keys, c["hidden"])
        linear(block + "attention.output", c["hidden"], queries)
        norm(block + "mlp_norm")
        if not gpt2:
            linear(block + "mlp.gate", c["ffn"], c["hidden"])
        linear(block + "mlp.up", c["ffn"], c["hidden"])
        linear(block + "mlp.down", c["hidden"], c["ffn"])
    norm("head.norm")
    if not c["tied"]:
        shapes["head.output.weight"] = ((c["vocabulary"], c["hidden"]), "matrix")
    return shapes


def initial(k, shape, kind):
    i = np.arange(int(np.prod(shape)), dtype=np.int64)
    p = ((31 * i * i + 7919 * i + 104729 * k) % 2003) / 1001.0 - 1.0
    value = {"matrix": 0.2 * p, "embedding": 0.5 * p, "gain": 1.0 + 0.1 * p, "bias": 0.1 * p}[kind]
    return torch.nn.Parameter(torch.from_numpy(value.reshape(shape)))


def batch(step, vocabulary):
    b, t = np.meshgrid(np.arange(BATCH), np.arange(LENGTH + 1), indexing="ij")
    tokens = (131 * step + 17 * b + 7 * t * t + 3 * t) % vocabulary
    targets = tokens[:, 1:].copy()
    targets[np.isin((2 * b + t)[:, :-1] % 11, (0, 4, 7))] = -1
    return torch.from_numpy(tokens[:, :-1].copy()), torch.from_numpy(targets)


class Model:
    def __init__(self, case):
        self.c = case
        self.shapes = parameter_shapes(case)
        self.p = {name: initial(k, *spec) for k, (name, spec) in enumerate(self.shapes.items())}

    def linear(self, name, x):
        return F.linear(x, self.p[name + ".weight"], self.p.get(name + ".bias"))

    def norm(self, name, x):
        gain = self.p[name + ".weight"]
        if self.c["family"] == "gpt2":
            return F.layer_norm(x, gain.shape, gain, self.p[name + ".bias"], EPSILON)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * gain

    def rotate(self, x):
        """Multiplies the pairs (x_i, x_{i + d/2}), read as complex numbers, by exp(i position frequency)."""
        half = self.c["head_dim"] // 2
        frequency = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.outer(torch.arange(x.shape[-2], dtype=torch.float64), frequency)
        turned = torch.complex(x[..., :half].contiguous(), x[..., half:].contiguous()) * torch.polar(
            torch.ones_like(angle), angle)
        return torch.cat((turned.real, turned.imag), dim=-1)

    def attention(self, block, x):
        def heads(name, count):
            return self.linear(block + name, x).view(*x.shape[:2], count, self.c["head_dim"]).transpose(1, 2)

        q = heads("attention.q", self.c["heads"])
        k = heads("attention.k", self.c["kv_heads"])
        v = heads("attention.v", self.c["kv_heads"])
        if self.c["family"] == "llama":
            q, k = self.rotate(q), self.rotate(k)
        repeat = self.c["heads"] // self.c["kv_heads"]
        k, v = k.repeat_interleave(repeat, dim=1), v.repeat_interleave(repeat, dim=1)
        scores = q @ k.transpose(-1, -2) / self.c["head_dim"] ** 0.5
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        mixed = torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1) @ v
        return self.linear(block + "attention.output", mixed.transpose(1, 2).reshape(*x.shape[:2], -1))

    def mlp(self, block, x):
        up = self.linear(block + "mlp.up", x)
        if self.c["family"] == "gpt2":
            return self.linear(block + "mlp.down", F.gelu(up, approximate="tanh"))
        return self.linear(block + "mlp.down", F.silu(self.linear(block + "mlp.gate", x)) * up)

    def logits(self, tokens):
        x = F.embedding(tokens, self.p["embedding.tokens.weight"])
        if self.c["family"] == "gpt2":
            x = x + self.p["embedding.positions.weight"][: tokens.shape[1]]
        for layer in range(self.c["layers"]):
            block = f"blocks.{layer}."
            x = x + self.attention(block, self.norm(block + "attention_norm", x))
            x = x + self.mlp(block, self.norm(block + "mlp_norm", x))
        output = "embedding.tokens.weight" if self.c["tied"] else "head.output.weight"
        return F.linear(self.norm("head.norm", x), self.p[output])


def golden(case):
    model = Model(case)
    decayed = [p for p in model.p.values() if p.dim() >= 2]
    others = [p for p in model.p.values() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=3e-3, betas=(0.9, 0.95), eps=1e-8)
    arrays, losses, norms = {}, [], []
    for step in range(STEPS):
        tokens, targets = batch(step, case["vocabulary"])
        count = int((targets >= 0).sum())
        assert count == 16
        optimizer.zero_grad()
        logits = model.logits(tokens)
        total = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1, reduction="sum")
        (total / count).backward()
        if step == 0:
            arrays["logits"], arrays["loss"] = logits, total
            for name, p in model.p.items():
                arrays["grad:" + name] = p.grad.clone()
        losses.append(total.item() / count)
        norms.append(torch.nn.utils.clip_grad_norm_(list(model.p.values()), 1.0).item())
        optimizer.step()
    arrays["losses"], arrays["norms"] = torch.tensor(losses), torch.tensor(norms)
    for name, p in model.p.items():
        arrays["final:" + name] = p
    return arrays


def write(path, arrays):
    with open(path, "wb") as out:
        out.write(b"trainctl-golden 1\n")
        for name, values in arrays.items():
            flat = values.detach().numpy().astype("<f8").ravel()
            out.write(f"{name} {flat.size}\n".encode())
            out.write(flat.tobytes())


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    directory = pathlib.Path(__file__).resolve().parent.parent / "tests" / "model" / "golden"
    if len(sys.argv) > 1:
        directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, case in CASES.items():
        arrays = golden(case)
        path = directory / f"{name}.golden"
        write(path, arrays)
        print(f"{path}: loss {arrays['losses'][0]:.6f} -> {arrays['losses'][-1]:.6f}, "
              f"first norm {arrays['norms'][0]:.4f}")


if __name__ == "__main__":
    main()
