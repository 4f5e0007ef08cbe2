"""jinja2 with the environment in which transformers renders chat templates, and the driver of longhand's
interpreter (tests/jinja_driver.c). Used by check_templates.py, jinja_random.py and make_jinja_fixtures.py."""
import datetime
import functools
import glob
import json
import os
import subprocess
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2024, 7, 26)


class Generation(jinja2.ext.Extension):
    """{% generation %} BODY {% endgeneration %}: the body, called as a macro, as in transformers."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Space(jinja2.utils.Namespace):
    """namespace() of transformers: no attribute begins with an underscore."""
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attrs = dict(*args, **kwargs)
        for name in attrs:
            Space._check(name)
        jinja2.utils.Namespace.__init__(self, attrs)

    def __setitem__(self, name, value):
        Space._check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: NOW.strftime(form)
    env.globals["namespace"] = Space
    return env


@functools.lru_cache(maxsize=4)
def compiled(env, template):
    return env.from_string(template)


def reference(env, template, variables):
    """(text, None), or (None, reason) where jinja2 refuses."""
    try:
        out = compiled(env, template).render(**variables)
        out.encode()
        return out, None
    except Exception as e:                       # jinja2 lets the errors of Python through
        return None, f"{type(e).__name__}: {e}"


def build_driver(folder):
    """Compiles the driver with the library that `make` made, and returns its path."""
    libraries = glob.glob("build/*/liblonghand.a")
    library = os.environ.get("LIBRARY") or (libraries and max(libraries, key=os.path.getmtime))
    if not library:
        sys.exit("run make first, from the root of the repository")
    path = os.path.join(folder, "jinja_driver")
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-O1", "-I.",
                    "tests/jinja_driver.c", library, "-lsqlite3", "-lz", "-lm", "-ldl", "-lpthread",
                    "-o", path], check=True)
    return path


def ours(driver, cases):
    """Renders (template, variables) pairs; yields (text, reason) as `reference`."""
    lines = "".join(json.dumps({"template": t, "vars": v}, ensure_ascii=False) + "\n" for t, v in cases)
    r = subprocess.run([driver], input=lines.encode(), stdout=subprocess.PIPE)
    if r.returncode:
        sys.exit(f"the driver ended with {r.returncode}")
    for line in r.stdout.decode().split("\n")[:-1]:
        one = json.loads(line)
        yield one.get("out"), one.get("error")
