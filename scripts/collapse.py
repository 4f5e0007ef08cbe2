#!/usr/bin/env python3
"""How texts of a language model degrade: two figures that Distinct-n and the loop rule do not see.

    scripts/collapse.py FILE..                          the figures of texts
    scripts/collapse.py --model M [SETTINGS]..          20 texts for each string of options of longhand run

collapse: the first word at which a window of 100 words has fewer than 42 different ones; never: none.
near: the share of sentences that are like one of the 30 sentences before. Two sentences are alike if the
ratio of difflib.SequenceMatcher over their words is 0.6 or more. A sentence has 4 words or more.

With --model the texts are 10 that continue openings (with --ignore-eos) and 10 answers to chat requests (of
600 tokens or more; with --raw continued as openings), of at most --tokens tokens, 8 at a time. A row has the
settings, the texts that collapse, the median word at which they do, the mean of near, the texts with near
above 0.1, the mean Distinct-4 of the tokens, the share of words that no other text of the table has (names,
lists, invented words), the retakes, and the texts that the loop rule cut short. --json FILE keeps texts."""
import argparse
import collections
import difflib
import json
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WINDOW, DIFFERENT, BEFORE, ALIKE, SHORTEST = 100, 42, 30, 0.6, 4
OPENINGS = [
    "The lake had frozen early that year, and the children of the village were the first to walk on it. "
    "Tomas went out farther than the others. Where the ice turned dark he found a glove.",
    "Nobody had rented the room over the bakery for eleven years. When Miss Harlow paid for the whole winter "
    "in coins, my mother counted them twice and gave her the key.",
    "The train stopped between two stations, in a field of rape, and the lights went out. Across the aisle a "
    "man in a grey coat folded his newspaper and began to speak.",
    "My grandfather repaired clocks, and he hated all of them. He told me so on the day when I broke the one "
    "from the town hall.",
    "The rain had not let up since they crossed the pass. Sergeant Oyelaran counted her people again at the "
    "bridge: nine, and a mule that belonged to none of them.",
]
REQUESTS = [
    "Write a long story about the keeper of a lighthouse, who finds a letter in a bottle.",
    "Write a long story about two sisters, who plant a garden near an old railway station.",
    "Tell me a story about a clockmaker whose clocks run backwards.",
    "Write the first chapter of a novel about a doctor who comes back to the island where she was born.",
    "Write a story in the first person about a boy who hides in a theatre.",
    "Write a ghost story that is set in a school at the end of summer.",
    "Write a chapter in which an old sailor tells his granddaughter how the ship was lost.",
    "Write a story about a bridge that nobody in the town remembers building.",
    "Write a long letter from a soldier to his brother about the winter in the mountains.",
    "Write a crime story that begins with a painting that hangs upside down.",
]


def words(text):
    return re.findall(r"\w+(?:['’]\w+)*", text.lower())


def collapse(text):
    """The number of the first word of a poor window, from 1; None: there is none."""
    w = words(text)
    return next((i + 1 for i in range(len(w) - WINDOW + 1) if len(set(w[i:i + WINDOW])) < DIFFERENT), None)


def alike(a, b):
    m = difflib.SequenceMatcher(None, a, b, False)
    return m.real_quick_ratio() >= ALIKE and m.quick_ratio() >= ALIKE and m.ratio() >= ALIKE


def near(text):
    sentences = [s for s in map(words, re.split(r"(?<=[.!?])[\"'”’)]*\s|\n", text)) if len(s) >= SHORTEST]
    found = sum(any(alike(s, t) for t in sentences[max(0, i - BEFORE):i]) for i, s in enumerate(sentences))
    return found / max(1, len(sentences))


def figures(text):
    return {"words": len(words(text)), "collapse": collapse(text), "near": near(text)}


def requests(tokens, raw):
    openings = [p.read_text().strip() for p in sorted((ROOT / "models/demo/openings").glob("[a-z]*.txt"))]
    openings += OPENINGS + (REQUESTS if raw else [])
    for i, text in enumerate(openings):
        yield {"custom_id": f"opening{i}", "prompt": text, "ignore_eos": True, "max_tokens": tokens}
    for i, text in enumerate([] if raw else REQUESTS):
        yield {"custom_id": f"chat{i}", "messages": [{"role": "user", "content": text}],
               "min_tokens": min(600, tokens), "max_tokens": tokens}


def write_texts(args, settings):
    def longhand(*command):
        return subprocess.run([args.longhand, *command, "--db", f"{folder}/db"], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
    with tempfile.TemporaryDirectory() as folder:
        lines = [json.dumps(r) + "\n" for r in requests(args.tokens, args.raw)]
        Path(f"{folder}/t.jsonl").write_text("".join(lines))
        longhand("run", "--batch", f"{folder}/t.jsonl", "-o", f"{folder}/out.jsonl", "-m", args.model, "-s",
                 str(args.seed), "--parallel", "8", "-q", *args.options.split(), *settings.split())
        texts = {t["job"]: t["text"] for t in json.loads(longhand("text", "@t", "--json"))}
        for job in json.loads(longhand("report", "@t", "--json")):
            text = texts[job["job"]]
            yield figures(text) | {
                "id": job["custom_id"], "distinct_4": job["distinct"]["tokens"]["4"], "tokens": job["tokens"],
                "retakes": job["retakes"], "finish": job["finish_reason"], "text": text}


def row(settings, x, texts_with):
    at = [t["collapse"] for t in x if t["collapse"]]
    all_words = [w for t in x for w in words(t["text"])]
    return "| {} | {} of {} | {:.0f} | {:.3f} | {} | {:.3f} | {:.3f} | {} | {} |".format(
        f"`{settings}`" if settings else "(none)", len(at), len(x), statistics.median(at or [0]),
        statistics.mean(t["near"] for t in x), sum(t["near"] > 0.1 for t in x),
        statistics.mean(t["distinct_4"] for t in x),
        sum(texts_with[w] == 1 for w in all_words) / max(1, len(all_words)), sum(t["retakes"] for t in x),
        sum(t["finish"] == "repetition" for t in x))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", nargs="*", metavar="FILE|SETTINGS")
    p.add_argument("--model")
    p.add_argument("--options", default="", help="options that stand in every row, but are not shown")
    p.add_argument("--raw", action="store_true", help="for a model without a chat template")
    p.add_argument("--longhand", default=ROOT / "longhand")
    p.add_argument("--tokens", type=int, default=1500)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--json")
    args = p.parse_args()
    if not args.model:
        for name in args.what:
            f = figures(Path(name).read_text())
            print(f"{name}: {f['words']} words, collapse {f['collapse'] or 'never'}, near {f['near']:.2f}")
        return
    kept = {}
    for settings in args.what or [""]:
        kept[settings] = list(write_texts(args, settings))
        if args.json:
            Path(args.json).write_text(json.dumps(kept, ensure_ascii=False, indent=1) + "\n")
    texts_with = collections.Counter(w for x in kept.values() for t in x for w in set(words(t["text"])))
    print("| settings | collapse | at word | near | above 0.1 | Distinct-4 | own words | retakes | cut |")
    print("|---|---|---|---|---|---|---|---|---|")
    for settings, x in kept.items():
        print(row(settings, x, texts_with))


if __name__ == "__main__":
    main()
