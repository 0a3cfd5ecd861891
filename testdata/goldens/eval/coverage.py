#!/usr/bin/env python3
"""How often intervals of 95 % hold the true figures of simulated models, by way of
making them: the table of DECISIONS.md, "what an interval holds".

    python3 -m venv venv && venv/bin/pip install scipy
    venv/bin/python testdata/goldens/eval/coverage.py [TRIALS]

Each row draws documents from 20,000 made-up ones, whose macro-F1 and accuracy
together are the truth. Lines of a document are alike: of each label a share of its
own is right. TRIALS is 600; it takes about three minutes.
"""
import sys

import numpy as np
from scipy import stats

RIGHT = .88, .85, .985  # of Nomenclature, Description, Misc-exposition, on average
RESAMPLES = 999


def documents(rng, n, spread, giants, names):
    """[n, gold, predicted]: lines by label, of log-normal sizes; a share of the
    documents are giants of twenty times the lines, a share has names."""
    sizes = np.exp(rng.normal(np.log(340), spread, n)) * np.where(rng.random(n) < giants, 20, 1)
    out = np.zeros((n, 3, 3))
    for i, size in enumerate(sizes):
        share = rng.dirichlet([.8, 1.6, 8.2])
        if rng.random() > names:
            share[0] = 0
        gold = rng.multinomial(max(int(size), 20), share / share.sum())
        for c in range(3):
            right = rng.beta(RIGHT[c] * 8, (1 - RIGHT[c]) * 8)
            to = np.full(3, (1 - right) * .1)
            to[c], to[2 if c < 2 else 1] = right, (1 - right) * .9
            out[i, c] = rng.multinomial(gold[c], to / to.sum())
    return out


def macro_f1(m):
    right, gold, predicted = np.einsum('...ii->...i', m), m.sum(-1), m.sum(-2)
    has = gold > 0
    f1 = np.where(has, 2 * right / np.maximum(gold + predicted, 1), 0)
    return f1.sum(-1) / has.sum(-1)


def accuracy(m):
    return np.einsum('...ii->...', m) / m.sum((-1, -2))


def expanded(values, n):
    t = stats.t.ppf(.975, max(n, 1.05) - 1)
    p = 100 * stats.norm.cdf(-t * np.sqrt(n / max(n - 1, .05)))
    return np.percentile(values, [p, 100 - p])


def bca(values, figure, drawn):
    total = drawn.sum(0)
    left = figure(total - drawn)  # without one document
    d = left.mean() - left
    skew = (d ** 3).sum() / (6 * (d ** 2).sum() ** 1.5 + 1e-300)
    below = (values < figure(total)).mean() + (values == figure(total)).mean() / 2
    z0, z = stats.norm.ppf(np.clip(below, 1e-3, 1 - 1e-3)), stats.norm.ppf([.025, .975])
    return np.percentile(values, 100 * stats.norm.cdf(z0 + (z0 + z) / (1 - skew * (z0 + z))))


def row(rng, name, n, trials, spread, giants=0., names=.9):
    all_documents = documents(rng, 20000, spread, giants, names)
    held, weighs = np.zeros((4, 2)), 0
    for _ in range(trials):
        drawn = all_documents[rng.integers(0, len(all_documents), n)]
        lines = drawn.sum((1, 2))
        effective = lines.sum() ** 2 / (lines ** 2).sum()
        weighs += effective / trials
        resamples = np.tensordot(rng.multinomial(n, np.ones(n) / n, size=RESAMPLES), drawn, 1)
        for f, figure in enumerate((macro_f1, accuracy)):
            truth, values = figure(all_documents.sum(0)), figure(resamples)
            for way, (low, high) in enumerate((np.percentile(values, [2.5, 97.5]), bca(values, figure, drawn),
                                               expanded(values, n), expanded(values, effective))):
                held[way, f] += low <= truth <= high
    print(f'| {n} {name} | {weighs:.2g} | ' + ' | '.join('%.0f, %.0f' % tuple(100 * h / trials) for h in held) + ' |', flush=True)


def main():
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    rng = np.random.default_rng(7)
    print('| documents | weigh | percentiles 2.5, 97.5 | BCa | expanded by number | expanded by effective number |\n|---|---|---|---|---|---|')
    for n in 3, 5, 10, 50:
        row(rng, 'of one size', n, trials, .01, names=1)
    for n in 3, 5, 10, 20, 50:
        row(rng, 'of log-normal sizes', n, trials, 1)
    for n in 10, 50, 135:
        row(rng, 'of which one in twenty is twenty times as long', n, trials, 1, giants=.05)
    for n in 10, 50:
        row(rng, 'of log-normal sizes, names in two of ten', n, trials, 1, names=.2)


if __name__ == '__main__':
    main()
