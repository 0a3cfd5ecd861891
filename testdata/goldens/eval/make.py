#!/usr/bin/env python3
"""Makes predicted/ and figures.json: what scikit-learn says of made-up
predictions for testdata/annotated.

    python3 -m venv venv && venv/bin/pip install scikit-learn
    venv/bin/python testdata/goldens/eval/make.py

The files are read by the few lines below, which know nothing of Linnet's own.
Spans are compared as sets, calibration and percentiles by NumPy; SciPy has the
quantiles that intervals begin at, and sums a binomial distribution for the
calibration error by chance.
"""
import json
import random
import re
from pathlib import Path

import numpy as np
import scipy.stats
import sklearn
from sklearn.metrics import accuracy_score, confusion_matrix, precision_recall_fscore_support

HERE = Path(__file__).parent
ANNOTATED = HERE.parent.parent / 'annotated'
TOKEN = re.compile(r'\[@|#([A-Za-z][A-Za-z0-9_-]{0,49})\*\]')


def read(path):
    """The text of a YEDDA file and, for each character, its innermost label."""
    src = path.read_bytes().decode('utf-8', 'surrogateescape')
    text, opened, spans, at = '', [], [], 0
    for token in TOKEN.finditer(src):
        text += src[at:token.start()]
        at = token.end()
        if token[1] is None:
            opened.append(len(text))
        elif opened:
            spans.append((opened.pop(), len(text), token[1]))
    text += src[at:]
    labels = [''] * len(text)
    for start, end, label in sorted(spans, key=lambda s: s[0] - s[1]):  # longest first
        labels[start:end] = [label] * (end - start)
    return text, labels


def lines(text, labels):
    """[(number, characters, their labels, the line's label)] of lines with ink."""
    out, at = [], 0
    for number, line in enumerate(text.split('\n')):
        ink = [(c, labels[at + i]) for i, c in enumerate(line) if not c.isspace()]
        at += len(line) + 1
        if ink:
            votes = {}
            for _, label in ink:
                votes[label] = votes.get(label, 0) + 1
            out.append((number, [label for _, label in ink], max(votes, key=votes.get)))
    return out


def places(text):
    """Of each line with ink where its parts between form feeds stand. Neighbours differ by 1."""
    out, at = [], 0
    for line in text.split('\n'):
        parts = [at + 2 * i for i, part in enumerate(line.split('\f')) if part.strip()]
        at += 2 * line.count('\f') + 1
        if parts:
            out.append(parts)
    return out


def predict(path, rnd):
    """A YEDDA file with the text of path, labelled badly."""
    text, labels = read(path)
    names = sorted(set(labels) - {''})
    out, label = [], names[0]
    gold = dict((number, label) for number, _, label in lines(text, labels))
    for number, line in enumerate(text.split('\n')):
        if number not in gold:
            out.append(line)
            continue
        roll = rnd.random()
        if roll < .75 and gold[number]:
            label = gold[number]
        elif roll < .95:
            label = rnd.choice(names)
        if roll > .97 or '#' in line or '[@' in line:
            out.append(line)  # no label
        elif roll > .93 and len(line) > 8:
            k = rnd.randrange(1, len(line) - 1)  # two labels on one line
            out.append(f'[@{line[:k]}#{label}*][@{line[k:].rstrip(chr(13))}#{rnd.choice(names)}*]' + '\r' * line.endswith('\r'))
        else:
            out.append(f'[@{line.rstrip(chr(13))}#{label}*]' + '\r' * line.endswith('\r'))
    return '\n'.join(out).encode('utf-8', 'surrogateescape')


def collapse(label):
    return label if label in ('', 'Nomenclature', 'Description') else 'Misc-exposition'


def scores(gold, pred):
    """Figures of two lists of labels; '' predicted is none."""
    gold, pred = zip(*[(g, p) for g, p in zip(gold, pred) if g])
    every = sorted(set(gold) | set(pred) - {''})
    p, r, f, n = precision_recall_fscore_support(gold, pred, labels=every, zero_division=0)
    macro = precision_recall_fscore_support(gold, pred, labels=sorted(set(gold)), average='macro', zero_division=0)
    micro = precision_recall_fscore_support(gold, pred, labels=every, average='micro', zero_division=0)
    matrix = confusion_matrix(gold, pred, labels=every)
    return {
        'lines': len(gold), 'accuracy': accuracy_score(gold, pred),
        'macro_precision': macro[0], 'macro_recall': macro[1], 'macro_f1': macro[2],
        'micro_precision': micro[0], 'micro_recall': micro[1], 'micro_f1': micro[2],
        'classes': {c: {'precision': p[i], 'recall': r[i], 'f1': f[i], 'gold': int(n[i]),
                        'confusion': {d: int(matrix[i, k]) for k, d in enumerate(every)}}
                    for i, c in enumerate(every)},
    }


def runs(document, side):
    """{(first place, last place, label)} of one side of a document."""
    out, last = set(), None
    for place, *labels in document:
        label = labels[side] if labels[0] else ''  # without gold nothing is judged
        if last and (label != last[2] or place != last[1] + 1):
            out.add(last)
            last = None
        if label:
            last = (last[0] if last else place, place, label)
        elif last:
            out.add(last)
            last = None
    return out | ({last} if last else set())


def f1(p, r):
    return 2 * p * r / (p + r) if p + r else 0.


def span_scores(documents):
    gold = [(d, s) for d, doc in enumerate(documents) for s in runs(doc, 0)]
    pred = [(d, s) for d, doc in enumerate(documents) for s in runs(doc, 1)]

    def touches(a, others):
        return any(a[0] == b[0] and a[1][2] == b[1][2] and a[1][0] <= b[1][1] and b[1][0] <= a[1][1] for b in others)

    def figures(match):
        out = {}
        for label in sorted({s[2] for _, s in gold + pred}):
            g, p = [s for s in gold if s[1][2] == label], [s for s in pred if s[1][2] == label]
            precision = sum(match(s, g) for s in p) / len(p) if p else 0.
            recall = sum(match(s, p) for s in g) / len(g) if g else 0.
            out[label] = {'precision': precision, 'recall': recall, 'f1': f1(precision, recall), 'gold': len(g), 'predicted': len(p)}
        precision, recall = sum(match(s, gold) for s in pred) / len(pred), sum(match(s, pred) for s in gold) / len(gold)
        return {'classes': out, 'micro_precision': precision, 'micro_recall': recall, 'micro_f1': f1(precision, recall),
                'macro_f1': sum(c['f1'] for c in out.values() if c['gold']) / sum(c['gold'] > 0 for c in out.values())}

    return {'gold': len(gold), 'predicted': len(pred), 'exact': figures(lambda s, o: s in o), 'overlap': figures(touches)}


def calibration():
    rng = np.random.default_rng(4)
    probs = rng.uniform(.2, 1, 400).astype(np.float32)
    probs[:3] = 1
    right = rng.uniform(size=400) < probs.astype(np.float64) ** 1.5
    edges = np.linspace(0, 1, 16)
    bins = np.searchsorted(edges[1:-1], probs.astype(np.float64))  # (from, to]
    error = sum(abs(right[bins == b].mean() - probs[bins == b].astype(np.float64).mean()) * (bins == b).sum() / 400
                for b in range(15) if (bins == b).any())
    return {'probabilities': [float(p) for p in probs], 'right': [bool(r) for r in right], 'error': float(error)}


def main():
    rnd = random.Random(4)
    (HERE / 'predicted').mkdir(exist_ok=True)
    documents, stands = {}, {}
    for path in sorted(ANNOTATED.glob('*.ann')):
        made = HERE / 'predicted' / path.name
        made.write_bytes(predict(path, rnd))
        gold, pred = lines(*read(path)), lines(*read(made))
        assert [(n, len(c)) for n, c, _ in gold] == [(n, len(c)) for n, c, _ in pred], path
        stands[path.name] = places(read(path)[0])
        documents[path.name] = [(n, g, p, gc, pc) for (n, gc, g), (_, pc, p) in zip(gold, pred)]
    figures = {'scikit_learn': sklearn.__version__, 'numpy': np.__version__}
    for name, to in ('collapsed', collapse), ('full', lambda label: label):
        docs = [[(n, to(g), to(p)) for n, g, p, _, _ in doc] for doc in documents.values()]
        parts = [[(place, g, p) for at, (_, g, p) in zip(stands[name], doc) for place in at] for name, doc in zip(documents, docs)]
        figures[name] = {
            'lines': scores([g for doc in docs for _, g, _ in doc], [p for doc in docs for _, _, p in doc]),
            'characters': scores([to(c) for doc in documents.values() for line in doc for c in line[3]],
                                 [to(c) for doc in documents.values() for line in doc for c in line[4]]),
            'spans': span_scores(parts),
            'documents': {doc: {k: v for k, v in scores([to(l[1]) for l in rows], [to(l[2]) for l in rows]).items()
                                if k in ('lines', 'accuracy', 'macro_f1')}
                          for doc, rows in documents.items()},
        }
    figures['calibration'] = calibration()
    values = np.random.default_rng(5).uniform(size=1000)
    figures['percentiles'] = {'values': values.tolist(), 'low': float(np.percentile(values, 2.5)), 'high': float(np.percentile(values, 97.5))}
    figures['tails'] = [[n, float(100 * scipy.stats.norm.cdf(-scipy.stats.t.ppf(.975, n - 1) * np.sqrt(n / (n - 1))))]
                        for n in (1.5, 2, 3, 4, 5.5, 7, 10, 14.98, 30, 135, 1e6)]
    figures['deviations'] = [[n, p, float((abs(np.arange(n + 1) - n * p) * scipy.stats.binom.pmf(np.arange(n + 1), n, p)).sum())]
                             for n in (1, 2, 26, 1000, 20306) for p in (1e-4, .349, .5, .9975)]
    (HERE / 'figures.json').write_text(json.dumps(figures, indent=1) + '\n')


if __name__ == '__main__':
    main()
