#!/usr/bin/env python3
"""Usage: torch_train.py [PATTERN]

PyTorch (cuDNN) on the training steps of model/train's BenchmarkGPUStep: windows of
80 lines, 41 ids a line (what dropout leaves of 58, some common, most rare) of a
table of 65,536 rows, layout numbers, tanh, dropout, a bidirectional LSTM, two heads,
cross-entropy, clipping and AdamW; inputs are copied from pinned memory at each step,
and nothing waits for a step but the last. Prints lines/s in float32 (TF32 off and
on), autocast float16 with a GradScaler and autocast bfloat16, with a dense gradient
of the table and fused AdamW over it and with a sparse one and SparseAdam: one line
each, best of five, then which of the two is faster. PATTERN, a regular expression,
chooses among the lines' names. Without CUDA one size runs on the CPU, to try the
script.
"""
import re
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

STEPS, IDS, ROWS, D, LAYOUT, HIDDEN, HEADS = 80, 41, 1 << 16, 64, 51, 96, (3, 4)
DROPOUT, SECOND, RATE, DECAY, CLIP, BATCHES = 0.4, 0.4, 5e-3, 0.01, 1.0, 4
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


class Labeller(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        self.table = nn.EmbeddingBag(ROWS, D, mode="sum", sparse=sparse)
        self.layout = nn.Linear(LAYOUT, D)
        self.lstm = nn.LSTM(D, HIDDEN, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * HIDDEN + D, sum(HEADS))

    def forward(self, ids, offsets, weights, layout):
        x = torch.tanh(self.table(ids, offsets, per_sample_weights=weights) + self.layout(layout))
        x = F.dropout(x, DROPOUT, self.training).view(-1, STEPS, D)
        h, _ = self.lstm(x)
        h = F.dropout(h, DROPOUT, self.training)
        return self.out(torch.cat([h, x.to(h.dtype)], 2)).flatten(0, 1)


class Step:
    """A training step on batches of so many windows."""

    def __init__(self, windows, precision, sparse):
        self.model = model = Labeller(sparse).to(DEVICE).train()
        self.sparse, self.windows = sparse, windows
        self.cast = {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(precision)
        self.scaler = torch.amp.GradScaler(DEVICE, enabled=precision == "float16")
        dense = [p for p in model.parameters() if p is not model.table.weight]
        groups = [{"params": [p for p in dense if p.dim() > 1], "weight_decay": DECAY},
                  {"params": [p for p in dense if p.dim() < 2], "weight_decay": 0.0}]
        self.dense, self.optimizers = dense, []
        if sparse:
            self.optimizers.append(torch.optim.SparseAdam([model.table.weight], lr=RATE, eps=1e-4))
        else:
            groups.append({"params": [model.table.weight], "weight_decay": 0.0, "eps": 1e-4})
        self.optimizers.append(torch.optim.AdamW(groups, lr=RATE, fused=True))
        lines = windows * STEPS
        self.host, self.at = [], 0
        for _ in range(BATCHES):
            batch = [(torch.rand(lines * IDS) ** 3 * ROWS).int(), torch.arange(0, lines * IDS, IDS, dtype=torch.int32),
                     torch.full((lines * IDS,), 0.3), torch.rand(lines, LAYOUT)] + [torch.randint(n, (lines,)) for n in HEADS]
            self.host.append([t.pin_memory() for t in batch] if CUDA else batch)

    def clip(self):
        if not self.sparse:
            nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
            return
        table = self.model.table.weight  # which clip_grad_norm_ does not take
        table.grad = table.grad.coalesce()
        grads = [p.grad for p in self.dense] + [table.grad._values()]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        torch._foreach_mul_(grads, torch.clamp(CLIP / (norm + 1e-6), max=1.0))

    def __call__(self):
        *batch, first, second = [t.to(DEVICE, non_blocking=True) for t in self.host[self.at]]
        self.at = (self.at + 1) % BATCHES
        with torch.autocast(DEVICE, self.cast, enabled=self.cast is not None):
            logits = self.model(*batch)
        one, two = logits.float().split(HEADS, 1)
        loss = F.cross_entropy(one, first) + SECOND * F.cross_entropy(two, second)
        for o in self.optimizers:
            o.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        for o in self.optimizers:
            self.scaler.unscale_(o)
        self.clip()
        for o in self.optimizers:
            self.scaler.step(o)
        self.scaler.update()
        return loss


def best(step):
    def wait():
        if CUDA:
            torch.cuda.synchronize()

    tries, least = (5, 0.5) if CUDA else (1, 0.1)
    for _ in range(3):
        loss = step()
    wait()
    begin = time.perf_counter()
    step(), wait()
    n = max(1, round(least / (time.perf_counter() - begin)))
    times = []
    for _ in range(tries):
        begin = time.perf_counter()
        for _ in range(n):
            loss = step()
        wait()
        times.append((time.perf_counter() - begin) / n)
    if not torch.isfinite(loss):
        raise ValueError("the loss is %r" % loss.item())
    return step.windows * STEPS / min(times)


def main(pattern=""):
    print("torch", torch.__version__, *(["cudnn", torch.backends.cudnn.version(), torch.cuda.get_device_name()] if CUDA else ["without CUDA: a smoke test on the CPU"]))
    for precision in ("float32", "tf32", "float16", "bfloat16"):
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
        for windows in (12, 48, 192) if CUDA else (12,):
            speeds = {}
            for kind in ("dense", "sparse"):
                name = "torch/train/%s/batch%d/%s" % (precision, windows, kind)
                if not re.search(pattern, name):
                    continue
                try:
                    torch.manual_seed(1)
                    speeds[kind] = best(Step(windows, precision, kind == "sparse"))
                except (RuntimeError, ValueError) as e:  # a precision that cuDNN does not have, say
                    print("%s: %s" % (name, str(e).split("\n")[0]), file=sys.stderr)
                    continue
                print("%s: %.0f lines/s, %.0f µs a step" % (name, speeds[kind], windows * STEPS / speeds[kind] * 1e6), flush=True)
            if len(speeds) > 1:
                print("torch/train/%s/batch%d: %s is faster" % (precision, windows, max(speeds, key=speeds.get)), flush=True)


main(*sys.argv[1:])
