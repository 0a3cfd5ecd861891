#!/usr/bin/env python3
"""A peer of Linnet's, timed.

usage: peers.py torch|onnxruntime|openvino MODEL BATCH [MODEL BATCH]…

Loads model folders and the batches that `linnet serve` dumped of them, then
answers commands from the standard input, each with a line of JSON:

  check WHAT HIDDEN PRECISION
        how far the probabilities are from Linnet's
  time WHAT HIDDEN PRECISION THREADS SECONDS
        calls over and over
WHAT is x (line vectors given) or, of torch, table; PRECISION is float32 or
bfloat16.
"""
import json
import statistics
import sys
import time

import numpy as np

from weights import STEPS, WINDOWS, Batch, Model, lines_first, steps_first


class Torch:
    def __init__(self):
        import torch
        self.torch, self.nets = torch, {}

    def net(self, m, precision):
        from net import Net
        key = m.h, precision
        if key not in self.nets:
            self.nets[key] = Net(m).to(getattr(self.torch, precision))
        return self.nets[key]

    def make(self, what, m, b, precision, threads):
        """A function to call and how to get probabilities, [lines, K], of what it returns."""
        torch, t = self.torch, self.torch.from_numpy
        torch.set_num_threads(threads)
        net = self.net(m, precision)
        if what == 'x':
            x = t(steps_first(b.x(m))).to(getattr(torch, precision))

            def call():
                with torch.inference_mode():
                    return net(x)
            return call, lambda y: lines_first(y.float().numpy())

        # The lines in the order of steps, so that x needs no transposing.
        order = np.arange(b.lines).reshape(WINDOWS, STEPS).T.ravel()
        counts = np.diff(b.offsets, append=len(b.ids))[order]
        offsets = np.cumsum(counts) - counts
        take = np.arange(len(b.ids)) + np.repeat(b.offsets[order] - offsets, counts)
        args = t(b.ids[take]), t(offsets.astype(np.int32)), t(b.weights[take]), t(b.layout[order])

        def call():
            with torch.inference_mode():
                return net(net.vectors(*args).view(STEPS, WINDOWS, m.d))
        return call, lambda y: lines_first(y.numpy())


def gates(a, order):
    """Gates i, f, g, o of a's columns in another order, transposed."""
    parts = dict(zip('ifgo', np.split(a, 4, -1)))
    return np.concatenate([parts[g] for g in order], -1).T


class OnnxRuntime:
    def __init__(self):
        import onnxruntime
        self.ort = onnxruntime

    def make(self, what, m, b, precision, threads):
        options = self.ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        session = self.ort.InferenceSession(onnx_model(m), options, providers=['CPUExecutionProvider'])
        feed = {'x': steps_first(b.x(m))}
        return lambda: session.run(None, feed)[0], lines_first


def onnx_model(m):
    from onnx import TensorProto, helper, numpy_helper
    w, r, bias = (np.stack([gates(d[i], 'iofg') for d in m.directions]) for i in range(3))
    bias = np.concatenate([bias, np.zeros_like(bias)], 1)
    arrays = dict(w=w, r=r, b=bias, ow=m.output_weights, ob=m.output_bias, shape=np.array([0, 0, -1]), heads=np.array([n for n in m.heads if n]))
    node = helper.make_node
    nodes = [
        node('LSTM', ['x', 'w', 'r', 'b'], ['y'], hidden_size=m.h, direction='bidirectional'),
        node('Transpose', ['y'], ['yt'], perm=[0, 2, 1, 3]),
        node('Reshape', ['yt', 'shape'], ['states']),
        node('Concat', ['states', 'x'], ['both'], axis=-1),
        node('MatMul', ['both', 'ow'], ['product']),
        node('Add', ['product', 'ob'], ['logits']),
    ]
    if m.heads[1]:
        nodes += [node('Split', ['logits', 'heads'], ['l0', 'l1'], axis=-1), node('Softmax', ['l0'], ['p0'], axis=-1),
                  node('Softmax', ['l1'], ['p1'], axis=-1), node('Concat', ['p0', 'p1'], ['probs'], axis=-1)]
    else:
        nodes += [node('Softmax', ['logits'], ['probs'], axis=-1)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, 'linnet', [value('x', TensorProto.FLOAT, [STEPS, WINDOWS, m.d])],
                              [value('probs', TensorProto.FLOAT, [STEPS, WINDOWS, m.outputs])],
                              [numpy_helper.from_array(np.ascontiguousarray(a), k) for k, a in arrays.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 13)])
    model.ir_version = 8
    return model.SerializeToString()


class OpenVino:
    def __init__(self):
        import openvino
        self.ov = openvino

    def make(self, what, m, b, precision, threads):
        core = self.ov.Core()
        settings = {'INFERENCE_NUM_THREADS': threads, 'NUM_STREAMS': 1, 'PERFORMANCE_HINT': 'LATENCY',
                    'INFERENCE_PRECISION_HINT': {'float32': 'f32', 'bfloat16': 'bf16'}[precision]}
        request = core.compile_model(self.model(m), 'CPU', settings).create_infer_request()
        x = b.x(m).reshape(WINDOWS, STEPS, m.d)
        return lambda: request.infer({0: x})[0], lambda y: y.reshape(b.lines, m.outputs)

    def model(self, m):
        """The graph in OpenVINO's own operations, windows first as its LSTM wants them."""
        import openvino.opset13 as op
        x = op.parameter([WINDOWS, STEPS, m.d], np.float32)
        w, r, bias = (np.ascontiguousarray(np.stack([gates(d[i], 'figo') for d in m.directions])) for i in range(3))
        start = np.zeros((WINDOWS, 2, m.h), np.float32)
        y = op.lstm_sequence(x, start, start, np.full(WINDOWS, STEPS, np.int32), w, r, bias, m.h, 'bidirectional')
        states = op.reshape(op.transpose(y.output(0), [0, 2, 1, 3]), [WINDOWS, STEPS, 2 * m.h], False)
        logits = op.add(op.matmul(op.concat([states, x], -1), m.output_weights, False, False), m.output_bias)
        heads = [logits]
        if m.heads[1]:
            heads = op.variadic_split(logits, -1, m.heads).outputs()
        probs = [op.softmax(h, -1) for h in heads]
        return self.ov.Model([op.concat(probs, -1) if len(probs) > 1 else probs[0]], [x], 'linnet')


def main():
    peer = {'torch': Torch, 'onnxruntime': OnnxRuntime, 'openvino': OpenVino}[sys.argv[1]]()
    pairs = [(Model(m), Batch(b)) for m, b in zip(sys.argv[2::2], sys.argv[3::2])]
    pairs = {m.h: (m, b) for m, b in pairs}
    made = {}

    def contender(what, hidden, precision, threads):
        key = what, hidden, precision, threads
        if key not in made:
            made[key] = peer.make(what, *pairs[hidden], precision, threads)
            made[key][0]()
        if peer.__class__ is Torch:
            peer.torch.set_num_threads(threads)
        return made[key]

    print('{}', flush=True)  # ready
    for line in sys.stdin:
        command, *args = line.split()
        if command == 'check':
            what, hidden, precision = args
            call, probs = contender(what, int(hidden), precision, 1)
            got, want = probs(call()), pairs[int(hidden)][1].probs
            n = len(pairs[int(hidden)][0].classes)
            same = (got[:, :n].argmax(1) == want[:, :n].argmax(1)).mean()
            print(json.dumps({'furthest': float(np.abs(got - want).max()), 'same_labels': float(same)}), flush=True)
            continue
        what, hidden, precision, threads, seconds = args
        call, _ = contender(what, int(hidden), precision, int(threads))
        times, end = [], time.perf_counter() + float(seconds)
        while True:
            begin = time.perf_counter()
            call()
            now = time.perf_counter()
            times.append(now - begin)
            if now > end:
                break
        print(json.dumps({'median': statistics.median(times), 'min': min(times)}), flush=True)


if __name__ == '__main__':
    main()
