#!/usr/bin/env python3
"""Renders chats with chat templates, as transformers does, for tests/text/test_chat.c.

    python3 -m venv venv && venv/bin/pip install transformers jinja2 tokenizers
    venv/bin/python tests/make/make_chat_fixtures.py [SOURCES]

Writes tests/data/chat/NAME.jsonl: a line about the template, then a line for each chat.
  - own.jsonl has templates in our own words, which stand in its lines, with everything that a chat may have.
  - The others are for the built-in templates of src/text/chat_builtin.h. \
SOURCES is a folder with the templates of
    models that these equal: NAME.jinja for each name of TEMPLATES. \
They belong to others and are not kept here.
    They are in the packages llama-cpp-python (vendor/llama.cpp/models/templates), \
trl (trl/chat_templates) and
    unsloth (unsloth/chat_templates.py), and in tokenizer_config.json of the models. \
A name without a file keeps
    its chats.
"""
import json
import pathlib
import random
import sys

from jinja2.exceptions import TemplateError
from transformers import PreTrainedTokenizerFast

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
OUT = ROOT / "tests/data/chat"
S = ("<s>", "</s>")

# name: (tokenizer of build/data/tokenizers, bos, eos)
TEMPLATES = {
    "chatml": ("qwen2", None, "<|im_end|>"), "llama2": ("llama2", *S),
    "llama3": ("llama3", "<|begin_of_text|>", "<|eot_id|>"), "mistral": ("mistral-v3", *S),
    "gemma": ("metaspace-always", *S), "vicuna": ("vicuna", *S), "zephyr": ("mistral-v1", *S),
}

# Templates in our own words.
OWN = {
    "everything": """\
{{- bos_token }}
{%- if tools %}
    {{- '[TOOLS]' ~ tools | tojson ~ '[/TOOLS]' }}
{%- endif %}
{%- for d in documents or [] %}
    {{- '[DOC ' ~ loop.index ~ '] ' ~ d.title ~ ': ' ~ d.text ~ '\\n' }}
{%- endfor %}
{%- for m in messages %}
    {{- '<' ~ m.role ~ '>' }}
    {%- if m.reasoning_content %}
        {{- '(' ~ m.reasoning_content | trim ~ ')' }}
    {%- endif %}
    {%- if m.content is string %}
        {{- m.content }}
    {%- else %}
        {%- for part in m.content or [] %}
            {{- '|' ~ part.text }}
        {%- endfor %}
    {%- endif %}
    {%- for call in m.tool_calls or [] %}
        {{- '[CALL ' ~ call.function.name ~ ' ' ~ call.function.arguments | tojson ~ ']' }}
    {%- endfor %}
    {{- '[' ~ m.tool_call_id ~ ']' if m.tool_call_id is defined }}
    {{- eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<assistant>' ~ ('' if enable_thinking is not defined else \
'<think>' if enable_thinking else '<no think>') }}
    {{- mood | default('') }}
{%- endif %}
""",
    "strict": """\
{%- for m in messages %}
    {%- if m.role not in ['user', 'assistant'] %}
        {{- raise_exception('No role ' ~ m.role) }}
    {%- endif %}
    {{- m['role'] | upper + ': ' + m['content'] | trim + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- 'ASSISTANT:' }}
{%- endif %}
""",
}


def chats():
    """Chats as [role, content] lists with the options that they are rendered with."""
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
        kind = rng.choice([{"gen": True}, {"gen": False}, {"gen": False, "continue": True}])
        yield m, kind


def full_chats():
    """Messages and options of everything that a chat may have."""
    tool = {"type": "function", "function": {
        "name": "weather", "description": "Of a \"place\" <b>", "parameters": {
            "type": "object", "properties": {
                "place": {"type": "string"}, "days": {"type": "integer", "default": 3}}}}}
    call = {"id": "c1", "type": "function", "function": {
        "name": "weather", "arguments": {"place": "K\u00f6ln", "x": 1.5}}}
    told, ask = {"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hm?\n"}
    parts = {"role": "user", "content": [{"type": "text", "text": "One"},
                                         {"type": "text", "text": "two \u00e9"}]}
    thought = {"role": "assistant", "content": "Yes.", "reasoning_content": " Because.\n"}
    calls = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "content": "{\"t\": 21}", "tool_call_id": "c1", "name": "weather"}
    odd = {"role": "judge", "content": "Guilty"}
    chats = [[ask], [told, ask], [told, ask, thought, ask], [ask, calls, result], [parts],
             [told, parts, thought, parts],
             [ask, odd], [ask, {"role": "assistant", "content": ""}, ask],
             [ask, {"role": "assistant", "content": "No.", "thinking": "T"}],
             [ask, {**thought, "reasoning": "R"}]]
    ways = [{"gen": True}, {"gen": False}, {"gen": True, "tools": [tool]}, {"gen": False, "continue": True},
            {"gen": True, "documents": [{"title": "T", "text": "words"}, {"title": "U", "text": "more"}]},
            {"gen": True, "kwargs": {"enable_thinking": False}},
            {"gen": True, "kwargs": {"enable_thinking": True, "mood": [1, None, "x"], "bos_token": "!"}}]
    for m in chats:
        for way in ways:
            yield m, way
    open_parts = {"role": "assistant", "content": [{"type": "text", "text": "One"},
                                                   {"type": "text", "text": "tail \n"}]}
    for end in (open_parts, {"role": "assistant", "content": "So it  "}, {"role": "user", "content": "\n"}):
        yield [ask, end], {"gen": False, "continue": True}


def tokenizer(name, bos, eos):
    return PreTrainedTokenizerFast(tokenizer_file=str(ROOT / f"build/data/tokenizers/{name}.json"),
                                   bos_token=bos, eos_token=eos)


def render(t, text, messages, options):
    same = {"chat_template": text, "add_generation_prompt": options["gen"], "tools": options.get("tools"),
            "documents": options.get("documents"), "continue_final_message": options.get("continue", False),
            **options.get("kwargs", {})}
    try:
        out = t.apply_chat_template(messages, tokenize=False, **same)
    except TemplateError as e:
        return {"error": str(e)}
    except TypeError:
        return {"error": ""}
    except ValueError as e:
        assert "continue_final_message" in str(e), e
        return {"error": "continue_final_message"}
    return {"text": out, "ids": t.encode(out, add_special_tokens=False)}


def joined(messages):
    """What longhand gives to a template that does not loop over content."""
    return [{**m, "content": "\n".join(p["text"] for p in m["content"])}
            if isinstance(m["content"], list) else m
            for m in messages]


def write(name, lines):
    with open(OUT / f"{name}.jsonl", "w", encoding="utf-8") as f:
        for x in lines:
            f.write(json.dumps(x, ensure_ascii=False, separators=(",", ":"))
                    .replace("\u2029", "\\u2029") + "\n")
    print(f"{name}: {len(lines)} lines", file=sys.stderr)


def main():
    sources = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None
    OUT.mkdir(parents=True, exist_ok=True)
    lines = []
    for name, text in OWN.items():
        t = tokenizer("mistral-v3", *S)
        lines.append({"name": name, "template": text, "tokenizer": "mistral-v3", "bos": S[0], "eos": S[1]})
        lines += [{"messages": m, **o, **render(t, text, joined(m) if name == "strict" else m, o)}
                  for m, o in full_chats()]
    write("own", lines)
    for name, (tok, bos, eos) in TEMPLATES.items():
        path = sources / f"{name}.jinja" if sources else None
        if not path or not path.exists():
            print(f"{name}: no file, kept", file=sys.stderr)
            continue
        t, text = tokenizer(tok, bos, eos), path.read_bytes().decode()
        cases = [([{"role": r, "content": c} for r, c in m], o) for m, o in chats()]
        write(name, [{"name": name, "tokenizer": tok, "bos": bos, "eos": eos}] +
              [{"messages": m, **o, **render(t, text, m, o)} for m, o in cases])


main()
