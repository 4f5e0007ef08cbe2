#!/usr/bin/env python3
"""How long a killed job takes to its next token, with a snapshot of its cache and without.

    scripts/resume_bench.py [--model DIR] [--tokens N] [--at N] [--repeat N] [--program FILE]

A worker writes a job of --tokens (100,000), and SIGKILL ends it at token --at (nine tenths). The store is
copied. Then, --repeat times in turn, a worker continues the job under --kv-snapshot auto, and with the copy
under off. The measured time begins with the process and ends when another process can read its first new
token; then that worker is killed too. At the end both jobs are written to their end, and their texts are
compared. Prints JSON, which `bench_tables.py record NAME --result FILE` takes."""
import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROMPT = "Chapter I\n\nIt was late in the evening when the two travellers came to the inn."
MODES = {"with": "auto", "without": "off"}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="models/demo")
    p.add_argument("--tokens", type=int, default=100000)
    p.add_argument("--at", type=int)
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--program", default="./longhand")
    a = p.parse_args()
    a.at = a.at or a.tokens // 10 * 9
    if not 0 < a.at < a.tokens - 2 * a.repeat - 1:
        sys.exit(f"--at {a.at}: a job of {a.tokens} tokens has no tokens left after it")

    def longhand(*words):
        return subprocess.run([a.program, *words], stdout=subprocess.PIPE, check=True, text=True).stdout

    def tokens(db):
        return json.loads(longhand("list", "--db", db, "--json"))["jobs"][0]["tokens"]

    def run_to(db, mode, least, pace):
        """Runs a worker until the job has `least` tokens, kills it, and returns the seconds that it ran."""
        begin = time.monotonic()
        worker = subprocess.Popen([a.program, "work", "--db", db, "--kv-snapshot", MODES[mode], "--quiet"])
        while tokens(db) < least:
            if worker.poll() is not None:
                sys.exit(f"the worker ended at token {tokens(db)}")
            time.sleep(pace)
        seconds = time.monotonic() - begin
        worker.kill()
        worker.wait()
        return seconds

    with tempfile.TemporaryDirectory(prefix="longhand-resume-") as folder:
        db = {mode: str(Path(folder) / f"{mode}.db") for mode in MODES}
        longhand("submit", "--db", db["with"], "--model", a.model, "--prompt", PROMPT, "--ignore-eos",
                 "--tokens", str(a.tokens), "--seed", "1", "--quiet")
        written = run_to(db["with"], "with", a.at, 0.05)
        killed_at = tokens(db["with"])
        longhand("list", "--db", db["with"])          # opening the store completes its recovery
        shutil.copy(db["with"], db["without"])
        seconds = {mode: [] for mode in MODES}
        for i in range(a.repeat):
            for mode in list(MODES)[::1 if i % 2 else -1]:
                seconds[mode].append(run_to(db[mode], mode, tokens(db[mode]) + 1, 0.002))
        texts = []
        for mode in MODES:
            longhand("work", "--db", db[mode], "--kv-snapshot", MODES[mode], "--quiet")
            texts.append(longhand("export", "--db", db[mode], "1", "--format", "ids"))
        result = {"tokens": a.tokens, "killed_at": killed_at, "written_seconds": written, "repeat": a.repeat}
        for mode, s in seconds.items():
            result[mode] = {"seconds": statistics.median(s), "range": [min(s), max(s)]}
        result["identical"] = texts[0] == texts[1]
        longhand("remove", "--db", db["with"], "1")   # and its snapshots
        print(json.dumps(result, indent=1))
        sys.exit(not result["identical"])


if __name__ == "__main__":
    main()
