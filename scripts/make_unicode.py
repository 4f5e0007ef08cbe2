#!/usr/bin/env python3
"""Writes src/base/unicode_tables.h: Unicode classes and canonical (de)compositions as Hugging Face
`tokenizers` has them.

The tables are read from the library itself, code point by code point. It contains three engines with three
versions of Unicode: Oniguruma (the split patterns), the \\w and \\s of its added tokens, and NFC. Simple case
folding comes from Python.

    python3 scripts/make_unicode.py > src/base/unicode_tables.h
"""
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
LETTER, NUMBER, SPACE, WORD, MARK, UPPER, LOWER = 1, 2, 4, 8, 16, 32, 64
HANGUL = range(0xAC00, 0xD7A4)


def batches(n=4096):
    for i in range(0, len(POINTS), n):
        yield POINTS[i:i + n]


def regex_class(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    return {ord(w) for b in batches() for w, _ in split.pre_tokenize_str("".join(map(chr, b)))}


def added_token(**kw):
    t = Tokenizer(models.BPE())
    t.add_tokens([AddedToken("T", normalized=False, **kw)])
    return t


def word_class():
    """The code points before which a single_word token is not recognised."""
    t, out = added_token(single_word=True), set()
    for b in batches():
        starts = {o[0] for o in t.encode("".join(f" {chr(c)}T " for c in b)).offsets}
        out |= {c for i, c in enumerate(b) if 4 * i + 2 not in starts}
    return out


def strip_class():
    """The code points that an lstrip token absorbs."""
    t, out = added_token(lstrip=True), set()
    for b in batches():
        starts = {o[0] for o in t.encode("".join(f"x{chr(c)}T" for c in b if c != ord("T"))).offsets}
        out |= {c for i, c in enumerate(x for x in b if x != ord("T")) if 3 * i + 1 in starts}
    return out


def per_line(normalizer, strings):
    """The normalized form of each string. No string holds a line feed."""
    out = []
    for i in range(0, len(strings), 4096):
        out += normalizer.normalize_str("\n".join(strings[i:i + 4096])).split("\n")
    assert len(out) == len(strings)
    return out


def combining_classes(nfd):
    """Canonical combining classes, renumbered 0, 1, 2, .. in their order."""
    points = [c for c in POINTS if c != 10]
    low, high = "\u0334", "\u0345"          # classes 1 and 240, the ends of the range
    marks = [c for c, a, b in zip(points, per_line(nfd, [chr(c) + low for c in points]),
                                  per_line(nfd, [high + chr(c) for c in points]))
             if a == low + chr(c) or b == chr(c) + high or chr(c) in (low, high)]
    # a < b if b+a is reordered to a+b: insert each mark into the list of classes found so far
    def less(a, b):
        return a != b and nfd.normalize_str(chr(b) + chr(a)) == chr(a) + chr(b)
    classes, found = [], {}
    for c in marks:
        if nfd.normalize_str(chr(c)) != chr(c):
            continue                         # it decomposes: only its decomposition has a class
        lo, hi = 0, len(classes)
        while lo < hi:
            mid = (lo + hi) // 2
            if less(classes[mid][0], c):
                lo = mid + 1
            else:
                hi = mid
        if lo == len(classes) or less(c, classes[lo][0]):
            classes.insert(lo, [c])
        else:
            classes[lo].append(c)
    for i, members in enumerate(classes):
        for c in members:
            found[c] = i + 1
    return found


def fold(c):
    """Simple case folding. Where full folding gives several code points, the simple one is the small letter,
    if that is one code point."""
    for to in (chr(c).casefold(), chr(c).lower()):
        if len(to) == 1:
            return ord(to)
    return c


def fold_runs():
    """(first, last, step, delta): every step-th code point from first to last becomes itself plus delta."""
    rows = []
    for c in POINTS:
        delta = fold(c) - c
        if rows and delta == rows[-1][3] and c - rows[-1][1] in ([1, 2], [rows[-1][2]])[rows[-1][2] > 0]:
            rows[-1][1:3] = c, c - rows[-1][1]
        elif delta:
            rows.append([c, c, 0, delta])
    return [(a, b, max(step, 1), delta) for a, b, step, delta in rows]


def main():
    nfd, nfc = normalizers.NFD(), normalizers.NFC()
    letter, number, space = regex_class(r"\p{L}"), regex_class(r"\p{N}"), regex_class(r"\s")
    assert regex_class(r"[^\s\p{L}\p{N}]") == set(POINTS) - letter - number - space
    mark = regex_class(r"\p{M}")
    assert not (letter & number or letter & space or number & space or mark & (letter | number | space))
    upper, lower = regex_class(r"[\p{Lu}\p{Lt}]"), regex_class(r"\p{Ll}")
    assert upper | lower <= letter and not upper & lower
    assert regex_class(r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]") == letter - lower | mark
    assert regex_class(r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]") == letter - upper | mark
    word = word_class()
    assert strip_class() == space
    flags = [0] * 0x110000
    for points, bit in ((letter, LETTER), (number, NUMBER), (space, SPACE), (word, WORD), (mark, MARK),
                        (upper, UPPER), (lower, LOWER)):
        for c in points:
            flags[c] |= bit

    points = [c for c in POINTS if c != 10 and c not in HANGUL]
    decomposed = {c: s for c, s in zip(points, per_line(nfd, [chr(c) for c in points])) if s != chr(c)}
    pairs = {}
    for c, s in decomposed.items():
        if nfc.normalize_str(chr(c)) != chr(c):
            continue                         # excluded from composition
        first = nfc.normalize_str(s[:-1])
        assert len(first) == 1 and nfc.normalize_str(first + s[-1]) == chr(c), hex(c)
        pairs[ord(first), ord(s[-1])] = c
    ccc = combining_classes(nfd)
    assert max(len(s) for s in decomposed.values()) <= 4

    head = "/* Generated by scripts/make_unicode.py from tokenizers %s; do not edit. */"
    out = [head % tokenizers.__version__, ""]

    def runs(value):
        last = None
        for c in range(0x110000):
            if value(c) != last:
                last = value(c)
                yield c, last

    def table(declaration, rows, fmt):
        out.append(declaration + " = {")
        rows = [fmt % r for r in rows]
        line = "   "
        for r in rows:
            if len(line) + len(r) + 2 > 110:
                out.append(line)
                line = "   "
            line += f" {r},"
        out.append(line)
        out.append("};")
        out.append("")

    out += ["/* The class bits of the code points from `from` up to the next row. */"]
    table("static const struct { uint32_t from; uint8_t bits; } class_runs[]", list(runs(lambda c: flags[c])),
          "{0x%x,%d}")
    out += ["/* The rank of the canonical combining class of the code points from `from` to the next row; "
            "0: a starter. */"]
    table("static const struct { uint32_t from; uint8_t ccc; } ccc_runs[]",
          list(runs(lambda c: ccc.get(c, 0))), "{0x%x,%d}")
    out += ["/* Full canonical decompositions, without Hangul syllables. */"]
    table("static const struct { uint32_t from, to[4]; } decompositions[]",
          [(c, ",".join("0x%x" % ord(x) for x in s)) for c, s in sorted(decomposed.items())], "{0x%x,{%s}}")
    out += ["/* Primary composites: `first` and `second` compose to `whole`. */"]
    table("static const struct { uint32_t first, second, whole; } compositions[]",
          [(a, b, c) for (a, b), c in sorted(pairs.items())], "{0x%x,0x%x,0x%x}")
    out += ["/* Simple case folding: first, first + step, .. last become the code point plus delta. */"]
    table("static const struct { uint32_t first, last, step; int32_t delta; } folds[]", fold_runs(),
          "{0x%x,0x%x,%d,%d}")
    sys.stdout.write("\n".join(out[:-1]) + "\n")


if __name__ == "__main__":
    main()
