"""doccano's export (JSONL, sequence labelling) to YEDDA, for train:
python doccano_yedda.py corrected admin.jsonl

The way there needs nothing: predict's --format=jsonl is what doccano imports
(JSONL, with text and label for the names of the columns). A text with YEDDA's
own signs cannot be told from its labels, and is refused.
"""
import json
import os
import re
import sys

with open(sys.argv[2], encoding="utf-8", newline="\n") as lines:
    for line in lines:
        document = json.loads(line)
        text, out, at = document["text"], [], 0
        if re.search(r"\[@|#[^#\n]*\*\]", text):
            sys.exit(f"{document.get('uri', document.get('id'))}: the text has YEDDA's own signs, [@ or #...*]; leave it out")
        for start, end, label in sorted(document["label"]):
            if start < at:
                sys.exit(f"{document.get('uri', document.get('id'))}: spans overlap at character {start}")
            out += [text[at:start], "[@", text[start:end], f"#{label}*]"]
            at = end
        name = document.get("uri") or f"{document['id']}.txt"
        path = os.path.join(sys.argv[1], name + ".ann")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", newline="") as f:
            f.write("".join(out) + text[at:])
