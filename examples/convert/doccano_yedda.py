"""doccano's export (JSONL, sequence labelling) to YEDDA, for train:
python doccano_yedda.py corrected admin.jsonl

The way there needs nothing: predict's --format=jsonl is what doccano imports
(JSONL, with text and label for the names of the columns). A text with YEDDA's
own signs cannot be told from its labels, and is refused, and so is a label that
YEDDA does not know. Bytes that are no UTF-8 come back from text_base64.
"""
import base64
import json
import os
import re
import sys

if len(sys.argv) != 3:
    sys.exit("usage: python doccano_yedda.py FOLDER EXPORT.jsonl")
written = set()
with open(sys.argv[2], encoding="utf-8", newline="\n") as lines:
    for line in filter(str.strip, lines):
        document = json.loads(line)
        name = document.get("uri") or f"{document['id']}.txt"
        if os.path.isabs(name) or ".." in name.split("/"):
            sys.exit(f"{name}: leads out of {sys.argv[1]}; rename it")
        text, out, at = document["text"], [], 0
        if "text_base64" in document:  # has as many characters as text
            text = base64.b64decode(document["text_base64"]).decode("utf-8", "surrogateescape")
        if re.search(r"\[@|#[^#\n]*\*\]", text):
            sys.exit(f"{name}: the text has YEDDA's own signs, [@ or #...*]; leave it out")
        for start, end, label in sorted(document["label"]):
            if start < at:
                sys.exit(f"{name}: spans overlap at character {start}")
            if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{,49}", label):
                sys.exit(f"{name}: {label!r} is no label; rename it to a letter, then up to 49 letters, digits, _ or -")
            out += [text[at:start], "[@", text[start:end], f"#{label}*]"]
            at = end
        path = os.path.join(sys.argv[1], name + ".ann")
        if path in written:
            sys.exit(f"{name}: two documents have this name; export them apart")
        written.add(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as f:
            f.write("".join(out) + text[at:])
