#!/usr/bin/env python3
"""The peer from end to end: a Beam Python pipeline that labels text files.

usage: beam_peer.py TEXTS OUTPUT MODEL WORKERS THREADS

Reads TEXTS/*.txt, makes features with numpy (featurize.py), labels with
PyTorch under RunInference and writes OUTPUT/*.txt.ann in YEDDA, as Linnet's
predict does. Documents go in groups of some megabytes, so that numpy and
PyTorch have long arrays. Runs on Beam's own in-process runner (FnApiRunner);
WORKERS above 1 are processes. Prints how long the run took, in seconds, as
JSON; imports come before.
"""
import glob
import json
import os
import sys
import time

import apache_beam as beam
import numpy as np
import torch
from apache_beam.ml.inference.base import ModelHandler, RunInference
from apache_beam.options.pipeline_options import PipelineOptions

import featurize
from net import Net
from weights import Model

GROUP_BYTES = 4 << 20  # of text that go through the stages together
MAX_WINDOWS = 128      # in one call of the LSTM
WASTE = 0.9            # a window shorter than this share of the longest goes in the next call


def read(path):
    with open(path, 'rb') as f:
        return os.path.basename(path), f.read()


class Extract(beam.DoFn):
    """Groups of (name, text) to (names, texts, features)."""

    def __init__(self, input_size):
        self.input_size = input_size

    def process(self, group):
        names, texts = zip(*group)
        yield names, texts, featurize.extract(texts, self.input_size)


def windows(n):
    """First rows and lengths of the windows of a document of n rows, as Linnet's."""
    parts = n // 1000 if n > 2000 else 1
    first = np.arange(parts + 1) * n // parts
    return first[:-1], np.diff(first)


class Labeller:
    """The model, with one LSTM a direction so that padding can stand at the end of both."""

    def __init__(self, folder):
        m = Model(folder).main_head()
        self.net, self.classes = Net(m), m.classes
        self.lstms = []
        for suffix in ('', '_reverse'):
            lstm = torch.nn.LSTM(m.d, m.h).eval().requires_grad_(False)
            for name, parameter in lstm.named_parameters():
                parameter.copy_(getattr(self.net.lstm, name + suffix))
            self.lstms.append(lstm)

    def label(self, f):
        """The class of each row of features f."""
        with torch.inference_mode():
            t = torch.from_numpy
            offsets = np.append(0, f.ends[:-1, -1]) if len(f.ends) else np.zeros(0)
            weights = np.repeat(f.scales.ravel(), np.diff(f.ends.ravel(), prepend=0))
            x = self.net.vectors(t(f.ids.view(np.int32)), t(offsets.astype(np.int32)), t(weights), t(f.layout))
            cuts = [(first + d, size) for d, n in zip(f.rows, np.diff(f.rows)) if n for first, size in [windows(n)]]
            out = np.zeros(len(f.ends), np.uint8)
            if not cuts:
                return out
            first, size = np.concatenate([c[0] for c in cuts]), np.concatenate([c[1] for c in cuts])
            order = np.argsort(-size, kind='stable')
            first, size = first[order], size[order]
            at = 0
            while at < len(size):
                few = np.searchsorted(-size[at:], -WASTE * size[at], side='right')
                end = at + min(MAX_WINDOWS, int(few))
                self.score(x, first[at:end], size[at:end], out)
                at = end
            return out

    def score(self, x, first, size, out):
        step = np.arange(size[0])[:, None]
        there = step < size
        forward = first + np.minimum(step, size - 1)           # row of each step and window
        backward = first + np.maximum(size - 1 - step, 0)
        states = [lstm(x[torch.from_numpy(rows)])[0] for lstm, rows in zip(self.lstms, (forward, backward))]
        rows = torch.from_numpy(forward)
        flipped = torch.from_numpy(np.maximum(size - 1 - step, 0) * len(size) + np.arange(len(size)))
        back = states[1].flatten(0, 1)[flipped]                # in the order of lines again
        probs = self.net.probabilities(torch.cat([states[0], back], -1), x[rows])
        labels = probs.argmax(-1).numpy()
        out[forward[there]] = labels[there]


class Handler(ModelHandler):
    def __init__(self, folder, threads):
        self.folder, self.threads = folder, threads

    def load_model(self):
        torch.set_num_threads(self.threads)
        return Labeller(self.folder)

    def run_inference(self, batch, model, inference_args=None):
        return [(names, texts, f, model.label(f)) for names, texts, f in batch]

    def batch_elements_kwargs(self):
        return {'min_batch_size': 1, 'max_batch_size': 1}  # they are groups already


class Write(beam.DoFn):
    def __init__(self, output, classes):
        self.output, self.classes = output, [c.encode() for c in classes]

    def process(self, element):
        names, texts, f, labels = element
        for d, (name, text) in enumerate(zip(names, texts)):
            a, b = f.rows[d], f.rows[d + 1]
            with open(os.path.join(self.output, name + '.ann'), 'wb') as out:
                out.write(self.annotate(text, f.lines[a:b], labels[a:b]))
        yield len(labels)

    def annotate(self, text, rows, labels):
        """text with neighbouring rows of one label as one span."""
        lines = text.split(b'\n')
        starts = np.flatnonzero(np.diff(rows, prepend=-2) + 256 * np.diff(labels.astype(np.int64), prepend=0) != 1)
        ends = np.append(starts[1:], len(rows))
        out, at = [], 0  # lines before at are in out
        for i, end in zip(starts.tolist(), ends.tolist()):
            first, stop = int(rows[i]), int(rows[end - 1]) + 1
            out.extend(lines[at:first])
            out.append(self.span(b'\n'.join(lines[first:stop]), self.classes[labels[i]]))
            at = stop
        out.extend(lines[at:])
        return b'\n'.join(out)

    def span(self, text, label):
        tail = b''
        if text.endswith(b'\r'):
            text, tail = text[:-1], b'\r'
        if b'\f' not in text:
            return b'[@' + text + b'#' + label + b'*]' + tail
        parts = []  # a form feed stands outside
        for part in text.split(b'\f'):
            ink = part.strip()
            if not ink:
                parts.append(part)
                continue
            begin = part.index(ink)
            head = part[:begin].rfind(b'\n') + 1
            foot = part.find(b'\n', begin + len(ink))
            foot = len(part) if foot < 0 else foot
            parts.append(part[:head] + b'[@' + part[head:foot] + b'#' + label + b'*]' + part[foot:])
        return b'\f'.join(parts) + tail


def main():
    texts, output, model, workers, threads = sys.argv[1:]
    os.makedirs(output, exist_ok=True)
    m = Model(model)
    options = PipelineOptions([], runner='FnApiRunner', direct_num_workers=int(workers),
                              direct_running_mode='multi_processing' if int(workers) > 1 else 'in_memory')
    torch.set_num_threads(int(threads))
    begin = time.perf_counter()
    with beam.Pipeline(options=options) as p:
        paths = p | beam.Create(sorted(glob.glob(os.path.join(texts, '*.txt'))))
        if int(workers) > 1:
            paths |= beam.Reshuffle(num_buckets=64)
        (paths
         | beam.Map(read)
         | beam.BatchElements(GROUP_BYTES, GROUP_BYTES, element_size_fn=lambda e: len(e[1]))
         | beam.ParDo(Extract(m.input_size))
         | RunInference(Handler(model, int(threads)))
         | beam.ParDo(Write(output, m.classes)))
    print(json.dumps({'seconds': time.perf_counter() - begin}), flush=True)


if __name__ == '__main__':
    import beam_peer  # so that worker processes find the classes by name
    beam_peer.main()
