#!/usr/bin/env python3
"""Queues of texts, each with several numbers of texts at once: work --parallel N.

    scripts/queue_bench.py --work DIR [--model DIR] [--queues short,long,mixed] [--parallel 1,2,4,8,16,auto]
                           [--prompt 600] [--turns 1] [--seconds S] [--options "--drafter none"]
                           [--threads T] [--cpu]

A queue is TEXTSxFROM-TO: so many texts of FROM to TO tokens, most of them short. `short`, `long`, `mixed`
and `batch` are names for such queues. A prompt has as many characters of the model's openings as --prompt
says. A model without openings gets random token ids, one for four characters. Without --model the model is
models/demo. `--model body` makes a random model with Qwen2.5-0.5B's body in DIR, with a function of
scripts/bench_llamacpp.py, which needs its packages.

A run copies the queue's store and takes the time of `longhand work`, loading included. Every number of texts
at once has its run before the next turn begins. DIR keeps the results: the same command goes on where it was
stopped, and --seconds begins no run after S seconds. The table has the medians; `auto/best` is the time with
auto divided by that of the best number. The script fails if the texts of two runs of a queue differ.

--cpu takes the time of the processors instead of the clock's: with --threads 1 it also serves on a machine
that does other work.
"""
import argparse
import hashlib
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
QUEUES = {"short": "64x50-200", "long": "16x3000-3000", "mixed": "48x50-4000", "batch": "300x200-2000"}


def make_body(path):
    if not os.path.exists(os.path.join(path, "model.safetensors")):
        from bench_llamacpp import BODY, make_random_body
        make_random_body(path, BODY)
    for name in ("tokenizer.json", "tokenizer_config.json"):     # its ids are some of the body's
        shutil.copy(os.path.join(ROOT, "models", "demo", name), path)


def make_queue(args, queue, path):
    """A store with the queued texts."""
    texts, lengths = queue.split("x")
    first, last = (int(x) for x in lengths.split("-"))
    rng = random.Random(queue)
    folder, opening = os.path.join(args.model, "openings"), ""
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            opening += f.read()
    with open(path + ".jsonl", "w", encoding="utf-8") as out:
        for i in range(int(texts)):
            at = rng.randrange(max(len(opening) - args.prompt, 1))
            prompt = opening[at:at + args.prompt] or \
                [rng.randrange(100, 5000) for _ in range(args.prompt // 4)]
            n = round(math.exp(rng.uniform(math.log(first), math.log(last))))
            body = {"model": "m", "prompt": prompt, "max_tokens": n, "seed": i}
            out.write(json.dumps({"custom_id": f"t{i}", "method": "POST", "url": "/v1/completions",
                                  "body": body}) + "\n")
    subprocess.run([args.longhand, "submit", "--batch", path + ".jsonl", "-m", args.model, "--db", path, "-q",
                    "--ignore-eos", *args.options.split()], check=True, stdout=subprocess.DEVNULL)


def run(args, path, n):
    """Seconds of a run; tokens; the hash of all texts."""
    db = os.path.join(args.work, f"run.{os.getpid()}.db")
    shutil.copy(path, db)
    clock = (lambda: sum(os.times()[2:4])) if args.cpu else time.monotonic    # of children
    start = clock()
    subprocess.run([args.longhand, "work", "--db", db, "--parallel", n, "-q", *args.threads], check=True)
    seconds = clock() - start
    texts = subprocess.run([args.longhand, "export", "--db", db, "--all", "--format", "ids"], check=True,
                           stdout=subprocess.PIPE).stdout
    for end in ("", "-wal", "-shm"):
        if os.path.exists(db + end):
            os.remove(db + end)
    return seconds, len(texts.split()), hashlib.sha256(texts).hexdigest()


def settings(args, queue):
    return [args.cpu, args.model, queue, args.options, args.prompt, args.threads]


def table(args, results):
    print(f"{'queue':16}" + "".join(f"{n:>9}" for n in args.parallel) + f"{'auto/best':>11}   seconds")
    same = True
    for queue in args.queues:
        mine = [r for r in results if r["key"][:-2] == settings(args, queue)]
        same &= len({r["sha"] for r in mine}) < 2
        medians = {}
        for n in args.parallel:
            seconds = [r["seconds"] for r in mine if r["key"][-2] == n]
            medians[n] = statistics.median(seconds) if seconds else math.nan
        fixed = [t for n, t in medians.items() if n != "auto" and not math.isnan(t)]
        ratio = medians.get("auto", math.nan) / min(fixed, default=math.nan)
        print(f"{queue:16}" + "".join(f"{medians[n]:9.2f}" for n in args.parallel) + f"{ratio:11.3f}")
    return same


def main():
    words = lambda s: s.split(",")
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--longhand", default=os.path.join(ROOT, "longhand"))
    a.add_argument("--work", required=True, help="keeps queues and results")
    a.add_argument("--model", default=os.path.join(ROOT, "models", "demo"))
    a.add_argument("--queues", type=words, default=["short", "long", "mixed"])
    a.add_argument("--parallel", type=words, default=["1", "2", "4", "8", "16", "auto"])
    a.add_argument("--prompt", type=int, default=600, help="characters")
    a.add_argument("--turns", type=int, default=1)
    a.add_argument("--seconds", type=float, default=math.inf)
    a.add_argument("--options", default="", help="of the texts: options of submit")
    a.add_argument("--threads", type=lambda s: ["--threads", s], default=[])
    a.add_argument("--cpu", action="store_true")
    args = a.parse_args()
    os.makedirs(args.work, exist_ok=True)
    if args.model == "body":
        args.model = os.path.join(args.work, "body")
        make_body(args.model)
    args.queues = [QUEUES.get(q, q) for q in args.queues]
    file, results, start = os.path.join(args.work, "results.jsonl"), [], time.monotonic()
    if os.path.exists(file):
        with open(file, encoding="utf-8") as f:
            results = [json.loads(line) for line in f]
    done = [r["key"] for r in results]
    for turn in range(args.turns):
        for queue in args.queues:
            for n in args.parallel:
                key = [*settings(args, queue), n, turn]
                if key in done or time.monotonic() - start > args.seconds:
                    continue
                name = hashlib.sha256(json.dumps(key[1:5]).encode()).hexdigest()[:12]
                path = os.path.join(args.work, name + ".db")
                if not os.path.exists(path):
                    make_queue(args, queue, path)
                seconds, tokens, sha = run(args, path, n)
                results.append({"key": key, "seconds": seconds, "tokens": tokens, "sha": sha})
                with open(file, "a", encoding="utf-8") as f:
                    f.write(json.dumps(results[-1]) + "\n")
    return 0 if table(args, results) else "the texts of two runs differ"


if __name__ == "__main__":
    sys.exit(main())
