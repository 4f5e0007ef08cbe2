#!/usr/bin/env python3
"""Make tests/data/gumiho_fixture.safetensors: a Gumiho drafter with random weights for
build/data/models/llama2-bf16, and the logits that PyTorch computes with it, \
for tests/decode/drafters/test_gumiho.c.

    python3 tests/make/make_gumiho_fixture.py          needs torch

Beside the drafter's tensors, by their published names (embed_tokens.weight among them), the file has
    fixture.token    [N + 2 + 2]        tokens 1 .. N of a text of N pairs, two candidates after it, and a
                                        candidate after each of these
    fixture.state    [N, hidden]        the model's hidden states of the pairs, after the final norm
    fixture.serial   [3, vocab]         logits after the text and after each of the two candidates
    fixture.heads    [2 * 5, vocab]     logits of the five heads after the two paths
Matrices are BF16, so that PyTorch and longhand start from equal numbers; PyTorch computes in double
precision, pair by pair.
"""
import math

import torch

from drafter_files import bf16, read, write

MODEL, OUT = "build/data/models/llama2-bf16", "tests/data/gumiho_fixture.safetensors"
D, FF, HEADS, DIM, V, EPS, THETA = 32, 72, 4, 8, 309, 1e-5, 10000.0
N = 40
torch.manual_seed(3)
file = {"embed_tokens.weight": read(MODEL, "model.embed_tokens.weight"),
        "fc.weight": bf16(D, 2 * D, scale=1 / math.sqrt(2 * D)), "fc.bias": 0.3 * torch.randn(D)}
for i in range(2):
    for c in "qkvo":
        file[f"layers.{i}.self_attn.{c}_proj.weight"] = bf16(D, D, scale=1 / math.sqrt(D))
    for name, shape in (("gate", (FF, D)), ("up", (FF, D)), ("down", (D, FF))):
        file[f"layers.{i}.mlp.{name}_proj.weight"] = bf16(*shape, scale=1 / math.sqrt(shape[1]))
    for name in ("input", "post_attention")[1 - i:]:
        file[f"layers.{i}.{name}_layernorm.weight"] = 1 + 0.2 * torch.randn(D)
for i in range(5):
    for k in range(6):
        inputs = D if k else 2 * D
        file[f"mlp.{i}.{k}.linear.weight"] = bf16(D, inputs, scale=1 / math.sqrt(inputs))
        file[f"mlp.{i}.{k}.linear.bias"] = 0.3 * torch.randn(D)
w = {k: v.double() for k, v in file.items()}
embed, lm_head = w["embed_tokens.weight"], read(MODEL, "lm_head.weight").double()
token, state = torch.randint(3, V, (N + 4,)), torch.randn(N, D).float()


def norm(x, name):
    return x * torch.rsqrt((x * x).mean() + EPS) * w[name + "_layernorm.weight"]


def rotate(x, position):
    angle = position / THETA ** (torch.arange(0, DIM, 2).double() / DIM)
    a, b = x[..., :DIM // 2], x[..., DIM // 2:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def layer(i, x, position, seen):
    """seen: keys and values of the committed pairs; returns the output, and the own key and value."""
    at = f"layers.{i}."
    h = norm(x, at + "input") if i else x
    q, k, v = ((w[f"{at}self_attn.{c}_proj.weight"] @ h).reshape(HEADS, DIM) for c in "qkv")
    q, k = rotate(q, position), rotate(k, position)
    keys = torch.stack([s[0] for s in seen] + [k], 1)
    values = torch.stack([s[1] for s in seen] + [v], 1)
    share = torch.softmax((keys @ q[..., None])[..., 0] / math.sqrt(DIM), -1)
    x = x + w[at + "self_attn.o_proj.weight"] @ (share[:, None] @ values).reshape(-1)
    h = norm(x, at + "post_attention")
    h = torch.nn.functional.silu(w[at + "mlp.gate_proj.weight"] @ h) * (w[at + "mlp.up_proj.weight"] @ h)
    return x + w[at + "mlp.down_proj.weight"] @ h, (k, v)


def fc(t, h):
    return w["fc.weight"] @ torch.cat([embed[t], h]) + w["fc.bias"]


def serial(t, h, position, seen, commit):
    x = fc(t, h)
    for i in range(2):
        x, own = layer(i, x, position, seen[i])
        if commit:
            seen[i].append(own)
    return x


def head(i, z):
    for k in range(6):
        at = f"mlp.{i}.{k}.linear."
        y = torch.nn.functional.silu(w[at + "weight"] @ z + w[at + "bias"])
        z = z + y if k else y
    return z


seen = [[], []]
for p in range(N):
    hat = serial(token[p], state[p].double(), p, seen, True)
guesses, heads = [hat], []
for c in 0, 1:
    below = serial(token[N + c], hat, N, seen, False)
    z = torch.cat([fc(token[N + c], hat), fc(token[N + 2 + c], below)])
    guesses.append(below)
    heads += [head(i, z) for i in range(5)]
file["fixture.token"], file["fixture.state"] = token.float(), state
file["fixture.serial"] = (torch.stack(guesses) @ lm_head.T).float()
file["fixture.heads"] = (torch.stack(heads) @ lm_head.T).float()
write(OUT, file)
