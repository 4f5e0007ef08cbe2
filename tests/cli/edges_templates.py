"""Asks a server what a slow body does to others: edges_templates.py URL PART SLOWER."""
import http.client
import json
import sys
import threading
import time
import urllib.parse

URL, PART, SLOWER = urllib.parse.urlsplit(sys.argv[1]), sys.argv[2], float(sys.argv[3])
SOON = 0.3 * SLOWER
# Work of some seconds without new memory and with few steps.
SLOW = ("{% for i in range(100000) %}{% for k in range(100000) %}{% if 1e308 | round %}{% endif %}"
        "{% endfor %}{% endfor %}")
MESSAGES = [{"role": "user", "content": "x"}]


def ask(path, body=None):
    """The status, the answer, and the seconds that it took."""
    began = time.monotonic()
    c = http.client.HTTPConnection(URL.hostname, URL.port, timeout=120)
    c.request("POST" if body else "GET", path, json.dumps(body) if body else None)
    r = c.getresponse()
    text = r.read().decode()
    c.close()
    return r.status, json.loads(text), time.monotonic() - began


def chat(**fields):
    return ask("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1, **fields})


def test_ready():
    assert ask("/health")[0] == 200


OTHERS = {
    "/health": lambda: ask("/health"),
    "/v1/models": lambda: ask("/v1/models"),
    "completion": lambda: ask("/v1/completions", {"prompt": "The sea", "max_tokens": 1}),
    "chat": chat,
    "/tokenize": lambda: ask("/tokenize", {"messages": MESSAGES}),
}


def start(function):
    """Runs a function in a thread, whose answer is got[0] after its end."""
    got = []
    thread = threading.Thread(target=lambda: got.append(function()))
    thread.start()
    return thread, got


def test_slow_template():
    """The computer may be busy: of each request one of some tries is undisturbed. With a lock none is
    answered before the slow body ends."""
    chat()
    left, waits = dict(OTHERS), []
    for i in range(15):
        thread, got = start(lambda: chat(chat_template=SLOW))
        time.sleep(0.05)
        for name in list(left):
            status, body, took = left[name]()
            assert status == 200, (name, status, body)
            waits.append((name, round(took, 2), thread.is_alive()))
            if took < SOON and thread.is_alive():
                del left[name]
        thread.join()
        status, body, took = got[0]
        assert status == 400 and "takes longer than one second" in body["error"]["message"], body
        assert took < 5 * SLOWER, took
        if not left:
            return
    raise AssertionError(f"waits beside a slow body: {waits}")


def test_own_templates():
    """Others' own templates are rendered beside it, too, and no thread takes another's text."""
    wrong = []

    def one(k):
        template = "{% for i in range(2000) %}{{ messages[0].content }}" + str(k) + "{% endfor %}"
        for i in range(3):
            status, body, _ = ask("/tokenize", {"messages": [{"role": "user", "content": f"{k} "}],
                                                "chat_template": template})
            want = ask("/tokenize", {"prompt": f"{k} {k}" * 2000, "add_special_tokens": False})
            if status != 200 or body["tokens"] != want[1]["tokens"]:
                wrong.append((k, status))

    def all_of_them():
        threads = [threading.Thread(target=one, args=(k,)) for k in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    thread, _ = start(lambda: chat(chat_template=SLOW))
    all_of_them()
    thread.join()
    assert not wrong, wrong


def test_lists():
    """A member that the template names, in each message: four times both take about four times as long."""
    quickest = []
    for n in (2000, 8000):
        body = {"messages": [{"role": "user", "content": "x", "zz": "1"}] * n,
                "chat_template": "{{ messages.b }}" * (5 * n // 2) + "{{ messages[0].zz }}"}
        answers = [ask("/tokenize", body) for i in range(2)]
        assert all(status == 200 for status, _, _ in answers), answers
        quickest.append(min(took for _, _, took in answers))
    assert quickest[1] < 8 * quickest[0] + 0.3 * SLOWER, quickest


globals()["test_" + PART]()
