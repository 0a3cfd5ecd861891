#!/usr/bin/env python3
"""Features of a document's lines, in numpy: the twin of transforms/feature, as is
bench.d/featurize.py for many documents at once.

  features.py TEXT [--input_size 65536]
        JSON on the standard output
  features.py --goldens
        writes testdata/goldens/feature/*.json again from the *.txt beside them

Needs numpy (pip install numpy). It is written to be read, with regular
expressions and dictionaries, and shares no code with the Go package.
"""
import argparse
import collections
import json
import math
import pathlib
import re
import sys
import unicodedata

import numpy as np

MAX_TOKENS = 512


# Characters

def kind(c):
    """a letter (or a mark), 0 digit, blank, or . for everything else"""
    category = unicodedata.category(c)
    if category[0] in 'LM':
        return 'a'
    if category == 'Nd':
        return '0'
    return ' ' if c.isspace() else '.'


def is_upper(c):
    return unicodedata.category(c) == 'Lu'


def lower(text):
    """Simple lower case: one character for each (U+0130 alone has two)."""
    return ''.join(c.lower()[0] if kind(c) == 'a' else c for c in text)


def clean(raw):
    return raw.decode('utf-8', 'ignore').replace('\ufffd', '')


def strip(text):
    a, b = 0, len(text)
    while a < b and kind(text[a]) == ' ':
        a += 1
    while b > a and kind(text[b - 1]) == ' ':
        b -= 1
    return text[:a], text[a:b]


def shadow(text):
    """text with every character as ASCII or one of À à µ μ × ≡ ٣ ·, so that
    regular expressions see the classes of kind()."""
    out = []
    for c in text:
        k = kind(c)
        if c < '\x80' or c in 'µμ×≡':
            out.append(c)
        elif k == 'a':
            out.append('À' if is_upper(c) else 'à')
        else:
            out.append({'0': '٣', ' ': '\x0b', '.': '·'}[k])
    return ''.join(out)


UPPER, SMALL = 'A-ZÀ', 'a-zàµμ'
YEAR = re.compile(r'\b1[789][0-9][0-9]\b|\b20[01][0-9]\b')
MEASURE = re.compile(r'\d\s*(?:µ|μ|mm|cm|um\b|x\s*\d|×)|µm|μm')
AUTHOR = re.compile(r'\bsp\. ?nov|\bcomb\. ?nov|\bgen\. ?nov|\bnov\. ?sp|\bnom\. ?nov|\bvar\.|\bFr\.|\bPers\.'
                    r'|[≡=]|\bet al\b|&|\bex\b')
NOVELTY = re.compile(r'\bnov\b|\bn\. ?sp|\bn\. ?gen|\bn\. ?comb', re.I)
BINOMIAL = re.compile(rf'\b([{UPPER}][{SMALL}]{{3,}})\s+(?:cf\. |aff\. )?[{SMALL}]{{4,}}')
FIRST = re.compile(rf'\W*\d*\W*([{UPPER}][{SMALL}]+)')
SMALL_WORD = re.compile(rf'(?<!\w)[{SMALL}]{{2,}}(?![{SMALL}{UPPER}])')


# Tokens and ids

def tokens(text):
    """(kind, start, end) of the tokens of stripped text"""
    out, i = [], 0
    while i < len(text):
        k, j = kind(text[i]), i + 1
        if k in 'a0':
            while j < len(text) and kind(text[j]) == k:
                j += 1
        if k != ' ':
            out.append((k, i, j))
        i = j
    return out


def fnv(data, seed, h=2166136261):
    h ^= seed
    for b in data:
        h = (h ^ b) * 16777619 & 0xffffffff
    return h


def finish(h):
    h ^= h >> 16
    h = h * 0x85ebca6b & 0xffffffff
    h ^= h >> 13
    h = h * 0xc2b2ae35 & 0xffffffff
    return h ^ h >> 16


def shape(k, word):
    if k == '.':
        return word
    if k == '0':
        return 'D' if len(word) >= 4 else 'd'
    n = sum(map(is_upper, word))
    return 'x' if n == 0 else 'C' if n == 1 else 'X' if n == len(word) else 'M'


def hashes(text, toks):
    """Four groups of hashes: words, pairs, affixes, edges."""
    words, pairs, affixes, edges = [], [], [], []
    norms, shapes = [], []
    for k, a, b in toks:
        w = text[a:b]
        norms.append('0' * min(4, b - a) if k == '0' else lower(w))
        shapes.append(shape(k, w))
    for (k, _, _), w, s in zip(toks, norms, shapes):
        if k == 'a' and s != 'x':
            words.append(fnv((w + s).encode(), 1))
        words.append(fnv(w.encode(), 1))
        if k == 'a':
            for q in (2, 3, 4):
                if len(w) > q:
                    affixes.append(fnv(w[-q:].encode(), 0x100 + q))
            if len(w) > 4:
                affixes.append(fnv(w[:4].encode(), 0x200))
    for v, w in zip(norms, norms[1:]):
        pairs.append(fnv(v.encode() + b'\x01' + w.encode(), 2))
    for n in range(1, min(6, len(toks)) + 1):
        edges.append(fnv(''.join(shapes[:n]).encode(), 0x51))

    def joined(first, last):
        out = norms[first]
        for i in range(first + 1, last + 1):
            out += (' ' if toks[i - 1][2] < toks[i][1] else '') + norms[i]
        return out.encode()
    n = len(toks)
    if n > 0:
        edges += [fnv(joined(0, 0), 0x401), fnv(joined(n - 1, n - 1), 0x402)]
    if n > 1:
        edges += [fnv(joined(0, 1), 0x403), fnv(joined(n - 2, n - 1), 0x404)]
    if n > 2:
        edges.append(fnv(joined(0, 2), 0x405))
    return words, pairs, affixes, edges


# Lines

class Line:
    pass


def read_lines(data):
    """The lines with something on them, taken apart."""
    out, blanks, feed, start = [], 0, False, 0
    for raw in data.split(b'\n'):
        text = clean(raw)
        if start == 0 and raw.startswith(b'\xef\xbb\xbf') and strip(text[1:])[1]:
            text = text[1:]
        begin, start = start, start + len(raw) + 1
        lead, body = strip(text)
        if not body:
            blanks += 1
            feed = feed or '\f' in lead
            continue
        x = Line()
        x.start, x.end = begin, begin + len(raw)
        x.blanks, x.feed = blanks, feed or '\f' in lead
        if not out:
            x.blanks, x.feed = 3, True
        x.indent = 0
        for c in lead:
            x.indent = 0 if c == '\f' else x.indent // 8 * 8 + 8 if c == '\t' else x.indent + 1
        x.length, x.width, x.last = len(body), x.indent + len(body), body[-1]
        x.tokens = tokens(body)[:MAX_TOKENS]
        x.head = head = body[:x.tokens[-1][2]]
        x.shadow = shadow(head)
        x.norm = re.sub('0+', '0', re.sub(' +', ' ', ''.join(
            '0' if kind(c) == '0' else lower(c) if kind(c) == 'a' else ' ' for c in head))).strip()
        first = FIRST.match(x.shadow)
        x.first = lower(head[first.start(1):first.end(1)]) if first else ''
        x.genera = {lower(head[m.start(1):m.end(1)]) for m in BINOMIAL.finditer(x.shadow)}
        x.small = [lower(head[m.start():m.end()]) for m in SMALL_WORD.finditer(x.shadow)]
        x.novelty = bool(NOVELTY.search(x.shadow))
        out.append(x)
        blanks = 0
        feed = '\f' in text[len(lead) + len(body):]
    return out


def layout(lines):
    n = len(lines)
    o = np.zeros((n, 51))
    if n == 0:
        return o
    p85 = max(20., np.percentile([min(x.width, 4096) for x in lines], 85))
    norms = collections.Counter(x.norm for x in lines)
    firsts = collections.Counter(x.first for x in lines)
    genera = collections.Counter(g for x in lines for g in x.genera)
    small = collections.Counter(w for x in lines for w in x.small)
    novel = set()
    for i, x in enumerate(lines):
        if x.novelty:
            novel |= x.genera | (lines[i - 1].genera if i else set())
    feeds = [i for i, x in enumerate(lines) if x.feed]

    for i, x in enumerate(lines):
        s = x.head
        m = len(s)
        kinds = [kind(c) for c in s]
        letters, digits, others = (kinds.count(k) for k in 'a0.')
        uppers = sum(map(is_upper, s))
        words = ''.join(' ' if k == ' ' else c for c, k in zip(s, kinds)).split()
        below = lines[i + 1] if i + 1 < n else None
        after, feed_after = (below.blanks, below.feed) if below else (3, True)
        c, e = s[0], x.last
        own = [
            math.log1p(x.length) / 4, x.length / p85, min(x.indent, 40) / 10,
            min(x.blanks, 1), min(x.blanks, 3) / 3, min(after, 1), min(after, 3) / 3, x.feed, feed_after,
            digits / m * 3, uppers / max(1, letters) * 2, others / m * 4,
            sum(is_upper(w[0]) for w in words) / len(words),
            s.count(',') / 4, s.count('.') / 4, s.count(';') / 2,
            is_upper(c), kind(c) == 'a' and not is_upper(c), kind(c) == '0', kind(c) == '.',
            e == '.', e in ',;', e in '-\u00ad\u2010', e == ':', kind(e) == '0', kind(e) == 'a',
            bool(YEAR.search(x.shadow)), bool(MEASURE.search(x.shadow)), bool(AUTHOR.search(x.shadow)), '(' in s,
            letters > 2 and uppers * 10 > letters * 8,
            min(len(words), 20) / 10, i / n, min(i, 60) / 60]
        since = i - max(f for f in feeds if f <= i)
        till = min([f for f in feeds if f > i], default=n) - i
        count = norms[x.norm] if len(x.norm) > 2 else 0
        f = x.first
        own += [
            math.log1p(max(0, count - 1)), count >= 3, min(since, 60) / 60,
            math.log1p(firsts[f] - 1) if f else 0, math.log1p(genera[f]) if f else 0, f in novel,
            math.log1p(small[f]) if f else 0,
            math.log1p(max((genera[g] for g in x.genera), default=0)), bool(x.genera & novel), len(x.genera)]
        above = lines[i - 1] if i else None
        clip = lambda d: max(-20, min(20, d)) / 10
        o[i] = own + [
            since < 3, min(till, 60) / 60, till <= 2,
            (x.width - above.width) / p85 if above else 0, (x.width - below.width) / p85 if below else 0,
            clip(x.indent - (above.indent if above else 0)), clip(x.indent - (below.indent if below else 0))]
    return o


def extract(data, input_size):
    lines = read_lines(data)
    groups = [[[finish(h) % input_size for h in g] for g in hashes(x.head, x.tokens)] for x in lines]
    return lines, groups, layout(lines).astype(np.float32)


def dump(data, input_size):
    """JSON, a line for each line of text."""
    lines, groups, numbers = extract(data, input_size)
    rows = []
    for x, g, o in zip(lines, groups, numbers):
        rows.append('{"start":%d,"end":%d,"ids":%s,\n"layout":[%s]}' % (
            x.start, x.end, json.dumps(g, separators=(',', ':')), ','.join('%.7g' % v for v in o)))
    return '{"input_size":%d,"lines":[\n%s\n]}\n' % (input_size, ',\n'.join(rows))


def goldens():
    folder = pathlib.Path(__file__).resolve().parent.parent / 'testdata' / 'goldens' / 'feature'
    for text in sorted(folder.glob('*.txt')):
        sizes = {'letters': [65536, 2000], 'single': [1]}.get(text.stem, [65536])
        for size in sizes:
            out = text.with_name('%s-%d.json' % (text.stem, size))
            out.write_text(dump(text.read_bytes(), size), encoding='ascii')


def main():
    p = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    p.add_argument('text', nargs='?', type=pathlib.Path)
    p.add_argument('--input_size', type=int, default=65536)
    p.add_argument('--goldens', action='store_true')
    a = p.parse_args()
    if a.goldens:
        goldens()
    elif a.text is None:
        p.error('name a text, or --goldens')
    else:
        sys.stdout.write(dump(a.text.read_bytes(), a.input_size))


if __name__ == '__main__':
    main()
