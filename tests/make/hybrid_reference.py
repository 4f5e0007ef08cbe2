"""A float64 program of the formulas of Qwen3.5 hybrids: Gated DeltaNet, gated attention, mixtures of experts
with a shared expert, and the draft layer (MTP). \
tests/make/make_hybrid_fixtures.py compares it with transformers
and writes its results for the tests.

The only steps in float32 are those that the model defines so: the frequencies and angles of RoPE."""
import json
import math

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

PREFIXES = ("model.language_model.", "language_model.model.", "model.")


def read_weights(folder):
    """The tensors of the text model by their names without a prefix, as float64."""
    stored = {}
    for file in sorted(folder.glob("*.safetensors")):
        stored.update(load_file(file))
    prefix = next(p for p in PREFIXES if p + "norm.weight" in stored)
    out = {k[len(prefix):]: v.double() for k, v in stored.items() if k.startswith(prefix)}
    out.update({k: v.double() for k, v in stored.items() if k.startswith(("lm_head.", "mtp."))})
    return out


def l2_norm(x):
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


class Hybrid:
    def __init__(self, folder):
        config = json.loads((folder / "config.json").read_text())
        self.c = c = {**config, **config.get("text_config", {})}
        self.w = read_weights(folder)
        n, interval = c["num_hidden_layers"], c.get("full_attention_interval", 4)
        self.types = c.get("layer_types") or ["linear_attention" if (i + 1) % interval else "full_attention"
                                              for i in range(n)]
        rope = c.get("rope_parameters") or {}
        part = rope.get("partial_rotary_factor", c.get("partial_rotary_factor", 0.25))
        self.rotary = int(c["head_dim"] * part)
        theta = rope.get("rope_theta", c.get("rope_theta", 10000.0))
        even = torch.arange(0, self.rotary, 2, dtype=torch.int64).float()
        self.inv_freq = 1.0 / theta ** (even / self.rotary)
        self.eps = c.get("rms_norm_eps", 1e-6)
        self.head = self.w.get("lm_head.weight", self.w["embed_tokens.weight"])

    def norm(self, x, name):
        """The weight is stored less 1."""
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * (1 + self.w[name])

    def turn(self, x, positions):
        """RoPE of the first dimensions of heads [rows][heads][head_dim]."""
        angle = (positions.float()[:, None] * self.inv_freq[None]).double()
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        half = self.rotary // 2
        a, b, rest = x[..., :half], x[..., half:self.rotary], x[..., self.rotary:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)

    def attention(self, x, at, positions, past=None):
        """Gated attention. past: (k, v) of earlier rows; returns the result and (k, v) of all rows."""
        c, n = self.c, len(x)
        heads, kv_heads, h = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        w = lambda name: self.w[f"{at}{name}.weight"]  # noqa: E731
        q, gate = (x @ w("q_proj").T).view(n, heads, 2 * h).split(h, -1)
        k, v = ((x @ w(p).T).view(n, kv_heads, h) for p in ("k_proj", "v_proj"))
        q = self.turn(self.norm(q, at + "q_norm.weight"), positions)
        k = self.turn(self.norm(k, at + "k_norm.weight"), positions)
        if past is not None:
            k, v = torch.cat([past[0], k]), torch.cat([past[1], v])
        group, first = heads // kv_heads, len(k) - n
        score = torch.einsum("qhd,khd->hqk", q, k.repeat_interleave(group, 1)) * h ** -0.5
        score.masked_fill_(torch.arange(len(k))[None] > first + torch.arange(n)[:, None], -math.inf)
        out = torch.einsum("hqk,khd->qhd", score.softmax(-1), v.repeat_interleave(group, 1))
        return (out * gate.sigmoid()).reshape(n, -1) @ w("o_proj").T, (k, v)

    def delta(self, x, at):
        c, n = self.c, len(x)
        nk, nv = c["linear_num_key_heads"], c["linear_num_value_heads"]
        dk, dv = c["linear_key_head_dim"], c["linear_value_head_dim"]
        w = lambda name: self.w[at + name]  # noqa: E731
        m = x @ w("in_proj_qkv.weight").T
        taps = w("conv1d.weight")[:, 0]
        before = torch.cat([torch.zeros(taps.shape[1] - 1, m.shape[1], dtype=m.dtype), m])
        y = F.silu(sum(before[j:j + n] * taps[:, j] for j in range(taps.shape[1])))
        q, k, v = y.split([nk * dk, nk * dk, nv * dv], -1)
        q, k = (l2_norm(t.view(n, nk, dk)).repeat_interleave(nv // nk, 1) for t in (q, k))
        q, v = q * dk ** -0.5, v.view(n, nv, dv)
        beta = (x @ w("in_proj_b.weight").T).sigmoid()
        decay = (-w("A_log").exp() * F.softplus(x @ w("in_proj_a.weight").T + w("dt_bias"))).exp()
        state, out = torch.zeros(nv, dk, dv, dtype=x.dtype), torch.empty(n, nv, dv, dtype=x.dtype)
        for t in range(n):
            state *= decay[t, :, None, None]
            off = (v[t] - torch.einsum("hk,hkv->hv", k[t], state)) * beta[t, :, None]
            state += k[t, :, :, None] * off[:, None]
            out[t] = torch.einsum("hk,hkv->hv", q[t], state)
        out = out * torch.rsqrt((out * out).mean(-1, keepdim=True) + self.eps) * w("norm.weight")
        z = (x @ w("in_proj_z.weight").T).view(n, nv, dv)
        return (out * F.silu(z)).reshape(n, -1) @ w("out_proj.weight").T

    def mlp(self, x, at):
        w = lambda name: self.w[f"{at}{name}.weight"]  # noqa: E731
        return (F.silu(x @ w("gate_proj").T) * (x @ w("up_proj").T)) @ w("down_proj").T

    def expert(self, at, e):
        """The three matrices of an expert, whether the file has them apart or fused."""
        if at + "experts.gate_up_proj" in self.w:
            gate, up = self.w[at + "experts.gate_up_proj"][e].chunk(2)
            return gate, up, self.w[at + "experts.down_proj"][e]
        return [self.w[f"{at}experts.{e}.{p}_proj.weight"] for p in ("gate", "up", "down")]

    def experts(self, x, at):
        c = self.c
        share, chosen = (x @ self.w[at + "gate.weight"].T).softmax(-1).topk(c["num_experts_per_tok"], -1)
        if c.get("norm_topk_prob", True):
            share = share / share.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for e in range(c["num_experts"]):
            row, place = (chosen == e).nonzero(as_tuple=True)
            gate, up, down = self.expert(at, e)
            out[row] += share[row, place, None] * ((F.silu(x[row] @ gate.T) * (x[row] @ up.T)) @ down.T)
        if at + "shared_expert_gate.weight" in self.w:
            share = (x @ self.w[at + "shared_expert_gate.weight"].T).sigmoid()
            out += share * self.mlp(x, at + "shared_expert.")
        return out

    def feed_forward(self, x, at):
        x = self.norm(x, at + "post_attention_layernorm.weight")
        return self.experts(x, at + "mlp.") if at + "mlp.gate.weight" in self.w else self.mlp(x, at + "mlp.")

    def hidden(self, ids):
        """The rows after the final norm."""
        x, positions = self.w["embed_tokens.weight"][ids], torch.arange(len(ids))
        for i, kind in enumerate(self.types):
            at = f"layers.{i}."
            y = self.norm(x, at + "input_layernorm.weight")
            x = x + (self.delta(y, at + "linear_attn.") if kind == "linear_attention"
                     else self.attention(y, at + "self_attn.", positions)[0])
            x = x + self.feed_forward(x, at)
        return self.norm(x, "norm.weight")

    def logits(self, ids):
        return self.hidden(ids) @ self.head.T

    def draft_rows(self, tokens, hidden, positions, past=None):
        """The draft layer over pairs of a token and the hidden row before it. Returns its own hidden rows and
        its keys and values."""
        e = self.norm(self.w["embed_tokens.weight"][tokens], "mtp.pre_fc_norm_embedding.weight")
        u = self.norm(hidden, "mtp.pre_fc_norm_hidden.weight")
        x = torch.cat([e, u], -1) @ self.w["mtp.fc.weight"].T
        at = "mtp.layers.0."
        y = self.norm(x, at + "input_layernorm.weight")
        y, past = self.attention(y, at + "self_attn.", positions, past)
        x = x + y
        x = x + self.feed_forward(x, at)
        return self.norm(x, "mtp.norm.weight"), past

    def drafts(self, ids, hidden, at, n):
        """Logits [n] of a chain of n drafts after the text ids[.. at], each of which continues with its most
        likely token. The layer has the rows of all tokens but the first: position i has token i and hidden
        row i - 1."""
        rows, past = self.draft_rows(ids[1:at + 1], hidden[:at], torch.arange(1, at + 1))
        h, out = rows[-1:], [rows[-1] @ self.head.T]
        for k in range(1, n):
            h, past = self.draft_rows(out[-1].argmax()[None], h, torch.tensor([at + k]), past)
            out.append(h[0] @ self.head.T)
        return torch.stack(out)
