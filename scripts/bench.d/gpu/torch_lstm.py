#!/usr/bin/env python3
"""Usage: torch_lstm.py [PATTERN]

PyTorch (cuDNN) on the sizes of model/cuda's BenchmarkScore: 32 ids a line of a
table of 65,536 rows, layout numbers, tanh, a bidirectional LSTM over windows of
50 lines, two heads. Prints lines/s with and without copies, eager and by
torch.compile, in float16 and in float32 (TF32 off), one line each, best of five.
PATTERN, a regular expression, chooses among the lines' names.
"""
import re
import sys
import time

import torch
from torch import nn

STEPS, IDS, ROWS, D, LAYOUT, HEADS = 50, 32, 1 << 16, 64, 51, (3, 20)


class Labeller(nn.Module):
    def __init__(self, hidden, layers):
        super().__init__()
        self.table = nn.EmbeddingBag(ROWS, D, mode="sum", include_last_offset=False)
        self.layout = nn.Linear(LAYOUT, D)
        self.lstm = nn.LSTM(D, hidden, layers, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden + D, sum(HEADS))

    def forward(self, ids, offsets, weights, layout, windows):
        x = torch.tanh(self.table(ids, offsets, weights) + self.layout(layout)).view(windows, STEPS, D)
        h, _ = self.lstm(x)
        logits = self.out(torch.cat([h, x], 2))
        return torch.cat([p.softmax(2) for p in logits.float().split(HEADS, 2)], 2)


def best(run, lines):
    run(), run()
    torch.cuda.synchronize()
    times = []
    for _ in range(5):
        n, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < 0.3:
            run()
            torch.cuda.synchronize()
            n += 1
        times.append((time.perf_counter() - begin) / n)
    return lines / min(times)


def main(pattern=""):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    print("torch", torch.__version__, "cudnn", torch.backends.cudnn.version(), torch.cuda.get_device_name())
    for hidden, layers in ((96, 1), (128, 2), (256, 2), (512, 3)):
        for dtype in (torch.float16, torch.float32):
            model = Labeller(hidden, layers).cuda().to(dtype).eval()
            for windows in (32, 64, 128, 256, 512, 1024, 2048, 4096):
                if windows > 512 and (dtype == torch.float32 or hidden > 256):
                    continue
                name = "torch/hidden%d/layers%d/%s/batch%d/" % (hidden, layers, str(dtype)[6:], windows)
                kinds = [kind for kind in ("eager", "compile") if re.search(pattern, name + kind)]
                if not kinds:
                    continue
                lines = windows * STEPS
                host = [torch.randint(ROWS, (lines * IDS,), dtype=torch.int32), torch.arange(0, lines * IDS, IDS, dtype=torch.int32),
                        torch.full((lines * IDS,), 0.35, dtype=dtype), torch.rand(lines, LAYOUT).to(dtype)]
                host = [t.pin_memory() for t in host]
                there = [t.cuda() for t in host]
                with torch.inference_mode():
                    for kind in kinds:
                        try:
                            f = model if kind == "eager" else torch.compile(model)
                            alone = best(lambda: f(*there, windows), lines)
                            copies = best(lambda: f(*[t.cuda(non_blocking=True) for t in host], windows).cpu(), lines)
                        except Exception as e:  # no compiler there, say
                            print("%s: %s" % (kind, str(e).split("\n")[0]), file=sys.stderr)
                            continue
                        print("%s: kernels %.0f lines/s, with copies %.0f lines/s" % (name + kind, alone, copies), flush=True)


main(*sys.argv[1:])
