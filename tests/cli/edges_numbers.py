"""Numbers pass through unread. edges_numbers.py LONGHAND MODEL FOLDER N: prints "ok NAME" and "FAIL NAME".

Every parameter that a job stores with a number gets N values: the bounds of its range, short decimals,
shortest round-trip decimals, exponents, whole numbers written as 4.0 and 1e3, seeds up to 2^64-1. The values
go in through every form of input and must come out of `show --json`, of exports, and of an export that is
submitted again, with the same bits. The parameters are read from the program: its help lists the options
and the fields of a line, and the message about the value @ says what an option takes."""
import csv
import hashlib
import http.client
import json
import math
import os
import random
import re
import sqlite3
import struct
import subprocess
import sys
import urllib.parse

LONGHAND, MODEL, FOLDER, N = *sys.argv[1:4], int(sys.argv[4])
rng = random.Random(20260801)
# What a form must have beside the numbers, so that no combination of them is refused.
ALWAYS = ["-q", "-m", MODEL, "--thinking-end", "END", "--drafter", "partial,ngram", "--kv-policy", "window",
          "--kv-sinks", "2"]
# Below the range of the option: the context, and what the memory of a small machine holds.
MOST = {"tokens": 900, "stop_id": 400, "kv_budget": 4000, "kv_sinks": 15, "draft_passes": 4}
LEAST = {"draft_passes": 1, "kv_budget": 16}
# Job, text, or machine: no parameter of a job, though the option takes a number.
OUTSIDE = {"samples", "threads", "carry", "shard"}


def run(*words, ok=True):
    p = subprocess.run([LONGHAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if ok and p.returncode:
        raise SystemExit(f"    {' '.join(words)[:300]}: {p.stderr[:600]}\nFAIL the_program_runs")
    return p.stdout if ok else p.stderr


def result(name, good, why=""):
    print(("ok " if good else f"    {str(why)[:500]}\nFAIL ") + name, flush=True)


# ---- the parameters ----

class Row:
    def __init__(self, option, low, high, whole, how):
        self.option, self.name = option, option.replace("-", "_")
        self.low, self.high, self.whole = low, high, whole
        self.without = [float(x) for x in re.findall(r"without ([^ ,]+)", how)]
        self.least = float((re.findall(r"0 or at least ([^ ,]+)", how) or [0])[0])
        self.low, self.high = LEAST.get(self.name, self.low), MOST.get(self.name, self.high)
        self.fields = []
        self.member = {"stop_id": "stop_token_ids"}.get(self.name, self.name)

    def json(self, text):
        """The value in a line of JSON or a cell."""
        forms = {"on_loop": f'"{text}"', "logit_bias": f'{{"7": {text}}}', "stop_id": f"[{text}]"}
        return forms.get(self.name, text)

    def out(self, v):
        """The number in a value of a stored job."""
        return v["7"] if isinstance(v, dict) else v[0] if isinstance(v, list) else v

    def allows(self, x):
        return self.low <= x <= self.high and x not in self.without and not 0 < x < self.least

    def value(self, i):
        """A value as text: the bounds come first."""
        while True:
            if i < 2:
                x = (self.low, self.high)[i]
            elif self.whole:
                x = rng.choice([rng.randint(self.low, self.high),
                                min(self.high, int(2 ** rng.uniform(0, math.log2(self.high + 1)))),
                                rng.randint(1, 9) * 10 ** rng.randint(0, 8)])
            else:
                bound = rng.choice([self.low, self.high])
                x = rng.choice([rng.uniform(self.low, self.high), round(rng.uniform(self.low, self.high), 3),
                                10 ** rng.uniform(-4, 3), math.nextafter(bound, .5)])
            i = 2
            if self.allows(x):
                return spelled(x, self.whole)

    def same(self, a, b):
        """Whether two texts are one number. A bias is a float of 32 bits."""
        if self.name == "on_loop":
            return a.startswith("retake:") and int(float(a[7:])) == int(b[7:])
        if self.whole:
            return exact(a) == int(b)
        kind = "<f" if self.name == "logit_bias" else "<d"
        return struct.pack(kind, float(a) + 0) == struct.pack(kind, float(b) + 0)


def exact(text):
    """The whole number of a text like 4.0 or 12e2."""
    digits, _, power = text.lower().partition("e")
    whole, _, fraction = digits.partition(".")
    return int(whole + fraction) * 10 ** 40 // 10 ** (40 + len(fraction) - int(power or 0))


def spelled(x, whole):
    forms = [repr(x)]
    if whole:
        short = str(x).rstrip("0") if x else "0"
        forms += [f"{x}.0", f"{x}.000", f"{short}e{len(str(x)) - len(short)}", f"{x}.0E+0", f"{10 * x}e-1"]
    else:
        forms += [f"{x:.17g}", f"{x:.16e}", f"{x:.20f}" if abs(x) > 1e-3 else repr(x), f"{x:.16E}"]
    return rng.choice(forms)


def read_rows():
    rows = []
    fields = {}
    for field, option in re.findall(r"^    (\w+) +--([a-z-]+)", run("help", "batch"), re.M):
        fields.setdefault(option, []).append(field)
    for option in re.findall(r"^  (?:-\w, )?--([a-z-]+) \S", run("help", "submit"), re.M):
        why = run("submit", "-m", "/none", "-p", "x", f"--{option}", "@", ok=False)
        m = re.search(r"is not (a|a whole) number from (\S+) to ([^ ,\n]+)(.*)", why)
        loop = re.search(r"retake\[:N\], N from (\d+) to (\d+)", why)
        if loop:
            row = Row(option, int(loop[1]), int(loop[2]), True, "")
        elif m and option not in OUTSIDE:
            whole = m[1] == "a whole"
            row = Row(option, *((int if whole else float)(x) for x in (m[2], m[3])), whole, m[4])
        else:
            continue
        row.fields = fields.get(option, [])
        rows.append(row)
    bias = Row("logit-bias", -100.0, 100.0, False, "")
    bias.fields = ["logit_bias"]
    return rows + [bias]


ROWS = read_rows()
FIELDS = [r for r in ROWS if r.fields]               # of lines and bodies


def values(rows):
    """N lines of values: {row: text}. `tokens` is a length that a worker writes quickly."""
    lines = [{r: r.value(i) for r in rows} for i in range(N)]
    for line in lines:
        for r in rows:
            if r.name == "on_loop":
                line[r] = f"retake:{line[r]}"
    return lines


def member(r, text, chat):
    """The field of a value in a line of JSON."""
    if r.name == "logprobs" and exact(text) < 0:
        return None
    if r.name == "logprobs" and chat:
        return f'"logprobs": true, "top_logprobs": {text}'
    return f'"{rng.choice(r.fields)}": {r.json(text)}'


def body(line, start, chat=False):
    return "{" + ", ".join([start] + [m for m in (member(r, v, chat) for r, v in line.items()) if m]) + "}"


# ---- what comes out ----

def parse(text):
    """JSON with its numbers as they are written."""
    return json.loads(text, parse_float=str, parse_int=str)


def shown(name=None):
    """The jobs of a name, else all, by custom_id or number, as show --json has them."""
    jobs = parse(run("show", f"@{name}" if name else "--all", "--json"))
    return {j["custom_id"] or j["job"]: j for j in (jobs if isinstance(jobs, list) else [jobs])}


def found(r, job):
    p = job["parameters"]
    places = {"tokens": job["of"], "seed": job["seed"], "priority": job["priority"]}
    got = places[r.name] if r.name in places else p.get(r.member, p["drafting"].get(r.name))
    if got is None:                                  # written only where it is set
        unset = {"typical": "1", "xtc_threshold": "0.1", "thinking_budget": "-1", "logprobs": "-1"}
        return unset.get(r.name, "0")
    return r.out(got)


def compare(name, lines, jobs):
    bad = [(r.name, line[r], found(r, job)) for line, job in zip(lines, jobs) for r in line
           if not r.same(line[r], found(r, job))]
    bad += [("seed_text", j["seed"], j["seed_text"]) for j in jobs if j["seed_text"] != j["seed"]]
    result(name, not bad and len(lines) == len(jobs), bad[:3] or f"{len(lines)} lines, {len(jobs)} jobs")


def compare_again(name, batch, lines):
    """Exports of the jobs have the numbers, and so do jobs that are made from the exports."""
    rows = [r for r in lines[0] if r.name not in ("tokens", "logprobs", "priority") and r.fields]
    wanted = {r: r.fields[-1] for r in rows}
    columns = {r: r.name if r.name == "seed" else f"parameters.{r.member}" for r in rows}
    words = ["export", f"@{batch}", "-q", "--partial", "--fields",
             "custom_id,prompt,seed_text," + ",".join(columns.values())]
    out = parse("[" + run(*words, "--format", "jsonl").strip().replace("\n", ",") + "]")
    again = []
    for x in out:
        given = [f'"{wanted[r]}": ' + (x["seed_text"] if r.name == "seed" else r.json(r.out(x[c])))
                 for r, c in columns.items() if x[c] is not None]
        again.append("{" + ", ".join([f'"custom_id": "{x["custom_id"]}", "prompt": "x"', '"max_tokens": 3'] +
                                     given) + "}")
    submit(f"{name}_jsonl", again)
    table = list(csv.reader(run(*words, "--format", "csv").splitlines()))
    table[0] = ["custom_id", "prompt", "seed_text"] + [wanted[r] for r in columns]
    with open(f"{FOLDER}/{name}_csv.csv", "w", newline="") as f:
        csv.writer(f).writerows(table)
    run("submit", *ALWAYS, "-n", "3", "--batch", f"{FOLDER}/{name}_csv.csv")
    only = [{r: line[r] for r in rows} for line in lines]
    for how in "jsonl", "csv":
        jobs = shown(f"{name}_{how}")
        compare(f"{name}_again_as_{how}", only, [jobs[x["custom_id"]] for x in out])
    seed = next((r for r in rows if r.name == "seed"), None)
    if seed:
        out = run("export", f"@{batch}", "-q", "--partial", "--format", "openai-batch").splitlines()
        got = [parse(x)["response"]["body"]["metrics"] for x in out]
        result(f"{name}_in_openai_batch", [(x["seed"], x["seed_text"]) for x in got] ==
               [(str(exact(line[seed])),) * 2 for line in lines], got[:1])


# ---- the forms ----

def submit(name, lines, *words):
    path = f"{FOLDER}/{name}.jsonl"
    with open(path, "w") as f:
        f.write("\n".join(lines) + "\n")
    run("submit", *ALWAYS, *words, "--batch", path)


def by_order(jobs, name):
    return [jobs[f"{name}{i}"] for i in range(N)]


def jsonl():
    for name, url in (("completions", "/v1/completions"), ("chat", "/v1/chat/completions"), ("short", None),
                      ("user", None)):
        lines, out = values(FIELDS), []
        for i, line in enumerate(lines):
            start = '"messages": [{"role": "user", "content": "x"}]' if name == "chat" else '"prompt": "x"'
            if url:
                out.append(f'{{"custom_id": "r{i}", "method": "POST", "url": "{url}", "body": '
                           f'{body(line, start, name == "chat")}}}')
            else:
                out.append(body(line, f'"custom_id": "r{i}", {start}', name == "user"))
        template = ["--chat-template", "chatml"]
        submit(name, out, *{"chat": template, "user": ["--chat"] + template}.get(name, []))
        compare(f"{name}_lines", lines, by_order(shown(name), "r"))
        if name == "short":
            compare_again(name, name, lines)
            whole = {f for r in FIELDS if r.whole and r.name not in ("on_loop", "logprobs") for f in r.fields}
            submit(name, [re.sub(r'"(\w+)": (-?[0-9][0-9.eE+-]*)(?=[,}])', lambda m:
                                 f'"{m[1]}": {exact(m[2])}' if m[1] in whole else m[0], x) for x in out])
            jobs = shown(name)
            result("other_spellings_of_whole_numbers_are_the_same_lines", len(jobs) == N, len(jobs))


def table():
    lines = values(FIELDS)
    with open(f"{FOLDER}/table.csv", "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["custom_id", "prompt"] + [r.fields[0] for r in FIELDS])
        for i, line in enumerate(lines):
            w.writerow([f"r{i}", "x"] + ["" if r.name == "logprobs" and exact(v) < 0 else
                                         v if r.name == "on_loop" else r.json(v) for r, v in line.items()])
    run("submit", *ALWAYS, "--batch", f"{FOLDER}/table.csv")
    compare("csv", lines, by_order(shown("table"), "r"))


def words_of(line):
    return [w for r, v in line.items() for w in ("--" + r.option, f"7:{v}" if r.name == "logit_bias" else v)]


def flags():
    with open(f"{FOLDER}/x.txt", "w") as f:
        f.write("x\n")
    for name in "flags", "lines":
        lines, jobs = values(ROWS), []
        for i, line in enumerate(lines):
            text = ["--lines", "--batch", f"{FOLDER}/x.txt"] if name == "lines" else ["-p", "x"]
            run("submit", *ALWAYS, "--name", f"{name}{i}", *text, *words_of(line))
        for i in range(N):
            jobs += shown(f"{name}{i}").values()
        if name == "lines":                              # the line's seed is made of that of the batch
            seed = ROWS_BY["seed"]
            for line in lines:
                bits = hashlib.sha256(exact(line[seed]).to_bytes(8, "little") + b"1").digest()
                line[seed] = str(int.from_bytes(bits[:8], "little"))
        compare(name, lines, jobs)


def grid():
    for r in ROWS:
        if r.name in ("logit_bias", "logprobs", "priority", "stop_id"):       # of no grid
            continue
        given = {}
        for line in values([r]):
            given.setdefault(line[r] if not r.whole or r.name == "on_loop" else exact(line[r]), line[r])
        name = f"grid_{r.name}"
        words = ["-n", "3"] if r.name != "tokens" else []
        run("submit", *ALWAYS, "-p", "x", *words, "--name", name, "--grid",
            f"{r.option}={','.join(given.values())}".replace("+", "" if r.name == "tree" else "+"))
        jobs = sorted(shown(name).values(), key=lambda j: int(j["job"]))
        compare(name, [{r: v} for v in given.values()], jobs)


def serve():
    os.environ["LONGHAND_DB"] += ".serve"                # a server writes every job of its store
    p = subprocess.Popen([LONGHAND, "serve", *ALWAYS, "--chat-template", "chatml", "--port", "0"],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        url = urllib.parse.urlsplit(re.search(r"http\S+", p.stdout.readline())[0])
        c = http.client.HTTPConnection(url.hostname, url.port, timeout=120)

        def ask(method, path, text=None, kind="application/json"):
            c.request(method, path, text, {"Content-Type": kind})
            a = c.getresponse()
            return a.status, a.read().decode(), a.getheader("Location") or ""

        ROWS_BY["tokens"].high = 3                       # the texts are written
        rows = [r for r in FIELDS if r.name != "logprobs"]
        for name, path in ("body", "/v1/completions"), ("chat_body", "/v1/chat/completions"):
            lines, jobs = values(rows), []
            for line in lines:
                chat = name == "chat_body"
                start = '"messages": [{"role": "user", "content": "x"}]' if chat else '"prompt": "x"'
                status, text, _ = ask("POST", path, body(line, start, chat))
                if status != 200:
                    result(name, False, (status, text))
                    return
                jobs.append(parse(ask("GET", "/v1/jobs/" + parse(text)["id"].rsplit("-", 1)[1])[1]))
            compare(name, lines, jobs)
        form = [ROWS_BY[n] for n in ("tokens", "temperature", "seed")]
        lines, jobs = values(form), []
        for line in lines:
            names = dict(zip(("prompt", "max_tokens", "temperature", "seed"), ["x"] + list(line.values())))
            status, text, place = ask("POST", "/jobs", urllib.parse.urlencode(names),
                                      "application/x-www-form-urlencoded")
            jobs.append(parse(ask("GET", "/v1" + place)[1]))
        compare("page", lines, jobs)
        change = [r for r in FIELDS if r.name not in ("tokens", "logprobs", "thinking_budget", "seed")]
        lines, made = values(change), []
        for line in lines:
            words = {"logit_bias": '"7:%s"', "on_loop": '"%s"'}
            given = ", ".join(f'"{r.name}": ' + words.get(r.name, "%s") % v for r, v in line.items())
            status, text, _ = ask("POST", f"/v1/jobs/{jobs[0]['job']}/fork",
                                  f'{{"at": 0, "tokens": 2.0, {given}}}')
            if status >= 300:
                result("fork", False, (status, text))
                return
            made.append(parse(text))
        compare("fork", lines, made)
    finally:
        p.terminate()
        p.wait()


def documents():
    """Numbers that a template prints, as Python does, and those that are kept: stored chats, metadata."""
    os.environ["LONGHAND_DB"] += ".told"                 # its jobs are written
    texts = [repr(rng.uniform(-9, 9)) for _ in range(N)]
    texts += [str(rng.randrange(-2 ** 70, 2 ** 70)) for _ in range(N)]
    texts += [f"{rng.randint(1, 99)}e{rng.randint(-9, 25)}" for _ in range(N)]
    texts += ["0.256", "0.123456", "1e-7", "1e22", "4.0", "12345678901234567890", "-0", "-0.0", "1E400",
              "1e16", "123456789012345680.0"]
    numbers = "[" + ", ".join(texts) + "]"
    with open(f"{FOLDER}/m.json", "w") as f:
        f.write('[{"role": "user", "content": "x"}]')
    for name, template, want in (
            ("repr", "{% for x in v %}{{ x }}\n{% endfor %}", "\n".join(map(str, json.loads(numbers)))),
            ("tojson", "{{ v|tojson }}", json.dumps(json.loads(numbers)))):
        got = run("tokenize", "--model", MODEL, "--messages", f"{FOLDER}/m.json", "--render",
                  "--chat-template", template, "--chat-template-kwargs", f'{{"v": {numbers}}}')
        bad = [x for x in zip(got.split(), want.split()) if x[0] != x[1]]
        result(f"templates_print_numbers_as_python_{name}", got.strip() == want.strip(), bad[:3] or got[:100])
    tool = f'{{"type": "function", "function": {{"name": "f", "parameters": {{"v": {numbers}}}}}}}'
    line = f'"chat_template_kwargs": {{"v": {numbers}}}, "tools": [{tool}], ' \
           f'"metadata": {{"v": {numbers}}}, ' \
           '"chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}{{ v[0] }}|' \
           '{{ tools[0].function.parameters.v[1] }}", "max_tokens": 1, ' \
           '"messages": [{"role": "user", "content": "x"}]}'
    submit("told", ['{"custom_id": "a", ' + line, '{"custom_id": "b", "after": "a", ' + line], "--seed", "1")
    kept = [r[0] for r in sqlite3.connect(os.environ["LONGHAND_DB"]).execute(
        "SELECT chat FROM input")]
    result("stored_chats_keep_numbers", len(kept) == 2 and all(k.count(numbers) == 2 for k in kept), kept)
    want = parse(numbers)
    lines = run("export", "@told", "-q", "--partial", "--format", "jsonl").splitlines()
    result("metadata_keep_numbers", len(lines) == 2 and all(
        x["metadata"] == {"v": want} for x in list(map(parse, lines)) + list(shown("told").values())))
    report = parse(run("report", "@told", "--json"))
    result("reports_keep_numbers", all(r["parameters"]["chat"]["kwargs"]["v"] == want for r in report))
    run("work", "-q", "-m", MODEL)
    prompts = [run("text", f"@told/{i}", "--with-prompt=model") for i in "ab"]
    result("a_chapter_renders_its_numbers", all(f"{texts[0]}|{texts[1]}" in p for p in prompts), prompts)


ROWS_BY = {r.name: r for r in ROWS}
print(f"    {len(ROWS)} parameters, {N} values of each in every form: {' '.join(r.name for r in ROWS)}")
for part in sys.argv[5:] or ["jsonl", "table", "flags", "grid", "serve", "documents"]:
    globals()[part]()
