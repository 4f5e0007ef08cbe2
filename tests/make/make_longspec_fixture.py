#!/usr/bin/env python3
"""Make tests/data/longspec_fixture.safetensors: a LongSpec drafter with random weights for
build/data/models/llama2-bf16, and the logits that PyTorch computes with it, \
for tests/decode/drafters/test_longspec.c.

    python3 tests/make/make_longspec_fixture.py          needs torch

Beside the drafter's tensors, by their published names, the file has
    fixture.token   [N + NODES]                the committed tokens, then those of a tree
    fixture.keys    [heads * N, head_dim]      of the model's last layer, as its cache holds them; and values
    fixture.logits  [NODES, vocab]             after each node of the tree
The tree: nodes 1 and 2 continue node 0, node 3 continues node 1. Matrices, keys and values are BF16, so that
PyTorch and longhand start from equal numbers; PyTorch computes in double precision.
"""
import math

import torch

from drafter_files import bf16, read, write

MODEL, OUT = "build/data/models/llama2-bf16", "tests/data/longspec_fixture.safetensors"
D, FF, HEADS, DIM, V, EPS, THETA, WINDOW = 32, 72, 4, 8, 309, 1e-5, 10000.0, 513
N, PARENT = 520, [-1, 0, 0, 1]
torch.manual_seed(2)


shapes = {"self_attn.q_proj": (D, D), "self_attn.k_proj": (D, D), "self_attn.v_proj": (D, D),
          "self_attn.o_proj": (D, D), "cross_attn.q_proj": (D, D), "cross_attn.k_proj": (D, D),
          "cross_attn.v_proj": (D, D), "cross_attn.o_proj": (D, D), "mlp.gate_proj": (FF, D),
          "mlp.up_proj": (FF, D), "mlp.down_proj": (D, FF)}
file = {k + ".weight": bf16(*s, scale=1 / math.sqrt(s[1])) for k, s in shapes.items()}
for k in shapes:
    if k[-6] in "qkv" and "attn" in k:
        file[k + ".bias"] = (0.3 * torch.randn(D)).float()
for k in "input", "post_self_attention", "post_cross_attention":
    file[k + "_layernorm.weight"] = (1 + 0.2 * torch.randn(D)).float()
w = {k: v.double() for k, v in file.items()}
embed, lm_head = (read(MODEL, "model." * (k[0] == "e") + k + ".weight").double()
                  for k in ("embed_tokens", "lm_head"))
token = torch.randint(3, V, (N + len(PARENT),))
keys, values = bf16(HEADS, N, DIM), bf16(HEADS, N, DIM)


def norm(x, name):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * w[name + "_layernorm.weight"]


def linear(x, name):
    y = x @ w[name + ".weight"].T
    return y + w[name + ".bias"] if name + ".bias" in w else y


def rotate(x, position):             # x [rows, D] in heads
    inverse = 1 / THETA ** (torch.arange(0, DIM, 2).double() / DIM)
    angle = position.double()[:, None] * inverse
    angle = torch.cat([angle, angle], -1)[:, None]
    x = x.reshape(len(position), HEADS, DIM)
    half = torch.cat([-x[..., DIM // 2:], x[..., :DIM // 2]], -1)
    return x * angle.cos() + half * angle.sin()


def attend(q, k, v):                 # q [heads, dim]; k, v [heads, keys, dim]
    p = torch.softmax((k @ q[..., None]).squeeze(-1) / math.sqrt(DIM), -1)
    return (p[:, None] @ v).reshape(D)


def logits(node):
    path = []
    at = node
    while at >= 0:
        path.insert(0, N + at)
        at = PARENT[at]
    ids = torch.cat([token[:N], token[path]])[-WINDOW:]
    position = torch.arange(N + len(path))[-WINDOW:]
    e = embed[ids]
    h = norm(e, "input")
    q, k = (rotate(linear(h, f"self_attn.{c}_proj"), position) for c in "qk")
    v = linear(h, "self_attn.v_proj").reshape(len(ids), HEADS, DIM)
    x = e[-1] + linear(attend(q[-1], k.transpose(0, 1), v.transpose(0, 1)), "self_attn.o_proj")
    q = rotate(linear(norm(x, "post_self_attention"), "cross_attn.q_proj")[None], position[-1:])[0]
    x = x + linear(attend(q, keys.double(), values.double()), "cross_attn.o_proj")
    h = norm(x, "post_cross_attention")
    h = torch.nn.functional.silu(linear(h, "mlp.gate_proj")) * linear(h, "mlp.up_proj")
    return (x + linear(h, "mlp.down_proj")) @ lm_head.T


file["fixture.token"] = token.float()
file["fixture.keys"], file["fixture.values"] = keys.reshape(-1, DIM), values.reshape(-1, DIM)
file["fixture.logits"] = torch.stack([logits(i) for i in range(len(PARENT))]).float()
write(OUT, file)
