#!/usr/bin/env python3
"""Writes the tables of docs/paper.md from the texts of scripts/paper.sh.

    scripts/paper_tables.py STORE

A speed is that of plain decoding of the same settings, in seconds, divided by that of the text. alpha is
TokenSwift's equation 4, beta its equation 6. Both count from the first written token on, as in the paper.
A cell is '-' while its text is not written, or not as far. The tables of trained drafters come from the files
of paper.sh beside the store. They stay as they are where there are none."""
import csv
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "paper.md"
# TokenSwift's figures for Llama 3.1 8B on an A100: Table 3 (prefix: (20K, 100K) of Medusa*, of TokenSwift).
TABLE_3 = {2048: ("0.35, 1.20 / 0.35, 1.31", "0.64, 1.87 / 0.79, 3.13"),
           4096: ("0.39, 1.29 / 0.41, 1.45", "0.65, 1.93 / 0.84, 3.27"),
           8192: ("0.34, 1.21 / 0.34, 1.29", "0.72, 1.99 / 0.90, 3.38")}
TABLE_5 = {"full": "0.42, 1.36 / 0.42, 1.47", "static": "0.19, 0.94 / 0.21, 1.44",
           "dynamic": "0.45, 1.56 / 0.40, 1.96"}
TABLE_6 = {"top-p": ("0.16, 3.53", "0.25, 3.42"), "eta": ("0.11, 3.57", "0.43, 3.42"),
           "min-p": ("0.12, 3.58", "0.69, 3.27")}
TABLE_8 = {"1": 0.12, "1.1": 0.13, "1.2": 0.69, "1.3": 0.83, "1.4": 0.70, "1.5": 0.92}
TABLE_9 = {"0.4": "0.79, 2.25 / 0.89, 3.39", "0.6": "0.84, 2.34 / 0.90, 3.41",
           "0.8": "0.56, 1.80 / 0.85, 3.45", "1": "0.68, 2.10 / 0.87, 3.42", "1.2": "0.52, 1.72 / 0.83, 3.42"}
# The drafters of each table of acceptance.
DRAFTERS = [{"longspec": "LongSpec", "gumiho": "Gumiho", "spire": "SPIRe"},
            {"heads": "`heads`", "partial": "`partial`", "model": "`model`"},
            {"ngram": "`ngram`", "suffix": "`suffix`"}]
# SPIRe's section on ablations: tokens a round of the whole drafter, and without one of its parts.
SPIRE = {"none": ("whole", 3.401), "random": ("random first weights", 3.105),
         "distill": ("omega 1 (distillation alone)", 3.375), "hard": ("hard target", 3.069),
         "no-feedback": ("no feedback memories", 3.352),
         "no-activations": ("neither feedback memories nor the model's activations", 2.959)}


def read_jobs(store):
    report = [ROOT / "longhand", "report", "--all", "--json", "--db", store]
    jobs = json.loads(subprocess.run(report, check=True, text=True, stdout=subprocess.PIPE).stdout)
    jobs = jobs if isinstance(jobs, list) else jobs.get("jobs", [jobs])
    return {j["name"]: j for j in jobs if j["state"] == "done"}


def until(job, end):
    """Seconds, rounds and the sums of alpha and beta over the rounds of the first `end` tokens."""
    seconds = rounds = alpha = beta = 0
    for w in job["windows"]:
        if w["start"] < end:
            n = w["tokens"] / w["mean_acceptance_length"]
            seconds, rounds = seconds + w["seconds"], rounds + n
            alpha, beta = alpha + n * (w["alpha"] or 0), beta + n * (w["beta"] or 0)
    return seconds, rounds, alpha, beta


class Texts:
    def __init__(self, jobs):
        self.jobs = jobs

    def lengths(self):
        """Of the longest texts, and of those with a fixed tree."""
        of = {n: j["tokens"] for n, j in self.jobs.items() if n.startswith("t")}
        return max(of.values(), default=0), of.get("t3-4096", 0)

    def cell(self, name, plain, end, beta=False):
        if any(n not in self.jobs or self.jobs[n]["tokens"] < end for n in (name, plain)):
            return "-"
        seconds, rounds, a, b = until(self.jobs[name], end)
        speed = until(self.jobs[plain], end)[0] / seconds
        text = f"{a / rounds:.2f}, " + (f"{b / rounds:.2f}, " if beta else "") + f"{speed:.2f}"
        return text

    def distinct(self, name):
        """Mean of Distinct-1 to 4 over tokens, as in the paper."""
        if name not in self.jobs:
            return None
        d = self.jobs[name]["distinct"]["tokens"]
        return sum(d[str(n)] for n in (1, 2, 3, 4)) / 4


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(c) for c in row) + " |" for row in rows])


def tables(t):
    n, short = t.lengths()
    ends = [short if 0 < short < n else n // 5, n]
    paired = lambda name, plain, **k: " / ".join(t.cell(name, plain, end, **k) for end in ends)
    out = [f"Texts of {n:,} tokens. Cells: alpha, speed after {ends[0]:,} / {ends[1]:,} tokens; `-`: not "
           "written so far.\nThe paper's cells: after 20,000 / 100,000 tokens.\n"]
    rows = []
    for prefix, (medusa, swift) in TABLE_3.items():
        plain = f"t3-{prefix}-plain"
        for label, kind, paper in (("Medusa*", "-medusa", medusa), ("published rule", "-paper", swift),
                                   ("exact", "", swift), ("`--drafter auto`", "-auto", "")):
            rows.append([prefix, label, paired(f"t3-{prefix}{kind}", plain), paper])
    out.append("**TokenSwift, Table 3: prefix lengths**\n\n" +
               table(["prefix", "method", "here", "paper"], rows))
    plain = "t3-4096-plain"
    rows = []
    for i in range(5):
        end = ends[1 if t.cell("t3-4096", plain, n) != "-" else 0] * (i + 1) // 5
        rows.append([f"{end:,}", t.cell("t3-4096-paper", plain, end, True),
                     t.cell("t3-4096", plain, end, True), t.cell("t5-dynamic", plain, end)])
    out.append("**TokenSwift, Figure 3: 4-grams** (k = 20: alpha, beta, speed; k = 0: alpha, speed)\n\n" +
               table(["tokens", "k = 20, published rule", "k = 20, exact", "k = 0, exact"], rows))
    rows = [[p, paired(f"t5-{p}", plain), paper] for p, paper in TABLE_5.items()]
    out.append("**TokenSwift, Table 5: the cache of drafts** (k = 0)\n\n" +
               table(["policy", "here", "paper"], rows))
    rows = []
    for name, papers in TABLE_6.items():
        for penalty, paper in zip(("1", "1.2"), papers):
            job = f"t6-{name}-{penalty}"
            d = t.distinct(f"{job}-plain")               # the same text
            speed = paired(job, f"{job}-plain").split(" / ")
            speed = " / ".join(s.split(", ")[-1] for s in speed)
            rows.append([name, penalty, "-" if d is None else f"{d:.2f}, {speed}", paper])
    out.append("**TokenSwift, Table 6: the penalty** (mean of Distinct-1 to 4 of the whole text, speed)\n\n" +
               table(["filter", "penalty", "here", "paper"], rows))
    rows = []
    for penalty, paper in TABLE_8.items():
        d = t.distinct(f"t8-{penalty}")
        rows.append([penalty, "-" if d is None else f"{d:.2f}", paper])
    out.append("**TokenSwift, Table 8: the penalty's value** (mean of Distinct-1 to 4)\n\n" +
               table(["penalty", "here", "paper"], rows))
    rows = [[temp, paired(f"t9-{temp}", f"t9-{temp}-plain"), paper] for temp, paper in TABLE_9.items()]
    out.append("**TokenSwift, Table 9: temperature** (top-p 0.9)\n\n" +
               table(["temperature", "here", "paper"], rows))
    return "\n\n".join(out)


def acceptance(folder):
    """First guess that comes true; tokens a round with 4 and with 8 rows; the time of a round's drafting with
    4 rows, in passes of plain decoding; by book, prefix and drafter."""
    found = {}
    for path in folder.glob("accepted-*.json"):
        name = re.fullmatch(r"accepted-(\w+)-([\d,]+)-(.*)-(\d+)\.json", path.name)
        drafter, tree, book, prefix = name.groups()
        found.setdefault((book, int(prefix)), {})[drafter, tree] = json.loads(path.read_text())
    out = []
    for drafters in DRAFTERS:
        rows = [[book.split("-")[1].capitalize(), f"{prefix:,}"] + [accepted(s, d) for d in drafters]
                for (book, prefix), s in sorted(found.items())]
        out.append(table(["book", "prefix", *drafters.values()], rows))
    return found and "\n\n".join(out)


def accepted(s, drafter):
    """The cell of a drafter. s: the statistics of the texts after one prefix, by drafter and tree."""
    few, many, plain = s.get((drafter, "1,1,1")), s.get((drafter, "1,2,2")), s.get(("none", "1"))
    if not few:
        return "-"
    first = few["accepted_per_depth"][0] / few["reached_per_depth"][0]
    tokens = [f"{x['mean_acceptance_length']:.2f}" if x else "-" for x in (few, many)]
    cost = "-"
    if plain:
        one = plain["time"]["verify"] / plain["rounds"]
        cost = f"{few['time']['draft'] / few['rounds'] / one:.2f}"
    return f"{100 * first:.0f} %, {', '.join(tokens)}, {cost}"


def ablations(folder):
    rows = []
    for name, (label, paper) in SPIRE.items():
        path = folder / f"spire-{name}.csv"
        if path.exists() and (folder / f"spire-{name}.safetensors").exists():
            lines = [r for r in csv.DictReader(path.open()) if r["text"] == "valid"]
            last = [r for r in lines if r["step"] == lines[-1]["step"]]
            tokens = 1 + sum(float(r["accepted"]) for r in last)
            rows.append([label, lines[-1]["step"], f"{tokens:.3f}", f"{paper:.3f}"])
    return rows and table(["drafter", "steps", "tokens a round", "paper"], rows)


def main():
    folder = Path(sys.argv[1]).parent
    page = PAGE.read_text()
    parts = {"accepted": acceptance(folder), "spire": ablations(folder)}
    if Path(sys.argv[1]).exists():
        parts["tables"] = tables(Texts(read_jobs(sys.argv[1])))
    for name, text in parts.items():
        if text:
            page = re.sub(rf"(<!-- paper:{name} -->\n).*?(<!-- end -->)", lambda m: m[1] + text + "\n" + m[2],
                          page, flags=re.S)
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
