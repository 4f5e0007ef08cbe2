#!/usr/bin/env python3
"""Compares the tokenizer with Hugging Face `tokenizers` on generated texts and ids.

    python3 scripts/check_tokenizers.py --corpus DIR [--count N] [--seed N] [--no-points] FILE...

For each tokenizer.json it encodes and decodes every code point in several surroundings and N random
strings, some of them without the template and with special tokens, and decodes N/8 random lists of ids.
Random strings hold characters of all planes, runs of every kind of space, digits of other scripts,
contractions, marks, the file's added tokens, emoji, jamo, and slices of books, some of 20 KB. Byte-level
files are checked again as variants in which every two bytes merge, so that a wrong split shows. The driver
(tests/tok_driver.c) is built with $CC and the library that `make` made. It also checks its stream decoder
against its whole-list decoder.
The script prints the counts for each file and exits with 1 on a difference.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import Tokenizer, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "build/cc/liblonghand.a"
POINTS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
BATCH = 50000

SPACES = [c for c in POINTS if c.isspace()] + list("\u180e\u200b\u2060\ufeff")
DIGITS = [c for c in POINTS if unicodedata.category(c) in ("Nd", "Nl", "No")]
MARKS = [c for c in POINTS if unicodedata.category(c)[0] == "M"]
DECOMPOSED = [c for c in POINTS if unicodedata.decomposition(c)
              and not unicodedata.decomposition(c).startswith("<")]
JAMO = [chr(c) for c in [*range(0x1100, 0x1200), *range(0xA960, 0xA980),
                         *range(0xD7B0, 0xD800)]] + [chr(c) for c in range(0xAC00, 0xD7A4, 97)]
EMOJI = [chr(c) for c in [*range(0x1F300, 0x1F650), *range(0x1F900, 0x1FA00), *range(0x1F1E6, 0x1F200),
                          0x200D, 0xFE0F, 0x20E3, 0x2764]]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'Re", "'rE", "'VE", "'M", "'lL",
                "'D", "'ſ", "'ſt", "''s", "'r", "'l", "'v",
                "’s", "'\u212a", "'ﬆ", "'i", "'"]
ODD = list("▁Ġ\x00\x01\x7f\x80\x85\xa0\xad\ufffd\ufffe\uffff") + ["<0x0A>", "<0xE2>", "▁▁", "\r\n", "\n\n",
    "\r", "\t", "  ", "<", ">", "|", "\U0010ffff"]


class Texts:
    """Random texts, joined from a pool of parts that each batch makes anew."""
    def __init__(self, rng, book, tokens):
        r = self.rng = rng
        self.book, self.tokens = book, tokens or ["<s>"]
        pick = lambda xs: lambda: r.choice(xs)
        run = lambda xs, n: lambda: "".join(r.choices(xs, k=r.randint(1, n)))
        same = lambda: r.choice([*"a 1\n!é▁", r.choice(POINTS), r.choice(SPACES),
                                 r.choice(MARKS)]) * r.randint(1, 20)
        plane = lambda: chr(self.scalar(r.randrange(17) << 16 | r.randrange(65536)))
        low = lambda: chr(self.scalar(r.randrange(0x3000)))
        self.kinds = [pick(POINTS), plane, low, run(SPACES, 4),
                      run([" ", "\n", "\t", "\r", "\r\n", "\xa0", "\u3000"], 6), run(DIGITS, 5),
                      run("0123456789", 8), pick(CONTRACTIONS), run(MARKS, 5), run(DECOMPOSED, 3),
                      run(JAMO, 5), run(EMOJI, 5),
                      pick(self.tokens), pick(self.tokens), self.broken_token, pick(ODD), self.slice,
                      self.slice, self.slice, same,
                      run("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", 8),
                      run("!?.,;:-()[]{}/\\\"'`~@#$%^&*_+=|<>", 4),
                      lambda: r.choice("aeouiAq") + "".join(r.choices(MARKS, k=r.randint(1, 4))), lambda: " "]

    @staticmethod
    def scalar(c):
        return 0x41 if 0xD800 <= c < 0xE000 else c

    def slice(self, most=60):
        i = self.rng.randrange(len(self.book) - most)
        return self.book[i:i + self.rng.randint(1, most)]

    def broken_token(self):
        t = self.rng.choice(self.tokens)
        i = self.rng.randrange(len(t) + 1)
        return self.rng.choice([t[:i], t[i:], t[:i] + self.rng.choice(POINTS) + t[i:], t.upper(), t + t[:i]])

    def batch(self, n):
        r = self.rng
        parts = [r.choice(self.kinds)() for _ in range(n)]
        out = ["".join(r.choices(parts, k=k)) for k in r.choices((1, 1, 2, 2, 3, 4, 6, 9), k=n)]
        # long texts, in which repeated words come from the cache
        return out + [self.slice(12000) + "".join(r.choices(parts, k=500)) + self.slice(12000)
                      for _ in range(n // 5000)]


def id_list(rng, n, bytes_, seen):
    out = []
    for _ in range(rng.randint(1, 4)):
        k = rng.randrange(4)
        if k == 0:
            out += rng.choices(range(n), k=rng.randint(1, 8))
        elif k == 1:
            out += rng.choices(bytes_, k=rng.randint(1, 8))
        elif k == 2:
            out += [bytes_[b] for b in rng.choice("é€𝄞ßñ日本👍🏽\u0301").encode()]
        else:
            out += rng.choice(seen)[:50]
            if out and rng.randrange(2):
                del out[rng.randrange(len(out))]
    return out


def byte_ids(vocab):
    """The token of each byte, in either spelling; 3 if there is none."""
    if "Ġ" not in vocab:
        return [vocab.get(f"<0x{b:02X}>", 3) for b in range(256)]
    chars, free = [], 0x100
    for b in range(256):
        printable = 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE
        chars.append(chr(b if printable else free))
        free += not printable
    return [vocab[c] for c in chars]


class Check:
    def __init__(self, driver, path, seed):
        self.driver, self.path = driver, path
        self.hf = Tokenizer.from_file(str(path))
        self.n = {"texts": 0, "ids": 0, "id lists": 0, "different": 0}
        self.rng = random.Random(f"{seed} {path.name}")
        self.tokens = [t["content"] for t in json.loads(path.read_text(encoding="utf-8"))["added_tokens"]]
        self.bytes = byte_ids(self.hf.get_vocab())

    def run(self, mode, lines, *option):
        with tempfile.TemporaryFile() as f:
            f.write("\n".join(lines).encode())
            f.seek(0)
            p = subprocess.run([self.driver, mode, str(self.path), *option], stdin=f, capture_output=True)
        if p.returncode:
            sys.exit(f"{self.path}: the driver ended with {p.returncode}: {p.stderr.decode()}")
        out = json.loads("[" + p.stdout.decode()[:-1].replace("\n", ",") + "]")
        assert len(out) == len(lines), (len(out), len(lines))
        return out

    def compare(self, what, inputs, ours, theirs):
        if ours == theirs:
            return
        for i, a, b in zip(inputs, ours, theirs):
            if a != b:
                self.n["different"] += 1
                if self.n["different"] <= 5:
                    print(f"{self.path.name}: {what} of {i!r}\n  ours   {a!r}\n  theirs {b!r}", flush=True)

    def encode(self, texts, lines):
        theirs = [e.ids for e in self.hf.encode_batch_fast(texts)]
        self.compare("encode", texts, self.run("encode", lines), theirs)
        self.compare("encode without template", texts[::8], self.run("encode", lines[::8], "plain"),
                     [e.ids for e in self.hf.encode_batch_fast(texts[::8], add_special_tokens=False)])
        self.n["texts"] += len(texts)
        self.n["ids"] += sum(map(len, theirs))
        self.decode(theirs)
        return theirs

    def decode(self, lists):
        """Encodes all texts without special tokens, and some with them."""
        for skip, some in (True, lists), (False, lists[::4]):
            self.compare(f"decode (skip {skip})", some,
                         self.run("decode", list(map(str, some)), *["skip"] * skip),
                         self.hf.decode_batch(some, skip_special_tokens=skip))

    def batch(self, texts, lines):
        seen = self.encode(texts, lines)
        lists = [id_list(self.rng, self.hf.get_vocab_size(), self.bytes, seen)
                 for _ in range(len(texts) // 8)]
        self.decode(lists)
        self.n["id lists"] += len(lists)

    def report(self):
        print(f"{self.path}: " + ", ".join(f"{v} {k}" for k, v in self.n.items()), flush=True)


def with_all_pairs(path, folder):
    """A byte-level file with a merge for every two bytes: any difference of splits shows in the ids."""
    data = json.loads(path.read_text(encoding="utf-8"))
    if '"ByteLevel"' not in json.dumps(data["pre_tokenizer"]):
        return None
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [[a, b] for a in alphabet for b in alphabet]
    random.Random(5).shuffle(merges)
    data["model"].update(vocab={t: i for i, t in enumerate(alphabet + [a + b for a, b in merges])},
                         merges=merges)
    for i, t in enumerate(data["added_tokens"]):
        t["id"] = len(data["model"]["vocab"]) + i
    data["post_processor"] = None
    out = pathlib.Path(folder) / f"{path.parent.name}-{path.stem}-pairs.json"
    out.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
    return out


def check(driver, files, book, seed, count, points):
    pairs = [with_all_pairs(f, pathlib.Path(driver).parent) for f in files]
    checks = [Check(driver, f, seed) for f in [*files, *filter(None, pairs)]]
    texts = Texts(random.Random(seed), book, [t for c in checks for t in c.tokens])
    quoted = json.encoder.encode_basestring
    if points:
        for i in range(0, len(POINTS), BATCH):
            some = [f"{c} {c}a{c}1{c}'{c}s {c}\n{c}e\u0301{c}{c}" for c in POINTS[i:i + BATCH]]
            for c in checks:
                c.encode(some, list(map(quoted, some)))
        for c in checks:
            c.report()
    for i in range(0, count, BATCH):
        some = texts.batch(min(BATCH, count - i))
        lines = list(map(quoted, some))
        for c in checks:
            c.batch(some, lines)
        if i // BATCH % 2 == 1 or i + BATCH >= count:
            for c in checks:
                c.report()
    return sum(c.n["different"] for c in checks)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--corpus", default=os.environ.get("CORPUS"), required="CORPUS" not in os.environ)
    p.add_argument("--count", type=int, default=1000000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--no-points", action="store_true")
    p.add_argument("file", nargs="+", type=pathlib.Path)
    a = p.parse_args()
    book = "\n".join(f.read_text(encoding="utf-8")[:200000]
                     for f in sorted(pathlib.Path(a.corpus).rglob("*.txt"))[:20])
    with tempfile.TemporaryDirectory() as d:
        driver = f"{d}/tok_driver"
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-O2", "-I.",
                        "tests/tok_driver.c", str(LIBRARY), "-lsqlite3", "-lz", "-lm", "-ldl", "-pthread",
                        "-o", driver], cwd=ROOT, check=True)
        sys.exit(1 if check(driver, a.file, book, a.seed, a.count, not a.no_points) else 0)


if __name__ == "__main__":
    main()
