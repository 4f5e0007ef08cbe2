#!/usr/bin/env python3
"""Counts what kernels do, from machine code, and estimates a pass of an 8B model with one row on an H200.

    scripts/count_cuda.py OLD.cubin NEW.cubin      sm_90a images before and after a change; prints Markdown

OLD is of numerics version 1, NEW of version 2 (kernels/cuda/gpu.h). Needs cuobjdump (CUOBJDUMP=...), no GPU.
The instructions of a loop are those of its body without inner loops: work on trees, and importances of keys.

The estimate is a model, not a measurement. It adds, for each launch, the time of its bytes at 4.3 TB/s,
dependent rounds of loads from the L2 cache at 0.19 us, instructions of the busiest warps of a multiprocessor
at one for each cycle of 1.755 GHz, and a gap of 1.3 us. The geometry is that of Llama-3.1-8B.
"""
import collections
import heapq
import os
import re
import subprocess
import sys

COPY, CLOCK, ROUND, GAP = 4.3e12, 1.755e9, 0.19e-6, 1.3e-6
SMS, PIECES, LAYERS, HEADS, KV_HEADS, DIM, HIDDEN = 132, 264, 32, 32, 8, 128, 4096
PRODUCTS = {"qkv": (6144, 4096), "o": (4096, 4096), "gate_up": (28672, 4096), "down": (4096, 14336)}
VOCAB = 128256
DEPTHS = (0, 4096, 16384, 32768, 65536, 100000)


def code(cubin, kernel):
    """[(address, operation, operands)] of a kernel; [] if the image has none of this name."""
    tool = os.environ.get("CUOBJDUMP", "cuobjdump")
    args = [tool, "-sass", "-fun", "kernel_" + kernel, cubin]
    text = subprocess.run(args, capture_output=True, text=True).stdout
    found = re.findall(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\d+\s+)?([A-Z][A-Z0-9_.]*)([^;]*);", text)
    return [(int(a, 16), op, rest) for a, op, rest in found]


def loops(c):
    ends = {}
    for a, op, rest in c:
        to = re.search(r"0x([0-9a-f]+)\s*$", rest)
        if op.startswith("BRA") and to and int(to[1], 16) < a:
            lo = int(to[1], 16)
            ends[lo] = min(ends.get(lo, a), a)
    return sorted(ends.items())


def body(c, mark, least):
    """Operations of the loop with the most of `mark`, at least `least`, without inner loops of up to 300."""
    def inside(lo, hi):
        return [x for x in c if lo <= x[0] <= hi]
    fit = [(sum(x[1].startswith(mark) for x in inside(lo, hi)), lo - hi, lo, hi) for lo, hi in loops(c)]
    if not fit or max(fit)[0] < least:
        return collections.Counter()
    _, _, lo, hi = max(fit)
    inner = [(a, b) for a, b in loops(c) if lo < a and b < hi and (b - a) // 16 < 300]
    rest = [x for x in inside(lo, hi) if not any(a <= x[0] <= b for a, b in inner)]
    n = collections.Counter(x[1].split(".")[0] for x in rest)
    n["all"] = len(rest)
    return n


def shared_tiles(n, k):
    """Pieces of each tile of outputs that pieces share."""
    tiles_k = (k + 63) // 64
    tiles = (n + 127) // 128 * tiles_k
    pieces = min(PIECES, tiles // 4)
    of = [((t + tiles_k) * pieces - 1) // tiles - ((t + 1) * pieces - 1) // tiles + 1
          for t in range(0, tiles, tiles_k)]
    return [p for p in of if p > 1]


def chunks(depth, version):
    """Blocks of 64 keys in each chunk of a row at position `depth`."""
    sizes, at = [], 0
    while at <= depth:
        size = 2048 if version == 1 or at >= 65536 else 1024 if at >= 16384 else 512 if at >= 4096 else 256
        sizes.append((min(size, depth + 1 - at) + 63) // 64)
        at += size
    return sizes


def attend(depth, version, per_block, places):
    """Seconds of attention in one layer, its blocks of threads, and the most blocks of keys in one place."""
    size = chunks(depth, version)
    items = [s for s in (size if version == 1 else size[::-1]) for _ in range(KV_HEADS)]
    heap = [0] * min(places * SMS, len(items))
    for s in items:                              # the next block starts where one ends
        heapq.heappush(heap, heapq.heappop(heap) + s)
    every = sum(items) * 2 * 64 * DIM * 2 / COPY
    warps = min(places, -(-len(items) // SMS))   # busiest warps that share a scheduler
    return max(max(heap) * warps * per_block / CLOCK, every) + 2 * ROUND, len(items), max(heap)


def estimate(depth, version, n):
    """Seconds of a pass by part. n: counts of this version."""
    t = collections.Counter()
    for of in PRODUCTS.values():
        t["weights"] += of[0] * of[1] * 2 / COPY
        parts = shared_tiles(*of)
        rounds = max(parts, default=0) if version == 1 else -(-max(parts, default=0) // 16)
        t["sums of tiles"] += rounds * ROUND
    t["norms"] = 2 * (16 if version == 1 else 1) * ROUND
    one = attend(depth, version, n["per_block"], n["places"])
    t["attention"] = one[0]
    c = len(chunks(depth, version))
    t["merge"] = (c if version == 1 else 1 + -(-c // 32)) * ROUND
    t["gaps"] = 10 * GAP
    for k in t:
        t[k] *= LAYERS
    t["weights"] += VOCAB * HIDDEN * 2 / COPY
    return t


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    old, new = sys.argv[1:]
    a, b = body(code(old, "attend_128_few"), "HMMA", 128), body(code(new, "attend_128_one"), "HMMA", 32)
    if not a or not b:
        sys.exit("count_cuda.py: OLD needs attend_128_few and NEW attend_128_one: images of both "
                 "versions for sm_90a")
    counts = {1: {"per_block": a["all"], "places": 2}, 2: {"per_block": b["all"], "places": 3}}
    print("| row | counted | before | after |\n|---|---|---|---|")
    for what, op in (("instructions", "all"), ("tensor-core products", "HMMA"), ("loads of matrices", "LDSM"),
                     ("2^x", "MUFU"), ("selections", "FSEL")):
        print(f"| attention, a block of 64 keys | {what} of the busiest warp | {a[op]} | {b[op]} |")
    print(f"| merge at 100,000 | dependent rounds of loads (values in one) | {len(chunks(100000, 1))} (1) | "
          f"{1 + -(-len(chunks(100000, 2)) // 32)} (32) |")
    for name, of in PRODUCTS.items():
        parts = shared_tiles(*of)
        size, most = 2 * sum(parts) / 1e3, max(parts, default=0)
        print(f"| sums of tiles, {name}, 1 row | KB written and read; rounds | {size * 8192:.0f}; {most} | "
              f"{size * 512:.0f}; {-(-most // 16)} |")
    print(f"| rmsnorm of 4,096 | dependent rounds of loads | 16 | 1 |")
    print("| choose k candidates | scans of the row; calls of Philox for an id and scan | k; 1 | 2; 1/2 |")
    for d in DEPTHS[1:]:
        x, y = attend(d, 1, 1, 2), attend(d, 2, 1, 3)
        print(f"| chunks at {d:,} | blocks of threads; most blocks of keys in one place | {x[1]}; {x[2]} | "
              f"{y[1]}; {y[2]} |")
    print("\n| depth | bytes, GB | copy, ms | before, ms | share | after, ms | share | parts after, ms |\n"
          "|---|---|---|---|---|---|---|---|")
    for d in DEPTHS:
        layer = sum(n * k for n, k in PRODUCTS.values()) * 2 + 2 * (d + 1) * KV_HEADS * DIM * 2
        size = layer * LAYERS + VOCAB * HIDDEN * 2
        t = [estimate(d, v, counts[v]) for v in (1, 2)]
        s = [sum(x.values()) for x in t]
        print(f"| {d:,} | {size / 1e9:.1f} | {size / COPY * 1e3:.2f} | {s[0] * 1e3:.2f} | "
              f"{size / COPY / s[0]:.0%} | {s[1] * 1e3:.2f} | {size / COPY / s[1]:.0%} | " +
              ", ".join(f"{k} {v * 1e3:.2f}" for k, v in t[1].items()) + " |")


main()
