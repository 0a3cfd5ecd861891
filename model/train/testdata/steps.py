#!/usr/bin/env python3
"""Ten training steps in numpy and float64: what model/train is held to.

  python3 steps.py > steps.json

An implementation of its own: windows one by one without padding, derivatives
written out, rows of the table in a dictionary. Nothing is drawn at random;
documents, weights and batches are made by the formula below, which
steps_test.go repeats. Needs numpy.
"""
import json
import math
import numpy as np

D, L, INPUT = 6, 5, 2000
GROUPS = 4
ROWS = [9, 1, 14, 6]                 # of each document
LABELS = ["Nomenclature", "Description", "Holotype", "Figure", ""]
CLASSES = ["Nomenclature", "Description", "Misc-exposition"]
FULL = ["Description", "Figure", "Nomenclature"]
STEPS, BATCH = 10, 5
RATE, DECAY, SECOND = 5e-3, 0.01, 0.4


def mix(stream, n):
    """n numbers of 64 bits: splitmix64 of stream·2^32 + 0 … n−1."""
    with np.errstate(over="ignore"):
        z = (np.arange(n, dtype=np.uint64) + np.uint64(stream << 32)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def uniform(stream, *shape):
    """Numbers in [−1, 1), of 23 bits so that float32 holds them exactly."""
    n = math.prod(shape)
    return ((mix(stream, n) >> np.uint64(41)).astype(np.float64) / 2**22 - 1).reshape(shape)


def documents():
    docs, stream = [], 1
    for rows in ROWS:
        m = mix(stream, rows * 16).reshape(rows, 16)
        layout = uniform(stream + 1, rows, L)
        stream += 2
        lines = []
        for r in range(rows):
            groups, at = [], 5
            for g in range(GROUPS):
                n = int(m[r, g] % np.uint64(3))
                groups.append([int(i % np.uint64(INPUT)) for i in m[r, at:at + n]])
                at += n
            label = LABELS[int(m[r, 4] % np.uint64(5))]
            # A label that is no class is Misc-exposition; one that is not
            # in FULL has no target there.
            main = -1 if label == "" else CLASSES.index(label) if label in CLASSES else 2
            full = FULL.index(label) if label in FULL else -1
            lines.append((groups, layout[r], main, full))
        docs.append(lines)
    return docs


def batch(step):
    """Windows (document, first row, rows) of a step."""
    ws = []
    for i in range(BATCH):
        d = (step + i) % len(ROWS)
        first = (3 * step + i) % ROWS[d]
        ws.append((d, first, 1 + (7 * step + 5 * i) % (ROWS[d] - first)))
    return ws


def weights(layers, hidden):
    """Parameters by name, and the table. Float32 rounds them once."""
    k = len(CLASSES) + len(FULL)
    shapes = [("W", (L, D)), ("b", (D,))]
    size = D
    for l in range(layers):
        for d in "fb":
            shapes += [(f"x{l}{d}", (size, 4 * hidden)), (f"h{l}{d}", (hidden, 4 * hidden)), (f"b{l}{d}", (4 * hidden,))]
        size = 2 * hidden
    shapes += [("o1", (size, k)), ("o2", (D, k)), ("ob", (k,))]
    p = {}
    for i, (name, shape) in enumerate(shapes):
        p[name] = (uniform(100 + i, *shape) / math.sqrt(shape[0])).astype(np.float32).astype(np.float64)
    return p, (uniform(99, INPUT, D) / 4).astype(np.float32).astype(np.float64)


def sigma(x):
    return 1 / (1 + np.exp(-x))


def lstm(x, wx, wh, b):
    """Steps over the rows of x; returns states and what the way back needs."""
    h = wh.shape[0]
    s, c, tape, out = np.zeros(h), np.zeros(h), [], []
    for row in x:
        z = row @ wx + s @ wh + b
        i, f, g, o = sigma(z[:h]), sigma(z[h:2*h]), np.tanh(z[2*h:3*h]), sigma(z[3*h:])
        c2 = f * c + i * g
        t = np.tanh(c2)
        tape.append((row, s, c, i, f, g, o, t))
        s, c = o * t, c2
        out.append(s)
    return np.array(out), tape


def lstm_back(dout, tape, wx, wh):
    h = wh.shape[0]
    ds, dc = np.zeros(h), np.zeros(h)
    gx, gh, gb = np.zeros_like(wx), np.zeros_like(wh), np.zeros(4 * h)
    dx = [None] * len(tape)
    for n in range(len(tape) - 1, -1, -1):
        row, s, c, i, f, g, o, t = tape[n]
        ds = ds + dout[n]
        dc = dc + ds * o * (1 - t * t)
        dz = np.concatenate([dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g * g), ds * t * o * (1 - o)])
        gx += np.outer(row, dz)
        gh += np.outer(s, dz)
        gb += dz
        dx[n] = wx @ dz
        ds, dc = wh @ dz, dc * f
    return np.array(dx), gx, gh, gb


def head(logits, y, focal):
    """Loss of target y and its gradient by the logits."""
    e = np.exp(logits - logits.max())
    p = e / e.sum()
    q = p[y]
    one = np.zeros(len(p))
    one[y] = 1
    if not focal:
        return -math.log(q), p - one
    # d/dq of −(1−q)²·log q, times dq/dlogits = q·([y] − p)
    slope = 2 * (1 - q) * math.log(q) - (1 - q) ** 2 / q
    return -(1 - q) ** 2 * math.log(q), slope * q * (one - p)


def run(layers, hidden, weight, focal):
    docs = documents()
    p, table = weights(layers, hidden)
    rows = np.array([line[1] for d in docs for line in d])
    mean, dev = rows.mean(0), rows.std(0)
    moments = {n: (np.zeros_like(a), np.zeros_like(a)) for n, a in p.items()}
    table_moments = {}
    k = len(CLASSES)
    losses = []
    for step in range(STEPS):
        ws = [docs[d][first:first + n] for d, first, n in batch(step)]
        count = [sum(line[2 + j] >= 0 for w in ws for line in w) for j in range(2)]
        share = [1 / max(1, count[0]), SECOND / max(1, count[1])]
        loss, grad, table_grad = 0.0, {n: np.zeros_like(a) for n, a in p.items()}, {}
        for w in ws:
            lay = np.array([np.clip((line[1] - mean) / dev, -6, 6) for line in w])
            total = np.zeros((len(w), D))
            for r, line in enumerate(w):
                for ids in line[0]:
                    for i in ids:
                        total[r] += table[i] / math.sqrt(len(ids))
            x = np.tanh(total + lay @ p["W"] + p["b"])
            states, tapes = x, []
            for l in range(layers):
                f, tf = lstm(states, p[f"x{l}f"], p[f"h{l}f"], p[f"b{l}f"])
                b, tb = lstm(states[::-1], p[f"x{l}b"], p[f"h{l}b"], p[f"b{l}b"])
                tapes.append((tf, tb))
                states = np.concatenate([f, b[::-1]], 1)
            logits = states @ p["o1"] + x @ p["o2"] + p["ob"]
            dlogits = np.zeros_like(logits)
            for r, line in enumerate(w):
                for j, (at, names) in enumerate(((0, CLASSES), (k, FULL))):
                    y = line[2 + j]
                    if y < 0:
                        continue
                    l, g = head(logits[r, at:at + len(names)], y, names[y] in focal)
                    scale = share[j] * weight.get(names[y], 1)
                    loss += scale * l
                    dlogits[r, at:at + len(names)] = scale * g
            grad["o1"] += states.T @ dlogits
            grad["o2"] += x.T @ dlogits
            grad["ob"] += dlogits.sum(0)
            dstates, dx = dlogits @ p["o1"].T, dlogits @ p["o2"].T
            for l in range(layers - 1, -1, -1):
                back = 0
                for d, dout in (("f", dstates[:, :hidden]), ("b", dstates[::-1, hidden:])):
                    di, gx, gh, gb = lstm_back(dout, tapes[l][d == "b"], p[f"x{l}{d}"], p[f"h{l}{d}"])
                    grad[f"x{l}{d}"] += gx
                    grad[f"h{l}{d}"] += gh
                    grad[f"b{l}{d}"] += gb
                    back = back + (di if d == "f" else di[::-1])
                dstates = back
            dz = (dx + dstates) * (1 - x * x)
            grad["W"] += lay.T @ dz
            grad["b"] += dz.sum(0)
            for r, line in enumerate(w):
                for ids in line[0]:
                    for i in ids:
                        table_grad[i] = table_grad.get(i, 0) + dz[r] / math.sqrt(len(ids))
        losses.append(loss)

        norm = math.sqrt(sum((g * g).sum() for g in grad.values()) + sum((g * g).sum() for g in table_grad.values()))
        clip = min(1, 1 / norm)
        warm = min(100, STEPS // 4)
        if step < warm:
            rate = RATE * (step + 1) / (warm + 1)
        else:
            rate = RATE * (0.02 + 0.98 * (1 + math.cos(math.pi * (step - warm) / (STEPS - warm - 1))) / 2)
        t = step + 1

        def adam(w, g, m, v, decay, epsilon):
            m[...] = 0.9 * m + 0.1 * g * clip
            v[...] = 0.999 * v + 0.001 * (g * clip) ** 2
            w -= rate * (m / (1 - 0.9 ** t)) / (np.sqrt(v / (1 - 0.999 ** t)) + epsilon) + rate * decay * w

        for n, a in p.items():
            adam(a, grad[n], *moments[n], DECAY if a.ndim == 2 else 0, 1e-8)
        for i, g in table_grad.items():  # lazily: rows of this step only
            m, v = table_moments.setdefault(i, (np.zeros(D), np.zeros(D)))
            adam(table[i], g, m, v, 0, 1e-4)
    return losses


CASES = [(l, h, "none", "") for l in (1, 2, 3) for h in (1, 7, 96, 256)]
CASES += [(1, 7, "Nomenclature=2.5,Figure=0.5", ""), (1, 7, "none", "Nomenclature,Figure"),
          (2, 7, "Description=3", "Description,Nomenclature")]

if __name__ == "__main__":
    out = []
    for layers, hidden, weight, focal in CASES:
        named = {} if weight == "none" else {k: float(v) for k, v in (s.split("=") for s in weight.split(","))}
        out.append({"num_layers": layers, "hidden_size": hidden, "class_weights": weight, "focal_labels": focal,
                    "losses": run(layers, hidden, named, focal.split(","))})
    print("[\n" + ",\n".join(json.dumps(o) for o in out) + "\n]")
