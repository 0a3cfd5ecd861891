"""A model folder of Linnet's as numpy arrays, and the batch that `linnet serve` dumped."""
import json
import pathlib

import numpy as np
from safetensors.numpy import load_file

WINDOWS, STEPS = 64, 50
CLIP = 6


class Model:
    def __init__(self, folder):
        folder = pathlib.Path(folder)
        c = json.loads((folder / 'config.json').read_text())
        t = load_file(folder / 'weights.safetensors')
        self.classes = c['classes']
        self.heads = [len(c['classes']), len(c.get('full_classes') or [])]
        self.outputs = sum(self.heads)
        self.d, self.h, self.input_size = c['embedding_size'], c['hidden_size'], c['input_size']
        self.table = t['table'].astype(np.float32) * t['table_scale'][:, None]
        self.layout_mean, self.layout_inv_std = t['layout.mean'], t['layout.inv_std']
        self.layout_weights, self.layout_bias = t['layout.weights'], t['layout.bias']
        assert c['num_layers'] == 1, 'the peers have one layer'
        names = 'input_weights', 'recurrent_weights', 'bias'
        self.directions = [[t[f'layers.0.{d}.{n}'] for n in names] for d in ('forward', 'backward')]
        self.output_weights, self.output_bias = t['output.weights'], t['output.bias']

    def main_head(self):
        """The model with its first head alone, which is what labels."""
        n = len(self.classes)
        self.heads, self.outputs = [n], n
        self.output_weights, self.output_bias = self.output_weights[:, :n], self.output_bias[:n]
        return self

    def flop(self):
        """Floating-point operations of a line: the LSTM and the output."""
        return 2 * (2 * 4 * self.h * (self.d + self.h) + self.outputs * (2 * self.h + self.d))

    def standard(self, layout):
        return np.clip((layout - self.layout_mean) * self.layout_inv_std, -CLIP, CLIP)


class Batch:
    """WINDOWS windows of STEPS lines each, one after the other."""

    def __init__(self, path):
        t = load_file(path)
        self.ids, self.layout, self.probs = t['ids'].ravel(), t['layout'], t['probs']
        ends, scales = t['group_end'], t['group_scale']
        self.lines = len(self.layout)
        counts = np.diff(ends.ravel(), prepend=0)
        self.weights = np.repeat(scales.ravel(), counts)
        self.offsets = np.append(0, ends[:-1, -1])  # of each line in ids

    def x(self, m):
        """What goes into the LSTM, [lines, D]."""
        rows = m.table[self.ids] * self.weights[:, None]
        return np.tanh(np.add.reduceat(rows, self.offsets) + m.standard(self.layout) @ m.layout_weights + m.layout_bias)


def steps_first(a):
    """[windows · steps, …] as [steps, windows, …]."""
    return np.ascontiguousarray(a.reshape(WINDOWS, STEPS, *a.shape[1:]).swapaxes(0, 1))


def lines_first(a):
    """The way back."""
    return a.swapaxes(0, 1).reshape(WINDOWS * STEPS, *a.shape[2:])
