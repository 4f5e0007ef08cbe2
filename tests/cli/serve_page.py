"""The pages of a server in headless Chromium. serve_page.py URL LONGHAND MODEL CHROMIUM PICTURE: prints lines
"ok NAME" and "FAIL NAME", and writes a picture of a page.

Chromium is driven over a pipe (--remote-debugging-pipe): messages are JSON, each ended by a NUL."""
import base64
import json
import os
import subprocess
import sys
import tempfile
import time

URL, LONGHAND, MODEL, CHROMIUM, PICTURE = sys.argv[1:6]
HOSTILE = "<img src=x onerror=\"window.hacked=1\"><script>window.hacked=1</script> & <b>bold</b> \u202etxt"
UNHARMED = ("typeof window.hacked == 'undefined' && "
            "!document.querySelector('main img, main b, main script')")
OPENING = "Once upon a time there was a"


def result(name, good, why=""):
    print(("ok " if good else f"    {str(why)[:600]}\nFAIL ") + name, flush=True)


def cli(*words):
    return subprocess.run([LONGHAND, *words], stdout=subprocess.PIPE, check=True).stdout.decode()


def jobs():
    return {j["job"]: j for j in json.loads(cli("list", "--json"))["jobs"]}


def until(good, seconds=60):
    deadline = time.time() + seconds
    while not good() and time.time() < deadline:
        time.sleep(0.1)
    return good()


class Browser:
    def __init__(self, folder):
        to_read, self.to = os.pipe()
        self.of, from_write = os.pipe()

        def ends():                      # Chromium reads from 3 and writes to 4
            os.dup2(to_read, 103)
            os.dup2(from_write, 104)
            os.dup2(103, 3)
            os.dup2(104, 4)
        self.process = subprocess.Popen(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", f"--user-data-dir={folder}", "--remote-debugging-pipe"],
            preexec_fn=ends, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.rest, self.n, self.faults = b"", 0, []
        self.tab()

    def tab(self):
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in "Page", "Runtime", "Log":
            self.call(domain + ".enable")

    def call(self, method, **params):
        self.n += 1
        message = {"id": self.n, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                more = os.read(self.of, 1 << 16)
                assert more, "Chromium has ended"
                self.rest += more
            one, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(one)
            if answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.faults.append(answer["params"])
            if answer.get("id") == self.n:
                assert "error" not in answer, answer
                return answer["result"]

    def value(self, script):
        """What a script returns; None while a page is being loaded."""
        try:
            return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")
        except AssertionError:
            return None

    def open(self, path):
        self.call("Page.navigate", url=URL + path)
        ready = f"location.pathname == {path!r} && document.readyState"
        assert until(lambda: self.value(ready) == "complete")

    def key(self, key, text=None):
        for kind in "keyDown", "keyUp":
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, text=text or "",
                      windowsVirtualKeyCode={"Tab": 9, "Enter": 13}[key])

    def picture(self):
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


def tabs(b, job):
    """A browser has six connections for all tabs. One that is not seen leaves its connection to others."""
    first, size, good = b.session, "document.getElementById('out').textContent.length", True
    hide = ("Object.defineProperty(document, 'hidden', {value: %s, configurable: true}); "
            "document.dispatchEvent(new Event('visibilitychange'))")
    b.value(hide % "true")
    for _ in range(7):
        b.tab()
        try:
            b.open(f"/jobs/{job}")
            before = b.value(size) or 0
            good = good and until(lambda: (b.value(size) or 0) > before, 20)
        except AssertionError:
            good = False
        b.value(hide % "true")
    result("a_seventh_tab_works", good)
    b.session = first
    before = b.value(size)
    time.sleep(1)
    result("a_tab_that_is_not_seen_rests", b.value(size) == before)
    b.value(hide % "false")
    want = "fetch('/v1' + location.pathname + '/text').then(r => r.text()).then(t => window.want = t)"
    grown = until(lambda: b.value(size) > before)
    b.value(want)
    until(lambda: b.value("window.want"))
    result("a_tab_that_is_seen_again_goes_on", grown and until(lambda: b.value(
        "document.getElementById('out').textContent.startsWith(want)"), 10))


def page_of(b, job):
    """A running text: it grows, stays text, and can be paused."""
    b.open(f"/jobs/{job}")
    size = "document.getElementById('out').textContent.length"
    first = until(lambda: b.value(size)) and b.value(size)
    result("a_running_text_grows_on_its_page", until(lambda: (b.value(size) or 0) > first + 300), first)
    shown = b.value("document.getElementById('out').textContent")
    result("hostile_text_stays_text", shown.startswith(HOSTILE) and b.value(UNHARMED), shown[:200])
    result("its_book_is_listed", b.value("[...document.querySelectorAll('#live a')].some(a => "
                                         f"a.textContent == '{job}')"))
    tabs(b, job)
    time.sleep(2.5)                      # the live part was fetched anew
    b.value(f"document.querySelector('#live [aria-label=\"pause job {job}\"]').click()")
    result("pause_works", until(lambda: jobs()[job]["state"] == "paused"), jobs()[job])
    resume = f"!!document.querySelector('[aria-label=\"resume job {job}\"]')"
    result("a_paused_text_can_be_resumed", until(lambda: b.value(resume)))


def main(b):
    file = os.environ["LONGHAND_DB"] + ".jsonl"
    with open(file, "w", encoding="utf-8") as f:
        for i, after in enumerate((None, "chapter-1", "chapter-2")):
            line = {"custom_id": f"chapter-{i + 1}", "prompt": OPENING, "seed": 5, "ignore_eos": True,
                    "max_tokens": 40000 if i == 1 else 300, "append": "" if i == 0 else HOSTILE,
                    "after": after}
            f.write(json.dumps({k: v for k, v in line.items() if v}) + "\n")
    with open(file + "2", "w", encoding="utf-8") as f:
        f.write(json.dumps({"custom_id": HOSTILE, "prompt": OPENING, "max_tokens": 3}))
    cli("submit", "-q", "-m", MODEL, "--batch", file, "--name", "The sea")
    cli("submit", "-q", "-m", MODEL, "--batch", file + "2", "--name", "hostile")
    second = sorted(i for i, j in jobs().items() if j["name"] == "The sea")[1]
    b.open("/")
    row = ("[...document.querySelectorAll('#live tr')].map(r => r.textContent)"
           f".find(t => t.startsWith('{second}'))")
    result("the_queue_shows_a_running_book", until(lambda: "running" in (b.value(row) or "")), b.value(row))
    before = b.value(row)
    result("the_queue_stays_up_to_date", until(lambda: b.value(row) not in (before, None), 20), before)
    result("hostile_names_stay_text", b.value("document.body.textContent").count("<img") == 1 and
           b.value(UNHARMED))
    page_of(b, second)

    b.open("/")                          # by the keyboard alone
    for _ in range(60):
        b.key("Tab")
        if b.value("document.activeElement.name") == "prompt":
            break
    known = set(jobs())
    b.call("Input.insertText", text=HOSTILE)
    for _ in range(10):
        b.key("Tab")
        if b.value("document.activeElement.textContent") == "queue":
            break
    b.key("Enter", "\r")
    result("the_keyboard_queues_a_text", until(lambda: len(jobs()) == len(known) + 1))
    result("and_leads_to_its_page", until(lambda: b.value("location.pathname") == f"/jobs/{max(jobs())}"),
           b.value("location.pathname"))
    cli("cancel", "-q", str(max(jobs())))

    b.call("Emulation.setDeviceMetricsOverride", width=360, height=700, deviceScaleFactor=1, mobile=True)
    for path in "/", f"/jobs/{second}":
        b.open(path)
        wide = b.value("document.documentElement.scrollWidth")
        result(f"{path}_fits_a_narrow_screen".replace(str(second), "N"), wide <= 360, wide)
    colours = []
    for scheme in "light", "dark":
        b.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        colours.append(b.value("getComputedStyle(document.body).color"))
    result("light_and_dark", colours == ["rgb(30, 32, 35)", "rgb(230, 231, 233)"], colours)
    b.call("Emulation.setEmulatedMedia", features=[])
    cli("resume", "-q", str(second))
    b.call("Emulation.setDeviceMetricsOverride", width=960, height=760, deviceScaleFactor=1, mobile=False)
    cli("remove", "-q", *[str(i) for i, j in jobs().items() if j["name"] != "The sea"])
    until(lambda: jobs()[second]["state"] == "running")
    b.open(f"/jobs/{second}")
    time.sleep(3)
    with open(PICTURE, "wb") as f:
        f.write(b.picture())
    result("a_picture", 0 < os.path.getsize(PICTURE) < 200000, os.path.getsize(PICTURE))
    result("no_script_fails_and_no_policy_is_broken", not b.faults, b.faults)


with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder_of_profile:
    browser = Browser(folder_of_profile)
    try:
        main(browser)
    finally:
        browser.process.kill()
        browser.process.wait()
