"""Features of many documents at once, in numpy: what scripts/features.py says
of texts without a byte order mark, a whole array of characters or tokens at a time.

extract(texts, input_size) gives the features of all rows of all texts, one
after the other. Only what is rare (tabs and form feeds before a line, the
patterns of authors and novelties in lines that can hold them) is looked at
line by line.

Arrays are named after what they run over: c_ characters, t_ tokens, r_ rows
(lines that are not blank), d_ documents.
"""
import re
import unicodedata
from typing import NamedTuple

import numpy as np

MAX_TOKENS = 512
LAYOUT = 51

LETTER, DIGIT, BLANK, OTHER = 0, 1, 2, 3
PRIME = np.uint32(16777619)
BASIS = 2166136261

AUTHOR = re.compile(r'\bsp\. ?nov|\bcomb\. ?nov|\bgen\. ?nov|\bnov\. ?sp|\bnom\. ?nov|\bvar\.|\bFr\.|\bPers\.|\bet al\b|\bex\b')
NOVELTY = re.compile(r'\bnov\b|\bn\. ?sp|\bn\. ?gen|\bn\. ?comb', re.I)


class Features(NamedTuple):
    ids: np.ndarray      # uint32, rows of the table, row by row and group by group
    ends: np.ndarray     # [rows, 4] the end of each group in ids
    scales: np.ndarray   # [rows, 4] float32 weight of the ids of each group
    layout: np.ndarray   # [rows, LAYOUT] float32
    rows: np.ndarray     # [documents + 1] the first row of each document
    lines: np.ndarray    # the physical line, from 0 in its document, of each row


class Characters:
    """kind, upper and lower case of every character, filled in as they are met."""

    def __init__(self):
        self.kind = np.full(0x110000, 255, np.uint8)
        self.upper = np.zeros(0x110000, bool)
        self.lower = np.arange(0x110000, dtype=np.uint32)
        self.learn(np.arange(0x250))

    def learn(self, codes):
        for code in codes.tolist():
            c = chr(code)
            category = unicodedata.category(c)
            if category[0] in 'LM':
                self.kind[code], self.lower[code] = LETTER, ord(c.lower()[0])
            elif category == 'Nd':
                self.kind[code], self.lower[code] = DIGIT, ord('0')
            else:
                self.kind[code] = BLANK if c.isspace() else OTHER
            self.upper[code] = category == 'Lu'

    def kinds(self, codes):
        kind = self.kind[codes]
        unknown = codes[kind == 255]
        if len(unknown):
            self.learn(np.unique(unknown))
            kind = self.kind[codes]
        return kind


CHARACTERS = Characters()


def fnv(h, data, start, length):
    """FNV-1a of data[start:start+length], gone on with from h."""
    order = np.argsort(-length.astype(np.int16) if length.max(initial=0) < 32768 else -length, kind='stable')
    h, start = h[order], start[order]
    # active[j]: how many are longer than j, so the first of them are
    active = len(length) - np.cumsum(np.bincount(length))
    for j, n in enumerate(active[:-1].tolist()):
        part = h[:n]
        part ^= data[start[:n] + j]
        part *= PRIME
    out = np.empty_like(h)
    out[order] = h
    return out


def seeds(n, seed):
    return np.full(n, BASIS ^ seed, np.uint32)


def finish(h):
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x85ebca6b)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xc2b2ae35)
    h ^= h >> np.uint32(16)
    return h


def sums(flags):
    """Running counts: flags[a:b].sum() is out[b] - out[a]."""
    out = np.zeros(len(flags) + 1, np.int32)
    np.cumsum(flags, out=out[1:])
    return out


def within(values, sorted_values):
    """Where in sorted_values each of values is, and whether it is there."""
    at = np.searchsorted(sorted_values, values)
    at[at == len(sorted_values)] = 0
    return at, sorted_values[at] == values if len(sorted_values) else np.zeros(len(values), bool)


def counts_of(keys, queries):
    """How often each of queries stands in keys."""
    if not len(keys) or not len(queries):
        return np.zeros(len(queries), np.int64)
    unique, inverse = np.unique(queries, return_inverse=True)
    at, there = within(keys, unique)
    return np.bincount(at[there], minlength=len(unique))[inverse]


def positions(rows, n):
    """The place of each item among those of its row; rows are sorted."""
    first = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=n), out=first[1:])
    return np.arange(len(rows)) - first[rows]


def extract(texts, input_size):
    decoded = [t.decode('utf-8', 'ignore').replace('\ufffd', '') for t in texts]
    text = '\n'.join(decoded) + '\n'
    c = np.frombuffer(text.encode('utf-32-le'), np.uint32)
    kind = CHARACTERS.kinds(c)
    upper = CHARACTERS.upper[c]

    # Tokens
    change = np.empty(len(c), bool)
    change[0] = True
    np.not_equal(kind[1:], kind[:-1], out=change[1:])
    change |= kind == OTHER
    begin = np.flatnonzero(change)
    stop = np.append(begin[1:], len(c))
    solid = kind[begin] != BLANK
    ts, te = begin[solid], stop[solid]
    newlines = np.flatnonzero(c == 10)
    t_line = np.searchsorted(newlines, ts)

    # Rows
    first = np.flatnonzero(np.diff(t_line, prepend=-1))  # of each row, in tokens
    n = len(first)
    d_sizes = np.array([len(t) + 1 for t in decoded])
    d_chars = np.cumsum(d_sizes) - d_sizes
    if n == 0:
        return Features(np.zeros(0, np.uint32), np.zeros((0, 4), np.int64), np.zeros((0, 4), np.float32),
                        np.zeros((0, LAYOUT), np.float32), np.zeros(len(texts) + 1, np.int64), np.zeros(0, np.int64))
    last = np.append(first[1:], len(ts)) - 1
    r_line = t_line[first]
    d_line = np.searchsorted(newlines, d_chars)  # of each document's first line
    d_row = np.append(np.searchsorted(r_line, d_line), n)
    r_doc = np.searchsorted(d_row, np.arange(n), side='right') - 1
    r_lead = np.append(0, newlines + 1)[r_line]  # the line's first character
    r_begin, r_stop = ts[first], te[last]
    t_row = np.repeat(np.arange(n), last - first + 1)

    # What a very long line has beyond its first tokens counts as blank.
    r_head = r_stop
    if (last - first).max() >= MAX_TOKENS:
        last = np.minimum(last, first + MAX_TOKENS - 1)
        keep = np.arange(len(ts)) <= last[t_row]
        r_head = te[last]
        kind, upper = kind.copy(), upper.copy()
        for a, b in zip(r_head, r_stop):
            kind[a:b] = BLANK
            upper[a:b] = False
        ts, te, t_row = ts[keep], te[keep], t_row[keep]
        counts = last - first + 1
        last = np.cumsum(counts) - 1
        first = last - counts + 1
    tk = kind[ts]
    size = te - ts
    tokens = len(ts)

    # Bytes of the normalised text, and where each character begins in them.
    low = CHARACTERS.lower[c]
    if c.max() < 128:
        data, at = low.astype(np.uint8), None
    else:
        data = np.frombuffer(low.astype('<u4').tobytes().decode('utf-32-le').encode(), np.uint8)
        at = np.zeros(len(c) + 1, np.int64)
        np.cumsum(1 + (low > 0x7f) + (low > 0x7ff) + (low > 0xffff), out=at[1:])
    place = (lambda i: i) if at is None else (lambda i: at[i])
    b0 = place(ts)
    t_hashed = np.where(tk == DIGIT, np.minimum(size, 4), size) + ts
    blen = place(t_hashed) - b0

    u_sum = sums(upper)
    t_upper = u_sum[te] - u_sum[ts]
    shape = np.where(t_upper == 0, ord('x'), np.where(t_upper == 1, ord('C'), np.where(t_upper == size, ord('X'), ord('M')))).astype(np.uint32)
    shape = np.where(tk == LETTER, shape, np.where(size >= 4, ord('D'), ord('d'))).astype(np.uint32)

    # Hashes, in three rounds: first tokens, what follows them, third tokens.
    paired = np.flatnonzero(t_row[1:] == t_row[:-1])  # first tokens of pairs
    two, three = np.flatnonzero(last > first), np.flatnonzero(last > first + 1)
    edge_first = np.concatenate([first, last, first[two], last[two] - 1, first[three]])
    starts = np.concatenate([np.arange(tokens), np.arange(tokens), edge_first])
    h = np.concatenate([seeds(tokens, 1), seeds(tokens, 2), seeds(n, 0x401), seeds(n, 0x402),
                        seeds(len(two), 0x403), seeds(len(two), 0x404), seeds(len(three), 0x405)])
    h = fnv(h, data, b0[starts], blen[starts])
    word, other_word = h[:tokens], h[tokens:2 * tokens]
    one, final, edges = h[2 * tokens:][:n], h[2 * tokens + n:][:n], h[2 * tokens + 2 * n:]
    spaced = np.append(False, ts[1:] > te[:-1])

    def joined(h, token):
        """h after the space before token, where there is one."""
        return np.where(spaced[token], (h ^ np.uint32(32)) * PRIME, h)
    follow = np.concatenate([paired + 1, first[two] + 1, last[two], first[three] + 1])
    h = np.concatenate([(other_word[paired] ^ np.uint32(1)) * PRIME, joined(edges, follow[len(paired):])])
    h = fnv(h, data, b0[follow], blen[follow])
    pair, edges = h[:len(paired)], h[len(paired):]
    first_two, last_two, first_three = np.split(edges, [len(two), 2 * len(two)])
    token = first[three] + 2
    first_three = fnv(joined(first_three, token), data, b0[token], blen[token])

    shaped = np.flatnonzero((tk == LETTER) & (shape != ord('x')))
    word_shaped = (word[shaped] ^ shape[shaped]) * PRIME

    letters = tk == LETTER
    affixes = []  # token, place among the affixes of a token, hash
    for q in (2, 3, 4):
        token = np.flatnonzero(letters & (size > q))
        a = place(te[token] - q)
        affixes.append((token, q, fnv(seeds(len(token), 0x100 + q), data, a, place(te[token]) - a)))
    token = affixes[-1][0]
    affixes.append((token, 5, fnv(seeds(len(token), 0x200), data, b0[token], place(ts[token] + 4) - b0[token])))

    shapes = []
    h, row = seeds(n, 0x51), np.arange(n)
    for k in range(6):
        keep = last[row] >= first[row] + k
        h, row = h[keep], row[keep]
        token = first[row] + k
        plain = tk[token] != OTHER
        h[plain] = (h[plain] ^ shape[token[plain]]) * PRIME
        h[~plain] = fnv(h[~plain], data, b0[token[~plain]], blen[token[~plain]])
        shapes.append((row, h.copy()))

    # Ids in the order of rows and, inside, of groups. Items of one kind come
    # in the order of rows, so a row's are together.
    n_words = last - first + 1 + np.bincount(t_row[shaped], minlength=n)
    n_pairs = last - first
    n_affixes = sum(np.bincount(t_row[t], minlength=n) for t, _, _ in affixes)
    n_edges = np.minimum(last - first + 1, 6) + 2 + 2 * (last > first) + (last > first + 1)
    counts = np.stack([n_words, n_pairs, n_affixes, n_edges], 1)
    ends = np.cumsum(counts.ravel()).reshape(n, 4)
    ids = np.empty(ends[-1, -1], np.uint32)
    r_words, r_pairs, r_affixes, r_edges = (ends - counts).T
    t_at = np.arange(tokens) - first[t_row]
    ids[r_words[t_row] + t_at] = word
    base = r_words + last - first + 1
    ids[base[t_row[shaped]] + positions(t_row[shaped], n)] = word_shaped
    ids[r_pairs[t_row[paired]] + t_at[paired]] = pair
    base = r_affixes.copy()
    for token, _, h in affixes:
        row = t_row[token]
        ids[base[row] + positions(row, n)] = h
        base += np.bincount(row, minlength=n)
    base = r_edges.copy()
    for row, h in shapes + [(np.arange(n), one), (np.arange(n), final), (two, first_two), (two, last_two), (three, first_three)]:
        ids[base[row]] = h
        base[row] += 1
    finish(ids)
    ids = ids & np.uint32(input_size - 1) if input_size & (input_size - 1) == 0 else ids % np.uint32(input_size)
    scales = np.where(counts > 0, 1 / np.sqrt(np.maximum(counts, 1)), 0).astype(np.float32)

    layout = numbers(c, kind, upper, u_sum, data, place, word, other_word,
                     ts, te, tk, size, t_upper, t_row, spaced, first, last,
                     r_line, r_lead, r_begin, r_stop, r_head, r_doc, d_row, text)
    return Features(ids, ends, scales, layout, d_row, r_line - d_line[r_doc])


def numbers(c, kind, upper, u_sum, data, place, word, other_word,
            ts, te, tk, size, t_upper, t_row, spaced, first, last,
            r_line, r_lead, r_begin, r_stop, r_head, r_doc, d_row, text):
    n, tokens = len(first), len(ts)
    rows = np.arange(n)
    opens = np.zeros(n, bool)  # a document's first row
    opens[d_row[:-1][d_row[:-1] < d_row[1:]]] = True
    closes = np.append(opens[1:], True)
    index = rows - d_row[r_doc]
    total = (d_row[1:] - d_row[:-1])[r_doc]

    # Blank lines, form feeds, indent
    previous = np.append(-1, r_line[:-1])
    blanks = np.where(opens, 3, r_line - previous - 1)
    feeds = np.flatnonzero(c == 12)
    between = np.searchsorted(feeds, r_begin) - np.searchsorted(feeds, np.append(0, r_stop[:-1]))
    feed = opens | (between > 0)
    after = np.where(closes, 3, np.append(blanks[1:], 3))
    feed_after = closes | np.append(feed[1:], True)
    indent = r_begin - r_lead
    odd = np.flatnonzero((c == 9) | (c == 12))
    for r in np.flatnonzero(np.searchsorted(odd, r_begin) > np.searchsorted(odd, r_lead)):
        v = 0
        for x in c[r_lead[r]:r_begin[r]].tolist():
            v = 0 if x == 12 else v // 8 * 8 + 8 if x == 9 else v + 1
        indent[r] = v
    length = r_stop - r_begin
    width = indent + length

    def count(flags):
        s = sums(flags)
        return s[r_head] - s[r_begin]
    m = r_head - r_begin
    n_letters = count(kind == LETTER)
    n_digits = count(kind == DIGIT)
    n_others = count(kind == OTHER)
    n_upper = u_sum[r_head] - u_sum[r_begin]
    starts = np.append(True, kind[:-1] == BLANK) & (kind != BLANK)  # words between blanks
    n_words = count(starts)
    n_capitalised = count(starts & upper)

    # Single signs: others are tokens of their own.
    sign = np.where(tk == OTHER, c[ts], 0)

    def signs(*codes):
        flags = sign == ord(codes[0])
        for code in codes[1:]:
            flags |= sign == ord(code)
        return np.bincount(t_row[flags], minlength=n)

    def rows_of(token):
        out = np.zeros(n, bool)
        out[t_row[token]] = True
        return out

    # What stands beside a token
    under = sign == 95
    wordy = (tk != OTHER) | under
    before = np.append(False, wordy[:-1]) & ~spaced          # a word character right before
    next_near = np.append(wordy[1:] & ~spaced[1:], False)    # a word character right after
    next_same = np.append(t_row[1:] == t_row[:-1], False)    # a token of the same row follows

    # Years
    four = np.flatnonzero((tk == DIGIT) & (size == 4))
    digits = c[ts[four][:, None] + np.arange(4)].astype(np.int64) - 48
    value = digits @ np.array([1000, 100, 10, 1])
    plain = ((digits >= 0) & (digits <= 9)).all(1)
    good = plain & ((value >= 1700) & (value < 2020)) & ~before[four] & ~next_near[four]
    year = rows_of(four[good])

    # Measurements
    token = np.flatnonzero((tk == DIGIT) & next_same) + 1
    c0 = c[ts[token]]
    c1 = np.where(size[token] > 1, c[np.minimum(ts[token] + 1, len(c) - 1)], 0)
    unit = (c0 == 0xb5) | (c0 == 0x3bc) | (c0 == 0xd7) | (c1 == 109) & ((c0 == 109) | (c0 == 99))
    unit |= (c0 == 117) & (c1 == 109) & (size[token] == 2) & ~next_near[token]
    by = (c0 == 120) & (size[token] == 1) & next_same[token]
    by[by] = tk[token[by] + 1] == DIGIT
    measure = rows_of(token[unit | by])
    micro = np.flatnonzero((c == 0xb5) | (c == 0x3bc))
    micro = micro[c[np.minimum(micro + 1, len(c) - 1)] == 109]
    if len(micro):
        row = np.searchsorted(r_begin, micro, side='right') - 1
        measure[row[micro < r_head[row]]] = True

    # Authors and novelties: the patterns, in rows that have one of their words
    def known(*words):
        flags = np.zeros(tokens, bool)
        for w in words:
            h = seeds(1, 1)
            for b in w.encode():
                h = (h ^ np.uint32(b)) * PRIME
            flags |= word == h
        return flags

    def matches(pattern, flags):
        out = np.zeros(n, bool)
        for r in np.unique(t_row[flags]).tolist():
            out[r] = pattern.search(shadow(text[r_begin[r]:r_head[r]])) is not None
        return out
    author = (signs('=', '&', '\u2261') > 0) | matches(AUTHOR, known('sp', 'comb', 'gen', 'nov', 'nom', 'var', 'fr', 'pers', 'et', 'ex'))
    novelty = matches(NOVELTY, known('nov', 'n'))

    # Keys of words, as (document, lower case)
    t_key = word.astype(np.uint64) << np.uint64(32) | other_word
    salt = r_doc.astype(np.uint64) * np.uint64(0x9e3779b97f4a7c15)

    # Binomials
    capital = (tk == LETTER) & upper[ts]
    token = np.flatnonzero(capital & (t_upper == 1) & (size > 3) & ~before & next_same)
    token = token[spaced[token + 1]]
    epithet = token + 1
    i = np.flatnonzero(known('cf', 'aff')[epithet] & (t_upper[epithet] == 0) & (epithet + 2 <= last[t_row[token]]))
    dot = epithet[i] + 1
    dotted = (sign[dot] == 46) & ~spaced[dot] & (ts[dot + 1] == te[dot] + 1)
    dotted[dotted] = c[te[dot[dotted]]] == 32
    epithet[i[dotted]] += 2
    good = (tk[epithet] == LETTER) & (size[epithet] > 3)
    token, epithet = token[good], epithet[good]
    token = token[u_sum[ts[epithet] + 4] == u_sum[ts[epithet]]]
    g_row, g_key = t_row[token], t_key[token] + salt[t_row[token]]
    if len(token):  # once a row
        order = np.lexsort((g_key, g_row))
        g_row, g_key = g_row[order], g_key[order]
        once = np.append(True, (g_row[1:] != g_row[:-1]) | (g_key[1:] != g_key[:-1]))
        g_row, g_key = g_row[once], g_key[once]
    marked = novelty | np.append(novelty[1:] & ~opens[1:], False)
    novel = np.unique(g_key[marked[g_row]])
    g_novel = within(g_key, novel)[1]
    g_count = counts_of(g_key, g_key)
    best = np.zeros(n)
    np.maximum.at(best, g_row, g_count)
    row_novel = np.zeros(n, bool)
    row_novel[g_row[g_novel]] = True
    n_genera = np.bincount(g_row, minlength=n)

    # The first word, if it is capitalised
    words = np.flatnonzero(wordy)
    w_row = t_row[words]
    w0 = np.searchsorted(w_row, rows)                    # each row's first, in words
    there = w0 < len(words)
    there[there] = w_row[w0[there]] == rows[there]
    w0 = words[np.minimum(w0, len(words) - 1)] if len(words) else np.zeros(n, np.int64)
    w1 = np.append(words[1:], 0)[np.minimum(np.searchsorted(words, w0), len(words) - 1)] if len(words) else w0
    digit = there & (tk[w0] == DIGIT) & (w1 > w0) & (t_row[w1] == rows)
    f_token = np.where(digit, w1, w0)
    has = there & capital[f_token] & (size[f_token] > 1)
    has[has] = ~upper[ts[f_token[has]] + 1]
    f_key = t_key[f_token]
    part = np.flatnonzero(has & (t_upper[f_token] > 1))  # ends before the next capital
    if len(part):
        capitals = np.flatnonzero(upper)
        a = ts[f_token[part]]
        b = capitals[np.searchsorted(capitals, a, side='right')]
        b0, blen = place(a), place(b) - place(a)
        f_key[part] = fnv(seeds(len(part), 1), data, b0, blen).astype(np.uint64) << np.uint64(32) | fnv(seeds(len(part), 2), data, b0, blen)
    f_key = f_key + salt
    f_row = np.flatnonzero(has)
    keys = f_key[f_row]
    f_count, f_genus, f_small, f_novel = np.ones(n), np.zeros(n), np.zeros(n), np.zeros(n, bool)
    f_count[f_row] = counts_of(keys, keys)
    f_genus[f_row] = counts_of(g_key, keys)
    small = np.flatnonzero((tk == LETTER) & (t_upper == 0) & (size > 1) & ~before)
    f_small[f_row] = counts_of(t_key[small] + salt[t_row[small]], keys)
    f_novel[f_row] = within(keys, novel)[1]

    # How often the line repeats: words in lower case, digits as one 0
    bare = np.flatnonzero(tk != OTHER)
    b_row = t_row[bare]
    b_first = np.append(True, b_row[1:] != b_row[:-1]) if len(bare) else np.zeros(0, bool)
    near = np.append(False, te[bare[:-1]] == ts[bare[1:]])
    gap = ~b_first & ~near
    digit = tk[bare] == DIGIT
    key = np.where(digit, np.uint64(0x8ebc6af09c88c6e3), t_key[bare]) * np.uint64(2) + gap
    key = (key ^ key >> np.uint64(29)) * np.uint64(0xbf58476d1ce4e5b9)
    powers = np.cumprod(np.full(2 * MAX_TOKENS, 0xd1342543de82ef95, np.uint64))
    key *= powers[positions(b_row, n)]
    b_sums = np.append(np.uint64(0), np.cumsum(key))
    b_end = np.cumsum(np.bincount(b_row, minlength=n))
    b_begin = np.append(0, b_end[:-1])
    norm = b_sums[b_end] - b_sums[b_begin] + salt
    norm_length = np.bincount(b_row, weights=np.where(digit, 1, size[bare]) + gap, minlength=n)
    _, inverse, counts = np.unique(norm, return_inverse=True, return_counts=True)
    repeats = np.where(norm_length > 2, counts[inverse], 0)

    # Pages
    since = rows - np.maximum.accumulate(np.where(feed, rows, 0))
    later = np.where(feed | opens, rows, n)
    following = np.append(np.minimum.accumulate(later[::-1])[::-1][1:], n)
    till = np.minimum(following, d_row[r_doc + 1]) - rows

    # The 85th percentile of widths of each document
    capped = np.minimum(width, 4096)
    by_width = capped[np.lexsort((capped, r_doc))]
    at = np.maximum(d_row[1:] - d_row[:-1] - 1, 0) * .85
    lower = d_row[:-1] + np.floor(at).astype(np.int64)
    upper_at = np.minimum(lower + 1, np.maximum(d_row[1:] - 1, 0))
    lower = np.minimum(lower, n - 1)
    a, b = by_width[lower], by_width[np.minimum(upper_at, n - 1)]
    p85 = np.maximum(20., a + (b - a) * (at - np.floor(at)))[r_doc]

    tail = c[r_stop - 1]
    head_kind, tail_kind = kind[r_begin], CHARACTERS.kind[tail]
    upper_head = upper[r_begin]

    width_above = np.where(opens, 0, width - np.append(0, width[:-1]))
    width_below = np.where(closes, 0, width - np.append(width[1:], 0))
    indent_above = indent - np.where(opens, 0, np.append(0, indent[:-1]))
    indent_below = indent - np.where(closes, 0, np.append(indent[1:], 0))

    o = np.empty((LAYOUT, n))
    own = [
        np.log1p(length) / 4, length / p85, np.minimum(indent, 40) / 10,
        np.minimum(blanks, 1), np.minimum(blanks, 3) / 3, np.minimum(after, 1), np.minimum(after, 3) / 3, feed, feed_after,
        n_digits / m * 3, n_upper / np.maximum(1, n_letters) * 2, n_others / m * 4, n_capitalised / n_words,
        signs(',') / 4, signs('.') / 4, signs(';') / 2,
        upper_head, (head_kind == LETTER) & ~upper_head, head_kind == DIGIT, head_kind == OTHER,
        tail == 46, (tail == 44) | (tail == 59), (tail == 45) | (tail == 0xad) | (tail == 0x2010), tail == 58,
        tail_kind == DIGIT, tail_kind == LETTER,
        year, measure, author, signs('(') > 0, (n_letters > 2) & (n_upper * 10 > n_letters * 8),
        np.minimum(n_words, 20) / 10, index / total, np.minimum(index, 60) / 60,
        np.log1p(np.maximum(0, repeats - 1)), repeats >= 3, np.minimum(since, 60) / 60,
        np.where(has, np.log1p(f_count - 1), 0), np.log1p(f_genus), f_novel, np.log1p(f_small), np.log1p(best), row_novel, n_genera,
        since < 3, np.minimum(till, 60) / 60, till <= 2, width_above / p85, width_below / p85,
        np.clip(indent_above, -20, 20) / 10, np.clip(indent_below, -20, 20) / 10]
    for i, values in enumerate(own):
        o[i] = values
    return np.ascontiguousarray(o.T, np.float32)


def shadow(text):
    """text as the patterns see it: features.py's shadow."""
    if text.isascii():
        return text
    out = []
    for x in text:
        if x < '\x80' or x in '\u00b5\u03bc\u00d7\u2261':
            out.append(x)
        else:
            code = ord(x)
            out.append('\u00c0' if CHARACTERS.upper[code] else '\u00e0\u0663\x0b\u00b7'[CHARACTERS.kind[code]])
    return ''.join(out)
