#!/usr/bin/env python3
"""Perplexity of whole books, longhand against transformers: models/demo on CORPUS/valid, windows of 32,768.

    CORPUS=DIR scripts/compare_books.py --write     runs transformers, writes tests/data/demo_valid_nll.json
    CORPUS=DIR scripts/compare_books.py             runs longhand in f32 and bf16 against the stored figures

Windows are those of `score --window`: BOS only at the very start; the first token of a later window is not
scored. transformers runs in float32 with sdpa (eager attention would need 32,768^2 scores per head).
--write takes about half an hour on two cores. It keeps finished windows, so it can be interrupted."""
import argparse
import hashlib
import json
import math
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import compare_hf  # noqa: E402

ROOT = Path(__file__).parent.parent
STORE = ROOT / "tests/data/demo_valid_nll.json"
MODEL = ROOT / "models/demo"


def write(books, window):
    import torch
    import transformers
    head = {"model": "models/demo", "window": window, "attention": "sdpa, float32",
            "versions": {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}}
    store = json.loads(STORE.read_text()) if STORE.exists() else {}
    done = store.get("books", {}) if {k: store.get(k) for k in head} == head else {}
    model = compare_hf.load_model(MODEL, "sdpa")
    for path in books:
        data = path.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        ids = compare_hf.encode(MODEL, data.decode())
        book = done.get(path.name, {})
        if book.get("sha256") != digest:
            book = {"sha256": digest, "bytes": len(data), "tokens": len(ids), "windows": []}
        for a in range(len(book["windows"]) * window, len(ids), window):
            piece = ids[a:a + window]
            nll = compare_hf.token_nll(compare_hf.window_logits(model, piece), piece)
            book["windows"].append({"scored": len(nll), "nll": math.fsum(nll)})
            done[path.name] = book
            STORE.write_text(json.dumps({**head, "books": done}, indent=1) + "\n")
            per_token = math.fsum(nll) / max(1, len(nll))
            print(f"{path.name}: token {a}, {len(piece)} tokens, nll {per_token:.6f}", flush=True)


def compare(books, program):
    store = json.loads(STORE.read_text())
    worst = 0.0
    for path in books:
        want = store["books"][path.name]
        if hashlib.sha256(path.read_bytes()).hexdigest() != want["sha256"]:
            sys.exit(f"{path}: {STORE.name} was made with another text")
        nll = math.fsum(w["nll"] for w in want["windows"])
        scored = sum(w["scored"] for w in want["windows"])
        for compute in "f32", "bf16":
            got = compare_hf.longhand_score(program, MODEL, path, compute, store["window"], per_token=False)
            if got["tokens"] != want["tokens"]:
                sys.exit(f"{path}: {got['tokens']} tokens, transformers {want['tokens']}")
            rel = math.exp((got["nll"] - nll) / scored) - 1
            worst = max(worst, abs(rel))
            print(f"{path.name}  {compute:4}  {got['perplexity']:.5f}, transformers "
                  f"{math.exp(nll / scored):.5f}, off by {100 * rel:+.4f} %", flush=True)
    return 0 if worst <= 1e-3 else 1


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--write", action="store_true")
    ap.add_argument("--window", type=int, default=32768)
    ap.add_argument("--longhand", default="./longhand")
    a = ap.parse_args()
    if not os.environ.get("CORPUS"):
        sys.exit("CORPUS is not set: CORPUS=DIR names the folder that holds valid/*.txt")
    books = sorted((Path(os.environ["CORPUS"]) / "valid").glob("*.txt"))
    if not books:
        sys.exit(f"no books in {os.environ['CORPUS']}/valid")
    return write(books, a.window) if a.write else compare(books, a.longhand)


if __name__ == "__main__":
    sys.exit(main())
