#!/usr/bin/env python3
"""Compares random expressions and templates with jinja2. Needs jinja2 and a finished `make`.

    python3 tests/make/jinja_random.py [N [SEED]]       N cases (default 100,000), from SEED (default 1)
    python3 tests/make/jinja_random.py --lines N        N cases with jinja2's results, \
for tests/data/jinja/random.jsonl

A case passes if both texts are equal, or if both refuse. A result beyond 64 bits is refused here alone, and a
few cases more (see `excused`); they are counted."""
import json
import os
import random
import sys
import tempfile
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import jinja_reference as ref  # noqa: E402

VARS = {
    "n": 3, "z": 0, "big": 10 ** 12, "f": 2.5, "t": True, "no": None, "s": "Hello World", "e": "",
    "u": "\u00c9t\u00e9 \U0001f600\n x\t",
    "l": [3, 1, 2], "m": [], "ls": ["b", "A", "c", "a"], "mix": [1, "1", None, 2.0, [1], {"a": 1}],
    "d": {"b": 1, "a": "x", "items": 5, "k y": None},
    "ds": [{"a": 2, "b": "x"}, {"a": 1, "b": "Y", "c": {"d": 4}}, {"b": None}],
    "messages": [{"role": "user", "content": "Hi <there>"},
                 {"role": "assistant", "content": [{"type": "text", "text": "A"}]}],
}
NAMES = list(VARS) + ["x", "y", "loop", "ns", "undefd", "tools"]
STRINGS = ["''", "'a'", '"b c"', "'x\\n'", "'\\u00e9'", "'%s'", "'{}'", "'role'", "'  pad '", "'A-b c'",
           "'1'", "' 12 '", "'2.5'", "'l'", "','"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">", "<=", ">=", "and", "or", "in",
          "not in"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "boolean", "number",
         "integer", "float", "true", "false", "odd", "even", "lower", "upper", "callable", "eq 1", "eq(n)",
         "in l", "in('abc')", "divisibleby 2", "lt 2", "ge(2)", "ne 'a'", "equalto 'a'", "sameas none",
         "not none", "not defined", "filter"]
FILTERS = ["length", "upper", "lower", "trim", "string", "list", "first", "last", "int", "float", "abs",
           "round", "round(1)", "tojson", "tojson(indent=2)", "join", "join(', ')",
           "join('-', attribute='a')", "default('D')", "default('D', true)", "d", "items|list", "dictsort",
           "dictsort(by='value')", "sort", "sort(reverse=true)", "sort(attribute='a')", "unique|list",
           "reverse|list", "reverse", "map('upper')|list", "map(attribute='a')|list",
           "map(attribute='a', default=0)|list", "select|list", "reject('none')|list", "selectattr('a')|list",
           "selectattr('b', 'equalto', 'x')|list", "rejectattr('a', 'defined')|list", "capitalize", "title",
           "replace('l', 'L')", "replace('', '-')", "replace('o', '0', 1)", "indent", "indent(2, true)",
           "indent(first=true, blank=true)", "min", "max", "sum", "sum(attribute='a')", "count",
           "trim('H d')", "wordcount", "int(5)", "int(0, 16)", "float(1.5)", "map('int')|sum",
           "select('string')|list", "attr('a')", "tojson(sort_keys=true)", "tojson(separators=(',', ':'))",
           "sort(case_sensitive=true)", "map('length')|list", "list|length", "map(attribute='b')|join('/')",
           "select('odd')|first"]
METHODS = [".upper()", ".lower()", ".strip()", ".lstrip('H')", ".rstrip('d ')", ".split()", ".split(' ')",
           ".split('l', 1)", ".split(none, 1)", ".rsplit('l', 1)", ".rsplit(none, 1)", ".startswith('H')",
           ".endswith(('d', 'x'))", ".replace('l', 'LL')", ".replace('', '.', 2)", ".find('o')",
           ".rfind('o')", ".count('l')", ".title()", ".capitalize()", ".items()", ".keys()|list",
           ".values()|list", ".get('a')", ".get('zz', 7)", ".format(n, 2)", ".join(ls)", ".a", ".b", ".role",
           ".0", "[0]", "[-1]", "['a']", "[1:]", "[::-1]", "[:2]", "[-2:]", "[::2]", "[n]", "[5:1:-1]",
           ".splitlines()", ".isdigit()", ".isalpha()", ".isupper()", ".islower()", ".index(1)",
           ".partition(' ')", ".rpartition('o')", ".zfill(5)", ".ljust(14, '.')", ".center(15)",
           ".removeprefix('He')", ".removesuffix('d')", ".content", ".c.d", ".isspace()", ".isalnum()"]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, things):
        return self.r.choice(things)

    def atom(self):
        k = self.r.random()
        if k < 0.5:
            return self.pick(NAMES)
        if k < 0.62:
            return self.pick(STRINGS)
        if k < 0.8:
            return self.pick(["0", "1", "2", "-1", "7", "1.5", "0.1", "1e3", "2.0", "1_000", "0x1f", "-3"])
        return self.pick(["true", "False", "none", "None", "[]", "{}", "()", "(1,)", "range(3)",
                          "namespace(a=1)", "dict(a=1)"])

    def expr(self, depth):
        if depth <= 0:
            return self.atom()
        k, e = self.r.random(), lambda: self.expr(depth - 1)
        if k < 0.22:
            return f"{e()} {self.pick(BINARY)} {e()}"
        if k < 0.42:
            return f"{self.group(depth)}|{self.pick(FILTERS)}"
        if k < 0.6:
            return f"{self.group(depth)}{self.pick(METHODS)}"
        if k < 0.68:
            return f"{self.group(depth)} is {self.pick(TESTS)}"
        if k < 0.73:
            return f"{e()} if {e()} else {e()}"
        if k < 0.75:
            return f"{e()} if {e()}"
        if k < 0.79:
            return f"({e()})"
        if k < 0.82:
            return f"not {e()}"
        if k < 0.85:
            return f"-{self.group(depth)}"
        if k < 0.89:
            return "[" + ", ".join(e() for _ in range(self.r.randint(0, 3))) + "]"
        if k < 0.91:
            return "(" + ", ".join(e() for _ in range(self.r.randint(2, 3))) + ")"
        if k < 0.94:
            return "{" + ", ".join(f"{self.pick(STRINGS + ['1', 'n', 'true'])}: {e()}"
                                   for _ in range(self.r.randint(0, 3))) + "}"
        if k < 0.96:
            return f"{e()} {self.pick(['<', '==', '<=', '!='])} {e()} " \
                f"{self.pick(['<', '==', '>', 'in'])} {e()}"
        if k < 0.98:
            return f"{self.group(depth)}[{e()}]"
        return f"range({self.pick(['2', 'n', '5, 1, -2', '1, n'])})|list"

    def group(self, depth):
        return self.atom() if self.r.random() < 0.7 else f"({self.expr(depth - 1)})"

    def tag(self, words):
        left = self.pick(["{%", "{%", "{%-", "{%+"])
        right = self.pick(["%}", "%}", "-%}", "+%}"])
        return f"{left} {words} {right}"

    def white(self):
        return self.pick(["", "", "\n", "  ", "\n    ", "a", " b\n", "\n\n  c "])

    def body(self, depth, loop):
        return "".join(self.white() + self.statement(depth, loop)
                       for _ in range(self.r.randint(1, 3))) + self.white()

    def target(self):
        return self.pick(["x", "y", "x", "n", "s", "ns.a", "x, y"])

    def statement(self, depth, loop):
        k, e = self.r.random(), lambda: self.expr(self.r.randint(0, 2))
        if depth <= 0 or k < 0.3:
            return self.pick(["{{ ", "{{- "]) + e() + self.pick([" }}", " -}}"])
        sub = lambda in_loop: self.body(depth - 1, in_loop)      # noqa: E731
        if k < 0.45:
            middle = self.tag(f"elif {e()}") + sub(loop) if self.r.random() < 0.3 else ""
            last = self.tag("else") + sub(loop) if self.r.random() < 0.4 else ""
            return self.tag(f"if {e()}") + sub(loop) + middle + last + self.tag("endif")
        if k < 0.62:
            target, over = self.pick([("x", e()), ("x", "l"), ("x", "ls"), ("x", "ds"), ("x, y", "d.items()"),
                                      ("x", "messages"), ("x", "range(n)"), ("y", "s"),
                                      ("x", "l|reverse"), ("x, y", "d|items")])
            test = f" if {e()}" if self.r.random() < 0.25 else ""
            last = self.tag("else") + sub(loop) if self.r.random() < 0.2 else ""
            show = "{{ loop." + self.pick(["index", "index0", "first", "last", "length", "revindex",
                                           "revindex0", "previtem", "nextitem", "depth",
                                           "cycle('a', 'b')", "changed(x)"]) + " }}" \
                if self.r.random() < 0.6 else ""
            return self.tag(f"for {target} in {over}{test}") + show + sub(True) + last + self.tag("endfor")
        if k < 0.76:
            return self.tag(f"set {self.target()} = {e()}")
        if k < 0.8:
            return self.tag(f"set {self.pick(['x', 'y'])}{self.pick(['', '|upper', '|trim|length'])}") + \
                sub(loop) + self.tag("endset")
        if k < 0.85:
            args = self.pick(["", "x", "x, y=1", "x='d', y=x", "s, n=2"])
            call = self.pick(["", "1", "n", "1, 2", "x=5", "1, y=2", "y=3", "*l[:2]", "**{'x': 4}"])
            return self.tag(f"macro mac({args})") + sub(False) + self.tag("endmacro") + \
                "{{ mac(" + call + ") }}"
        if k < 0.88:
            return self.tag(f"filter {self.pick(['upper', 'trim', 'replace(s, n)', 'length'])}") + \
                sub(loop) + self.tag("endfilter")
        if k < 0.91:
            return self.tag("generation") + sub(False) + self.tag("endgeneration")
        if k < 0.94:
            return self.tag(f"set ns = namespace(a={e()})")
        if k < 0.95:
            return self.tag(f"with x = {e()}") + sub(loop) + self.tag("endwith")
        if k < 0.965 and loop:
            return self.tag(f"if {e()}") + self.tag(self.pick(["break", "continue"])) + self.tag("endif")
        if k < 0.98:
            return "{#" + self.pick(["", "-", "+"]) + " {{ c }} " + self.pick(["", "-", "+"]) + "#}"
        return self.tag("raw").replace("+%}", "%}") + "{{ raw }} {% x \n" + self.tag("endraw")

    def case(self):
        if self.r.random() < 0.5:
            return "{{ " + self.expr(self.r.randint(1, 4)) + " }}"
        return self.body(self.r.randint(1, 3), False)


def excused(template, want, why, out, error):
    """Differences that jinja.h names: 64 bits, and what has no text here but an address in Python."""
    if error and want is not None and "has no slices" in error:
        return True                              # jinja2 folds a constant without slices to an undefined
    if error and ("beyond" in error or "is not supported" in error or "has no text" in error):
        return True
    return out is not None and why is not None and "MemoryError" in why


def main():
    warnings.simplefilter("ignore", SyntaxWarning)       # of Python about constants in templates
    lines = sys.argv[1:2] == ["--lines"]
    args = [int(a) for a in sys.argv[1 + lines:]]
    n, seed = (args + [100000])[0], (args[1:] + [1])[0]
    env = ref.environment()
    maker = Maker(seed)
    if lines:
        print(json.dumps({"vars": VARS}, ensure_ascii=False))
        for _ in range(n):
            template = maker.case()
            want, why = ref.reference(env, template, json.loads(json.dumps(VARS)))
            if want is None or " at 0x" not in want:
                print(json.dumps({"template": template, "out": want}, ensure_ascii=False))
        return 0
    counts = {"equal": 0, "refused": 0, "excused": 0, "differ": 0}
    with tempfile.TemporaryDirectory() as folder:
        driver = ref.build_driver(folder)
        for at in range(0, n, 5000):
            templates = [maker.case() for _ in range(min(5000, n - at))]
            for template, (out, error) in zip(templates, ref.ours(driver, [(t, VARS) for t in templates])):
                want, why = ref.reference(env, template, json.loads(json.dumps(VARS)))
                kind = "refused" if want is None and out is None else "equal" if want == out else \
                    "excused" if excused(template, want, why, out, error) else "differ"
                counts[kind] += 1
                if kind == "differ" and counts["differ"] <= 25:
                    print(f"{template!r}\n    jinja2:   {why or repr(want)}\n"
                          f"    longhand: {error or repr(out)}")
    print(", ".join(f"{v} {k}" for k, v in counts.items()))
    return counts["differ"] > 0


if __name__ == "__main__":
    sys.exit(main())
