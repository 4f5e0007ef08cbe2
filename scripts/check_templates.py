#!/usr/bin/env python3
"""Compares every chat template in three public packages \
(the source of llama-cpp-python, trl and transformers)
with jinja2: each template with a set of conversations. Needs pip, jinja2 and a finished `make`.

    python3 scripts/check_templates.py [FOLDER]      FOLDER keeps the packages; without it they go

Prints a line for each template that differs in some conversation, and the totals. A template that jinja2
refuses must be refused here, too; append, pop and from_json, which transformers refuses, are counted apart.
The texts of the templates stay in the packages."""
import ast
import glob
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/make"))
import jinja_reference as ref  # noqa: E402


def download(folder):
    for package, source in (("llama-cpp-python", True), ("trl", False), ("transformers", False)):
        stem = package.replace("-", "_")
        if glob.glob(f"{folder}/{stem}-*"):
            continue
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, package] +
                       (["--no-binary", ":all:"] if source else []), check=True)


def templates(folder):
    """Lines (name, text): the files *.jinja, and the Python strings that are templates."""
    for path in sorted(glob.glob(f"{folder}/*.tar.gz")):
        with tarfile.open(path) as t:
            for m in t:
                if m.name.endswith(".jinja"):
                    yield os.path.basename(m.name), t.extractfile(m).read().decode()
    for path in sorted(glob.glob(f"{folder}/*.whl")):
        with zipfile.ZipFile(path) as z:
            for name in z.namelist():
                if name.endswith(".jinja"):
                    yield name, z.read(name).decode()
                elif name.endswith(".py") and b"{%" in z.read(name):
                    for i, node in enumerate(ast.walk(ast.parse(z.read(name)))):
                        if isinstance(node, ast.Constant) and isinstance(node.value, str) \
                                and "{%" in node.value and "message" in node.value and "endfor" in node.value:
                            yield f"{name}:{node.lineno}", node.value


TOOL = {"type": "function", "function": {
    "name": "weather", "description": "The weather of a place.\nIn degrees.", "parameters": {
        "type": "object", "required": ["place"], "properties": {
            "place": {"type": "string", "description": "A town"},
            "days": {"type": ["integer", "null"], "default": 3},
            "unit": {"type": "string", "enum": ["C", "F"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "more": {"type": "object", "properties": {"a": {"type": "number", "nullable": True}}}}},
    "return": {"type": "string"}}}
NO_ARGS = {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {
    "type": "object", "properties": {}}}}
CALL = {"id": "call12345", "type": "function", "function": {"name": "weather",
        "arguments": {"place": "K\u00f6ln <b>", "days": 2, "tags": ["a", 1.5, None, True]}}}
CALL_TEXT = {"id": "call12345", "type": "function", "function": {
    "name": "weather", "arguments": "{\"place\": \"Bonn\"}"}}


def conversations():
    def m(role, content, **more):
        return {"role": role, "content": content, **more}
    system, hi = m("system", "Be brief. "), m("user", " Hello\n")
    answer = m("assistant", "Hi there.")
    thought = m("assistant", "<think>\nhm\n</think>\n\nForty-two.")
    reasoned = m("assistant", "Yes.", reasoning_content="Because.\n")
    asked = m("assistant", "", tool_calls=[CALL])
    result = m("tool", "{\"t\": 21}", tool_call_id="call12345", name="weather")
    parts = m("user", [{"type": "text", "text": "One"}, {"type": "text", "text": "two"}])
    turns = {
        "one": [hi], "system": [system, hi], "turns": [system, hi, answer, m("user", "Why?")],
        "long": [hi, answer, m("user", "x"), m("assistant", "y "), m("user", "z")],
        "thought": [hi, thought, m("user", "Why?")],
        "reasoned": [hi, reasoned, m("user", "And?")], "last answer": [system, hi, reasoned],
        "call": [system, hi, asked, result],
        "call and answer": [hi, asked, result, answer, m("user", "Thanks")],
        "call as text": [hi, m("assistant", None, tool_calls=[CALL_TEXT]), result],
        "two calls": [hi, m("assistant", "Wait", tool_calls=[CALL, dict(CALL, id="call67890")]), result,
                      dict(result, tool_call_id="call67890")],
        "call thought": [hi, m("assistant", "", reasoning_content="Tools?", thinking="Tools?",
                               tool_calls=[CALL]), result],
        "parts": [system, parts],
        "parts system": [m("system", [{"type": "text", "text": "S"}]), parts, answer, parts],
        "parts answer": [hi, m("assistant", [{"type": "text", "text": "A"}]), hi],
        "image": [m("user", [{"type": "image"}, {"type": "text", "text": "What?"}])],
        "developer": [m("developer", "D"), hi], "two systems": [system, hi, answer, system, hi],
        "wrong order": [hi, hi], "answer first": [answer, hi], "empty": [],
        "empty texts": [m("system", ""), m("user", "")],
        "odd role": [m("judge", "x")],
        "unicode": [m("user", "\u00c9t\u00e9 \U0001f600 <|im_end|> \u4f60\u597d")],
    }
    ways = {
        "plain": {}, "prompt": {"add_generation_prompt": True},
        "tools": {"add_generation_prompt": True, "tools": [TOOL, NO_ARGS]}, "no tools": {"tools": []},
        "thinking": {"add_generation_prompt": True, "enable_thinking": True, "thinking": True},
        "no thinking": {"add_generation_prompt": True, "enable_thinking": False, "thinking": False},
        "effort": {"add_generation_prompt": True, "reasoning_effort": "high", "tools": [TOOL],
                   "builtin_tools": ["browser", "python"]},
        "kwargs": {"date_string": "1 Jan 2025", "documents": [{"title": "T", "text": "words"}],
                   "add_generation_prompt": True, "custom_tools": [TOOL], "tools_in_user_message": False,
                   "preserve_thinking": True, "clear_thinking": False},
    }
    base = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>",
            "tools": None, "documents": None, "add_generation_prompt": False}
    for name, messages in turns.items():
        for way, more in ways.items():
            yield f"{name}, {way}", {**base, "messages": messages, **more}


def main():
    keep = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory() as temporary:
        folder = keep or temporary
        os.makedirs(folder, exist_ok=True)
        download(folder)
        driver = ref.build_driver(temporary)
        env = ref.environment()
        cases = list(conversations())
        total = differ = refused = beyond = 0
        names = 0
        for name, text in templates(folder):
            names += 1
            first = None
            bad = 0
            results = list(ref.ours(driver, [(text, v) for _, v in cases]))
            for (case, variables), (out, error) in zip(cases, results):
                want, why = ref.reference(env, text, json.loads(json.dumps(variables)))
                total += 1
                refused += want is None and out is None
                if out == want:
                    continue
                if want is None and ("is unsafe" in why or "from_json" in why):
                    beyond += 1
                    continue
                bad += 1
                first = first or (case, want, why, out, error)
            if bad:
                differ += 1
                case, want, why, out, error = first
                at = next((i for i, (a, b) in enumerate(zip(want or "", out or "")) if a != b), 0)
                print(f"{name}: {bad} differ, first [{case}]\n"
                      f"    jinja2:   {why or repr(want[max(at - 30, 0):at + 50])}\n"
                      f"    longhand: {error or repr(out[max(at - 30, 0):at + 50])}")
        print(f"{names} templates, {total} renderings, {refused} refused by both, "
              f"{beyond} that only longhand makes (append, pop, from_json), {differ} templates that differ")
    return differ > 0


if __name__ == "__main__":
    sys.exit(main())
