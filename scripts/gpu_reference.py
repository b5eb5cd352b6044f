#!/usr/bin/env python3
"""Trains one of trainctl's presets by PyTorch (torch.compile, SDPA, fused AdamW) and prints its speed, for comparison.

usage: gpu_reference.py PRESET MICRO_BATCH SEQUENCE

Weights and optimizer state in fp32, computing in bf16 by autocast, no dropout, random tokens: what `trainctl bench step`
does. The last line is JSON: tokens_per_s (median of 3 rounds of 4 steps) and memory_bytes (largest use).
exit codes: 0 ok; 5 no CUDA device, or the model does not fit
"""

import dataclasses
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as functional
from torch import nn


@dataclasses.dataclass(frozen=True)
class Shape:
    kind: str
    layers: int
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    vocabulary: int


def gpt2(layers, hidden, heads):
    return Shape("gpt2", layers, hidden, 4 * hidden, heads, heads, 50257)


PRESETS = {
    "gpt2-124m": gpt2(12, 768, 12),
    "gpt2-350m": gpt2(24, 1024, 16),
    "gpt2-1558m": gpt2(48, 1600, 25),
    "llama-1b": Shape("llama", 22, 2048, 5632, 32, 4, 32000),
    "llama-3b": Shape("llama", 26, 3200, 8640, 32, 32, 32000),
    "llama-7b": Shape("llama", 32, 4096, 11008, 32, 32, 32000),
}


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight.to(x.dtype)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.head = shape.hidden // shape.heads
        bias = shape.kind == "gpt2"
        norm = nn.LayerNorm if bias else RmsNorm
        self.norm_1 = norm(shape.hidden)
        self.norm_2 = norm(shape.hidden)
        self.qkv = nn.Linear(shape.hidden, (shape.heads + 2 * shape.kv_heads) * self.head, bias=bias)
        self.out = nn.Linear(shape.hidden, shape.hidden, bias=bias)
        self.up = nn.Linear(shape.hidden, shape.feed_forward * (1 if bias else 2), bias=bias)
        self.down = nn.Linear(shape.feed_forward, shape.hidden, bias=bias)

    def attention(self, x, rotary):
        batch, length, _ = x.shape
        heads, kv_heads = self.shape.heads, self.shape.kv_heads
        parts = self.qkv(x).view(batch, length, heads + 2 * kv_heads, self.head).transpose(1, 2)
        q, k, v = parts.split((heads, kv_heads, kv_heads), dim=1)
        if rotary is not None:
            q, k = rotate(q, *rotary), rotate(k, *rotary)
        if kv_heads != heads:
            k, v = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))

    def forward(self, x, rotary):
        x = x + self.attention(self.norm_1(x), rotary)
        y = self.up(self.norm_2(x))
        if self.shape.kind == "gpt2":
            y = functional.gelu(y, approximate="tanh")
        else:
            gate, value = y.chunk(2, dim=-1)
            y = functional.silu(gate) * value
        return x + self.down(y)


class Model(nn.Module):
    def __init__(self, shape, length):
        super().__init__()
        self.shape = shape
        padded = (shape.vocabulary + 127) // 128 * 128
        self.tokens = nn.Embedding(padded, shape.hidden)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.head = nn.Linear(shape.hidden, padded, bias=False)
        if shape.kind == "gpt2":
            self.positions = nn.Parameter(torch.zeros(length, shape.hidden))
            self.norm = nn.LayerNorm(shape.hidden)
            self.head.weight = self.tokens.weight
        else:
            self.norm = RmsNorm(shape.hidden)
            half = shape.hidden // shape.heads // 2
            angles = torch.outer(torch.arange(length).float(), 10000.0 ** (-torch.arange(half).float() / half))
            self.register_buffer("cos", angles.cos().bfloat16())
            self.register_buffer("sin", angles.sin().bfloat16())
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        rotary = None
        if self.shape.kind == "gpt2":
            x = x + self.positions
        else:
            rotary = (self.cos, self.sin)
        x = x.bfloat16()
        for block in self.blocks:
            x = block(x, rotary)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


def measure(preset, batch, length):
    """Tokens per second, loss of the last step."""
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = Model(PRESETS[preset], length)
        tokens = torch.randint(0, PRESETS[preset].vocabulary, (batch, length + 1))
    # Learning rate as small as a benchmark's may be: the numbers must stay finite, not become good.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    compiled = torch.compile(model)

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(tokens[:, :-1], tokens[:, 1:].contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    for _ in range(3):
        step()
    seconds = []
    for _ in range(3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(4):
            loss = step()
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - begin) / 4)
    return batch * length / statistics.median(seconds), float(loss)


def main(arguments):
    if len(arguments) != 3 or arguments[0] not in PRESETS:
        print(__doc__, file=sys.stderr)
        return 2
    if not torch.cuda.is_available():
        print("torch sees no CUDA device")
        return 5
    preset, batch, length = arguments[0], int(arguments[1]), int(arguments[2])
    try:
        tokens_per_s, loss = measure(preset, batch, length)
    except torch.cuda.OutOfMemoryError as error:
        print("does not fit: " + str(error).splitlines()[0])
        return 5
    print(json.dumps({"preset": preset, "micro_batch": batch, "sequence": length, "tokens_per_s": tokens_per_s,
                      "memory_bytes": torch.cuda.max_memory_allocated(), "loss": loss, "torch": torch.__version__}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
