"""Batch files for tests/cli/batch.sh, and checks of their outputs.

good N: N lines of many kinds. line ID N: N plain lines (ID, ID1, ..). reorder FILE: the same requests with
other white space and members in another order. bad I: 200 lines, of which at most 20 are wrong, each in
another way (BAD from I on). The other modes check a file; an assertion names the fault.
"""
import hashlib
import json
import subprocess
import sys


def request(custom_id, body, chat=False, **more):
    url = "/v1/chat/completions" if chat else "/v1/completions"
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body, **more}


def plain(custom_id, i, **more):
    return request(custom_id, {"prompt": f"Chapter {i}. It was a dark night and", "max_tokens": 4, **more})


KINDS = [
    lambda c, i: request(c, {"prompt": f"Chapter {i}. It was a dark night and"}),    # --tokens is the default
    lambda c, i: plain(c, i, temperature=0, user="somebody"),
    lambda c, i: plain(c, i, seed=2**64 - 1 - i, top_k=-1, top_p=0.9, min_p=0.02, presence_penalty=0.5,
                       frequency_penalty=-0.1),
    lambda c, i: plain(c, i, n=2, repetition_penalty=1.1, repeat_last_n=64),
    lambda c, i: request(c, {"prompt": [4094, 40 + i, 300], "max_tokens": 5, "ignore_eos": True,
                             "logit_bias": {"13": -100, "40": 1.5}}),
    lambda c, i: request(c, {"prompt": ["The old house"], "max_tokens": 9, "stop": [" the", "\n"],
                             "min_tokens": 2, "stream": False}),
    lambda c, i: request(c, {"messages": [{"role": "system", "content": "Be brief."},
                                          {"role": "user", "content": f"Tell me of {i}"}],
                             "max_completion_tokens": 5, "chat_template": "chatml",
                             "metadata": {"genre": "gothic", "tokens": "taken"}}, chat=True),
    lambda c, i: request(c, {"messages": [{"role": "user", "content": [{"type": "text", "text": "A"},
                                                                       {"type": "text", "text": "b"}]},
                                          {"role": "assistant", "content": "Once"}],
                             "max_tokens": 3, "chat_template": "vicuna", "continue_final_message": True,
                             "add_generation_prompt": False}, chat=True, metadata={"line": i}),
    lambda c, i: plain(c, i, dry_multiplier=0.8, dry_sequence_breakers=["\n", "."], eta=0.001, echo=False,
                       best_of=None, response_format={"type": "text"}),
]


def good(n):
    return [KINDS[i % len(KINDS)](f"r{i}", i) for i in range(n)]


def put(lines):
    for one in lines:
        print(one if isinstance(one, str) else json.dumps(one, ensure_ascii=False))


def without(line, key):
    return {k: v for k, v in line.items() if k != key}


# Bad lines, and a part of the message of each.
BAD = [
    ('{"custom_id": "cut", "method": "POST", "url": "/v1/completions", "body": {"prompt"',
     "the JSON text ends"),
    (without(plain("x", 1), "custom_id"), "custom_id is missing"),
    (dict(plain("y", 1), method="GET"), 'method .*found "GET", only "POST"'),
    (dict(plain("z", 1), url="/v1/embeddings"),
     "url .*found \"/v1/embeddings\", /v1/completions and /v1/chat/completions"),
    (without(plain("b", 1), "body"), "body is missing"),
    (plain("t", 1, temperature=-1), "body.temperature: '-1' is not a number from 0 to 1000"),
    (plain("p", 1, top_p="0.9"), 'body.top_p .*found "0.9", allowed is a number'),
    (plain("g", 1, guided_json={"type": "object"}),
     "body.guided_json .*would change the answer and is not supported"),
    (plain("e", 1, echo=True), "body.echo .*found true, .*only false"),
    (plain("u", 1, temperatur=1), 'the field "temperatur" is unknown'),
    (plain("l", 1, max_tokens=131072), "131072 are beyond this model's context of 131072"),
    (plain("m", 1, max_tokens=0), "body.max_tokens: '0' is not a whole number from 1"),
    (request("r", {"max_tokens": 4}), "body.prompt is missing"),
    (request("v", {"prompt": [1, 2, 4096], "max_tokens": 4}),
     "body.prompt .*found 4096, allowed are whole numbers from 0 to 4095"),
    (request("w", {"prompt": ["a", "b"], "max_tokens": 4}),
     "it has 2 prompts and one is allowed: give each its own line and custom_id"),
    (request("w2", {"prompt": [[5], [6], [7]], "max_tokens": 4}), "it has 3 prompts and one is allowed"),
    (request("c", {"messages": [{"role": "assistant", "content": "x"}], "max_tokens": 4,
                   "chat_template": "{{ raise_exception('No ' ~ messages[0].role) }}"}, chat=True),
     "the chat template given, line 1: No assistant"),
    (request("q", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4}, chat=True),
     "no chat template; --chat-template names one of"),
    (plain("r0", 1), 'custom_id: "r0" is also in line 1'),
    (plain("s", 1, logit_bias={"5000": 1}), "token id: '5000' is not a whole number from 0 to 4095"),
    (plain("n", 1, n=0), "body.n: '0' is not a whole number from 1"),
    (dict(plain("k", 1), seed=5), 'the field "seed" stands beside body'),
    (plain("d", 1, repetition_penalty=1.1, repeat_penalty=1.3),
     "body.repeat_penalty .*found 1.3, body.repetition_penalty means the same"),
    (plain("o", 1, stop=["a", ""]), "body.stop: a string of 0 bytes, 1 to 1024 are allowed"),
    ('{"custom_id": "i", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": '
     '[{"role": "user", "role": "system", "content": "x"}], "chat_template": "chatml"}}',
     "message 1 .*a message has one role"),
]


def bad_lines(first):
    lines = good(200)
    for i, (line, _) in enumerate(BAD[first:first + 20]):
        lines[2 + 9 * i] = line
    return lines


def seed_of(s, custom_id):
    return int.from_bytes(hashlib.sha256(s.to_bytes(8, "little") + custom_id.encode()).digest()[:8], "little")


def read(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def check(given, made, tokens, seed):
    given, made = read(given), read(made)
    assert [a["custom_id"] for a in given] == [b["custom_id"] for b in made], "custom_ids or their order"
    for a, b in zip(given, made):
        body, out = a["body"], b["response"]["body"]
        chat = "messages" in body
        wanted = body.get("max_completion_tokens", body.get("max_tokens", tokens))
        n = body.get("n", 1)
        assert b["error"] is None and b["response"]["status_code"] == 200, b
        assert out["object"] == ("chat.completion" if chat else "text_completion"), out
        assert [c["index"] for c in out["choices"]] == list(range(n)), out
        u = out["usage"]
        assert u["total_tokens"] == u["prompt_tokens"] + u["completion_tokens"], out
        assert 0 < u["completion_tokens"] <= n * wanted, out
        for c in out["choices"]:
            text = c["message"]["content"] if chat else c["text"]
            assert c["finish_reason"] in ("length", "stop"), out
            # before min_tokens a stop string does not end a text, and stays in it
            assert body.get("min_tokens") or not any(s in text for s in body.get("stop", [])), out
            if c["finish_reason"] != "length":
                assert c["stop_reason"] == 4095 or c["stop_reason"] in body["stop"], out
        if all(c["finish_reason"] == "length" for c in out["choices"]):
            assert u["completion_tokens"] == n * wanted, out
        if isinstance(body.get("prompt"), list) and isinstance(body["prompt"][0], int):
            assert u["prompt_tokens"] == len(body["prompt"]), out
        m = out["metrics"]
        assert m["seed"] == body.get("seed", seed_of(seed, a["custom_id"])), (m, a)
        s = m["speculative_decoding"]
        assert sum(s["acceptance_histogram"]) == s["num_spec_steps"], s
        assert len(s["acceptance_histogram"]) == s["num_spec_tokens"] + 1, s
        assert s["num_spec_steps"] + s["num_accepted_draft_tokens"] >= u["completion_tokens"], (s, u)
        assert s["mean_acceptance_length"] >= 1, (s, u)
    two = [b for a, b in zip(given, made) if a["body"].get("n") == 2]
    choices = [b["response"]["body"]["choices"] for b in two]
    assert any(c[0]["text"] != c[1]["text"] for c in choices), "all samples are equal"


def flat(given, made, lines):
    given, made, lines = read(given), read(made), read(lines)
    rows = {}
    for row in lines:
        rows.setdefault(row["custom_id"], []).append(row)
    for a, b in zip(given, made):
        out = b["response"]["body"]
        mine = rows[a["custom_id"]]
        texts = [c["message"]["content"] if "message" in c else c["text"] for c in out["choices"]]
        assert [r["text"] for r in mine] == texts, (mine, out)
        assert sum(r["tokens"] for r in mine) == out["usage"]["completion_tokens"], (mine, out)
        metadata = a.get("metadata", a["body"].get("metadata"))
        for r in mine:
            assert r["seed"] == out["metrics"]["seed"], r
            assert r["finish_reason"] in ("length", "stop") and r["tokens_per_second"] > 0, r
            assert r.get("metadata") == metadata, (r, metadata)
            for k, v in (metadata or {}).items():
                assert k == "tokens" or r[k] == v, (r, metadata)
            assert isinstance(r["tokens"], int), r
            if isinstance(a["body"].get("prompt"), str):
                assert r["prompt"] == a["body"]["prompt"], r
    wanted = [a["custom_id"] for a in given for _ in range(a["body"].get("n", 1))]
    assert [r["custom_id"] for r in lines] == wanted, "order"


def distinct(lines, longhand, selection):
    def output(*args):
        return subprocess.run([longhand, *args], check=True, capture_output=True, text=True).stdout

    reports = json.loads(output("report", selection, "--json"))
    assert len(reports) == len(read(lines)), "jobs"
    for r in reports[:12]:
        t = output("export", str(r["job"]), "--format", "ids").split()
        for n in range(1, 5):
            grams = [tuple(t[i:i + n]) for i in range(len(t) - n + 1)]
            want = len(set(grams)) / len(grams) if grams else None
            got = r["distinct"]["tokens"][str(n)]
            assert got == want or abs(got - want) < 1e-9, (r["job"], n, got, want)


def named(path, first):
    bad = BAD[first:first + 20]
    import re
    text = open(path, encoding="utf-8").read().splitlines()
    assert len(text) == len(bad) + 1, text
    for i, (_, words) in enumerate(bad):
        assert re.search(rf"bad\.jsonl: line {3 + 9 * i}: (.*)?{words}", text[i]), (i, text[i], words)
    assert f"{len(bad)} of 200 lines are bad; nothing was queued" in text[-1], text[-1]


def normal(path):
    """Prints the lines without times and speeds."""
    for line in read(path):
        body = line["response"]["body"]
        del body["created"], body["metrics"]["speculative_decoding"]
        print(json.dumps(line))


def main(mode, *args):
    if mode == "good":
        put(good(int(args[0])))
    elif mode == "line":
        put(plain(args[0] + (str(i) if i else ""), i) for i in range(int(args[1])))
    elif mode == "reorder":
        for line in read(args[0]):
            body = dict(reversed(line["body"].items()), suffix=None)
            print(json.dumps(dict(reversed(dict(line, body=body).items())), separators=(" ,", " : ")))
    elif mode == "bad":
        put(bad_lines(int(args[0])))
    elif mode == "bad-lines":
        named(args[0], int(args[1]))
    elif mode == "check":
        check(args[0], args[1], int(args[2]), int(args[3]))
    else:
        {"flat": flat, "distinct": distinct, "normal": normal}[mode](*args)


if __name__ == "__main__":
    main(*sys.argv[1:])
