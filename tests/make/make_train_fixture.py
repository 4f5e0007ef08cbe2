#!/usr/bin/env python3
"""Make tests/data/train_fixture.txt: drafting heads that PyTorch trains in double precision, for
tests/lab/train/test_train.c.

    python3 tests/make/make_train_fixture.py          needs torch

The file has entries "name count", each followed by that many numbers. Inputs are rounded to float first, so
that PyTorch and longhand start from equal numbers. Parameters are ordered as in
src/lab/train/train_heads.c: all matrices, then the input and output gain of each head. For both kinds of
heads the file has the losses and the gradient of the first step, the norm of the gradient of every step, and
the parameters after the last step.
"""
import math
import torch

D, V, N, L, STEPS, WARMUP, RATE, DECAY, CLIP, EPS = 8, 21, 3, 27, 7, 2, 0.02, 0.1, 1.0, 1e-5
torch.manual_seed(1)


def floats(*shape, scale=1.0, mean=0.0):
    return (mean + scale * torch.randn(*shape)).float().double()


def norm(x, gain):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * gain


lm_head, hidden, token = floats(V, D, scale=0.5), floats(L, D, scale=2), torch.randint(0, V, (L,))
w0, gain0 = floats(N, D, D, scale=0.3), floats(N, 2, D, scale=0.2, mean=1)
out = open("tests/data/train_fixture.txt", "w")


def put(name, values):
    values = [float(v) for v in torch.as_tensor(values).double().reshape(-1)]
    print(name, len(values), *(f"{v:.9g}" for v in values), file=out)


put("sizes", [D, V, N, L, STEPS, WARMUP])
put("settings", [RATE, DECAY, CLIP, EPS])
put("lm_head", lm_head)
put("hidden", hidden)
put("token", token)
put("first", torch.cat([w0.reshape(-1), gain0.reshape(-1)]))

for kind in "chained", "independent":
    w, gain = w0.clone().requires_grad_(), gain0.clone().requires_grad_()
    groups = [{"params": [w], "weight_decay": DECAY}, {"params": [gain], "weight_decay": 0}]
    optimiser = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.999), eps=1e-8)
    norms = []
    for step in range(STEPS):
        h, losses = hidden, []
        for k in range(N):
            x = h if kind == "chained" else hidden
            h = x + norm(x, gain[k, 0]) @ w[k].T
            logits = norm(h, gain[k, 1]) @ lm_head.T
            losses.append(torch.nn.functional.cross_entropy(logits[: L - 2 - k], token[2 + k:]))
        optimiser.zero_grad()
        sum(losses).backward()
        if step == 0:
            put(kind + "_losses", torch.stack(losses).detach())
            put(kind + "_gradient", torch.cat([w.grad.reshape(-1), gain.grad.reshape(-1)]))
        norms.append(torch.nn.utils.clip_grad_norm_([w, gain], CLIP))
        rate = RATE * (step + 1) / WARMUP
        if step >= WARMUP:
            rate = RATE * 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))
        for group in optimiser.param_groups:
            group["lr"] = rate
        optimiser.step()
    put(kind + "_norms", norms)
    put(kind + "_last", torch.cat([w.detach().reshape(-1), gain.detach().reshape(-1)]))
