"""Compare the page of a report in a browser with the report's JSON: report_page.py DOM.html REPORT.json

Every plotted line is read twice: from its attribute data-y, and from the points that are drawn, the hollow
ones of shorter windows included, with the labels of the axes as the scale. Prints the differences."""
import html.parser
import json
import re
import sys


LINKS = ("src", "href", "xlink:href", "srcset", "action", "data", "background", "poster", "ping")


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.tags, self.links, self.plots, self.text, self.stack, self.policy = [], [], [], [], [], ""

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        self.tags.append(tag)
        self.links += [(tag, k, v) for k, v in attributes if k in LINKS or k.startswith("on")]
        if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy":
            self.policy = a["content"]
        if tag == "svg" and a.get("role") == "img":
            self.plots.append({"title": a["aria-label"], "lines": [], "labels": []})
        if tag == "path" and "data-y" in a:
            self.plots[-1]["lines"].append(a)
            a["hollow"] = []
        if tag == "circle" and a["class"].startswith("hollow"):
            self.plots[-1]["lines"][-1]["hollow"].append((a["cx"], a["cy"]))
        if tag == "text":
            self.plots[-1]["labels"].append([float(a["x"]), float(a["y"]), ""])
        self.stack.append(tag)

    def handle_endtag(self, tag):
        while self.stack and self.stack.pop() != tag:
            pass

    def handle_data(self, data):
        if self.stack and self.stack[-1] == "text":
            self.plots[-1]["labels"][-1][2] += data
        elif "style" not in self.stack:
            self.text.append(data)


def number(label):
    label = label.replace(",", "")
    if label.endswith(" %"):
        return float(label[:-2]) / 100
    return float(label[:-1]) * 1000 if label.endswith("k") else float(label)


def scale(labels, axis):
    """The straight line through the labels of an axis: place -> value. Labels of y are 4 below their line."""
    pairs = [((x, y - 4)[axis], number(t)) for x, y, t in labels]
    (p, v), (q, w) = min(pairs), max(pairs)
    return lambda at: v + (at - p) * (w - v) / (q - p), abs((w - v) / (q - p))


def differ(a, b, by):
    return (a is None) != (b is None) or (a is not None and abs(a - b) > by)


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        source = f.read()
    with open(sys.argv[2], encoding="utf-8") as f:
        report = json.load(f)
    page, wrong = Page(), []
    page.feed(source)
    windows = report["windows"]
    want = {"Speed": [[w["tokens_per_second"] for w in windows]],
            "Mean acceptance length": [[w["mean_acceptance_length"] for w in windows]],
            "Distinct-n of each 1,000 tokens": [[w["distinct"][n] for w in windows] for n in "1234"],
            "Distinct-n so far": [[w["distinct_so_far"][n] for w in windows] for n in "1234"]}
    if report["drafted"]:
        lines = ("alpha", "beta") if report["beta"] is not None else ("alpha",)
        want[" and ".join(lines).capitalize()] = [[w[k] for w in windows] for k in lines]
        want["Share by source"] = [[w["sources"][s]["share"] for w in windows] for s in report["sources"]]
    found = {p["title"]: p for p in page.plots if p["lines"]}
    if set(found) != set(want):
        wrong.append(f"plots {sorted(found)}, not {sorted(want)}")
    for title in set(found) & set(want):
        plot = found[title]
        if len(plot["lines"]) != len(want[title]):
            wrong.append(f"{title}: {len(plot['lines'])} lines, not {len(want[title])}")
        edge = min(x for x, _, _ in plot["labels"])
        to_y, fine = scale([p for p in plot["labels"] if p[0] == edge], 1)
        for line, values in zip(plot["lines"], want[title]):
            told = [None if s == "-" else float(s) for s in line["data-y"].split(" ")]
            pairs = zip(told, values)
            if len(told) != len(values) or any(differ(a, b, 1e-5 * max(1, abs(b or 0))) for a, b in pairs):
                wrong.append(f"{title}, {line['data-name']}: data-y {told[:5]}, not {values[:5]}")
            points = re.findall(r"[ML]([-0-9.]+) ([-0-9.]+)", line["d"]) + line["hollow"]
            drawn = [to_y(float(y)) for _, y in points]
            present = [v for v in values if v is not None]
            if len(drawn) != len(present) or any(differ(a, b, 0.2 * fine) for a, b in zip(drawn, present)):
                wrong.append(f"{title}, {line['data-name']}: drawn {drawn[:5]}, not {values[:5]}")
    if [l for l in page.links if not (l[1] == "href" and l[2].startswith("#"))]:
        wrong.append(f"leaves the page or runs something: {page.links[:3]}")
    if {"script", "img", "iframe", "link", "object", "embed", "base", "form"} & set(page.tags):
        wrong.append(f"elements {sorted(set(page.tags))}")
    if "default-src 'none'" not in page.policy or "script-src" in page.policy:
        wrong.append(f"policy {page.policy!r}")
    text = "".join(page.text)
    seen = re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f]", text)
    if seen:
        wrong.append(f"a control character {seen.group(0)!r}")
    for part in sys.argv[3:]:
        if part not in text:
            wrong.append(f"{part!r} is not on the page")
    for line in wrong:
        print(line)
    return bool(wrong) or not windows


sys.exit(main())
