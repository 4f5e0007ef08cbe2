#!/usr/bin/env python3
"""Measurements and their tables.

    scripts/bench_tables.py record NAME [--machine TEXT] [--result FILE] -- OPTIONS...
        runs `longhand bench OPTIONS --json` (labbench for spec and GPUs), or takes the JSON that another
        machine has written to FILE, and writes docs/bench/NAME.json with commit, date and machine
    scripts/bench_tables.py
        writes the tables of docs/bench.md and README.md from docs/bench/*.json

NAME is KIND-POINT, such as avx512-spec. Tables are grouped by machine; each row names its date and commit.
The page cites a file with "page": false by hand."""
import datetime
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev
from textwrap import wrap

ROOT = Path(__file__).resolve().parent.parent
STORE = ROOT / "docs" / "bench"
SOURCES = ["src", "kernels", "kvmgr", "ngram", "runs", "tests/labbench", "Makefile"]
README_ROWS = ["avx512-spec", "avx512-spec-short", "avx512-spec-copy"]


# ---- recording ----

def machine_text(result):
    names = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    twin = result.get("isa") or result.get("device") or "AVX"
    return f"{names[0] if names else 'CPU'}, twin {twin}, {result.get('threads', os.cpu_count())} threads"


def slim(x):
    """Without the single runs of windows: their medians stay."""
    if isinstance(x, dict):
        return {k: slim(v) for k, v in x.items() if k != "runs"}
    return [slim(v) for v in x] if isinstance(x, list) else x


def record(name, arguments):
    given, options = {}, list(arguments)
    while options and options[0] in ("--machine", "--result"):
        given[options[0]] = options[1]
        options = options[2:]
    options = options[1:] if options[:1] == ["--"] else options
    lab = any("spec" in o or o.startswith(("cuda", "emulated")) for o in options)
    program = ["build/cc/labbench"] if lab else ["./longhand", "bench"]

    def output(command):
        return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout

    if "--result" in given:
        result = slim(json.loads(Path(given["--result"]).read_text()))
    else:
        result = slim(json.loads(output([*program, *options, "--json"])))
    dirty = output(["git", "status", "--porcelain", "--", *SOURCES]).strip()
    STORE.mkdir(exist_ok=True)
    (STORE / f"{name}.json").write_text(json.dumps({
        "machine": given.get("--machine") or machine_text(result), "date": str(datetime.date.today()),
        "commit": output(["git", "rev-parse", "--short", "HEAD"]).strip() + ("-dirty" if dirty else ""),
        "command": " ".join(["labbench" if lab else "longhand bench", *options]),
        "results": [result]}, indent=1) + "\n")


# ---- rows: (measurement, result, compared with) ----

def ms(seconds):
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.1f} s"


def pass_rows(result):
    points = [p for p in result["points"] if p["point"] in ("decode", "rows")]
    for model, depth in sorted({(p["model"], p["depth"]) for p in points}):
        here = [p for p in points if (p["model"], p["depth"]) == (model, depth)]
        shown = {p["rows"]: p for p in here if p["rows"] in (1, 8, 64)}
        if 1 not in shown:
            continue
        speed = "; ".join(f"{n} row{'s' * (n > 1)} {ms(p['seconds'])}" for n, p in sorted(shown.items()))
        yield (f"{model}, passes at depth {depth:,}", f"{1 / shown[1]['seconds']:,.0f} tokens/s; {speed}",
               "roofline: " + ", ".join(f"{100 * p['share']:.0f} %" for _, p in sorted(shown.items())))
    for p in result["points"]:
        if p["point"] == "prefill":
            yield (f"{p['model']}, prefill of {p['rows']:,}", f"{p['rows'] / p['seconds']:,.0f} tokens/s",
                   f"roofline: {100 * p['share']:.0f} %")
    samplers = [p for p in result["points"] if p["point"] == "sampler"]
    if samplers:
        worst = max(samplers, key=lambda p: p["seconds"])
        yield (f"{worst['model']}, sampler", f"at most {ms(worst['seconds'])}",
               f"{100 * worst['share_of_pass']:.1f} % of a one-row pass")


def last(text, setting):
    rows = [c for c in text["cumulative"] if c["setting"] == setting]
    return rows[-1] if rows else None


def speedups(result, setting):
    """Mean, deviation and number of texts of a setting's speed, relative to plain decoding."""
    if "summary" in result:
        s = next((s for s in result["summary"] if s["setting"] == setting), None)
        return (s["speedup"], s.get("deviation", 0), s.get("texts", 1)) if s else None
    v = [c["speedup"] for c in (last(t, setting) for t in result["texts"]) if c]
    return (mean(v), stdev(v) if len(v) > 1 else 0, len(v)) if v else None


def plus_minus(x):
    return f"**{x[0]:.2f}** ± {x[1]:.2f}" if x[2] > 1 else f"**{x[0]:.2f}**"


def spec_names(result):
    if "summary" in result:
        return [s["setting"] for s in result["summary"]]
    return list(result["settings"])


def spec_rows(result):
    point, length = result["point"], result["length"]
    others = [n for n in spec_names(result) if n not in ("plain", "again", "auto")]
    if point == "spec-best" and others and "texts" in result:
        others = [max(others, key=lambda n: speedups(result, n)[0])]
    if point in ("spec", "spec-best") and "texts" in result:
        for t in result["texts"]:
            a = last(t, "auto")
            low = min(w["settings"]["auto"]["speedup"] for w in t["windows"])
            rest = [f"{n} {last(t, n)['speedup']:.2f}" for n in others if last(t, n)]
            yield (f"`{point}`, {length:,} tokens after {t['prompt_tokens']:,} of {t['name']}",
                   f"**{a['speedup']:.2f}** x plain; slowest window {low:.2f}; {a['tokens_per_round']:.2f} "
                   f"tokens a round of {a['rows_per_round']:.2f} rows", ", ".join(rest) or "-")
        return
    rest = [f"{n} {speedups(result, n)[0]:.2f}" for n in others]
    count = speedups(result, "auto")[2]
    yield (f"`{point}`, {length:,} tokens, {count} text{'s' * (count > 1)}",
           f"{plus_minus(speedups(result, 'auto'))} x plain", ", ".join(rest) or "-")


def rows_of(result):
    if "point" in result:
        yield from spec_rows(result)
    elif "killed_at" in result:
        yield (f"`resume`, killed at {result['killed_at']:,} of {result['tokens']:,}",
               f"next token after **{result['with']['seconds']:.1f} s**",
               f"without a snapshot {result['without']['seconds']:.1f} s")
    elif "llama_cpp_python" in result:
        for r in result["results"]:
            if "depth" in r:
                theirs = min(r[k] for k in ("llamacpp_flash", "llamacpp_flash_q8_0", "llamacpp") if k in r)
                yield (f"llama.cpp, {r['model']} at depth {r['depth']:,}, rows: {r['rows']}",
                       f"longhand {ms(r['longhand'])}",
                       f"llama.cpp {ms(theirs)}: {r['ratio_best']:.1f} times")
    elif "device" in result:
        for m in result["models"]:
            for d in m["depths"]:
                yield (f"{m['model']} at depth {d['depth']:,}", f"{1 / d['decode_seconds']:,.0f} tokens/s",
                       f"{100 * d['decode_share']:.0f} % of the copy bandwidth")
    else:
        yield from pass_rows(result)


def tables(files):
    out = []
    for machine in sorted({f["machine"] for f in files.values()}):
        out += [f"### {machine}", "", "| measurement | result | compared with | measured |"]
        out += ["|---|---|---|---|"]
        for f in files.values():
            for result in f["results"] if f["machine"] == machine else []:
                for name, value, other in rows_of(result):
                    out.append(f"| {name} | {value} | {other} | {f['date']}, {f['commit']} |")
        notes = sorted({f["note"] for f in files.values() if f["machine"] == machine and "note" in f})
        out += ["", *[line for note in notes for line in (*wrap(note, 108), "")]]
    return out


def readme_rows(files):
    out = ["| machine | text | speedup | measured |", "|---|---|---|---|"]
    for name in README_ROWS:
        f = files.get(name)
        if not f:
            continue
        r = f["results"]
        v = [s for x in r for s in ([last(t, "auto")["speedup"] for t in x["texts"]] if "texts" in x else [])]
        x = (mean(v), stdev(v) if len(v) > 1 else 0, len(v)) if v else speedups(r[0], "auto")
        text = {"spec": "sampled", "spec-short": "sampled, cold", "spec-copy": "greedy, repetitive"}
        machine = ", ".join(re.sub(r" \(.*?\)", "", f["machine"]).split(", ")[:2])
        out.append(f"| {machine} | {r[0]['length']:,} tokens, {text[r[0]['point']]}; {x[2]} "
                   f"text{'s' * (x[2] > 1)} | {plus_minus(x)} | {f['date']}, {f['commit']} |")
    return out


def replace(path, mark, lines):
    old = path.read_text()
    text = "\n".join(lines).strip("\n") + "\n"
    path.write_text(re.sub(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", lambda m: m[1] + text + m[2], old,
                           flags=re.S))


def main():
    if len(sys.argv) > 2 and sys.argv[1] == "record":
        return record(sys.argv[2], sys.argv[3:])
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    files = {p.stem: json.loads(p.read_text()) for p in sorted(STORE.glob("*.json"))}
    files = {name: f for name, f in files.items() if f.get("page", True)}
    replace(ROOT / "docs" / "bench.md", "bench:tables", tables(files))
    replace(ROOT / "README.md", "bench:readme", readme_rows(files))


if __name__ == "__main__":
    main()
