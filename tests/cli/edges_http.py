"""serve at the edges of HTTP. edges_http.py LONGHAND MODEL DIR: prints lines "ok NAME" and "FAIL NAME"."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time

LONGHAND, MODEL, DIR = sys.argv[1:4]
LONG, SLOWER = bool(os.environ.get("LONG")), int(os.environ.get("SLOWER", "1"))
OPENING = "Once upon a time there was a"


def result(name, good, why=""):
    print(("ok " if good else f"    {str(why)[:900]}\nFAIL ") + name, flush=True)


class Server:
    """A server on a free port, with a store of its own."""
    def __init__(self, name, *words, db=None, cwd=None):
        self.db = db or f"{DIR}/{name}.db"
        self.log = f"{DIR}/{name}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [os.path.abspath(LONGHAND), "serve", "-m", os.path.abspath(MODEL), "--port", "0", "--db",
                 self.db, *words], stdout=subprocess.PIPE, stderr=log, text=True, cwd=cwd)
        self.port = int(re.match(r"http://127.0.0.1:(\d+)/v1 ", self.process.stdout.readline())[1])
        while self.ask("GET", "/health")[0] != 200:
            time.sleep(0.05)

    def ask(self, method, path, body=None, headers=None, timeout=60 * SLOWER):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        c.request(method, path, json.dumps(body) if isinstance(body, dict) else body, headers or {})
        r = c.getresponse()
        text = r.read()
        c.close()
        return r.status, text.decode()

    def connect(self, first=b""):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=60 * SLOWER)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.sendall(first)
        return s

    def raw(self, data, wait=5):
        """All bytes that come back, until the server closes; None after them: it did not."""
        s = self.connect(data)
        s.settimeout(wait * SLOWER)
        got = b""
        try:
            while piece := s.recv(65536):
                got += piece
        except ConnectionResetError:
            pass
        except TimeoutError:
            got += b"<open>"
        s.close()
        return got

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60 * SLOWER)
        self.process.stdout.close()


# ---- the end of a request ----

def ends():
    """A request whose end is not clear is 400, and no second answer comes on its connection."""
    second = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    body = b'{"prompt":"a","max_tokens":1}'
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    n = b"%d" % len(body)
    bad = {
        "length_and_encoding": (b"Content-Length: " + n + b"\r\nTransfer-Encoding: chunked", chunked),
        "encoding_and_length": (b"Transfer-Encoding: chunked\r\nContent-Length: " + n, chunked),
        "encoding_and_length_0": (b"Transfer-Encoding: chunked\r\nContent-Length: 0", chunked),
        "two_equal_lengths": (b"Content-Length: " + n + b"\r\ncontent-length: " + n, body),
        "two_lengths": (b"Content-Length: 0\r\nContent-Length: " + n, body),
        "two_lengths_the_other_way": (b"Content-Length: " + n + b"\r\nContent-Length: 0", body),
        "a_list_of_lengths": (b"Content-Length: " + n + b", " + n, body),
        "a_length_with_a_plus": (b"Content-Length: +" + n, body),
        "a_negative_length": (b"Content-Length: -1", body),
        "a_hexadecimal_length": (b"Content-Length: 0x1d", body),
        "an_empty_length": (b"Content-Length: ", body),
        "a_length_with_a_point": (b"Content-Length: 29.0", body),
        "a_length_beyond_64_bits": (b"Content-Length: 18446744073709551645", body),
        "a_name_with_a_space": (b"Content-Length : " + n, body),
        "two_encodings": (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", chunked),
        "another_encoding": (b"Transfer-Encoding: gzip, chunked", chunked),
        "identity": (b"Transfer-Encoding: identity", body),
        "an_encoding_with_a_space": (b"Transfer-Encoding : chunked", chunked),
        "a_strange_encoding": (b"Transfer-Encoding: xchunked", chunked),
        "two_hosts": (b"Host: localhost\r\nContent-Length: " + n, body),
    }
    good = {"one_length": (b"Content-Length: " + n, body),
            "one_encoding": (b"Transfer-Encoding: Chunked", chunked),
            "leading_zeros": (b"Content-Length: 00" + n, body)}
    bad_chunks = [b"+1d\r\n%s\r\n0\r\n\r\n", b"0x1d\r\n%s\r\n0\r\n\r\n", b"-1\r\n%s\r\n0\r\n\r\n",
                  b"1d 1d\r\n%s\r\n0\r\n\r\n", b"\r\n%s\r\n0\r\n\r\n", b"1d\r\n%sx\r\n0\r\n\r\n",
                  b"1000000000000001d\r\n%s\r\n0\r\n\r\n"]
    with Server("ends") as sv:
        for path in (b"POST /tokenize", b"POST /v1/files", b"POST /v1/completions", b"GET /v1/models",
                     b"OPTIONS /v1/models"):
            for name, (head, data) in bad.items():
                got = sv.raw(path + b" HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n\r\n" + data + second)
                # libmicrohttpd's own answers have their header twice
                answers = set(re.findall(rb"HTTP/1.1 (\d+)", got))
                result(f"{name}_is_400_{path.split(b'/')[-1].decode()}", got.startswith(b"HTTP/1.1 4") and
                       answers == {b"413" if "beyond" in name else b"400"} and b"<open>" not in got, got)
        for name, (head, data) in good.items():
            got = sv.raw(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n\r\n" + data +
                         second.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            result(f"{name}_is_read_and_the_next_request_too", got.count(b"HTTP/1.1 200 ") == 2, got)
        for chunks in bad_chunks:
            got = sv.raw(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" +
                         chunks.replace(b"%s", body) + second)
            result(f"bad_chunks_{chunks[:8]}", b"HTTP/1.1 2" not in got and b"<open>" not in got, got)


# ---- uploads ----

def form(*parts, boundary="b1", before="", after="\r\n"):
    """A body of parts: (headers, data)."""
    d = f"--{boundary}"
    return "".join([before] + [f"{d}\r\n" + "".join(f"{h}\r\n" for h in heads) + f"\r\n{data}\r\n"
                               for heads, data in parts] + [f"{d}--{after}"]).encode("latin-1")


def disposition(words, *more):
    return [f"Content-Disposition: form-data; {words}", *more]


def uploads():
    """A multipart body is read wherever its packets begin, in every form that clients send."""
    jsonl, octets = "Content-Type: application/jsonl", "Content-Type: application/octet-stream"
    data = '{"prompt": "\r\n--a"}\r\n-\r\n--\r\r\n'
    purpose, file = (disposition('name="purpose"'), "batch"), (disposition('name="file"; filename="in.jsonl"',
                                                                           octets), data)
    forms = {                            # name: body, boundary in the header, name of the file, data
        "curl": (form(purpose, file, boundary="-" * 24 + "d7"), "-" * 24 + "d7", "in.jsonl", data),
        "httpx": (form(purpose, file, boundary="0123abcd"), "0123abcd", "in.jsonl", data),
        "a_file_first": (form(file, purpose), "b1", "in.jsonl", data),
        "undici": (form(purpose, (disposition('name="file"; filename="a%22b"', jsonl), data),
                        boundary="----formdata-undici-0123"), "----formdata-undici-0123", "a%22b", data),
        "a_name_after_filename": (form(purpose, (disposition('filename="name=x"; name="file"'), data)), "b1",
                                  "name=x", data),
        "a_preamble": (form(purpose, file, before="This is\r\n--a\r\npreamble\r\n"), "b1", "in.jsonl", data),
        "no_epilogue": (form(purpose, file, after=""), "b1", "in.jsonl", data),
        "other_parts": (form(purpose, (disposition('name="expires_after[anchor]"'), "created_at"), file),
                        "b1", "in.jsonl", data),
        "an_empty_file": (form(purpose, (disposition('name="file"; filename="e"'), "")), "b1", "e", ""),
        "no_filename": (form(purpose, (disposition('name="file"'), data)), "b1", "upload", data),
        "a_long_boundary": (form(purpose, file, boundary="x" * 70), "x" * 70, "in.jsonl", data),
    }
    bad = {
        "two_files": form(purpose, file, file), "two_files_the_first_empty": form(
            purpose, (disposition('name="file"'), ""), file),
        "no_end": form(purpose, file)[:-4], "cut": form(purpose, file)[:-30], "no_file": form(purpose),
        "no_purpose": form(file), "another_purpose": form((disposition('name="purpose"'), "fine-tune"), file),
        "a_long_purpose": form((disposition('name="purpose"'), "batch" + "x" * 40), file),
        "an_empty_body": b"", "no_delimiter": b"hello",
        "a_longer_boundary": form(purpose, file, boundary="b1c"),
        # libmicrohttpd reads quoted names alone
        "unquoted_names": form((disposition("name=purpose"), "batch"), (disposition("name=file"), data)),
    }
    head = ("POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=%s\r\n"
            "Content-Length: %d\r\n\r\n")
    with Server("uploads") as sv:
        def send(body, boundary, cuts, chunked=False):
            """Sends each piece as a packet of its own, which the server has read before the next one."""
            s = sv.connect((head % (boundary, len(body))).encode() if not chunked else
                           (head % (boundary, 0)).replace("Content-Length: 0", "Transfer-Encoding: chunked")
                           .encode())
            for at, to in zip([0] + cuts, cuts + [len(body)]):
                if to > at:
                    s.sendall(b"%x\r\n%s\r\n" % (to - at, body[at:to]) if chunked else body[at:to])
                    if not chunked:
                        time.sleep(0.0002)
            if chunked:
                s.sendall(b"0\r\n\r\n")
            r = http.client.HTTPResponse(s)
            r.begin()
            text = r.read().decode()
            s.close()
            return r.status, text

        def check(body, boundary, name, want, cuts, chunked=False):
            status, text = send(body, boundary, cuts, chunked)
            a = json.loads(text)
            if status != 200 or a["filename"] != name or a["bytes"] != len(want):
                return cuts, status, text
            got = sv.ask("GET", f"/v1/files/{a['id']}/content")[1]
            sv.ask("DELETE", f"/v1/files/{a['id']}")
            return None if got == want else (cuts, got)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for name, (body, boundary, filename, want) in forms.items():
                rng, n = random.Random(name), len(body)
                ways = [([], False), (list(range(1, n)), True), (list(range(1, n)), False)]
                ways += [(sorted(rng.sample(range(1, n), rng.randint(1, 6))), x % 2 == 0)
                         for x in range(200 if LONG else 12)]
                if name == "curl" or LONG:
                    ways += [([at], False) for at in range(1, n)]
                found = pool.map(lambda w: check(body, boundary, filename, want, *w), ways)
                found = [x for x in found if x]
                result(f"an_upload_of_{name}_is_read_in_any_pieces", not found, (len(found), found[:2]))
            for name, body in bad.items():
                rng, n = random.Random(name), len(body)
                ways = [[]] + [sorted(rng.sample(range(1, n), 3)) for _ in range(8) if n > 4]
                if n < 1000:
                    ways.append(list(range(1, n)))
                found = [x for x in pool.map(lambda w: send(body, "b1", w), ways) if x[0] != 400]
                result(f"an_upload_of_{name}_is_400", not found, found[:2])
        left = [f for f in os.listdir(sv.db + ".files") if not f.startswith("batch")]
        result("no_piece_is_left", not left, left)


# ---- idle and slow connections ----

def closed(s, wait=0.001):
    """Whether the server has closed this connection, without an answer or after one, which is dropped."""
    s.settimeout(wait)
    try:
        while s.recv(65536):
            pass
        return True
    except (TimeoutError, BlockingIOError):
        return False
    except ConnectionError:
        return True


class Slow(threading.Thread):
    """Sends the rest of these bytes, one a second, on each connection, until it is closed."""
    def __init__(self, sockets, rest):
        super().__init__(daemon=True)
        self.sockets, self.rest, self.over = sockets, rest, threading.Event()

    def run(self):
        for at in range(len(self.rest)):
            if self.over.wait(1):
                return
            for s in self.sockets:
                with contextlib.suppress(OSError):
                    s.sendall(self.rest[at:at + 1])


LINE = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
KINDS = {"idle": b"", "half_a_header": LINE, "half_a_body": LINE + b"Content-Length: 1000\r\n\r\n{",
         "half_an_upload": b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\n"
                           b"Content-Type: multipart/form-data; "
                           b"boundary=b1\r\nContent-Length: 1000\r\n\r\n--b1\r\n",
         "used_once": b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"}
STREAM = {"prompt": OPENING, "max_tokens": 20000, "ignore_eos": True, "stream": True}


def crowd(sv, most, n, streams):
    """n connections of each kind come; a good client is answered within a second, and streams go on."""
    followed = []
    for _ in range(streams):
        body = json.dumps(STREAM).encode()
        followed.append(sv.connect(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                                   b"Content-Length: %d\r\n"
                                   b"\r\n%s" % (len(body), body)))
    whole = json.dumps(dict(STREAM, stream=False)).encode()
    waits = sv.connect(LINE.replace(b"tokenize", b"v1/completions") + b"Content-Length: %d\r\n\r\n%s" %
                       (len(whole), whole))
    for s in followed:
        s.recv(10)
    kept = http.client.HTTPConnection("127.0.0.1", sv.port, timeout=60 * SLOWER)
    worst, others, slow = 0, [], []
    for kind, first in KINDS.items():
        crowd_of = []
        for i in range(n):
            crowd_of.append(sv.connect(first))
            if i % max(1, n // 6) == 0 or i == n - 1:
                began = time.time()
                good = sv.ask("GET", "/health")[0] == sv.ask("POST", "/tokenize", {"prompt": "a"})[0] == 200
                worst = max(worst, time.time() - began if good else 99)
        slow.append(Slow(crowd_of, b"a" * 900))
        slow[-1].start()
        others += crowd_of
        try:
            kept.request("GET", "/health")
            kept.getresponse().read()
        except (http.client.RemoteDisconnected, ConnectionError):    # it was idle, and among the oldest
            kept.close()
            kept.request("GET", "/health")
            kept.getresponse().read()
    until = time.time() + 4
    while time.time() < until:
        began = time.time()
        good = sv.ask("GET", "/health")[0] == 200
        worst = max(worst, time.time() - began if good else 99)
        time.sleep(0.1)
    name = f"with_{n}_of_each_kind_at_{most}"
    result(f"a_good_client_is_answered_{name}", worst < SLOWER, worst)
    result(f"streams_go_on_{name}", not any(closed(s) for s in followed) and not closed(waits))
    open_now = sum(not closed(s) for s in others)
    result(f"the_oldest_go_{name}", open_now <= most + 8 and all(closed(s) for s in others[:2]), open_now)
    for x in slow:
        x.over.set()
    for s in others + followed + [waits]:
        s.close()


def late():
    """A connection without a complete header is closed after 10 s in which it sends nothing."""
    with Server("late", "--max-connections", "4") as sv:
        first = {kind: sv.connect(data) for kind, data in KINDS.items()}
        began = time.time()
        while time.time() < began + 8 and not any(closed(s) for s in first.values()):
            time.sleep(0.2)
        result("nobody_is_sent_away_while_there_are_places", time.time() >= began + 8, first)
        while time.time() < began + 17 * SLOWER and sum(closed(s) for s in first.values()) < 2:
            time.sleep(0.2)
        result("a_header_has_10_s", {k: closed(s) for k, s in first.items()} == {
            k: k in ("idle", "half_a_header") for k in first}, {k: closed(s) for k, s in first.items()})
        s = first["used_once"]
        s.sendall(KINDS["used_once"])
        s.settimeout(5 * SLOWER)
        result("a_kept_connection_is_answered_after_10_s", s.recv(12) == b"HTTP/1.1 200")


def crowds():
    """Idle and slow connections keep nobody from an answer."""
    with Server("crowd4", "--max-connections", "4") as sv:
        crowd(sv, 4, 60, 3)
    with Server("crowd256") as sv:
        crowd(sv, 256, 300 if not LONG else 1000, 8)
    if LONG:
        with Server("crowd2000", "--max-connections", "2000") as sv:
            crowd(sv, 2000, 1500, 20)


# ---- /metrics ----

CONSTANT = {"process_start_time_seconds", "longhand_memory_limit_bytes"}
SAMPLE = re.compile(r"(\S+?(?:\{.*\})?) (\S+)$")


def samples(text):
    """name and labels but the model: value."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, x = SAMPLE.match(line).groups()
            found[re.sub(r',?model_name="[^"]*"', "", name).replace("{}", "")] = float(x)
    return found


def submit(store, *words):
    words = [LONGHAND, "submit", "-m", MODEL, "-p", OPENING, "-s", "1", *words, "--db", store, "-q"]
    return subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True).stdout.strip()


def damage(store, table, job):
    with contextlib.closing(sqlite3.connect(store, timeout=60)) as db, db:
        db.execute(f"UPDATE {table} SET crc = crc + 1 WHERE job = ?", (int(job),))


def load(store, most):
    """Jobs of every end: length, stop, repetition; one is paused, one cancelled; others go on."""
    submit(store, "-n", "200", "--ignore-eos", "--priority", "8")
    submit(store, "-n", "200", "--ignore-eos", "--stop", "a", "--priority", "8")
    submit(store, "-n", "1500", "--temperature", "0", "--on-loop", "stop", "--priority", "7")
    for verb in "pause", "cancel":
        subprocess.run([LONGHAND, verb, submit(store, "-n", "50"), "--db", store, "-q"], check=True)
    for _ in range(4):
        submit(store, "-n", most, "--ignore-eos")


def unmoved(first, later):
    keys = {k for x in later for k in x} - CONSTANT
    return {k for k in keys if len({x.get(k, 0) for x in [first, *later]}) == 1}


def moved(first, later, name):
    """Everything that is printed moves, and no counter goes back."""
    keys, still = {k for x in later for k in x}, unmoved(first, later)
    result(f"every_figure_of_{name}_moves", not still, still)
    back = {k for k in keys if k.split("{")[0].endswith("_total") for a, b in zip([first, *later], later)
            if b.get(k, 0) < a.get(k, 0)}
    result(f"no_counter_of_{name}_goes_back", not back, back)
    last = later[-1]
    result(f"the_counters_of_{name}_agree", last["longhand_failed_jobs_total"] == 1 and
           last['longhand_jobs{state="failed"}'] == 1 and
           last['vllm:request_success_total{finished_reason="length"}'] >= 1 and
           last['vllm:request_success_total{finished_reason="stop"}'] >= 1 and
           last['vllm:request_success_total{finished_reason="repetition"}'] == 1 and
           0 < last["vllm:spec_decode_num_accepted_tokens_total"] <=
           last["vllm:spec_decode_num_draft_tokens_total"] and
           last['longhand_rounds_total{jobs="2"}'] > 0 and last["vllm:generation_tokens_total"] > 400, last)


def metrics():
    """The figures of /metrics move under load, each of them, and so do those of work --metrics FILE."""
    store = f"{DIR}/metrics.db"
    damage(store, "input", submit(store, "-n", "5"))     # this job fails
    with Server("metrics", "--parallel", "2") as sv:
        first, later = samples(sv.ask("GET", "/metrics")[1]), []    # of the start
        load(store, "20000")
        until = time.time() + 60 * SLOWER
        while time.time() < until:
            later.append(samples(sv.ask("GET", "/metrics")[1]))
            x = later[-1]
            if x["vllm:num_requests_running"] == 2 and not unmoved(first, later):
                break
            time.sleep(0.5)
        moved(first, later, "metrics")
        result("metrics_count_the_queue", (x["vllm:num_requests_running"], x["vllm:num_requests_waiting"]) ==
               (2, 2) and 0 < x["vllm:kv_cache_usage_perc"] <= 1 and
               x['longhand_jobs{state="paused"}'] == 1 and
               x['longhand_jobs{state="cancelled"}'] == 1 and x["longhand_open_tokens"] > 20000, x)
        subprocess.run([LONGHAND, "cancel", "--all", "--db", store, "-q"], check=True)
    store, file = f"{DIR}/work.db", f"{DIR}/m.prom"
    damage(store, "input", submit(store, "-n", "5"))
    load(store, "300")
    work = subprocess.Popen([LONGHAND, "work", "-q", "--parallel", "2", "--db", store, "--metrics", file],
                            stderr=subprocess.DEVNULL)
    later = []
    while work.poll() is None:
        with contextlib.suppress(FileNotFoundError):
            later.append(samples(open(file, encoding="utf-8").read()))
        time.sleep(0.05)
    later.append(samples(open(file, encoding="utf-8").read()))
    # a run below 5 s writes the file at its begin and at its end, when nothing runs
    gauges = {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
              "longhand_open_tokens", "longhand_memory_reserved_bytes", 'longhand_jobs{state="queued"}',
              'longhand_jobs{state="running"}'}
    moved({}, [{k: v for k, v in x.items() if k not in gauges} for x in later], "work")


# ---- paths in messages ----

def paths():
    """No message to a client has a path, and none is garbled, whatever the name of the store."""
    folder = f"{DIR}/here"
    os.mkdir(folder)
    with Server("paths", db="a", cwd=folder) as sv:
        store = sv.db = f"{folder}/a"
        said = []

        def message(method, path, body=None, headers=None):
            status, text = sv.ask(method, path, body, headers)
            said.append(text)
            found = re.search(r'"message": ?"((?:[^"\\]|\\.)*)"', text)
            return status, found[1] if found else text

        def told(name, got, status, words):
            result(f"{name}_is_told_in_full", got[0] == status and re.fullmatch(words, got[1]), got)

        chat = {"messages": [{"role": "user", "content": "a"}]}
        told("a_model_without_a_template", message("POST", "/v1/chat/completions", chat), 400,
             "the model has no chat template; --chat-template names one of .*, or a file")
        told("a_bad_field", message("POST", "/v1/completions", {"prompt": "a", "temperature": -1}), 400,
             "body.temperature: '-1' is not a number from 0 to 1000, 0 or at least 0.0001")
        raw = "{% for a in messages %}{{ raise_exception('a a: a') }}{% endfor %}"
        chat["chat_template"] = raw
        told("a_template_that_refuses", message("POST", "/v1/chat/completions", chat), 400,
             "(body.chat_template: )?(body.messages: )?.*the chat template given, line 1: .*a a: a.*")
        job = int(json.loads(sv.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 3})[1])["id"]
                  .rsplit("-", 1)[1])
        damage(store, "chunk", job)
        told("a_damaged_text", message("POST", f"/v1/jobs/{job}/fork", {"at": 1}), 500,
             rf"job {job}: chunk 0 \(tokens from 0 on\) is damaged.*")
        page = sv.ask("GET", f"/jobs/{job}")[1]
        said.append(page)
        result("its_page_says_so", f"cannot be read: job {job}: chunk 0" in page, page[-600:])
        body = {"prompt": "a", "max_tokens": 50000, "ignore_eos": True}
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(message, "POST", "/v1/completions", body, {"Idempotency-Key": "k"})
            while not [j for j in json.loads(sv.ask("GET", "/v1/jobs?requests=1&limit=1")[1])["jobs"]
                       if j["of"] == 50000 and j["tokens"] > 20]:
                time.sleep(0.05)
            job = json.loads(sv.ask("GET", "/v1/jobs?requests=1&limit=1")[1])["jobs"][0]["job"]
            sv.ask("POST", f"/v1/jobs/{job}/pause")
            time.sleep(0.5)
            damage(store, "input", job)
            sv.ask("POST", f"/v1/jobs/{job}/resume")
            told("a_request_whose_row_is_damaged", answer.result(), 500,
                 rf"cmpl-[0-9a-f]+-{job}: the prompt of job {job} is damaged.*")
        for path in (f"/v1/jobs/{job}", f"/jobs/{job}", "/v1/jobs?requests=1"):
            got = sv.ask("GET", path)[1]
            result(f"{path.split('/')[1]}_{path.count('/')}_says_why_without_a_path",
                   f"the prompt of job {job} is damaged" in got and
                   not re.search(r"[a/]: the prompt", got), got[:900])
        shown = subprocess.run([LONGHAND, "list", "--requests", "--json", "--db", store], check=True,
                               text=True,
                               stdout=subprocess.PIPE).stdout
        result("the_store_has_no_path_of_its_own", '"the prompt of job' in shown, shown)
        for name, lines, words in (("a_bad_line", '{"prompt": "a", "top_p": -1}', "line 1: .*top_p.*"),
                                   ("no_file", "", "not a regular file")):
            body = form((disposition('name="purpose"'), "batch"), (disposition('name="file"'), lines))
            file = json.loads(message("POST", "/v1/files", body, {
                "Content-Type": "multipart/form-data; boundary=b1"})[1])["id"]
            if not lines:
                os.unlink(f"{store}.files/{file}")
                os.mkdir(f"{store}.files/{file}")
            batch = json.loads(message("POST", "/v1/batches", {
                "input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h"})[1])["id"]
            while json.loads(sv.ask("GET", f"/v1/batches/{batch}")[1])["status"] == "validating":
                time.sleep(0.05)
            told(f"a_batch_with_{name}", message("GET", f"/v1/batches/{batch}"), 200, rf"{file}: {words}")
        os.rename(f"{store}.files", f"{store}.aside")
        open(f"{store}.files", "w", encoding="utf-8").close()
        told("a_folder_that_is_a_file", message("GET", "/v1/batches"), 500, "Not a directory")
        model = os.path.abspath(MODEL)
        result("no_message_has_a_path", not [x for x in said if folder in x or model in x], said)
        log = open(sv.log, encoding="utf-8").read()
        result("the_log_has_the_paths", f"{store}: job" in log and f"{store}.files/: Not a" in log, log)


PARTS = {"ends": ends, "uploads": uploads, "crowds": crowds, "late": late, "metrics": metrics, "paths": paths}
for part in sys.argv[4].split(",") if len(sys.argv) > 4 else PARTS:
    since = time.time()
    PARTS[part]()
    print(f"    {part}: {time.time() - since:.1f} s", flush=True)
