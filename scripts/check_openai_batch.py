#!/usr/bin/env python3
"""Read a file of `longhand export --format openai-batch` with the types of OpenAI's package (pip install
openai).

    scripts/check_openai_batch.py OUT.jsonl

Every body must be a Completion or a ChatCompletion, strictly: every field has the type that the package
declares. Exits 77 without the package."""
import json
import sys

try:
    from openai.types import Completion
    from openai.types.chat import ChatCompletion
except ImportError:
    print("the Python package openai is not installed")
    sys.exit(77)

n = errors = 0
for line in open(sys.argv[1], encoding="utf-8"):
    o = json.loads(line)
    assert set(o) == {"id", "custom_id", "response", "error"}, o.keys()
    if o["response"] is None:
        assert isinstance(o["error"]["code"], str) and isinstance(o["error"]["message"], str), o
        errors += 1
        continue
    body = o["response"]["body"]
    kind = {"chat.completion": ChatCompletion, "text_completion": Completion}[body["object"]]
    answer = kind.model_validate(body, strict=True)
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert all(isinstance(c.message.content if kind is ChatCompletion else c.text, str)
               for c in answer.choices)
    n += 1
print(f"{n} answers and {errors} errors are as the types say")
sys.exit(0 if n else 1)
