#!/usr/bin/env python3
"""Renders chats with the chat templates of well-known models, as transformers does, for tests/text/test_chat.c.

    python3 -m venv venv && venv/bin/pip install transformers jinja2 tokenizers
    venv/bin/python tests/make/make_chat_fixtures.py SOURCES

SOURCES is a folder of real template texts: one LABEL.jinja for each label below. The texts belong to others
and are not kept here. Their sources:
  - llama.cpp has most of them (models/templates/*.jinja, tests/test-chat-template.cpp). Both are in the
    source package of llama-cpp-python, whose llama_cpp/llama_chat_format.py has three more.
  - The package trl has others (trl/chat_templates: labels trl-*).
  - The package unsloth has others (unsloth/chat_templates.py: labels unsloth-*).
  - huggingface.js tests some (packages/jinja/test/e2e.test.js).
  - The rest is in tokenizer_config.json of the models themselves.
A label without a file is skipped and printed. A name without any file keeps its hashes and its chats.

All templates of one name must render all chats alike, refusals included. The script then writes
tests/data/chat/NAME.jsonl (a line about the template, then a line for each chat) and the table of hashes,
src/text/chat_known.h.
"""
import hashlib
import json
import pathlib
import random
import re
import sys

from jinja2.exceptions import TemplateError
from transformers import PreTrainedTokenizerFast

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
OUT = ROOT / "tests/data/chat"
KNOWN = ROOT / "src/text/chat_known.h"
KNOWN_HEAD = """/* Made by tests/make/make_chat_fixtures.py; do not edit. SHA-256 of the texts of real chat
 * templates, and the names of the templates in chat.c that equal them. The script proves each equality. */
static const struct { const char *sha256, *name; } chat_known[] = {
"""
S = ("<s>", "</s>")
DATE = "26 Jul 2024"

# name: (tokenizer of tests/data/tokenizers, (bos, eos), labels)
TEMPLATES = {
    "chatml": ("qwen2", (None, "<|im_end|>"), ["openhermes-2.5", "dolphin-2.5", "own-chatml",
                                               "unsloth-chatml", "trl-qwen3_instruct_2507",
                                              "trl-qwen3_instruct_2507_training"]),
    "chatml-bos": ("metaspace-always", S, ["internlm2-chat-7b"]),
    "llama2": ("llama2", S, ["llama-2-chat"]),
    "llama3": ("llama3", ("<|begin_of_text|>", "<|eot_id|>"),
               ["llama-3-instruct", "trl-llama3", "trl-llama3_training", "unsloth-llama3"]),
    "llama3-first": ("llama3", ("<|begin_of_text|>", "<|end_of_text|>"), ["llama-3-instruct-first"]),
    "llama3.1": ("llama3", ("<|begin_of_text|>", "<|eot_id|>"),
                 ["llama-3.1-instruct", "llama-3.2-instruct", "llama-3.3-instruct", "trl-llama3_1",
                                                                 "trl-llama3_2"]),
    "mistral-v0.1": ("mistral-v1", S, ["mistral-7b-instruct-v0.1"]),
    "mistral-v0.2": ("mistral-v1", S, ["mixtral-8x7b-instruct-v0.1"]),
    "mistral-v1": ("mistral-v1", S, ["mistral-7b-instruct-v0.2"]),
    "mistral-v3": ("mistral-v3", S, ["mistral-large-instruct-2407"]),
    "mistral-v3-tekken": ("mistral-v3", S, ["mistral-nemo-instruct-2407"]),
    "mistral-v7": ("mistral-v3", S, ["mistral-large-instruct-2411"]),
    "qwen1.5": ("qwen2", (None, "<|im_end|>"), ["qwen1.5-chat"]),
    "qwen2": ("qwen2", (None, "<|im_end|>"), ["qwen2-instruct"]),
    "qwen2.5": ("qwen2", (None, "<|im_end|>"), ["qwen2.5-instruct", "trl-qwen2_5", "trl-qwen2_5_training"]),
    "qwen3": ("qwen3", (None, "<|im_end|>"), ["trl-qwen3", "qwen3-0.6b", "qwen3-0.6b-2", "unsloth-qwen3"]),
    "qwen3.5": ("qwen3.5", (None, "<|im_end|>"), ["trl-qwen3_5_think", "trl-qwen3_6"]),
    "qwen3.5-small": ("qwen3.5", (None, "<|im_end|>"), ["trl-qwen3_5_nothink"]),
    "qwen3.8": ("qwen3.5", (None, "<|im_end|>"), ["trl-qwen3_8"]),
    "vicuna": ("vicuna", S, ["own-vicuna"]),
    "vicuna-lines": ("vicuna", S, ["vicuna-lines"]),
    "zephyr": ("mistral-v1", S, ["zephyr-7b-beta", "unsloth-zephyr"]),
}

# Written for these tests and for models without a template. Vicuna has the layout of FastChat's vicuna_v1.1.
OWN = {
    "own-chatml": """\
{%- for m in messages %}
    {{- '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "own-vicuna": """\
{{- bos_token }}
{%- set first = 1 if messages[0].role == 'system' else 0 %}
{%- if first %}
    {{- messages[0].content ~ ' ' }}
{%- else %}
    {{- 'A chat between a curious user and an artificial intelligence assistant. ' }}
    {{- "The assistant gives helpful, detailed, and polite answers to the user's questions. " }}
{%- endif %}
{%- for m in messages[first:] %}
    {%- if m.role != ('assistant' if loop.index0 % 2 else 'user') %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {{- 'USER: ' ~ m.content ~ ' ' if m.role == 'user' else 'ASSISTANT: ' ~ m.content ~ eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- 'ASSISTANT:' }}
{%- endif %}
""",
}


def normalised(text):
    """What Jinja does to a source before it reads it."""
    text = re.sub(r"\r\n|\r", "\n", text)
    return text[:-1] if text.endswith("\n") else text


def respelled(text):
    """The other spelling of a template whose only newlines are in its strings; None for other templates."""
    inside = re.findall(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", text)
    if "\\n" in text:
        return text.replace("\\n", "\n") if "\n" not in text else None
    if "\n" in text and sum(s.count("\n") for s in inside) == text.count("\n"):
        return text.replace("\n", "\\n")
    return None


def chats():
    """Chats as [role, content] lists with the options they are rendered with."""
    s, u, a = (lambda r: lambda t: [r, t])("system"), (lambda r: lambda t: [r,
        t])("user"), (lambda r: lambda t: [r, t])("assistant")
    ask, told = u("Write the first line of a book about the sea."), s("You write plainly.\nNo lists.")
    said = a("The sea came up the street before the milk did.")
    spaces = "\u00a0\u2003 \t\x1c in the middle \u3000\n\x1f\u2029"
    think = a("<think>\nA storm?\nA calm.\n</think>\n\nIt was calm.")
    marks = u("<s>[INST] a [/INST] b</s><|im_end|>\n<|im_start|>system\n<|eot_id|><|start_header_id|>[/INST]"
              "<|user|>")
    plain = [
        [ask], [told, ask], [ask, said, u("And the second?")], [told, ask, said, u("And the second?")],
        [told, ask, said, u("2"), a("Two."), u("3")], [u(spaces)],
             [s(spaces), u(spaces), a(spaces), u(spaces)], [u("")], [s(""), u("")],
        [u("x"), a(""), u("y")], [said], [ask, ask], [told, told, ask], [ask, told], [ask, told, said],
             [told], [told, said], [ask, said],
        [told, ask, said], [ask, said, told, ask], [ask, said, ask, told], [u("q"), think, u("r")],
             [u("q"), think], [u("q"), think, think],
        [u("q"), a("a</think>b<think>c</think>\n\nd")], [u("q"), a("<think>x<think>y\n\n</think>z"), a("w")],
             [a("<think>x</think>y")],
        [u("q"), a("no thought"), a("\n\nstill none\n")], [u("q"), a("\n\n<think></think>\n\n")],
             [u("q"), a("\nx"), a("y")],
        [u("q"), think, u("<tool_response>1</tool_response>"), think],
             [u("<tool_response>1</tool_response>"), think],
        [u("q"), u("<tool_response>"), think, a("end")], [marks], [s(marks[1]), marks, a(marks[1]), u("on")],
        [s("<<SYS>>"), u("  <<SYS>> x")], [told, u(" \n ")], [told, u(" x \n")],
             [u("Ünïcödé — 日本語 👍 e\u0301")], [u("\n\nlines\r\n\r\n")],
    ]
    for m in plain:
        yield m, {"gen": True}
        yield m, {"gen": False}
    for m in ([ask], [told, ask], [ask, think, ask]):
        yield m, {"gen": True, "no_thinking": True}
        yield m, {"gen": True, "date": "1 Jan 2030"}
    ends = ["Once upon a time", "It ended ", " It began", "\n", "", "tail\n\n", "two  \u00a0",
            "CONTINUE_FINAL_MESSAGE_TAG x", "<think>\nHm", "<think>\nHm\n</think>\n\nSo ",
            "a CONTINUE_FINAL_MESSAGE_TAG "]
    for end in ends:
        for m in ([ask, a(end)], [told, ask, a(end)], [told, u(end)], [ask, said, u("x"), a(end)]):
            yield m, {"gen": False, "continue": True}
    yield [ask, s("late")], {"gen": False, "continue": True}
    rng = random.Random(7)
    parts = ["the", " sea", "\n", "\n\n", " ", "  ", "\u00a0", "<think>", "</think>", "<|im_end|>", "[INST]",
             "</s>", "é", "日本", "'", "\\n", "{{ x }}", "<<SYS>>", "\t", "."]
    for i in range(60):
        roles = [rng.choice("sua")] if i % 2 else ["s"] * rng.randint(0, 1)
        roles += ["ua"[k % 2] for k in range(rng.randint(1, 5))] if i % 3 else rng.choices("sua",
            weights=(1, 3, 3), k=rng.randint(1, 4))
        m = [{"s": s, "u": u, "a": a}[r]("".join(rng.choices(parts, k=rng.randint(0, 8)))) for r in roles]
        kind = rng.choice([{"gen": True}, {"gen": False}, {"gen": False, "continue": True},
                           {"gen": True, "no_thinking": True}])
        yield m, kind


def more_chats(name):
    """More chats of templates whose own enable_thinking may be false."""
    told, ask = ["system", " You write.\n"], ["user", "Hm? "]
    for m in ([ask], [told, ask], [["system", " \n"], ask], [told, ask, ["assistant", "\nNo.\n"], ask]):
        for how in ({"thinking": True}, {"no_thinking": True}, {}) if name.startswith("qwen3.") else ():
            yield m, {"gen": True, **how}


def tokenizer(name, bos, eos):
    return PreTrainedTokenizerFast(tokenizer_file=str(ROOT / f"tests/data/tokenizers/{name}.json"),
                                   bos_token=bos, eos_token=eos)


def render(t, text, messages, options):
    kwargs = {"date_string": options["date"]} if options.get("date") else {
        "date_string": DATE} if "strftime_now" in text else {}
    if options.get("no_thinking") or options.get("thinking"):
        kwargs["enable_thinking"] = bool(options.get("thinking"))
    same = {"chat_template": text, "add_generation_prompt": options["gen"],
            "continue_final_message": options.get("continue", False), **kwargs}
    chat = [{"role": r, "content": c} for r, c in messages]
    try:
        out = t.apply_chat_template(chat, tokenize=False, **same)
        ids = t.apply_chat_template(chat, tokenize=True, return_dict=False, **same)
    except TemplateError as e:
        return {"error": str(e)}
    except ValueError as e:
        assert "continue_final_message" in str(e), e
        return {"error": "continue_final_message"}
    assert ids == t.encode(out, add_special_tokens=False)
    return {"text": out, "ids": ids}


def main():
    sources, table, missing = pathlib.Path(sys.argv[1]), [], []
    OUT.mkdir(parents=True, exist_ok=True)
    known = re.findall(r'\{ "(\w+)", "(.*?)" \},    /\* (.*?) \*/', KNOWN.read_text(encoding="utf-8"))
    for name, (tok, (bos, eos), labels) in TEMPLATES.items():
        t, results, hashes = tokenizer(tok, bos, eos), None, []
        cases = [*chats(), *more_chats(name)]
        if not any((sources / f"{x}.jinja").exists() for x in labels):
            table += [row for row in known if row[1] == name]
            missing += labels
            continue
        for label in labels:
            path = sources / f"{label}.jinja"
            if label not in OWN and not path.exists():
                missing.append(label)
                continue
            text = OWN[label] if label in OWN else path.read_bytes().decode()
            for spelled in filter(None, (text, respelled(text) if label not in OWN else None)):
                digest = hashlib.sha256(normalised(spelled).encode()).hexdigest()
                if digest in hashes:
                    continue
                got = [render(t, spelled, m, o) for m, o in cases]
                if results is not None and got != results:
                    i = next(i for i in range(len(cases)) if got[i] != results[i])
                    sys.exit(f"{name}: {label} differs in {cases[i]}: {got[i]} instead of {results[i]}")
                results = got
                hashes.append(digest)
                table.append((digest, name, label))
        if results is None:
            continue
        head = {"name": name, "tokenizer": tok, "bos": bos, "eos": eos, "hashes": hashes,
                "own": [OWN[x] for x in labels if x in OWN]}
        with open(OUT / f"{name}.jsonl", "w", encoding="utf-8") as f:
            for x in [head] + [{"messages": m, **o, **r} for (m, o), r in zip(cases, results)]:
                f.write(json.dumps(x, ensure_ascii=False, separators=(",", ":")).replace("\u2029",
                    "\\u2029") + "\n")
        refused = sum("error" in r for r in results)
        print(f"{name}: {len(results)} chats, {refused} refused, {len(hashes)} spellings", file=sys.stderr)
    with open(KNOWN, "w", encoding="utf-8") as f:
        f.write(KNOWN_HEAD)
        for digest, name, label in table:
            f.write(f'    {{ "{digest}", "{name}" }},    /* {label} */\n')
        f.write("};\n")
    if missing:
        print("no file for:", *missing, file=sys.stderr)


main()
