"""Load on a server: edges_tsan.py URL SECONDS. Every kind of request at once, from clients that also leave.
The answers count little here: a sanitizer in the server watches its threads. Prints how much was answered."""
import collections
import http.client
import json
import random
import sys
import threading
import time
import urllib.parse

AT, SECONDS = urllib.parse.urlsplit(sys.argv[1]), float(sys.argv[2])
UNTIL = time.time() + SECONDS
COUNT, LOCK = collections.Counter(), threading.Lock()


def ask(method, path, body=None, headers=None, leave=False):
    c = http.client.HTTPConnection(AT.hostname, AT.port, timeout=120)
    c.request(method, path, json.dumps(body) if isinstance(body, dict) else body, headers or {})
    if leave:
        time.sleep(random.random())
        c.close()
        return 0, b""
    r = c.getresponse()
    text = r.read()
    c.close()
    with LOCK:
        COUNT[f"{method} {path.split('?')[0].split('/')[-1] if len(path) < 30 else '..'} {r.status}"] += 1
    return r.status, text


def text(i):
    return {"prompt": f"Once upon a time {i}", "max_tokens": random.randint(1, 24), "seed": i,
            "ignore_eos": True, "temperature": 0.9}


def completions(i):
    ask("POST", "/v1/completions", dict(text(i), n=1 + i % 3, stream=i % 2 == 0, stop=["zzz"],
                                         logit_bias={"5": -1}), leave=i % 5 == 0)


def chats(i):
    body = dict(text(i), messages=[{"role": "user", "content": f"Hello {i}"}], stream=i % 2 == 1)
    del body["prompt"]
    if i % 3 == 0:
        body["chat_template"] = "{% for m in messages %}{{ m.content|trim }}{% endfor %}"
    ask("POST", "/v1/chat/completions", body, {"Idempotency-Key": f"k{i // 2}"} if i % 4 < 2 else {})


def batches(i):
    lines = "".join(json.dumps({"custom_id": f"l{k}", "url": "/v1/completions", "body": text(k)}) + "\n"
                    for k in range(8))
    if i % 4 == 3:
        lines += '{"custom_id": "bad", "prompt": 5}\n'
    part = "--bb\r\nContent-Disposition: form-data; name="
    form = f'{part}"purpose"\r\n\r\nbatch\r\n{part}"file"; filename="a"\r\n\r\n{lines}\r\n--bb--\r\n'
    status, a = ask("POST", "/v1/files", form, {"Content-Type": "multipart/form-data; boundary=bb"})
    file = json.loads(a)["id"]
    status, a = ask("POST", "/v1/batches", {"input_file_id": file, "endpoint": "/v1/completions",
                                            "completion_window": "24h"})
    batch = json.loads(a)["id"]
    time.sleep(random.random())
    if i % 3 == 0:
        ask("POST", f"/v1/batches/{batch}/cancel")
    ask("GET", f"/v1/batches/{batch}")
    ask("GET", f"/v1/files/{batch.replace('batch_', 'file-')}-output/content")
    ask("DELETE", f"/v1/files/{file}")


def lists(i):
    path = ["/v1/jobs?requests=1&limit=5", "/metrics", "/health", "/v1/batches", "/v1/files", "/",
            "/v1/models",
            "/v1/jobs"][i % 8]
    ask("GET", path)
    time.sleep(0.05)


def jobs(i):
    ids = [j["job"] for j in json.loads(ask("GET", "/v1/jobs?requests=1&limit=20")[1])["jobs"]]
    for job in random.sample(ids, min(3, len(ids))):
        verb = random.choice(["", "/text", "/report", "/pause", "/resume", "/cancel", "/extend", "/fork",
                              "/priority", "/text?follow=1"])
        post = verb.split("?")[0] in ("/pause", "/resume", "/cancel", "/extend", "/fork", "/priority")
        ask("POST" if post else "GET", f"/v1/jobs/{job}{verb}",
            {"tokens": 5} if verb == "/extend" else {"at": 1} if verb == "/fork" else
            {"priority": 3} if verb == "/priority" else None, leave="follow" in verb)
    if ids and i % 4 == 0:
        ask("DELETE", f"/v1/jobs/{ids[0]}")
    ask("GET", f"/jobs/{ids[-1]}" if ids else "/")


def others(i):
    ask("POST", "/tokenize", {"prompt": "some text"})
    ask("POST", "/jobs", f"prompt=The+sea&max_tokens=5&name=form{i}", {"Content-Type":
                                                                  "application/x-www-form-urlencoded"})
    ask("POST", "/v1/completions", b"{")
    ask("GET", "/none")


def client(kind, number):
    i = number
    while time.time() < UNTIL:
        try:
            kind(i)
        except (OSError, http.client.HTTPException, ValueError, KeyError) as e:
            with LOCK:
                COUNT[f"{kind.__name__}: {type(e).__name__}"] += 1
        i += 10


threads = [threading.Thread(target=client, args=(kind, n)) for kind in
           (completions, chats, batches, lists, jobs, others) for n in range(2)]
for t in threads:
    t.start()
# A request whose job was paused by another client waits for ever: at the end its job is cancelled.
for t in threads:
    t.join(max(0, UNTIL - time.time()) + 2)
    while t.is_alive():
        for job in json.loads(ask("GET", "/v1/jobs?requests=1")[1])["jobs"]:
            if job["state"] not in ("done", "failed", "cancelled"):
                ask("POST", f"/v1/jobs/{job['job']}/cancel")
        t.join(1)
for kind, n in sorted(COUNT.items()):
    print(f"    {kind}: {n}")
# a client whose job another one cancels gets a 500
bad = sum(n for kind, n in COUNT.items() if kind.endswith(" 500") and "completions" not in kind)
print(f"answers {sum(COUNT.values())}, internal errors {bad}")
sys.exit(sum(COUNT.values()) < 20 or bad > 0)
