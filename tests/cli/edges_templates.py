"""Asks a server what a slow body does to others: edges_templates.py URL PART SLOWER."""
import http.client
import json
import sys
import threading
import time
import urllib.parse

URL, PART, SLOWER = urllib.parse.urlsplit(sys.argv[1]), sys.argv[2], float(sys.argv[3])
SOON = 0.3 * SLOWER
# Whole seconds of work in one builtin after the other.
SLOW = ("{% set a = 'ab' * 2000000 %}{% for i in range(100000) %}{% for k in range(100000) %}"
        "{% set r = a | upper | length %}{% endfor %}{% endfor %}")
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


def beside(slow, others):
    """Runs others() while slow() runs: the answer of slow(), that of others(), whether slow() ran on."""
    got = []
    thread = threading.Thread(target=lambda: got.append(slow()))
    thread.start()
    time.sleep(0.05)
    answer = others()
    still = thread.is_alive()
    thread.join()
    return got[0], answer, still


def everything():
    """The longest wait of a client that asks for other things."""
    answers = [ask("/health"), ask("/v1/models"), chat(),
               ask("/v1/completions", {"prompt": "The sea", "max_tokens": 1}),
               ask("/tokenize", {"messages": MESSAGES})]
    assert all(status == 200 for status, _, _ in answers), answers
    return max(took for _, _, took in answers)


def test_ready():
    assert ask("/health")[0] == 200


def test_slow_template():
    """The computer may be busy: one of some tries is undisturbed. With a lock none is."""
    chat()
    waits = []
    for i in range(8):
        (status, body, took), wait, still = beside(lambda: chat(chat_template=SLOW), everything)
        assert status == 400 and "takes longer than one second" in body["error"]["message"], body
        assert took < 2 * SLOWER + 1, took
        waits.append((wait, still))
        if still and wait < SOON:
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

    beside(lambda: chat(chat_template=SLOW), all_of_them)
    assert not wrong, wrong


def test_lists():
    """A member that the template names, in each message: four times both take about four times as long."""
    quickest = []
    for n in (500, 2000):
        body = {"messages": [{"role": "user", "content": "x", "zz": "1"}] * n,
                "chat_template": "{{ messages.b }}" * (10 * n) + "{{ messages[0].zz }}"}
        answers = [ask("/tokenize", body) for i in range(2)]
        assert all(status == 200 for status, _, _ in answers), answers
        quickest.append(min(took for _, _, took in answers))
    assert quickest[1] < 8 * quickest[0] + 0.3 * SLOWER, quickest


globals()["test_" + PART]()
