#!/usr/bin/env python3
"""Writes a small GGUF model with the types of Q4_K_M: hidden size 256, two layers, the bytes as tokens,
random weights. Layer 0 has Q4_K everywhere, layer 1 Q6_K for attn_v and ffn_down; output.weight is Q6_K, the
embedding Q4_K. With "small" every matrix of the layers has another type of few bits, as mixes have them.
With "nvfp4" layers have matrices of NVFP4 with scales, and four experts, of which a token takes two; with
"joined" they are dense, have heads of 24, and q, k and v are one tensor.

    tests/cli/q4_k_m.py FILE.gguf [small | nvfp4 | joined]
"""
import math
import random
import struct
import sys

HIDDEN, FFN, HEADS, KV, LAYERS, EXPERTS = 256, 512, 4, 2, 2, 4
F32, RANDOM, Q4_K, Q6_K, NVFP4 = 0, -1, 12, 14, 40       # RANDOM: F32, which is not the same everywhere
# types of few bits: number, weights and bytes of a block, where the factor is, deviation of its weights
# in units of the factor; that of IQ1_M is in the last four bits of four words
SMALL = {16: (256, 66, 0, 53), 17: (256, 74, 0, 56), 22: (256, 82, 0, 56), 18: (256, 98, 0, 142),
         21: (256, 110, 0, 140), 19: (256, 50, 0, 7.2), 29: (256, 56, None, 7.2), 34: (256, 54, 52, 0.82),
         35: (256, 66, 64, 1.1), 41: (128, 18, 0, 1), 42: (64, 18, 0, 1.22)}
bits = random.Random(5)
mode = sys.argv[2] if len(sys.argv) > 2 else ""
scaled, joined = mode in ("nvfp4", "joined"), mode == "joined"
if joined:
    HEADS = 8
HEAD = 24 if joined else HIDDEN // HEADS


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def value(key, kind, x):
    body = text(x) if kind == 8 else struct.pack({4: "<I", 6: "<f", 7: "<?"}[kind], x)
    return text(key) + struct.pack("<I", kind) + body


def array(key, kind, items):
    return text(key) + struct.pack("<IIQ", 9, kind, len(items)) + b"".join(items)


def half(x):
    return struct.pack("<e", x)


def rows(kind, n, deviation):
    """n weights in blocks of random bits, with factors for this deviation."""
    if kind == F32:
        return struct.pack("<f", deviation) * n
    if kind == RANDOM:
        return b"".join(struct.pack("<f", bits.gauss(0, deviation)) for _ in range(n))
    if kind == NVFP4:                    # scales of sub-blocks are 0.25 to 0.94, some 0
        return b"".join(bytes(bits.choice((*range(48, 64), 127)) for _ in range(4)) + bits.randbytes(32)
                        for _ in range(n // 64))
    out = []
    for _ in range(n // (SMALL[kind][0] if kind in SMALL else 256)):
        if kind in SMALL:
            _, size, at, unit = SMALL[kind]
            b, d = bytearray(bits.randbytes(size)), half(deviation / unit)
            if at is None:
                for i in range(4):
                    b[49 + 2 * i] = b[49 + 2 * i] & 15 | (d[i // 2] >> 4 * (i % 2) & 15) << 4
            else:
                b[at:at + 2] = d
            out.append(bytes(b))
        elif kind == Q4_K:               # scales 32, minima 60
            scales = b"\xa0" * 4 + b"\xfc" * 4 + b"\xc0" * 4
            out.append(half(deviation / 147) + half(deviation / 36.8) + scales + bits.randbytes(128))
        else:                            # scales 32
            out.append(bits.randbytes(192) + b"\x20" * 16 + half(deviation / 592))
    return b"".join(out)


# printable bytes stand for themselves, the others for letters beyond them (the alphabet of GPT-2)
plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
letters, beyond = [], 256
for b in range(256):
    letters.append(chr(b) if b in plain else chr(beyond))
    beyond += b not in plain
tokens = ["<unk>", "<s>", "</s>"] + letters + ["th"]
types = [2, 3, 3] + [1] * 257
kv = [value("general.architecture", 8, "llama"), value("general.quantization_version", 4, 2),
      value("general.file_type", 4, 15), value("llama.context_length", 4, 4096),
      value("llama.embedding_length", 4, HIDDEN), value("llama.block_count", 4, LAYERS),
      value("llama.feed_forward_length", 4, FFN), value("llama.attention.head_count", 4, HEADS),
      value("llama.attention.head_count_kv", 4, KV), value("llama.attention.layer_norm_rms_epsilon", 6, 1e-5),
      *([value("llama.expert_count", 4, EXPERTS), value("llama.expert_used_count", 4, 2)]
        if mode == "nvfp4" else []),
      *([value("llama.attention.key_length", 4, HEAD), value("llama.attention.value_length", 4, HEAD),
         value("llama.rope.dimension_count", 4, HEAD)] if joined else []),
      value("tokenizer.ggml.model", 8, "gpt2"), value("tokenizer.ggml.pre", 8, "gpt-2"),
      array("tokenizer.ggml.tokens", 8, [text(t) for t in tokens]),
      array("tokenizer.ggml.token_type", 5, [struct.pack("<i", t) for t in types]),
      array("tokenizer.ggml.merges", 8, [text("t h")]),
      value("tokenizer.ggml.bos_token_id", 4, 1), value("tokenizer.ggml.eos_token_id", 4, 2),
      value("tokenizer.ggml.add_bos_token", 7, False)]
vocab, q_width, kv_width = len(tokens), HEADS * HEAD, KV * HEAD
small = iter([*SMALL] * LAYERS) if mode == "small" else None
tensors = [("token_embd.weight", (HIDDEN, vocab), Q4_K, 1.0)]
for layer in range(LAYERS):
    more = Q6_K if layer == 1 else Q4_K
    names, of = ("_exps", (EXPERTS,)) if mode == "nvfp4" else ("", ())
    qkv = (("attn_qkv", (HIDDEN, q_width + 2 * kv_width), Q4_K, 1 / 16),) if joined else (
           ("attn_q", (HIDDEN, q_width), Q4_K, 1 / 16), ("attn_k", (HIDDEN, kv_width), Q4_K, 1 / 16),
           ("attn_v", (HIDDEN, kv_width), more, 1 / 16))
    for name, dims, kind, deviation in (
            ("attn_norm", (HIDDEN,), F32, 1), *qkv,
            ("attn_output", (q_width, HIDDEN), Q4_K, 1 / 16), ("ffn_norm", (HIDDEN,), F32, 1),
            *((("ffn_gate_inp", (HIDDEN, EXPERTS), RANDOM, 1 / 16),) if of else ()),
            ("ffn_gate" + names, (HIDDEN, FFN, *of), Q4_K, 1 / 16),
            ("ffn_up" + names, (HIDDEN, FFN, *of), Q4_K, 1 / 16),
            ("ffn_down" + names, (FFN, HIDDEN, *of), more, 1 / 23)):
        if small and kind != F32 and name != "attn_v":
            kind = next(small)
        kind = NVFP4 if scaled and kind > 0 else kind
        tensors.append((f"blk.{layer}.{name}.weight", dims, kind, deviation))
        if kind == NVFP4:                # powers of two, so that products in fp32 are those of F32 weights
            n = EXPERTS if len(dims) > 2 else 1
            tensors.append((f"blk.{layer}.{name}.scale", (n,), F32, None))
            if name == "attn_output":
                tensors.append((f"blk.{layer}.{name}.input_scale", (n,), F32, 1))
tensors += [("output_norm.weight", (HIDDEN,), F32, 1),
            ("output.weight", (HIDDEN, vocab), NVFP4 if scaled else Q6_K, 1 / 10)]
if scaled:
    tensors.append(("output.scale", (1,), F32, None))

info, data = [], []
for name, dims, kind, deviation in tensors:
    n = math.prod(dims)
    info.append(text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, max(kind, F32),
                                         sum(map(len, data))))
    body = rows(kind, n, deviation) if deviation else b"".join(
        struct.pack("<f", 2.0 ** bits.choice((-6, -5))) for _ in range(n))
    data.append(body + bytes(-len(body) % 32))
head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(kv)) + b"".join(kv) + b"".join(info)
with open(sys.argv[1], "wb") as out:
    out.write(head + bytes(-len(head) % 32) + b"".join(data))
