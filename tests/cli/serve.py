"""Requests to a server. serve.py URL PART LONGHAND MODEL: prints lines "ok NAME" and "FAIL NAME".

The texts of answers must be those of `run` with the same parameters, byte by byte."""
import concurrent.futures
import html
import http.client
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.parse

URL, PART, LONGHAND, MODEL = sys.argv[1:5]
HOST, PORT = urllib.parse.urlsplit(URL).hostname, urllib.parse.urlsplit(URL).port
OPENING = "Once upon a time there was a"


def result(name, good, why=""):
    print(("ok " if good else f"    {str(why)[:600]}\nFAIL ") + name, flush=True)


def ask(method, path, body=None, headers=None, raw=None):
    """The status, the headers and the body of an answer."""
    c = http.client.HTTPConnection(HOST, PORT, timeout=120)
    data = raw if raw is not None else None if body is None else json.dumps(body).encode()
    c.request(method, path, data, headers or {})
    r = c.getresponse()
    text = r.read()
    c.close()
    return r.status, r.headers, text


def post(body, path="/v1/completions", headers=None):
    status, _, text = ask("POST", path, body, headers)
    return status, json.loads(text)


def run(*words, db=None):
    """The text of `run` in a store of its own."""
    words = [LONGHAND, "run", "-q", "-m", MODEL, "--db", db or os.environ["LONGHAND_DB"] + ".run", *words]
    return subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout.decode()


def listed():
    out = cli("list", "--json", "--requests")
    return {j["job"]: j for j in json.loads(out)["jobs"]}


def job_of(answer):
    return int(answer["id"].rsplit("-", 1)[1])


def events(body, path="/v1/completions", headers=None):
    """The data of all events of a stream, as text."""
    status, h, text = ask("POST", path, dict(body, stream=True), headers)
    assert status == 200 and h["Content-Type"] == "text/event-stream", (status, text)
    blocks = text.decode().split("\n\n")
    assert blocks.pop() == "", text[-100:]
    return [b[6:] for b in blocks if b.startswith("data: ")]


def texts():
    want = run("-p", OPENING, "-n", "60", "-s", "7", "--temperature", "0.8", "--ignore-eos")
    body = {"model": "demo", "prompt": OPENING, "max_tokens": 60, "seed": 7, "temperature": 0.8,
            "ignore_eos": True}
    status, a = post(body)
    c = a["choices"][0]
    result("an_answer_is_the_text_of_run", status == 200 and c["text"] == want, (status, a, want))
    result("an_answer_has_the_form_of_openai",
           a["object"] == "text_completion" and a["model"] == "demo" and c["index"] == 0 and
           c["finish_reason"] == "length" and c["logprobs"] is None and
           a["usage"]["completion_tokens"] == 60 and
           a["usage"]["total_tokens"] == 60 + a["usage"]["prompt_tokens"], a)
    j = listed()[job_of(a)]
    result("a_request_is_a_job", j["state"] == "done" and j["tokens"] == 60, j)

    status, a = post(dict(body, n=3, temperature=1))
    files = os.environ["LONGHAND_DB"] + ".sample"
    run("-p", OPENING, "-n", "60", "-s", "7", "--temperature", "1", "--ignore-eos", "--samples", "3", "-o",
        files)
    want3 = [open(f"{files}.{i}", encoding="utf-8").read() for i in range(3)]
    result("n_texts_are_the_samples_of_run", [c["text"] for c in a["choices"]] == want3, (a, want3))

    stop = want[20:26]
    status, a = post(dict(body, stop=[stop]))
    c = a["choices"][0]
    result("a_stop_string_ends_the_text", (c["text"], c["finish_reason"], c["stop_reason"]) ==
           (want[:want.index(stop)], "stop", stop), a)

    got = events(body)
    parts = [json.loads(e) for e in got[:-1]]
    result("a_stream_ends_with_done", got[-1] == "[DONE]", got[-1])
    result("the_joined_stream_is_the_text",
           "".join(p["choices"][0]["text"] for p in parts) == want, (parts, want))
    result("the_last_event_of_a_text_says_why_it_ended",
           [p["choices"][0]["finish_reason"] for p in parts] == [None] * (len(parts) - 1) + ["length"], parts)

    got = events(dict(body, n=2, temperature=1, stream_options={"include_usage": True}))
    parts = [json.loads(e) for e in got[:-1]]
    joined = ["".join(c["text"] for p in parts for c in p["choices"] if c["index"] == i) for i in range(2)]
    result("a_stream_of_two_texts", joined == want3[:2], (joined, want3))
    result("include_usage_adds_an_event", parts[-1]["choices"] == [] and
           parts[-1]["usage"]["completion_tokens"] == 120 and all(p["usage"] is None for p in parts[:-1]),
           parts)


def chat():
    body = {"messages": [{"role": "user", "content": "Tell me of the sea."}], "max_tokens": 40, "seed": 5}
    want = run("--chat", "--chat-template", "chatml", "-p", "Tell me of the sea.", "-n", "40", "-s", "5")
    status, a = post(body, "/v1/chat/completions")
    m = a["choices"][0]["message"] if status == 200 else None
    result("a_chat_is_the_text_of_run", m == {"role": "assistant", "content": want, "refusal": None},
           (a, want))
    _, t = post({"messages": body["messages"]}, "/tokenize")
    _, back = post({"tokens": t["tokens"]}, "/detokenize")
    result("tokenize_takes_messages", t["count"] == len(t["tokens"]) == a["usage"]["prompt_tokens"] and
           "Tell me of the sea." in back["prompt"] and "assistant" in back["prompt"], (t, back))
    status, t = post({"messages": []}, "/tokenize")
    result("tokenize_of_no_message_is_400", status == 400, t)
    parts = [json.loads(e) for e in events(body, "/v1/chat/completions")[:-1]]
    deltas = [p["choices"][0]["delta"] for p in parts]
    result("the_first_delta_has_the_role", deltas[0].get("role") == "assistant" and
           all("role" not in d for d in deltas[1:]) and deltas[-1] == {}, deltas)
    result("the_joined_deltas_are_the_text", "".join(d.get("content", "") for d in deltas) == want, deltas)


def thoughts():
    """Thoughts are apart from the answer."""
    body = {"messages": [{"role": "user", "content": "The_king"}], "max_tokens": 60, "seed": 3,
            "chat_template": "{% for m in messages %}{{ m.content }} {% endfor %}<think>",
            "thinking_token_budget": 20}
    whole = run("--chat", "--chat-template", body["chat_template"], "-p", "The_king", "-n", "60", "-s", "3",
                "--thinking-budget", "20")
    thought, _, answer = whole.partition("</think>")
    status, a = post(body, "/v1/chat/completions")
    m = a["choices"][0]["message"] if status == 200 else {}
    result("a_chat_has_the_answer_as_content", m.get("content") == answer.lstrip(), (a, whole))
    result("and_the_thought_apart", m.get("reasoning_content", "").rstrip() == thought + "</think>",
           (a, whole))
    deltas = [json.loads(e)["choices"][0]["delta"] for e in events(body, "/v1/chat/completions")[:-1]]
    for name in "content", "reasoning_content":
        joined = "".join(d.get(name, "") for d in deltas)
        result(f"the_joined_deltas_are_the_{name}", joined == m.get(name), deltas)


def refusals():
    good = {"prompt": "x", "max_tokens": 3}
    bad = {
        "bad_json": (400, b'{"prompt": ', "the JSON text ends"),
        "no_object": (400, b"[1]", "allowed is an object"),
        "no_body": (400, b"", "the JSON text ends"),
        "an_unknown_field": (400, dict(good, foo=1), 'field "foo" is unknown'),
        "a_field_of_a_chapter": (400, dict(good, after="x"), 'field "after" is unknown'),
        "a_field_beside_its_range": (400, dict(good, temperature=-1), "body.temperature"),
        "a_prompt_beyond_the_context": (400, dict(good, prompt=[5] * 20000, max_tokens=120000),
                                        "beyond this model's context"),
        "too_many_tokens": (400, dict(good, max_tokens=10 ** 8), "beyond this model's context"),
        "two_prompts": (400, dict(good, prompt=["a", "b"]), "2 prompts"),
        "logprobs": (400, dict(good, logprobs=1), "log-probabilities"),
        "echo": (400, dict(good, echo=True), "only false is supported"),
        "stream_options": (400, dict(good, stream_options=5), "allowed is an object"),
        "too_many_texts": (400, dict(good, n=65), "from 1 to 64"),
        "another_model": (404, dict(good, model="/etc/passwd"), "no such model"),
    }
    for name, (want, body, words) in bad.items():
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, _, text = ask("POST", "/v1/completions", raw=raw)
        e = json.loads(text)["error"]
        result(f"{name}_is_refused", status == want and words in e["message"] and e["code"] == want and
               e["type"] == "invalid_request_error", (status, e))
    for name, template in (("attributes", ".a"), ("sums", "+a"), ("filters", "|trim")):
        status, a = post({"messages": [{"role": "user", "content": "x"}],
                          "chat_template": "{{ a" + template * 11000 + " }}"}, "/v1/chat/completions")
        result(f"a_template_of_many_{name}_is_400", status == 400 and "more than 1000 operations" in
               a["error"]["message"], a)
    status, a = post({"messages": [{"role": "user", "content": "x"}], "chat_template": "/etc/passwd"},
                     "/v1/chat/completions")
    result("no_field_opens_a_file", status == 400 and "unknown" in a["error"]["message"], a)
    status, _, _ = ask("POST", "/v1/completions", raw=b"x" * 70000)
    result("a_large_body_is_413", status == 413, status)

    def chunks():
        for _ in range(70):
            yield b"x" * 1000
    c = http.client.HTTPConnection(HOST, PORT, timeout=60)
    c.request("POST", "/v1/completions", chunks(), {"Transfer-Encoding": "chunked"}, encode_chunked=True)
    status = c.getresponse().status
    result("a_large_chunked_body_is_413", status == 413, status)
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 65536\r\n\r\n"
    held = [socket.create_connection((HOST, PORT)) for _ in range(90)]
    for i, s in enumerate(held):         # the small ones fill what the large ones leave
        s.sendall(head + b"x" * (65000 if i < 30 else 15000))
    large = json.dumps(dict(good, user="x" * 60000)).encode()
    full = until(lambda: ask("POST", "/v1/completions", raw=large)[0] == 503)
    for s in held:
        s.close()
    result("too_many_large_bodies_are_503", full and
           until(lambda: ask("POST", "/v1/completions", raw=large)[0] == 200))
    for name, headers in {"another_host": {"Host": "evil.example"},
                          "another_port_of_a_host": {"Host": "evil.example:80"},
                          "another_origin": {"Origin": "http://evil.example"},
                          "no_origin": {"Origin": "null"},
                          "another_site": {"Sec-Fetch-Site": "cross-site"}}.items():
        status, _, text = ask("POST", "/v1/completions", good, headers)
        result(f"{name}_is_403", status == 403 and b"error" in text, (status, text))
    for host in "localhost", f"localhost:{PORT}", f"127.0.0.1:{PORT}", "books.example":
        status, _, text = ask("GET", "/v1/models", None, {"Host": host})
        result(f"host_{host.split(':')[0]}_is_allowed", status == 200, (status, text))
    status, h, text = ask("GET", "/v1/models", None, {"Origin": "http://pages.example",
                                                      "Sec-Fetch-Site": "cross-site"})
    result("cors_lets_an_origin_in", status == 200 and
           h["Access-Control-Allow-Origin"] == "http://pages.example", (status, text))
    status, h, _ = ask("OPTIONS", "/v1/completions", None, {"Origin": "http://pages.example"})
    result("a_preflight_is_answered", status == 204 and "authorization" in h["Access-Control-Allow-Headers"],
           status)
    for path, want in {"/v1/models/demo": 200, "/v1/models/other": 404, "/v1/foo": 404, "/../etc/passwd": 404,
                       "/v1/models/..%2f..%2fetc%2fpasswd": 404, "/v1/completions": 405}.items():
        status, h, text = ask("GET", path)
        result(f"get_{path}_is_{want}", status == want and h["Allow"] == ("POST" if want == 405 else None),
               (status, h["Allow"], text))


def failed_jobs():
    """A text that fails while its client waits: a 500 that says why."""
    body = {"prompt": OPENING, "max_tokens": 50000, "seed": 1, "ignore_eos": True}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(post, body, headers={"Idempotency-Key": "fails"})
        until(lambda: any(j["of"] == 50000 and j["tokens"] for j in listed().values()))
        job = max(listed())
        cli("pause", "-q", str(job))
        with sqlite3.connect(os.environ["LONGHAND_DB"]) as db:
            db.execute("UPDATE job SET state = 'failed', error = ? WHERE id = ?", ("chunk 3 is damaged", job))
        status, a = answer.result()
    result("a_failed_text_is_500", status == 500 and
           a["error"]["message"] == f"cmpl-{a['error']['message'][5:13]}-{job}: chunk 3 is damaged", a)
    got = ask("GET", f"/jobs/{job}")[2].decode()
    result("its_page_says_why", "failed, " in got and "chunk 3 is damaged" in got, got[-900:])
    cli("remove", "-q", str(job))


def clients_that_leave():
    body = {"prompt": OPENING, "max_tokens": 50000, "seed": 1, "ignore_eos": True}
    for stream in False, True:
        before = set(listed())
        s = socket.create_connection((HOST, PORT))
        data = json.dumps(dict(body, stream=stream)).encode()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                  b"Content-Length: %d\r\n\r\n" % len(data) + data)
        deadline = time.time() + 30
        job = None
        while time.time() < deadline and not (job and job["tokens"]):
            new = [j for i, j in listed().items() if i not in before]
            job = new[0] if new else None
        s.close()
        while time.time() < deadline and job["state"] != "cancelled":
            time.sleep(0.1)
            job = listed()[job["job"]]
        result(f"a_{'stream' if stream else 'request'}_without_its_client_is_cancelled",
               job["state"] == "cancelled" and job["tokens"] < 50000, job)


def named():
    """A server whose model LONGHAND_MODEL names."""
    name = os.path.basename(MODEL)
    status, a = post({"prompt": "x", "max_tokens": 2, "model": name})
    result("longhand_model_names_the_model", status == 200 and a["model"] == name, a)
    status, a = post({"prompt": "x", "max_tokens": 2, "model": MODEL})
    result("and_no_path_does", status == 404, a)


def follow(job):
    """A connection that has begun to read a text as it grows."""
    c = http.client.HTTPConnection(HOST, PORT, timeout=120)
    c.request("GET", f"/v1/jobs/{job}/text?follow=1")
    r = c.getresponse()
    r.read(1)
    return r


def is_cut(r):
    """Whether an answer ends before its last chunk."""
    try:
        r.read()
        return False
    except http.client.IncompleteRead:
        return True


def stops():
    job = cli("submit", "-m", MODEL, "-p", OPENING, "-n", "50000", "-s", "5", "--ignore-eos").strip()
    r = follow(job)
    os.kill(int(os.environ["SERVER"]), signal.SIGTERM)
    result("a_followed_text_is_cut_off_when_the_server_stops", is_cut(r))


def fuzz():
    """Malformed HTTP and JSON: the server answers with a 4xx or closes, and goes on."""
    rng = random.Random(int(os.environ.get("FUZZ_SEED", "1")))
    n = 3000 if os.environ.get("LONG") else 300
    good = json.dumps({"prompt": "x", "max_tokens": 2, "seed": 1, "stop": ["a"],
                       "logit_bias": {"5": -1}}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    bad = []
    statuses = set()

    def damaged(i):
        body = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(body))
            kind = rng.randrange(4)
            if kind == 0:
                body[at] = rng.randrange(256)
            elif kind == 1:
                del body[at:at + rng.randint(1, 9)]
            elif kind == 2:
                body[at:at] = rng.choice([b"[" * 200, b"\\ud800", b"\x00", b"1e999", b'"', b"{", b"\xff\xfe",
                                          b"null"])
            else:
                body[at:at] = body[:at]
            body = body or bytearray(b" ")
        data = head % len(body) + bytes(body)
        if i % 3 == 0:                   # damage to the head
            data = bytearray(data)
            for _ in range(rng.randint(1, 3)):
                data[rng.randrange(min(len(data), 80))] = rng.randrange(256)
            data = bytes(data)
        return data

    def send(data):
        try:
            s = socket.create_connection((HOST, PORT), timeout=20)
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            answer = b""
            while True:
                more = s.recv(65536)
                if not more:
                    break
                answer += more
            s.close()
            status = int(answer.split(b" ")[1]) if answer.startswith(b"HTTP/1.1 ") else 0
            statuses.add(status)
            if status >= 500 and status != 505:
                bad.append((data, answer[:300]))
        except OSError:
            pass                         # it closed the connection
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(send, [damaged(i) for i in range(n)]))
    status, _, _ = ask("GET", "/health")
    result("malformed_requests_are_refused", not bad and status == 200 and 400 in statuses,
           (status, statuses, bad[:2]))


def many():
    """64 streams at once, of which some are slow."""
    want = run("-p", OPENING, "-n", "20", "-s", "9", "--ignore-eos")
    got = [None] * 64

    def one(i):
        body = {"prompt": OPENING, "max_tokens": 20, "seed": 9, "ignore_eos": True, "stream": True}
        c = http.client.HTTPConnection(HOST, PORT, timeout=300)
        c.request("POST", "/v1/completions", json.dumps(body))
        r = c.getresponse()
        if i % 8 == 0:
            time.sleep(0.5)
        text = r.read().decode()
        got[i] = "".join(json.loads(e[6:])["choices"][0]["text"] for e in text.split("\n\n")
                         if e.startswith("data: {"))
    threads = [threading.Thread(target=one, args=(i,)) for i in range(64)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    result("64_streams_at_once", got == [want] * 64, [g for g in got if g != want][:2])


def keys():
    body = {"prompt": OPENING, "max_tokens": 50, "seed": 3, "ignore_eos": True}
    key = {"Idempotency-Key": "k1"}
    before = len(listed())
    status, a = post(body, headers=key)
    status2, b = post(dict(body), headers=key)
    result("a_repeated_key_gets_the_same_answer", status == status2 == 200 and a == b and
           len(listed()) == before + 1, (a, b))
    streamed = [json.loads(e) for e in events(body, headers=key)[:-1]]
    result("a_repeated_key_may_stream", streamed[0]["id"] == a["id"] and
           "".join(p["choices"][0]["text"] for p in streamed) == a["choices"][0]["text"], streamed)
    status, c = post(dict(body, seed=4), headers=key)
    result("a_key_with_another_body_is_409", status == 409 and "error" in c, (status, c))
    status, c = post(dict(body, foo=1), headers={"Idempotency-Key": "k2"})
    status2, _ = post(body, headers={"Idempotency-Key": "k2"})
    result("a_400_stores_no_key", status == 400 and status2 == 200, (status, c))
    status, c = post(body, headers={"Idempotency-Key": "k" * 256})
    result("a_long_key_is_400", status == 400, (status, c))
    before = len(listed())
    got = [None] * 4

    def one(i):
        got[i] = post(dict(body, seed=8), headers={"Idempotency-Key": "k3"})
    threads = [threading.Thread(target=one, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    result("equal_requests_at_once_are_one_job", all(g == got[0] and g[0] == 200 for g in got) and
           len(listed()) == before + 1, got)
    subprocess.run([LONGHAND, "submit", "-q", "-m", MODEL, "-p", "x", "-n", "5"], stdout=subprocess.PIPE)
    job = {"prompt": OPENING, "max_tokens": 40000, "seed": 3, "ignore_eos": True}
    s = socket.create_connection((HOST, PORT))
    data = json.dumps(job).encode()
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: k5\r\n"
              b"Content-Length: %d\r\n\r\n" % len(data) + data)
    time.sleep(1)
    s.close()
    time.sleep(1.5)
    j = max(listed().values(), key=lambda x: x["job"])
    result("a_job_with_a_key_goes_on_without_its_client", j["state"] == "running", j)
    subprocess.run([LONGHAND, "cancel", str(j["job"])], check=True, stderr=subprocess.DEVNULL)


def until(good, seconds=30):
    """Whether good() comes true."""
    deadline = time.time() + seconds
    while not good() and time.time() < deadline:
        time.sleep(0.05)
    return good()


def sent(body, headers=""):
    """A connection that has sent a request."""
    s = socket.create_connection((HOST, PORT))
    data = json.dumps(body).encode()
    s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {len(data)}"
              "\r\n\r\n".encode() + data)
    return s


def forget():
    """A server with --forget keeps no request that nobody will ask for."""
    body = {"prompt": OPENING, "max_tokens": 30, "seed": 3, "ignore_eos": True, "n": 2}
    long = dict(body, max_tokens=50000)
    post(body)
    result("forget_removes_an_answer_that_was_sent", until(lambda: not listed(), 5), listed())
    events(body)
    result("forget_removes_a_stream_that_was_sent", until(lambda: not listed(), 5), listed())
    s = sent(long)
    begun = until(listed)
    s.close()
    result("forget_removes_a_request_without_its_client", begun and until(lambda: not listed()), listed())
    _, a = post(body, headers={"Idempotency-Key": "a"})
    s = sent(long, "Idempotency-Key: b\r\n")
    until(lambda: len(listed()) == 4)
    cli("cancel", "-q", *[str(j) for j, x in listed().items() if x["of"] == 50000])
    result("forget_removes_a_cancelled_request", until(lambda: len(listed()) == 2), listed())
    s.close()
    time.sleep(2.5)
    _, b = post(body, headers={"Idempotency-Key": "a"})
    result("forget_keeps_a_request_with_a_key", a == b, (a, b))
    with sqlite3.connect(os.environ["LONGHAND_DB"]) as db:
        db.execute("UPDATE job SET ended = ended - 24 * 3600")
    result("forget_removes_a_request_with_a_key_after_a_day", until(lambda: not listed(), 10), listed())
    kept = cli("submit", "-q", "-m", MODEL, "-p", OPENING, "-n", "5").strip()
    until(lambda: listed()[int(kept)]["state"] == "done")
    time.sleep(2.5)
    result("forget_leaves_other_jobs", int(kept) in listed(), listed())
    cli("remove", "-q", kept)
    clients = sent(long), sent(long, "Idempotency-Key: c\r\n")
    result("four_texts_are_written", until(lambda: sum(x["tokens"] > 0 for x in listed().values()) == 4))
    os.kill(int(os.environ["SERVER"]), signal.SIGKILL)   # the next server removes the texts without a key
    for s in clients:
        s.close()


def rate(found):
    """Tokens a second of all jobs together, from the first begin to the last end."""
    seconds = max(j["ended"] for j in found) - min(j["started"] for j in found)
    return sum(j["tokens"] for j in found) / seconds


def speed():
    """Figures: requests a second, from request to first event, eight streams beside `work`, idle CPU."""
    n = int(os.environ.get("REQUESTS", "10000"))
    local = threading.local()

    def one(i):
        if not hasattr(local, "c"):
            local.c = http.client.HTTPConnection(HOST, PORT, timeout=120)
        local.c.request("POST", "/v1/completions", json.dumps(
            {"prompt": OPENING, "max_tokens": 10, "seed": i, "ignore_eos": True}))
        r = local.c.getresponse()
        return r.status == 200 and len(r.read()) > 0
    since = time.time()
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        good = sum(pool.map(one, range(n)))
    seconds = time.time() - since
    print(f"    {good} requests of 10 tokens, 32 at once: {good / seconds:.1f} a second")
    result("50_requests_a_second", good == n and good / seconds >= 50, (good, seconds))

    firsts = []
    for i in range(100):
        c = http.client.HTTPConnection(HOST, PORT, timeout=60)
        since = time.perf_counter()
        c.request("POST", "/v1/completions",
                  json.dumps({"prompt": OPENING, "max_tokens": 1, "stream": True}))
        c.getresponse().readline()
        firsts.append(time.perf_counter() - since)
        c.close()
    firsts.sort()
    print(f"    from request to first event: median {1e3 * firsts[50]:.1f} ms, "
          f"90 % {1e3 * firsts[90]:.1f} ms")

    rates = {"streams": [], "work": []}
    for turn in range(3):
        known = set(listed())
        body = {"prompt": OPENING, "max_tokens": 800, "ignore_eos": True}
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda i: events(dict(body, seed=i)), range(8)))
        rates["streams"].append(rate([j for i, j in listed().items() if i not in known]))
        db = os.environ["LONGHAND_DB"] + f".work{turn}"
        for i in range(8):
            cli("submit", "-q", "-m", MODEL, "--db", db, "-p", OPENING, "-n", "800", "-s", str(i),
                "--ignore-eos")
        subprocess.run([LONGHAND, "work", "-q", "--db", db, "--parallel", "8"], check=True,
                       stderr=subprocess.DEVNULL)
        rates["work"].append(rate(json.loads(cli("list", "--json", "--db", db))["jobs"]))
    streams, work = (sorted(rates[k])[1] for k in ("streams", "work"))
    print(f"    8 streams: {streams:.0f} tokens/s, work --parallel 8: {work:.0f}: {streams / work:.2f}")

    def cpu():
        with open(f"/proc/{os.environ['SERVER']}/stat", encoding="utf-8") as f:
            return sum(int(x) for x in f.read().rsplit(")", 1)[1].split()[11:13]) / os.sysconf("SC_CLK_TCK")
    since = cpu()
    time.sleep(30)
    idle = 2 * (cpu() - since)
    print(f"    idle: {idle:.2f} s of CPU a minute")
    result("an_idle_server_rests", idle <= 0.2, idle)


class Server:
    """A server of this test, on one port."""

    def __init__(self):
        self.port = 0

    def start(self):
        self.process = subprocess.Popen([LONGHAND, "serve", "-m", MODEL, "--port", str(self.port)],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.port = int(self.process.stdout.readline().decode().split("/v1")[0].rsplit(":", 1)[1])

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def kills():
    """kill -9 at random moments under load: every request with a key is answered in full, by one job."""
    n = 100 if os.environ.get("LONG") else 5
    rng = random.Random(int(os.environ.get("KILL_SEED", "1")))
    want = {seed: run("-p", OPENING, "-n", str(60 + 40 * seed), "-s", str(seed), "--ignore-eos")
            for seed in range(8)}
    server, over, answers, faults = Server(), threading.Event(), {}, []

    def one(name, seed):
        """A request, repeated until it is answered; every second one is a stream."""
        body = {"prompt": OPENING, "max_tokens": 60 + 40 * seed, "seed": seed, "ignore_eos": True,
                "stream": seed % 2 == 1}
        for _ in range(1000):
            try:
                c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
                c.request("POST", "/v1/completions", json.dumps(body), {"Idempotency-Key": name})
                r = c.getresponse()
                got = r.read().decode()
                if r.status == 503:
                    continue
                if r.status != 200:
                    return f"{r.status} {got}"
                if not body["stream"]:
                    return json.loads(got)["choices"][0]["text"]
                if got.endswith("data: [DONE]\n\n"):
                    return "".join(json.loads(x[6:])["choices"][0]["text"] for x in got.split("\n\n")
                                   if x.startswith("data: {"))
            except (OSError, http.client.HTTPException):
                time.sleep(0.02)         # the server was killed
            finally:
                c.close()
        return "no answer"

    def client(k):
        i = 0
        while not over.is_set():
            name = f"{k}-{i}"
            answers[name] = (i % 8, one(name, i % 8))
            i += 1
    server.start()
    threads = [threading.Thread(target=client, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for _ in range(n):
        time.sleep(rng.uniform(0, 1.5))
        server.kill()
        server.start()
    over.set()
    for t in threads:
        t.join()
    faults = [(name, text) for name, (seed, text) in answers.items() if text != want[seed]]
    result(f"every_answer_over_{n}_kills_is_that_of_run", not faults and len(answers) >= 4, faults[:2])
    left = listed().values()
    result("every_request_is_one_job", len(left) == len(answers) and all(j["state"] == "done" for j in left),
           (len(left), len(answers)))
    resumed = sum(j["resumes"] for j in left)
    print(f"    {len(answers)} requests, {n} kills, {resumed} resumes")
    server.kill()


def cli(*words):
    return subprocess.run([LONGHAND, *words], stdout=subprocess.PIPE, check=True).stdout.decode()


def edits(job):
    """extend and fork as routes, of a request of 30 tokens with seed 3. The command line makes the same."""
    other = os.environ["LONGHAND_DB"] + ".edits"
    run("-p", OPENING, "-n", "30", "-s", "3", "--ignore-eos", db=other)
    want = [cli("extend", "--run", "-q", "--db", other, "1", "--tokens", "+20", "--append", " And --x",
                "--temperature", "0.5", "--stop", "zz", "--stop", "qq"),
            cli("fork", "--run", "-q", "--db", other, "1", "--at", "12", "--seed", "4", "-n", "40",
                "--logit-bias", "5:-1")]
    got = []
    for verb, body in (("extend", {"max_tokens": 20, "append": " And --x", "temperature": 0.5,
                                   "stop": ["zz", "qq"], "replace": False, "name": None}),
                       ("fork", {"at": 12, "seed": 4, "tokens": 40, "logit_bias": {"5": -1}})):
        status, a = post(body, f"/v1/jobs/{job}/{verb}")
        assert status == 200, a
        new = a["job"]
        until(lambda: listed()[new]["state"] == "done")
        got.append(ask("GET", f"/v1/jobs/{new}/text")[2].decode())
    result("extend", got[0] == want[0] and listed()[job]["tokens"] > 50, (got[0], want[0]))
    result("fork", new != job and got[1] == want[1], (got[1], want[1]))
    plain = json.loads(cli("list", "--json"))["jobs"]
    result("an_extended_request_is_a_job", job in [j["job"] for j in plain], plain)
    for verb, body, words in (("extend", {"tokens": 5, "append_file": "/etc/passwd"}, "unknown"),
                              ("extend", {"tokens": 5, "append-file=/etc/passwd": 1}, "unknown"),
                              ("extend", {"tokens": 5, "ban_phrases_file": "/etc/passwd"}, "unknown"),
                              ("extend", {"tokens": 5, "model": MODEL}, "unknown"),
                              ("extend", {}, "tokens is missing"),
                              ("extend", {"tokens": 5, "temperature": "x"}, "temperature"),
                              ("extend", {"tokens": 5, "stop": {"a": 1}}, "allowed is"),
                              ("extend", {"tokens": 5, "stop": [["a"]]}, "allowed is"),
                              ("extend", {"tokens": 5, "name": True}, "true is for"),
                              ("extend", {"tokens": 5, "replace": 1}, "true or false"),
                              ("fork", {"seed": 1}, "at TOKEN or at_text"),
                              ("fork", {"at": 999}, "999"), ("fork", {"at": 1, "db": "x"}, "unknown"),
                              ("fork", [1], "object")):
        status, a = post(body, f"/v1/jobs/{job}/{verb}")
        result(f"{verb}_with_{json.dumps(body)}_is_400".replace(" ", ""), status == 400 and
               words in a["error"]["message"] and "--" not in a["error"]["message"], a)
    status, a = post({"tokens": 5}, "/v1/jobs/99999/extend")
    result("extend_of_no_job_is_404", status == 404, a)


def jobs():
    """The verbs as routes. The answers are those of the command line."""
    status, a = post({"prompt": OPENING, "max_tokens": 30, "seed": 3, "ignore_eos": True})
    job, text = job_of(a), a["choices"][0]["text"]
    result("list_shows_requests_with_an_option", str(job) in cli("list", str(job)) and
           job not in [j["job"] for j in json.loads(cli("list", "--json"))["jobs"]])
    status, _, got = ask("GET", "/v1/jobs?requests=1")
    result("jobs_with_requests", json.loads(got) == json.loads(cli("list", "--json", "--requests")),
           got[:300])
    status, _, got = ask("GET", "/v1/jobs")
    result("jobs_are_those_of_list", json.loads(got) == json.loads(cli("list", "--json")), got[:300])
    status, _, got = ask("GET", "/v1/jobs?limit=1&requests=1")
    result("the_newest_job", [j["job"] for j in json.loads(got)["jobs"]] == [job], got[:300])
    status, _, got = ask("GET", f"/v1/jobs/{job}")
    result("a_job_is_that_of_show", json.loads(got) == json.loads(cli("show", "--json", str(job))), got[:300])
    status, _, got = ask("GET", f"/v1/jobs/{job}/report")
    result("a_report_is_that_of_report", json.loads(got) == json.loads(cli("report", "--json", str(job))),
           got[:300])
    status, _, got = ask("GET", f"/v1/jobs/{job}/text")
    result("a_text_is_that_of_the_answer", got.decode() == text, got)
    status, _, got = ask("GET", f"/v1/jobs/{job}/text?from=10")
    want = cli("tail", str(job), "--from", "10")
    result("a_text_from_a_token_is_that_of_tail", got.decode() == want and len(want) < len(text), (got, want))
    status, _, got = ask("GET", f"/v1/jobs/{job}/text?from=x")
    result("a_bad_token_is_400", status == 400, got)
    for path in "/v1/jobs/999999", "/v1/jobs/999999/text", "/v1/jobs/x", "/v1/jobs/-1/report":
        status, _, got = ask("GET", path)
        result(f"get_{path}_is_404", status == 404, (status, got))

    long = cli("submit", "-m", MODEL, "-p", OPENING, "-n", "3000", "-s", "5", "--ignore-eos").strip()
    status, _, got = ask("POST", f"/v1/jobs/{long}/pause")
    result("pause", status == 200 and json.loads(got)["state"] == "paused", got)
    status, _, got = ask("POST", f"/v1/jobs/{long}/pause")
    result("a_paused_job_cannot_be_paused", status == 409 and b"is paused" in got, got)
    status, _, got = ask("POST", f"/v1/jobs/{long}/priority", {"priority": 7})
    result("priority", status == 200 and json.loads(got)["priority"] == 7, got)
    status, _, got = ask("POST", f"/v1/jobs/{long}/priority", {"priority": "x"})
    result("a_bad_priority_is_400", status == 400, got)
    status, _, got = ask("POST", f"/v1/jobs/{long}/resume?page=1")
    result("a_form_leads_back_to_the_page", status == 303, (status, got))
    status, _, got = ask("GET", f"/v1/jobs/{long}/text?follow=1")
    want = run("-p", OPENING, "-n", "3000", "-s", "5", "--ignore-eos")
    result("a_followed_text_is_whole", got.decode() == want, (len(got), len(want)))
    status, _, got = ask("POST", f"/v1/jobs/{long}/cancel")
    result("a_done_job_cannot_be_cancelled", status == 409, got)
    status, _, got = ask("POST", f"/v1/jobs/{long}/priority", {"priority": 7})
    result("a_done_job_has_no_priority", status == 409 and b"is done" in got, got)
    status, _, got = ask("DELETE", f"/v1/jobs/{long}")
    gone, _, _ = ask("GET", f"/v1/jobs/{long}")
    result("delete", status == 200 and gone == 404, (status, got, gone))
    long = cli("submit", "-m", MODEL, "-p", OPENING, "-n", "50000", "-s", "5", "--ignore-eos").strip()
    r = follow(long)
    status, _, got = ask("DELETE", f"/v1/jobs/{long}")
    result("a_written_job_is_not_deleted", status == 409 and b"being written" in got and b"--" not in got,
           got)
    ask("POST", f"/v1/jobs/{long}/pause")
    status, _, got = ask("DELETE", f"/v1/jobs/{long}")
    result("a_followed_text_is_cut_off_when_it_is_removed", status == 200 and is_cut(r), got)

    edits(job)

    status, a = post({"prompt": "Once upon"}, "/tokenize")
    path = os.environ["LONGHAND_DB"] + ".txt"
    with open(path, "w", encoding="utf-8") as f:
        f.write("Once upon")
    ids = [int(x) for x in cli("tokenize", "-m", MODEL, path).split()]
    result("tokenize", status == 200 and a["tokens"] == ids and a["count"] == len(ids), (a, ids))
    status, a = post({"tokens": ids}, "/detokenize")
    result("detokenize", status == 200 and a == {"prompt": "Once upon"}, a)
    status, a = post({"tokens": [10 ** 7]}, "/detokenize")
    result("an_id_beyond_the_vocabulary_is_400", status == 400, a)
    for raw in (b"{}", b"x", b"[]", b'{"tokens": 5}', b'{"tokens": null}', b'{"tokens": "x"}'):
        status, _, text = ask("POST", "/detokenize", raw=raw)
        result(f"detokenize_of_{raw.decode()}_is_400".replace(" ", ""), status == 400, text)
    time.sleep(5.5)
    status, h, got = ask("GET", "/metrics")
    result("metrics", status == 200 and h["Content-Type"].startswith("text/plain") and
           b"vllm:num_requests_running" in got and b'longhand_jobs{state="done"}' in got, got[:300])


def pages():
    """The pages without their script: the queue, the form, a job with the texts of its name, its report."""
    file = os.environ["LONGHAND_DB"] + ".jsonl"
    with open(file, "w", encoding="utf-8") as f:
        f.write(json.dumps({"custom_id": "<script>alert(1)</script>", "prompt": "x", "max_tokens": 2}))
    cli("submit", "-q", "-m", MODEL, "--batch", file, "--name", '"><b>&')
    status, h, got = ask("GET", "/")
    page = got.decode()
    result("the_page_escapes_names", status == 200 and "<script>alert" not in page and "<b>" not in page and
           "&#60;script&#62;alert(1)" in page, page[:2000])
    policy = h["Content-Security-Policy"]
    nonce = policy.split("script-src 'nonce-")[1].split("'")[0]
    result("the_page_lets_only_its_script_run", "default-src 'none'" in policy and
           page.count("<script") == page.count(f'<script nonce="{nonce}"') == 1 and "src=" not in page,
           policy)

    long = cli("submit", "-m", MODEL, "-p", OPENING, "-n", "50000", "-s", "5", "--ignore-eos").strip()
    newer = cli("submit", "-m", MODEL, "-p", OPENING, "-n", "50000", "-s", "5", "--ignore-eos").strip()
    cli("pause", "-q", newer)
    until(lambda: listed()[int(long)]["state"] == "running")
    def done():
        return sum(j["state"] == "done" for j in listed().values())

    before = done()                          # another text may end while the page is made
    page = ask("GET", "/")[2].decode()
    result("what_runs_is_first_in_the_queue",
           0 < page.find(f'"/jobs/{long}"') < page.find(f'"/jobs/{newer}"'), page[:2000])
    result("the_page_counts_all_jobs", any(f" {n:,} done" in page for n in range(before, done() + 1)),
           (before, page[:2000]))
    cli("remove", "-q", "--force", long, newer)

    def form(**fields):
        return ask("POST", "/jobs", headers={"Content-Type": "application/x-www-form-urlencoded"},
                   raw=urllib.parse.urlencode(fields).encode())
    hostile = '<img src=x onerror="alert(1)"> & </pre>' + OPENING
    status, h, got = form(prompt=hostile, max_tokens="30", seed="3", temperature="0.5", name="a book")
    job = int((h["Location"] or "/0").split("/")[-1])
    result("a_form_queues_a_text", status == 303 and job in listed(), (status, got))
    until(lambda: listed()[job]["state"] == "done")
    want = run("-p", hostile, "-n", "30", "-s", "3", "--temperature", "0.5")
    result("its_text_is_that_of_run", ask("GET", f"/v1/jobs/{job}/text")[2].decode() == want, want)
    status, h, got = form(prompt="One\r\nTwo", max_tokens="20", seed="3")
    lines = int((h["Location"] or "/0").split("/")[-1])
    until(lambda: listed()[lines]["state"] == "done")
    result("the_line_ends_of_a_form_are_newlines", ask("GET", f"/v1/jobs/{lines}/text")[2].decode() ==
           run("-p", "One\nTwo", "-n", "20", "-s", "3"))
    j = listed()[job]
    result("it_is_no_request", j["name"] == "a book" and j["priority"] == 0, j)
    status, h, got = form(prompt="Hello", chat="1", max_tokens="3", seed="", temperature="", name="")
    chat = int((h["Location"] or "/0").split("/")[-1])
    result("a_form_queues_a_chat", status == 303 and "messages" in cli("show", "--json", str(chat)) or
           "chat" in cli("show", str(chat)), got)
    for name, fields in (("no_prompt", {"max_tokens": "3"}),
                         ("a_bad_number", {"prompt": "x", "seed": "x<b>"}),
                         ("a_bad_name", {"prompt": "x", "name": "a/b"}), ("nothing", {})):
        status, h, got = form(**fields)
        result(f"a_form_with_{name}_is_400",
               status == 400 and b"was not queued" in got and b"<b>" not in got, (status, got[-400:]))
    status, _, got = ask("POST", "/jobs", raw=b"prompt=x", headers={"Content-Type": "text/plain"})
    result("a_form_of_another_type_is_400", status == 400, got)
    status, _, got = ask("POST", "/jobs", raw=b"prompt=x", headers={
        "Content-Type": "application/x-www-form-urlencoded", "Origin": "http://evil.example"})
    result("a_form_of_another_origin_is_403", status == 403, got)

    with open(file, "w", encoding="utf-8") as f:
        f.write("\n".join(json.dumps(x) for x in (
            {"custom_id": "one", "prompt": OPENING, "max_tokens": 9, "seed": 1},
            {"custom_id": "two", "after": "one", "append": hostile, "max_tokens": 60, "seed": 1})))
    cli("submit", "-q", "-m", MODEL, "--batch", file, "--name", "novel")
    first, second = sorted(i for i, j in listed().items() if j["name"] == "novel")
    until(lambda: listed()[second]["state"] == "done")
    status, h, got = ask("GET", f"/jobs/{second}")
    page = got.decode()
    text = ask("GET", f"/v1/jobs/{second}/text")[2].decode()
    shown = html.unescape(page.split('<pre id="out"')[1].split(">\n", 1)[1].split("</pre>")[0])
    result("a_page_of_a_job_has_its_text", status == 200 and shown == text and "<img" not in page,
           (shown, text))
    result("and_the_chapters_of_its_book", all(f'<a href="/jobs/{x}">' in page for x in (first, second)) and
           "novel/one" in page, page)
    result("and_a_policy", "default-src 'none'" in h["Content-Security-Policy"], h)
    with sqlite3.connect(os.environ["LONGHAND_DB"]) as db:
        crc = db.execute("SELECT crc FROM chunk WHERE job = ?", (first,)).fetchone()[0]
        db.execute("UPDATE chunk SET crc = ? WHERE job = ?", (crc ^ 1, first))
    status, _, got = ask("GET", f"/jobs/{first}")
    result("a_page_says_why_a_text_cannot_be_read", status == 200 and b"cannot be read: " in got, got[-900:])
    status, _, got = ask("GET", f"/jobs/{second}?live=1")
    result("the_part_that_changes_is_without_the_text", status == 200 and b"<pre" not in got, got)
    status, h, got = ask("GET", f"/jobs/{second}/report")
    result("a_page_has_the_report", status == 200 and h["Content-Type"].startswith("text/html") and
           b"</html>" in got and b"<img" not in got, got[:300])
    for page, path in ("job", f"/jobs/{second}"), ("queue", "/"):
        status, h, got = ask("POST", f"/v1/jobs/{second}/cancel?page={page}")
        got = ask("GET", h["Location"] or "/")[2].decode()
        result(f"a_button_of_the_{page}_that_is_late_leads_back_and_says_so", status == 303 and
               h["Location"].startswith(path + "?") and
               f'<p role="alert">cancel changed nothing: job {second} is done.</p>' in got, (status, h, got))
    status, h, got = ask("POST", "/v1/jobs/99999/pause?page=job")
    got = ask("GET", h["Location"] or "/")[2].decode()
    result("a_button_of_a_removed_job_leads_to_the_queue", status == 303 and "<h1>longhand: demo" in got and
           "pause changed nothing: job 99999 is not in the store." in got, (status, h, got))
    for query in "not=<b>&job=1", "not=pause", "not=pause&job=x", "not=pause&job=%00":
        status, _, got = ask("GET", "/?" + query)
        result(f"a_page_with_{query}_says_nothing", status == 200 and b'role="alert"' not in got, got)
    long = cli("submit", "-m", MODEL, "-p", OPENING, "-n", "3000", "-s", "5", "--ignore-eos").strip()
    status, h, got = ask("POST", f"/v1/jobs/{long}/pause?page=job")
    result("a_form_of_a_job_leads_back_to_it",
           status == 303 and h["Location"] == f"/jobs/{long}", (status, got))
    page = ask("GET", f"/jobs/{long}")[2].decode()
    result("a_paused_job_can_be_resumed", f"/v1/jobs/{long}/resume?page=job" in page and
           f"/v1/jobs/{long}/pause" not in page, page)
    cli("remove", "-q", long)
    for path in "/jobs/99999", "/jobs/<x>", "/jobs/99999/report":
        status, h, got = ask("GET", path)
        result(f"get_{path}_is_404", status == 404 and b"there is no job" in got and b"<x>" not in got and
               h["Content-Type"].startswith("text/html") and h["Content-Security-Policy"], (h, got))


def rows():
    """A page of a store with many jobs: other readers do not wait for it."""
    cli("submit", "-q", "-m", MODEL, "-p", OPENING, "-n", "2")
    with sqlite3.connect(os.environ["LONGHAND_DB"]) as db:
        names = [r[1] for r in db.execute("PRAGMA table_info(job)") if r[1] != "id"]
        own = ", ".join({"state": "'paused'", "worker": "NULL"}.get(x, x) for x in names)
        db.execute(f"""WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
                   INSERT INTO job ({', '.join(names)}) SELECT {own} FROM job, n WHERE id = 1""")

    def seconds(path):
        since = time.perf_counter()
        assert ask("GET", path)[0] == 200
        return time.perf_counter() - since
    seconds("/")
    page, others = [], []
    for _ in range(5):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            one = pool.submit(seconds, "/")
            time.sleep(0.03)
            others.append(seconds("/v1/jobs/1/text"))
            page.append(one.result())
    print(f"    a page of 200,000 jobs: {min(page):.3f} s; a text meanwhile: {min(others):.3f} s")
    result("a_long_queue_does_not_block_readers", min(others) < min(page) / 2, (others, page))


def memory():
    """With --max-memory 150M --parallel 1: accepted texts that the worker can never hold."""
    body = {"prompt": OPENING, "max_tokens": 20000, "ignore_eos": True}
    first = sent(body)
    until(lambda: any(j["tokens"] for j in listed().values()))
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        waiting = [pool.submit(post, dict(body, max_tokens=5, seed=i), headers={"Idempotency-Key": f"k{i}"})
                   for i in range(40)]
        until(lambda: sum(j["state"] == "queued" for j in listed().values()) == 40)
        with sqlite3.connect(os.environ["LONGHAND_DB"]) as db:   # as if other processes had taken the memory
            db.execute("UPDATE job SET wanted = 100000 WHERE state = 'queued'")
        first.close()
        got = [w.result() for w in concurrent.futures.wait(waiting, 60).done]
        result("every_text_beyond_memory_is_400", len(got) == 40 and
               all(status == 400 and "of memory" in a["error"]["message"] for status, a in got), got[:2])
        cli("cancel", "-q", "--all")     # whoever waits still
    result("no_text_beyond_memory_stays", {j["state"] for j in listed().values()} == {"cancelled"}, listed())
    with sqlite3.connect(os.environ["LONGHAND_DB"]) as db:
        db.execute("UPDATE job SET wanted = 5")
    status, a = post(dict(body, max_tokens=5, seed=7), headers={"Idempotency-Key": "k7"})
    result("a_text_that_was_refused_is_written_when_it_fits", status == 200, a)
    status, a = post(dict(body, max_tokens=100000))
    result("a_text_that_never_fits_is_refused_at_once", status == 400, a)


def upload(data, purpose="batch", name="in.jsonl", key='name="file"'):
    head = {"Content-Type": "multipart/form-data; boundary=--b"}
    body = (f'----b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n{purpose}\r\n----b\r\n'
            f'Content-Disposition: form-data; {key}; filename="{name}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n").encode() + data + b"\r\n----b--\r\n"
    status, _, text = ask("POST", "/v1/files", headers=head, raw=body)
    return status, json.loads(text)


def batch(file, **more):
    return post({"input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h", **more},
                "/v1/batches")


def ended(b):
    deadline = time.time() + 120
    while b["status"] in ("validating", "in_progress") and time.time() < deadline:
        time.sleep(0.05)
        b = json.loads(ask("GET", f"/v1/batches/{b['id']}")[2])
    return b


def batches():
    """Files and batches: the results are those of `run` for every line."""
    body = {"model": "demo", "prompt": OPENING, "max_tokens": 25, "ignore_eos": True}
    data = "\n".join(json.dumps({"custom_id": f"r{i}", "method": "POST", "url": "/v1/completions",
                                 "body": dict(body, seed=i)}) for i in range(3)).encode()
    status, f = upload(data)
    result("an_upload_is_a_file", status == 200 and f["bytes"] == len(data) and
           f["filename"] == "in.jsonl" and f["purpose"] == "batch", f)
    status, _, got = ask("GET", f"/v1/files/{f['id']}/content")
    result("its_content_is_that_of_the_upload", got == data, got[:200])
    status, g = upload(b"x")
    status, _, got = ask("GET", "/v1/files?limit=1")
    a = json.loads(got)
    result("files_are_listed_newest_first", [x["id"] for x in a["data"]] == [g["id"]] and a["has_more"], a)
    status, _, got = ask("GET", f"/v1/files?after={g['id']}")
    result("after_goes_on", [x["id"] for x in json.loads(got)["data"]] == [f["id"]], got)
    status, b = batch(f["id"], metadata={"book": "7"})
    b = ended(b)
    result("a_batch_is_written", b["status"] == "completed" and b["metadata"] == {"book": "7"} and
           b["request_counts"] == {"total": 3, "completed": 3, "failed": 0} and not b["error_file_id"], b)
    listed_files = [x["id"] for x in json.loads(ask("GET", "/v1/files?purpose=batch_output")[2])["data"]]
    result("its_results_are_listed", listed_files == [b["output_file_id"]], listed_files)
    lines = [json.loads(x) for x in ask("GET", f"/v1/files/{b['output_file_id']}/content")[2].splitlines()]
    want = [run("-p", OPENING, "-n", "25", "-s", str(i), "--ignore-eos") for i in range(3)]
    bodies = [x["response"]["body"] for x in lines]
    result("its_texts_are_those_of_run", [x["choices"][0]["text"] for x in bodies] == want and
           [x["custom_id"] for x in lines] == ["r0", "r1", "r2"] and bodies[0]["model"] == "demo", lines[:1])
    status, _, got = ask("POST", f"/v1/batches/{b['id']}/cancel")
    result("a_completed_batch_cannot_be_cancelled", status == 409, (status, got))
    result("its_jobs_have_its_name", sum(j["name"] == b["id"] for j in listed().values()) == 3)
    long = json.dumps({"custom_id": "a", "prompt": OPENING, "max_tokens": 50000, "ignore_eos": True}).encode()
    status, b = batch(upload(long)[1]["id"])
    status, _, got = ask("POST", f"/v1/batches/{b['id']}/cancel")
    time.sleep(1)
    c = ended(b)
    result("a_batch_is_cancelled", c["status"] == "cancelled" and c["request_counts"]["completed"] == 0 and
           not any(j["state"] in ("queued", "running") for j in listed().values() if j["name"] == b["id"]), c)
    for name, bad, words in (("a_bad_line", b'{"custom_id": "a"}', "line 1: body is missing"),
                             ("another_model", b'{"custom_id": "a", "prompt": "x", "model": "/etc/passwd"}',
                              "no such model"),
                             ("too_many_lines", b"{}\n" * 50001, "at most 50000")):
        b = ended(batch(upload(bad)[1]["id"])[1])
        message = b["errors"]["data"][0]["message"] if b["errors"] else ""
        result(f"a_batch_with_{name}_fails", b["status"] == "failed" and words in message and
               ".files" not in message, b)
    for name, want, got in (("a_purpose", 400, upload(b"x", "fine-tune")[0]),
                            ("a_large_upload", 413, upload(b"x" * 300000)[0]),
                            ("no_multipart", 400, ask("POST", "/v1/files", raw=b"x")[0]),
                            ("a_part_without_a_name", 400, upload(b"x", key="name=file")[0]),
                            ("two_files", 400, upload(b"x\r\n----b\r\nContent-Disposition: form-data; "
                                                      b'name="file"; filename="b"\r\n\r\ny')[0]),
                            ("a_missing_file", 404, batch("file-0123456789abcdef")[0]),
                            ("a_file_that_is_a_path", 404, batch("../../etc/passwd")[0]),
                            ("an_endpoint", 400, batch(f["id"], endpoint="/v1/embeddings")[0]),
                            ("an_unknown_file", 404, ask("GET", "/v1/files/file-0123456789abcdef")[0]),
                            ("a_path", 404, ask("GET", "/v1/files/..%2fserve.db/content")[0]),
                            ("an_unknown_batch", 404, ask("GET", "/v1/batches/batch_0123456789abcdef")[0])):
        result(f"{name}_is_{want}", got == want, got)
    status, _, _ = ask("DELETE", f"/v1/files/{f['id']}")
    gone, _, _ = ask("GET", f"/v1/files/{f['id']}/content")
    files = json.loads(ask("GET", "/v1/files")[2])["data"]
    result("all_files_are_listed_once", {"batch", "batch_output"} == {x["purpose"] for x in files} and
           len({x["id"] for x in files}) == len(files) and f["id"] not in [x["id"] for x in files], files)
    result("a_deleted_file_is_gone", status == 200 and gone == 404, (status, gone))


def first():
    """With one place: a request is answered while a batch is written, whose text stays that of run."""
    long = cli("submit", "-m", MODEL, "-p", OPENING, "-n", "6000", "-s", "6", "--ignore-eos").strip()
    deadline = time.time() + 60
    while listed()[int(long)]["tokens"] < 50 and time.time() < deadline:
        time.sleep(0.05)
    status, a = post({"prompt": "The king", "max_tokens": 20, "seed": 1, "ignore_eos": True})
    j = listed()[int(long)]
    result("a_request_comes_before_a_batch", status == 200 and j["state"] in ("queued", "running") and
           50 <= j["tokens"] < 6000, (a, j))
    status, _, got = ask("GET", f"/v1/jobs/{long}/text?follow=1")
    want = run("-p", OPENING, "-n", "6000", "-s", "6", "--ignore-eos")
    result("a_text_that_was_released_stays_that_of_run", got.decode() == want, (len(got), len(want)))


def crowd():
    """With --max-connections 1: a second request for a text is 429, other routes are answered."""
    body = json.dumps({"prompt": OPENING, "max_tokens": 50000, "seed": 1, "ignore_eos": True}).encode()
    s = socket.create_connection((HOST, PORT))
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
              b"Content-Length: %d\r\n\r\n" % len(body) + body)
    deadline = time.time() + 60
    while not any(j["tokens"] for j in listed().values() if j["of"] == 50000) and time.time() < deadline:
        time.sleep(0.05)
    status, h, text = ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 2})
    health, _, _ = ask("GET", "/health")
    result("too_many_requests_are_429", status == 429 and h["Retry-After"] == "1" and health == 200,
           (status, text))
    s.close()


def package():
    """The openai package."""
    import openai
    client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
    result("openai_lists_models", [m.id for m in client.models.list()] == ["demo"])
    want = run("-p", OPENING, "-n", "40", "-s", "7", "--ignore-eos")
    more = {"ignore_eos": True}
    a = client.completions.create(model="demo", prompt=OPENING, max_tokens=40, seed=7, extra_body=more)
    result("openai_completions", a.choices[0].text == want and a.usage.completion_tokens == 40, a)
    parts = client.completions.create(model="demo", prompt=OPENING, max_tokens=40, seed=7, stream=True,
                                      extra_body=more)
    result("openai_streams_completions", "".join(p.choices[0].text for p in parts) == want)
    ask_chat = {"model": "demo", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 30,
                "seed": 2}
    whole = client.chat.completions.create(**ask_chat).choices[0].message.content
    parts = client.chat.completions.create(**ask_chat, stream=True, stream_options={"include_usage": True})
    parts = list(parts)
    result("openai_streams_chats", "".join(p.choices[0].delta.content or "" for p in parts if p.choices) ==
           whole and parts[-1].usage.completion_tokens == 30, parts[-1])
    line = {"custom_id": "a", "url": "/v1/completions", "body": {"prompt": OPENING, "max_tokens": 5}}
    f = client.files.create(file=("in.jsonl", json.dumps(line).encode()), purpose="batch")
    b = client.batches.create(input_file_id=f.id, endpoint="/v1/completions", completion_window="24h")
    while b.status in ("validating", "in_progress"):
        time.sleep(0.1)
        b = client.batches.retrieve(b.id)
    lines = client.files.content(b.output_file_id).text.splitlines()
    result("openai_batches", [json.loads(x)["custom_id"] for x in lines] == ["a"] and
           client.batches.list().data[0].id == b.id, b)
    for name, error, call in (
            ("a_bad_field", openai.BadRequestError,
             lambda: client.completions.create(model="demo", prompt="x", temperature=-1)),
            ("an_unknown_model", openai.NotFoundError, lambda: client.models.retrieve("none"))):
        try:
            call()
            result(f"openai_raises_{name}", False, "no exception")
        except openai.APIStatusError as e:
            result(f"openai_raises_{name}", type(e) is error and e.body["message"], e)


for part in PART.split(","):
    since = time.time()
    {"texts": texts, "chat": chat, "thoughts": thoughts, "refusals": refusals, "leave": clients_that_leave,
     "fails": failed_jobs, "fuzz": fuzz, "many": many, "keys": keys, "jobs": jobs, "pages": pages,
     "batches": batches,
     "first": first, "crowd": crowd, "forget": forget, "kills": kills, "speed": speed,
     "memory": memory, "rows": rows, "package": package, "named": named, "stops": stops}[part]()
    print(f"    {part}: {time.time() - since:.1f} s")
