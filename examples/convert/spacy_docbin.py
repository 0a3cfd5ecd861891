"""JSONL of predict to spaCy: python spacy_docbin.py out.spacy annotated/*.txt.jsonl

Each document gets its spans in doc.spans["linnet"]. Offsets count code points,
as Python does. A border inside a token goes to the token's end or begin, and a
blank at a span's end is left out where it follows a token, as spaCy counts it.
"""
import json
import os
import sys

if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
    print("usage: python spacy_docbin.py OUT.spacy DOCUMENT.jsonl ...", file=sys.stderr)
    sys.exit(2)
try:
    import spacy
    from spacy.tokens import DocBin
except ImportError as e:
    sys.exit(f"{e}; pip install spacy")

nlp = spacy.blank("en")
docs = DocBin()
part = sys.argv[1] + ".part"  # becomes the DocBin once it is whole
try:
    for path in sys.argv[2:]:
        with open(path, encoding="utf-8", newline="\n") as lines:
            for line in lines:
                document = json.loads(line)
                nlp.max_length = max(nlp.max_length, len(document["text"]))
                doc = nlp.make_doc(document["text"])
                doc.spans["linnet"] = [doc.char_span(start, end, label, alignment_mode="expand")
                                       for start, end, label in document["label"]]
                docs.add(doc)
    docs.store_user_data = False
    path = sys.argv[1]
    docs.to_disk(part)
    os.replace(part, path)
except OSError as e:
    if os.path.isfile(part):
        os.remove(part)
    sys.exit(f"spacy_docbin: {path}: {e.strerror}")
except (KeyError, TypeError, ValueError) as e:
    sys.exit(f"spacy_docbin: {path}: {e!r}; name JSONL that predict wrote")
