#!/usr/bin/env python3
"""Writes tests/real/smollm2.json: what SmolLM2-135M-Instruct makes of the texts in tests/real/texts.

    python3 -m venv venv && venv/bin/pip install gguf numpy tokenizers
    venv/bin/python tests/make/make_real_fixture.py SmolLM2-135M-Instruct.Q4_1.gguf   # a minute

The token ids come from the tokenizers library, the negative log-likelihoods from the forward pass below. It
is the Llama model with the decoded weights of the file, in float32. The file for each text:

    tokens       number of tokens
    ids_sha256   of the ids, one a line, as `longhand tokenize` prints them
    nll          of each token but the first, given those before it, in units of 1e-4 nats
"""
import hashlib
import json
import sys
import textwrap
from pathlib import Path

import gguf
import numpy as np
import tokenizers
from tokenizers import models, pre_tokenizers

HERE = Path(__file__).resolve().parent.parent / "real"


def read(path):
    """The metadata and the tensors of the file. A matrix has a row for each output."""
    reader = gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
               for t in reader.tensors}
    return fields, tensors


def make_tokenizer(fields):
    """The tokenizer that GGUF files name smollm: each digit is a word, the rest is split as in GPT-2."""
    assert (fields["tokenizer.ggml.model"], fields["tokenizer.ggml.pre"]) == ("gpt2", "smollm")
    assert not fields["tokenizer.ggml.add_bos_token"]
    vocabulary = {token: i for i, token in enumerate(fields["tokenizer.ggml.tokens"])}
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"]]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    return tokenizer


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(epsilon)) * weight


def rotate(x, base):
    """RoPE of x[position][head][i]. GGUF files of this family have the two parts of a pair side by side."""
    n, _, d = x.shape
    angle = np.arange(n)[:, None] * base ** (-np.arange(0, d, 2) / d)
    cos, sin = (f(angle).astype(np.float32)[:, None] for f in (np.cos, np.sin))
    even, odd = x[..., 0::2], x[..., 1::2]
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)


def attention(x, layer, tensors, heads, kv_heads, base):
    n = len(x)
    q, k, v = (x @ tensors[f"blk.{layer}.attn_{name}.weight"].T for name in "qkv")
    q = rotate(q.reshape(n, heads, -1), base)
    k, v = rotate(k.reshape(n, kv_heads, -1), base), v.reshape(n, kv_heads, -1)
    out = np.empty_like(q)
    future = np.triu(np.full((n, n), -np.inf, np.float32), 1)
    for h in range(heads):
        of = h // (heads // kv_heads)
        score = q[:, h] @ k[:, of].T / np.float32(np.sqrt(q.shape[2])) + future
        p = np.exp(score - score.max(axis=1, keepdims=True))
        out[:, h] = p @ v[:, of] / p.sum(axis=1, keepdims=True)
    return out.reshape(n, -1) @ tensors[f"blk.{layer}.attn_output.weight"].T


def feed_forward(x, layer, tensors):
    gate, up = (x @ tensors[f"blk.{layer}.ffn_{name}.weight"].T for name in ("gate", "up"))
    return (gate / (1 + np.exp(-gate)) * up) @ tensors[f"blk.{layer}.ffn_down.weight"].T


def nll(ids, fields, tensors):
    """The negative log-likelihood of ids[1:], in nats."""
    get = lambda name: fields["llama." + name]
    heads, kv_heads = get("attention.head_count"), get("attention.head_count_kv")
    epsilon, base = get("attention.layer_norm_rms_epsilon"), get("rope.freq_base")
    x = tensors["token_embd.weight"][ids]
    for layer in range(get("block_count")):
        norm = lambda name: rms_norm(x, tensors[f"blk.{layer}.{name}_norm.weight"], epsilon)
        x = x + attention(norm("attn"), layer, tensors, heads, kv_heads, base)
        x = x + feed_forward(norm("ffn"), layer, tensors)
    x = rms_norm(x, tensors["output_norm.weight"], epsilon)
    logits = (x @ tensors.get("output.weight", tensors["token_embd.weight"]).T).astype(np.float64)[:-1]
    largest = logits.max(axis=1)
    of_next = logits[np.arange(len(ids) - 1), ids[1:]]
    return np.log(np.exp(logits - largest[:, None]).sum(axis=1)) + largest - of_next


def write(name, path, encode, nll_of):
    """Writes NAME.json for the model file: ids by encode(text), likelihoods by nll_of(ids)."""
    texts = []
    for file in sorted((HERE / "texts").glob("*.txt")):
        ids = encode(file.read_text(encoding="utf-8"))
        values = nll_of(np.array(ids))
        digest = hashlib.sha256("".join(f"{i}\n" for i in ids).encode()).hexdigest()
        numbers = textwrap.fill(", ".join(str(round(1e4 * x)) for x in values), 108,
                                initial_indent="  ", subsequent_indent="  ")
        texts.append(f'"{file.stem}": {{"tokens": {len(ids)}, "ids_sha256": "{digest}",\n'
                     f' "nll": [\n{numbers}]}}')
        print(f"{file.stem}: {len(ids)} tokens, mean nll {values.mean():.4f}", flush=True)
    model = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    (HERE / f"{name}.json").write_text(f'{{"model_sha256": "{model}",\n' + ",\n".join(texts) + "}\n")


def main():
    fields, tensors = read(sys.argv[1])
    tokenizer = make_tokenizer(fields)
    write("smollm2", sys.argv[1], lambda text: tokenizer.encode(text).ids,
          lambda ids: nll(ids, fields, tensors))


if __name__ == "__main__":
    main()
