"""Checks the conversions against predict's own YEDDA: check.py FOLDER, where
FOLDER has annotated/*.txt.jsonl, *.tsv, *.ann and brat/ of predict, out.spacy and corrected/ of the
two scripts beside this one. Prints what it compared."""
import csv
import glob
import json
import os
import re
import sys

import spacy
from spacy.tokens import DocBin

os.chdir(sys.argv[1])
paths = sorted(glob.glob("annotated/*.txt.jsonl"))
documents = [json.loads(open(p, encoding="utf-8", newline="\n").read()) for p in paths]

# YEDDA that came back by way of JSONL.
for path in paths:
    name = os.path.basename(path)[:-len(".jsonl")] + ".ann"
    assert open("corrected/" + name, "rb").read() == open("annotated/" + name, "rb").read(), name

# TSV, read as README.md says, has the spans of JSONL and their texts.
unescape = {"\\t": "\t", "\\n": "\n", "\\r": "\r", "\\\\": "\\"}
for path, d in zip(paths, documents, strict=True):
    with open(path[:-len(".jsonl")] + ".tsv", encoding="utf-8", errors="surrogateescape", newline="") as f:
        rows = list(csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert [[int(r["start"]), int(r["end"]), r["label"]] for r in rows] == d["label"], path
    for row, (start, end, _) in zip(rows, d["label"], strict=True):
        text = re.sub("[\udc80-\udcff]", "\ufffd", row["text"])
        assert re.sub(r"\\.", lambda e: unescape[e[0]], text) == d["text"][start:end], path

# spaCy's spans hold the text that the offsets name; a blank right behind a token is no part of theirs.
spans = 0
for doc, d in zip(DocBin().from_disk("out.spacy").get_docs(spacy.blank("en").vocab), documents, strict=True):
    assert doc.text == d["text"]
    for span, (start, end, label) in zip(doc.spans["linnet"], d["label"], strict=True):
        assert span.label_ == label and span.start_char <= start and span.start_char + len(span.text_with_ws) >= end
        assert span.text_with_ws.find(d["text"][start:end]) >= 0
        spans += 1

# brat's rules, as its server reads a pair: lines by every line break, numbers
# that occur once, fragments in order inside the text, and their texts with a
# blank between.
annotations = 0
for path in sorted(glob.glob("annotated/brat/*.ann")):
    text = open(path[:-len(".ann")] + ".txt", "rb").read().decode("utf-8", "surrogateescape")
    seen = set()
    for line in open(path, "rb").read().decode("utf-8", "surrogateescape").splitlines():
        number, data, tail = line.split("\t", 2)
        assert re.fullmatch(r"T[0-9]+", number) and number not in seen, number
        seen.add(number)
        label, offsets = data.split(" ", 1)
        assert re.fullmatch(r"[A-Za-z0-9_-]+", label), label
        fragments = [tuple(map(int, f.split(" "))) for f in offsets.split(";")]
        last = 0
        for start, end in fragments:
            assert last <= start < end <= len(text), number
            last = end
        assert tail == " ".join(text[start:end] for start, end in fragments), number
        annotations += 1
assert documents and spans and annotations
print(f"{len(documents)} documents, {spans} spans in spaCy, {annotations} annotations by brat's rules, YEDDA came back")
