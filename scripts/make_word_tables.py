#!/usr/bin/env python3
"""Writes src/text/word_tables.h for Distinct-n: the code points of words (letters, marks, decimal digits)
and full case folding. The source is Python's own Unicode tables.

    python3 scripts/make_word_tables.py > src/text/word_tables.h
"""
import textwrap
import unicodedata as u

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def is_word(c):
    category = u.category(chr(c))
    return category[0] in "LM" or category == "Nd"


def lines(items):
    print(textwrap.fill(" ".join(items), 110, initial_indent="    ", subsequent_indent="    "))


ranges = []
for c in POINTS:
    if not is_word(c):
        continue
    if ranges and ranges[-1][1] == c - 1:
        ranges[-1][1] = c
    else:
        ranges.append([c, c])
folds = []
for c in POINTS:
    folded = chr(c).casefold()
    if folded != chr(c):
        folds.append((c, [ord(x) for x in folded]))
assert all(len(to) <= 3 for _, to in folds)

print(f"/* Made by scripts/make_word_tables.py from Unicode {u.unidata_version}; do not edit. */\n")
print("/* Letters, marks and decimal digits: ranges, both ends included. */")
print("static const struct { uint32_t from, to; } word_ranges[] = {")
lines([f"{{0x{a:x},0x{b:x}}}," for a, b in ranges])
print("};\n\n/* Full case folding of every code point that has one; 0 pads. */")
print("static const struct { uint32_t from, to[3]; } case_folds[] = {")
lines([f"{{0x{c:x},{{{','.join(f'0x{x:x}' for x in to)}}}}}," for c, to in folds])
print("};")
