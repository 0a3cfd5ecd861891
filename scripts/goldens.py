#!/usr/bin/env python3
"""Make testdata/goldens/model.json: probabilities of a plain numpy LSTM.

usage: goldens.py [--check] [--onnx]

With nothing, the goldens are written anew. --check compares instead with those
that are there. --onnx holds numpy's LSTM layers against ONNX Runtime's as well
(pip install onnx onnxruntime), an implementation by other people.

The weights and batches come from a generator of integers that package
model/modeltest has too (generate.go says how), so only probabilities are
stored. Everything here is computed in float64, from the formulas of the comment
on Weights in model/weights.go, and shares no code with the Go side.
Needs Python 3.9 and numpy.
"""
import json
import os
import sys

import numpy as np

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "testdata", "goldens", "model.json")
GROUPS = 4


def murmur(h):
    """The finaliser of murmur3, on uint32 arrays."""
    h = h.copy()
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xC2B2AE35)
    h ^= h >> np.uint32(16)
    return h


def numbers(name, seed, n):
    """The first n numbers of the stream called name."""
    h = 2166136261
    for b in name.encode():
        h = (h ^ b) * 16777619 % 2**32
    start = murmur(np.array([(h + seed) % 2**32], np.uint32))
    return murmur(start + np.arange(n, dtype=np.uint32))


def units(name, seed, *shape):
    """Numbers in [-0.5, 0.5)."""
    return (numbers(name, seed, int(np.prod(shape))) >> np.uint32(8)).reshape(shape) / 2.0**24 - 0.5


def weight_scale(fan_in):
    scale, n = 4.0, 1
    while n < fan_in:
        scale, n = scale / 2, n * 4
    return scale


class Model:
    """The weights of a case."""

    def __init__(self, case):
        s, v, d, h = case["seed"], case["input_size"], case["embedding_size"], case["hidden_size"]
        lay, k = case["layout_size"], case["classes"] + case["full_classes"]
        self.h = h
        self.heads = [case["classes"], case["full_classes"]]
        table = (numbers("table", s, v * d) % np.uint32(255)).astype(np.int64) - 127
        scale = (units("table_scale", s, v) + 1) / 128
        self.table = table.reshape(v, d) * scale[:, None]
        self.mean = units("layout.mean", s, lay)
        self.inv_std = units("layout.inv_std", s, lay) + 1
        self.layout_weights = units("layout.weights", s, lay, d) * weight_scale(lay) / 4
        self.layout_bias = units("layout.bias", s, d)
        self.layers = []
        size = d
        for l in range(case["num_layers"]):
            layer = []
            for name in ("forward", "backward"):
                p = "layers.%d.%s." % (l, name)
                layer.append((
                    units(p + "input_weights", s, size, 4 * h) * weight_scale(size),
                    units(p + "recurrent_weights", s, h, 4 * h) * weight_scale(h),
                    units(p + "bias", s, 4 * h) * 2,
                ))
            self.layers.append(layer)
            size = 2 * h
        self.output_weights = units("output.weights", s, 2 * h + d, k) * 2 * weight_scale(2 * h + d)
        self.output_bias = units("output.bias", s, k)


def lines(case, m):
    """x of every line of a case's batch, [lines, D]."""
    n, s = case["lines"], case["seed"]
    count = (numbers("batch.count", s, n * GROUPS) % np.uint32(7)).astype(int).reshape(n, GROUPS)
    count[4::5] = 0
    ids = numbers("batch.ids", s, int(count.sum())) % np.uint32(case["input_size"])
    layout = units("batch.layout", s, n, case["layout_size"]) * 16
    standard = np.clip((layout - m.mean) * m.inv_std, -6, 6)
    x = standard @ m.layout_weights + m.layout_bias
    at = 0
    for i in range(n):
        for c in count[i]:
            if c:
                weight = float(np.float32(1 / np.sqrt(float(c))))
                x[i] += weight * m.table[ids[at:at + c]].sum(0)
                at += c
    assert at == len(ids)
    return np.tanh(x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(x, weights, h):
    """One direction over x, [T, in], from the first row: [T, H]."""
    w_in, w_rec, bias = weights
    state, cell, out = np.zeros(h), np.zeros(h), np.empty((len(x), h))
    for t, row in enumerate(x):
        i, f, g, o = np.split(row @ w_in + state @ w_rec + bias, 4)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        state = sigmoid(o) * np.tanh(cell)
        out[t] = state
    return out


def bilstm(windows, m):
    """The states of the last layer for each window."""
    out = []
    for x in windows:
        for forward, backward in m.layers:
            x = np.concatenate([lstm(x, forward, m.h), lstm(x[::-1], backward, m.h)[::-1]], 1)
        out.append(x)
    return out


def onnx_bilstm(windows, m):
    """The same by ONNX Runtime's LSTM operator, all windows in one padded batch, float32."""
    import onnxruntime
    from onnx import helper, TensorProto

    def order(a):  # gates i f g o to ONNX's i o f c, one row a gate's unit
        i, f, g, o = np.split(a, 4, -1)
        return np.concatenate([i, o, f, g], -1).T.astype(np.float32)

    lengths = np.array([len(x) for x in windows], np.int32)
    x = np.zeros((max(lengths), len(windows), windows[0].shape[1]), np.float32)
    for j, w in enumerate(windows):
        x[:len(w), j] = w
    for layer in m.layers:
        w = np.stack([order(d[0]) for d in layer])
        r = np.stack([order(d[1]) for d in layer])
        b = np.stack([np.concatenate([order(d[2]), np.zeros(4 * m.h, np.float32)]) for d in layer])
        names = ["X", "W", "R", "B", "L"]
        node = helper.make_node("LSTM", names, ["Y"], hidden_size=m.h, direction="bidirectional")
        arrays = dict(zip(names, [x, w, r, b, lengths]))
        graph = helper.make_graph(
            [node], "g",
            [helper.make_tensor_value_info(n, TensorProto.INT32 if n == "L" else TensorProto.FLOAT, a.shape) for n, a in arrays.items()],
            [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)])
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)])
        proto.ir_version = 8
        y = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, arrays)[0]
        x = np.concatenate([y[:, 0], y[:, 1]], -1)
    return [x[:n, j] for j, n in enumerate(lengths)]


def probabilities(case, net=bilstm):
    m = Model(case)
    x = lines(case, m)
    windows = [x[first:first + n] for first, n in case["windows"]]
    rows = []
    for w, states in zip(windows, net(windows, m)):
        logits = np.concatenate([states, w], 1) @ m.output_weights + m.output_bias
        at, heads = 0, []
        for n in m.heads:
            if n:
                e = np.exp(logits[:, at:at + n] - logits[:, at:at + n].max(1, keepdims=True))
                heads.append(e / e.sum(1, keepdims=True))
                at += n
        rows.append(np.concatenate(heads, 1))
    return np.concatenate(rows)


def cases():
    ragged = [[0, 7], [3, 1], [7, 12], [0, 19], [19, 1], [5, 0], [6, 9]]  # overlapping, T=1, empty
    for layers in (1, 2, 3):
        for hidden in (1, 7, 96, 256):
            yield dict(name="layers %d hidden %d" % (layers, hidden), seed=100 * layers + hidden, input_size=2000,
                       embedding_size=64 if hidden == 96 else 9, layout_size=13, hidden_size=hidden, num_layers=layers,
                       classes=3, full_classes=4, lines=20, windows=ragged)
    base = dict(input_size=2000, embedding_size=24, layout_size=95, hidden_size=32, num_layers=1, classes=3, full_classes=0)
    yield dict(base, name="one line", seed=1, lines=1, windows=[[0, 1]])
    yield dict(base, name="windows of one line", seed=2, lines=100, windows=[[i, 1] for i in range(100)])
    yield dict(base, name="long", seed=3, lines=400, windows=[[0, 400]])
    yield dict(base, name="overlapping", seed=4, lines=60, windows=[[i, 20] for i in range(0, 41, 5)])
    yield dict(base, name="many windows", seed=5, lines=300, windows=[[i, 1 + i * 7 % 5] for i in range(200)])
    yield dict(base, name="one row of table", seed=6, input_size=1, embedding_size=1, lines=8, windows=[[0, 8]])
    yield dict(base, name="full set", seed=7, lines=12, classes=30, windows=[[0, 12]])
    yield dict(base, name="two layers, ragged", seed=8, num_layers=2, lines=90, windows=[[i, 90 - i] for i in range(0, 90, 11)])


def main():
    args = set(sys.argv[1:])
    if args - {"--check", "--onnx"}:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    made = [dict(c, probs=probabilities(c)) for c in cases()]
    if "--onnx" in args:
        worst = 0.0
        for c in made:
            windows = [w for w in c["windows"] if w[1]]  # ONNX Runtime takes no empty ones
            worst = max(worst, np.abs(probabilities(dict(c, windows=windows), onnx_bilstm) - c["probs"]).max())
        print("ONNX Runtime: furthest probability %.1e" % worst)
        if worst > 1e-5:
            sys.exit("goldens.py: numpy and ONNX Runtime disagree")
    if "--check" in args:
        with open(PATH) as f:
            kept = json.load(f)["cases"]
        if [c["name"] for c in kept] != [c["name"] for c in made]:
            sys.exit("goldens.py: other cases than in model.json; make it again")
        worst = max(np.abs(np.array(k["probs"]) - m["probs"].ravel()).max() for k, m in zip(kept, made))
        print("model.json: furthest probability %.1e" % worst)
        if worst > 1e-6:
            sys.exit("goldens.py: model.json is not what this program makes; make it again")
        return
    text = []
    for c in made:
        c["probs"] = ["@%.7f@" % p for p in c["probs"].ravel()]
        text.append(json.dumps(c, separators=(",", ":")).replace('"@', "").replace('@"', ""))
    with open(PATH, "w") as f:
        f.write('{"made_by":"scripts/goldens.py, numpy float64","cases":[\n' + ",\n".join(text) + "\n]}\n")


if __name__ == "__main__":
    main()
