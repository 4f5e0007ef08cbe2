"""Servers for tests/cli/edges_silence.sh: lists as JSON inside a string, tools, and the forms of --cors and
--allow-host.

    edges_silence.py PROGRAM MODEL FOLDER
"""
import contextlib
import http.client
import json
import os
import re
import sqlite3
import subprocess
import sys

LONGHAND, MODEL, FOLDER = sys.argv[1:]
STORE = os.path.join(FOLDER, "serve.db")
failed = False
said = []                                # by each server on standard error


def result(name, good, why=""):
    global failed
    failed |= not good
    print(f"ok {name}" if good else f"    {why}\nFAIL {name}")


@contextlib.contextmanager
def server(*options):
    p = subprocess.Popen([LONGHAND, "serve", "-m", MODEL, "--port", "0", "--db", STORE, "-n", "2", *options],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    port = int(re.match(r"http://127.0.0.1:(\d+)/v1 ", p.stdout.readline())[1])

    def ask(method, path, body=None, headers={}):
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        c.request(method, path, body and json.dumps(body), headers)
        r = c.getresponse()
        return r.status, r.headers, r.read().decode()
    try:
        yield ask
    finally:
        p.terminate()
        said.append(p.communicate()[1])


def lets_in(ask, origin):
    """Whether a page of the origin is answered, and reads the answer."""
    status, h, _ = ask("GET", "/v1/models", None, {"Origin": origin, "Sec-Fetch-Site": "cross-site"})
    return status == 200 and h["Access-Control-Allow-Origin"] == origin


def refused(option, value, words):
    p = subprocess.run([LONGHAND, "serve", "-m", MODEL, "--port", "0", "--db", STORE, option, value],
                       capture_output=True, text=True, timeout=60)
    return p.returncode == 2 and words in p.stderr and p.stderr.count("\n") == 1


def stored(member):
    """The member of the parameters of the last job."""
    with contextlib.closing(sqlite3.connect(STORE, timeout=60)) as c:
        row = c.execute("SELECT parameters FROM input ORDER BY job DESC LIMIT 1").fetchone()
    return json.loads(row[0])[member]


BODY = {"prompt": "x", "max_tokens": 1}
CHAT = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "chat_template": "chatml"}
TOOLS = [{"type": "function", "function": {"name": "f"}}]
with server("--cors", "http://host.example:3000/", "--cors", "http://a.example:80, https://B.example:443",
            "--cors", "null", "--tree", "2", "--drafter", "none") as ask:
    for origin in "http://host.example:3000", "http://a.example", "https://b.example", "null":
        result(f"{origin}_is_let_in", lets_in(ask, origin))
    for origin in "http://host.example", "https://a.example", "http://b.example", "http://a.example:3000":
        result(f"{origin}_is_not_let_in", ask("GET", "/v1/models", None, {"Origin": origin})[0] == 403)
    status, h, _ = ask("OPTIONS", "/v1/completions", None, {
        "Origin": "http://a.example", "Access-Control-Request-Headers": "authorization,x-stainless-os"})
    result("a_preflight_lets_the_headers_of_sdks_in",
           status == 204 and "x-stainless-os" in h["Access-Control-Allow-Headers"], h.items())

    for field, text, want in (
            ("dry_sequence_breakers", r'["\n", ":", "\"", "\\"]', ["\n", ":", '"', r"\\"]),
            ("dry_sequence_breakers", r'"\n", ":"', ["\n", ":"]), ("dry_sequence_breakers", '"', ['"']),
            ("dry_sequence_breakers", "[]", ["none"]), ("dry_sequence_breakers", "[THINK]", ["[THINK]"]),
            ("stop", '["a", "[b]"]', ['["a", "[b]"]']), ("stop", "[1]", ["[1]"]), ("stop", "[]", ["[]"]),
            ("banned_strings", '["abc"]', ['["abc"]']), ("logit_bias", '{"5": -1}', {"5": -1}),
            ("logit_bias", "5:-1", {"5": -1})):
        status, _, answer = ask("POST", "/v1/completions", {**BODY, field: text})
        got = stored(field) if status == 200 else answer
        result(f"{field}_is_{text}", got == want, got)
    for field, text in (("logit_bias", "[[5, -1]]"), ("stop_token_ids", "[5]"), ("tools", "[]"),
                        ("dry_sequence_breakers", '["a", 3]')):
        status, _, answer = ask("POST", "/v1/completions", {**BODY, field: text})
        result(f"{field}_is_refused", status == 400, answer)

    status, _, answer = ask("POST", "/v1/chat/completions", {**CHAT, "tools": TOOLS})
    result("tools_without_a_place", status == 400 and "template has no place for tools" in answer, answer)
    status, _, answer = ask("POST", "/v1/chat/completions", {**CHAT, "tools": TOOLS,
                                                             "chat_template": "{{ tools }}"})
    result("tools_with_a_place", status == 200, answer)
result("a_tree_of_no_drafter_of_a_server", said[0].count("none this changes nothing: --tree") == 1, said)
with server("--cors", "*") as ask:
    result("every_origin_is_let_in", lets_in(ask, "http://x.example") and lets_in(ask, "null"))
for value in "host:3000", "a,b", "http://h/app", "", "http://*.h", "http://h,b", "http://h:port":
    result(f"cors_of_<{value}>_is_refused", refused("--cors", value, "is not an origin"))
for value in "http://h", "host:8080", "*", "a,b", "[::1]":
    result(f"allow_host_of_<{value}>_is_refused", refused("--allow-host", value, "is not the name of a host"))
sys.exit(failed)
