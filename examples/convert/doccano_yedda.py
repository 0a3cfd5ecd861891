"""doccano's export (JSONL, sequence labelling) to YEDDA, for train:
python doccano_yedda.py corrected admin.jsonl

The way there needs nothing: predict's --format=jsonl is what doccano imports
(JSONL, with text and label for the names of the columns). A text with YEDDA's
own signs cannot be told from its labels, and is refused, and so is a label that
YEDDA does not know, and what cannot be written: a line says why, the others are
written, and the status is 1. Bytes that are no UTF-8 come back from text_base64.
"""
import base64
import json
import os
import re
import sys


def yedda(document):
    text, out, at, errors = document["text"], [], 0, "strict"
    if document.get("text_base64") is not None:  # text but for bytes that are no UTF-8
        errors = "surrogateescape"
        text = base64.b64decode(document["text_base64"], validate=True).decode("utf-8", errors)
        if re.sub("[\udc80-\udcff]", "\ufffd", text) != document["text"]:
            raise ValueError("text_base64 is of another text; import the document again")
    if re.search(r"\[@|#[^#\n]*\*\]", text):
        raise ValueError("the text has YEDDA's own signs, [@ or #...*]; leave it out")
    for start, end, label in sorted(document["label"]):
        if not 0 <= start <= end <= len(text):
            raise ValueError(f"a span from {start} to {end} in {len(text)} characters; export the document again")
        if start < at:
            raise ValueError(f"spans overlap at character {start}")
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{,49}", label):
            raise ValueError(f"{label!r} is no label; rename it to a letter from A to Z, then up to 49 of these, digits, _ or -")
        out += [text[at:start], "[@", text[start:end], f"#{label}*]"]
        at = end
    return ("".join(out) + text[at:]).encode("utf-8", errors)


def lines(path):
    try:
        with open(path, "rb") as export:
            yield from export
    except OSError as e:
        sys.exit(f"doccano_yedda: {path}: {e.strerror}; name doccano's export")


if len(sys.argv) != 3:
    print("usage: python doccano_yedda.py FOLDER EXPORT.jsonl", file=sys.stderr)
    sys.exit(2)
written, refused = set(), 0
part = os.path.join(sys.argv[1], ".part")  # becomes a document once it is whole
for number, line in enumerate(lines(sys.argv[2]), 1):
    if not line.strip():
        continue
    where = f"line {number}"
    try:
        document = json.loads(line)
        name = document.get("uri") or f"{document['id']}.txt"
        where = repr(name)
        path = os.path.join(sys.argv[1], os.path.normpath(name + ".ann"))
        if os.path.isabs(name) or os.path.splitdrive(name)[0] or ".." in name.replace(os.sep, "/").split("/"):
            raise ValueError(f"leads out of {sys.argv[1]}; rename it")
        if path in written:
            raise ValueError("two documents have this name, the first is written; export them apart")
        text = yedda(document)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(part, "wb") as f:
            f.write(text)
        os.replace(part, path)
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as e:
        if isinstance(e, KeyError):
            e = f"no {e}; export JSONL of sequence labelling"
        elif isinstance(e, UnicodeEncodeError):
            e = f"{e.object[e.start]!a} is no character; take it out"
        elif isinstance(e, UnicodeDecodeError):
            e = "no UTF-8; unpack the export, or export the document again"
        elif isinstance(e, json.JSONDecodeError):
            e = f"no JSON ({e}); export JSONL of sequence labelling"
        elif not isinstance(e, (OSError, ValueError)):
            e = f"no document ({e}); export JSONL of sequence labelling"
        print(f"{where}: {e}", file=sys.stderr)
        refused += 1
        continue
    written.add(path)
if os.path.exists(part):
    os.remove(part)
if refused:
    sys.exit(f"{len(written)} written, {refused} refused")
