#!/usr/bin/env python3
"""Make tests/data/drafter_fixture.txt: losses and gradients of trained drafters from PyTorch, in double
precision, for tests/lab/train/test_train_spire.c and tests/lab/train/test_train_gumiho.c.

    python3 tests/make/make_drafter_fixture.py          needs torch

The file has entries "name count", each followed by that many numbers. Inputs are rounded to float first, so
that PyTorch and longhand start from equal numbers. Every drafter is written here as its paper's loop over
rounds and positions, token by token; longhand runs all positions at once. Parameters are ordered as in the
trainers: all matrices, then the vectors.
"""
import torch

D, HEADS, KV, DIM, FF, VOCAB, N, EPS, SKIP_AT, SKIP = 8, 2, 1, 4, 12, 21, 75, 1e-5, 3, 50
torch.manual_seed(2)
out = open("tests/data/drafter_fixture.txt", "w")


def floats(*shape, scale=1.0, mean=0.0):
    return (mean + scale * torch.randn(*shape)).float().double()


def put(name, values):
    values = [float(v) for v in torch.as_tensor(values).double().reshape(-1)]
    print(name, len(values), *(f"{v:.9g}" for v in values), file=out)


embedding, lm_head, norm_final = floats(VOCAB, D), floats(VOCAB, D, scale=0.5), floats(D, scale=0.2, mean=1)
token = torch.randint(0, VOCAB, (N,))
hidden, entering = floats(N, D, scale=2), floats(2, N, D, scale=1.5)
inv_freq = torch.tensor([1.0, 0.1]).double()
position = [t if t < SKIP_AT else t + SKIP for t in range(N)]
put("sizes", [D, HEADS, KV, DIM, FF, VOCAB, N, SKIP_AT, SKIP])
for name in "embedding", "lm_head", "norm_final", "token", "hidden", "entering":
    put(name, globals()[name])


def norm(x, gain):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * gain


def rotate(x, t):
    angle = position[t] * inv_freq
    a, b = x[..., :DIM // 2], x[..., DIM // 2:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


class Block:
    """A decoder block; matrices and vectors are views of the flat parameters."""

    def matrices(self, take):
        self.q, self.kv, self.o = take(HEADS * DIM, D), take(2 * KV * DIM, D), take(D, HEADS * DIM)
        self.gate_up, self.down = take(2 * FF, D), take(D, FF)

    def vectors(self, take, bias, norm_attn):
        self.q_bias = take(HEADS * DIM) if bias else 0
        self.kv_bias = take(2 * KV * DIM) if bias else 0
        self.norm_attn = take(D) if norm_attn else None
        self.norm_mlp = take(D)

    def normed(self, x):
        return x if self.norm_attn is None else norm(x, self.norm_attn)

    def key_value(self, x, t):
        kv = (self.kv @ self.normed(x) + self.kv_bias).reshape(2, KV, DIM)
        return rotate(kv[0], t), kv[1]

    def __call__(self, x, t, seen):
        """seen: keys and values of other positions; the own ones are added."""
        q = rotate((self.q @ self.normed(x) + self.q_bias).reshape(HEADS, DIM), t)
        seen = seen + [self.key_value(x, t)]
        keys = torch.stack([k for k, _ in seen], 1).repeat_interleave(HEADS // KV, 0)
        values = torch.stack([v for _, v in seen], 1).repeat_interleave(HEADS // KV, 0)
        share = torch.softmax((keys @ q[..., None])[..., 0] / DIM ** 0.5, -1)
        x = x + self.o @ (share[:, None] @ values).reshape(-1)
        gate, up = (self.gate_up @ norm(x, self.norm_mlp)).split(FF)
        return x + self.down @ (torch.nn.functional.silu(gate) * up)


def parameters(matrices, vectors, build):
    """Random parameters; build(take matrix, take vector) cuts them."""
    flat = torch.cat([floats(matrices, scale=0.4), floats(vectors, scale=0.3, mean=0.7)]).requires_grad_()
    at = 0

    def take(*shape):
        nonlocal at
        n = torch.Size(shape).numel()
        at += n
        return flat[at - n:at].reshape(shape)

    build(take)
    assert at == matrices + vectors, at
    return flat


BLOCK = 2 * D * HEADS * DIM + 2 * D * KV * DIM + 3 * D * FF


def spire():
    blocks, rest = [Block(), Block()], {}

    def build(take):
        for b in blocks:
            b.matrices(take)
        for b in blocks:
            b.vectors(take, bias=True, norm_attn=True)
        rest["norm"], rest["memory"] = take(D), take(2, 3)

    flat = parameters(2 * BLOCK, 2 * ((HEADS + 2 * KV) * DIM + 2 * D) + D + 6, build)
    share = torch.softmax(rest["memory"], -1)
    groups = (N - 1) // 4
    loss, accepted = torch.zeros(4).double(), [0.0] * 4
    for g in range(groups):
        drafted, chain = [{}, {}], 1.0
        for j in range(4):
            t = 4 * g + j
            x = [embedding[token[t]]]
            for i, b in enumerate(blocks):
                seen = [s for s in range(t) if s == 0 or s >= t - 64]
                x.append(b(x[i], t, [drafted[i][s] if s >= 4 * g else b.key_value(entering[i, s], s)
                                     for s in seen]))
            for i, b in enumerate(blocks):
                drafted[i][t] = b.key_value(sum(share[i, k] * x[k] for k in range(3)), t)
            p = torch.softmax(lm_head @ norm(hidden[t], norm_final), -1)
            log_q = torch.log_softmax(lm_head @ norm(x[2], rest["norm"]), -1)
            overlap = torch.minimum(p, log_q.exp()).sum()
            loss[j] = loss[j] + (0.5 * -(p * log_q).sum() - 0.5 * overlap) / groups
            chain *= overlap.item()
            accepted[j] += chain / groups
    loss.sum().backward()
    put("spire_first", flat.detach())
    put("spire_losses", loss.detach())
    put("spire_accepted", accepted)
    put("spire_gradient", flat.grad)


def silu_linear(w, bias, x):
    return torch.nn.functional.silu(w @ x + bias)


def gumiho():
    blocks, rest = [Block(), Block()], {}

    def build(take):
        rest["fc"] = take(D, 2 * D)
        for b in blocks:
            b.matrices(take)
        rest["mlp"] = [[take(D, D if k else 2 * D) for k in range(6)] for _ in range(5)]
        rest["fc_bias"] = take(D)
        for i, b in enumerate(blocks):
            b.vectors(take, bias=False, norm_attn=i > 0)
        rest["bias"] = [[take(D) for _ in range(6)] for _ in range(5)]

    flat = parameters(2 * D * D + 2 * BLOCK + 5 * 7 * D * D, D + 3 * D + 30 * D, build)
    h = norm(hidden, norm_final)

    def fc(t, state):
        return rest["fc"] @ torch.cat([embedding[token[t]], state]) + rest["fc_bias"]

    hat, seen = {}, [[], []]             # hat[q]: the drafted hidden state of position q
    for p in range(N - 1):
        x = fc(p + 1, h[p])
        for i, b in enumerate(blocks):
            y = b(x, p, seen[i])
            seen[i].append(b.key_value(x, p))
            x = y
        hat[p + 1] = x
    z = [fc(p + 2, hat[p + 1]) for p in range(N - 2)]
    guesses = [hat]
    for i in range(5):
        guesses.append({})
        for p in range(N - 3):
            x = silu_linear(rest["mlp"][i][0], rest["bias"][i][0], torch.cat([z[p], z[p + 1]]))
            for k in range(1, 6):
                x = x + silu_linear(rest["mlp"][i][k], rest["bias"][i][k], x)
            guesses[-1][p + 3 + i] = x
    losses = []
    for guess in guesses:
        loss, n = 0, 0
        for q, x in guess.items():
            if q > N - 2:
                continue
            p = torch.softmax(lm_head @ h[q], -1)
            loss = loss + torch.nn.functional.smooth_l1_loss(x, h[q])
            loss = loss - 0.1 * (p * torch.log_softmax(lm_head @ x, -1)).sum()
            n += 1
        losses.append(loss / n)
    sum(x * (0.8 ** k / 9 if k else 1) for k, x in enumerate(losses)).backward()
    put("gumiho_first", flat.detach())
    put("gumiho_losses", torch.stack(losses).detach())
    put("gumiho_accepted", [0] * 6)
    put("gumiho_gradient", flat.grad)


spire()
gumiho()
