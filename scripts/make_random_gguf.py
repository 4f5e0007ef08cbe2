#!/usr/bin/env python3
"""Writes a GGUF file of a known shape with random weights, for measuring: tensor by tensor in pieces, so that
memory does not limit the size. Weights have deviation 1/sqrt(inputs), norms 1, biases 0. The tokenizer knows
the 256 bytes. Needs numpy:

    scripts/make_random_gguf.py SHAPE TYPE FILE.gguf         e.g. llama-8b q4_k_m 8b.gguf
"""
import struct, sys
import numpy as np

#         name         arch    hidden  ffn    layers heads kv  head  vocab   tied   freq_base  context  pre
SHAPES = {"qwen-0.5b": ("qwen2", 896, 4864, 24, 14, 2, 64, 151936, True, 1e6, 32768, "qwen2"),
          "qwen-3b": ("qwen2", 2048, 11008, 36, 16, 2, 128, 151936, True, 1e6, 32768, "qwen2"),
          "half-3b": ("qwen2", 2048, 11008, 18, 16, 2, 128, 32768, True, 1e6, 32768, "qwen2"),
          "llama-8b": ("llama", 4096, 14336, 32, 32, 8, 128, 128256, False, 5e5, 131072, "llama-bpe"),
          "moe": ("qwen3moe", 2048, 6144, 8, 32, 4, 128, 151936, False, 1e6, 32768, "qwen2"),
          "4b": ("qwen35", 2560, 9216, 8, 16, 4, 256, 62080, True, 1e7, 262144, "qwen35"),
          "35b": ("qwen35moe", 2048, 512, 4, 16, 2, 256, 24832, False, 1e7, 262144, "qwen35"),
          "gemma-3-4b": ("gemma3", 2560, 10240, 17, 8, 4, 256, 32768, True, 1e6, 131072, "qwen2"),
          "gemma-4-26b-a4b": ("gemma4", 2816, 2112, 15, 16, 8, 256, 32768, True, 1e6, 262144, "qwen2"),
          "gemma-4-e2b": ("gemma4", 1536, 6144, 35, 8, 1, 256, 32768, True, 1e6, 131072, "qwen2"),
          "gpt-oss-20b": ("gpt-oss", 2880, 2880, 12, 64, 8, 64, 32768, False, 1.5e5, 131072, "qwen2"),
          "tiny": ("llama", 256, 512, 2, 4, 2, 64, 512, False, 1e4, 4096, "llama-bpe")}
# experts, those of a token, their width
EXPERTS = {"moe": (128, 8, 768), "35b": (256, 8, 512), "gemma-4-26b-a4b": (128, 8, 704),
           "gpt-oss-20b": (32, 4, 2880)}
# 4b: a quarter of Qwen3.5-4B, 35b: a tenth of 35B-A3B; convolution, key and value heads, their dimension;
# every fourth layer has attention
HYBRID = {"qwen35": (4, 16, 32, 128), "qwen35moe": (4, 16, 32, 128)}
# half the layers (of E2B all); KV heads of global layers and their dimension, and the window of the others
GEMMA = {"gemma3": (4, 256, 1024), "gemma4": (2, 512, 1024)}
E2B, SHARED, EACH = SHAPES["gemma-4-e2b"], 20, 256    # layers without keys; embeddings of each layer
F32, BF16, Q4_0, Q5_0, Q8_0, Q4_K, Q6_K = 0, 30, 2, 6, 8, 12, 14
ROUTER = -1                              # F32, random
BLOCK = {F32: (1, 4), ROUTER: (1, 4), BF16: (1, 2), Q4_0: (32, 18), Q5_0: (32, 22), Q8_0: (32, 34),
         Q4_K: (256, 144), Q6_K: (256, 210)}
# other types: number, weights and bytes of a block, where its factor is, deviation of its numbers
OTHER = {"mxfp4": (39, 32, 17, 0, 5.9), "tq1_0": (34, 256, 54, 52, 0.82), "tq2_0": (35, 256, 66, 64, 1.22),
         "iq2_xxs": (16, 256, 66, 0, 53), "iq2_xs": (17, 256, 74, 0, 56), "iq2_s": (22, 256, 82, 0, 56),
         "iq3_xxs": (18, 256, 98, 0, 142), "iq3_s": (21, 256, 110, 0, 140), "iq1_s": (19, 256, 50, 0, 7.2),
         "q1_0": (41, 128, 18, 0, 1), "q2_0": (42, 64, 18, 0, 1.22), "nvfp4": (40, 64, 36, 0, 5.9)}
BLOCK |= {id: (size, per) for id, size, per, *_ in OTHER.values()}
PIECE = 1 << 26
random = np.random.default_rng(1)


def half(x):
    return np.frombuffer(np.float16(x).tobytes(), np.uint8)


def blocks(kind, n, deviation):
    """n weights: random bits, with the factors of every block set for the deviation of the weights."""
    if kind == ROUTER:
        return (random.standard_normal(n) * deviation).astype(np.float32)
    if kind == F32:
        return np.full(n, deviation, np.float32)
    if kind == BF16:
        x = np.frombuffer(random.bytes(2 * n), np.int16).astype(np.float32) * np.float32(deviation / 18918)
        return (x.view(np.uint32) >> 16).astype(np.uint16)
    size, per = BLOCK[kind]
    b = np.frombuffer(random.bytes(n // size * per), np.uint8).reshape(-1, per).copy()
    if kind == Q4_0:
        b[:, :2] = half(deviation / 4.61)
    elif kind == Q5_0:
        b[:, :2] = half(deviation / 9.23)
    elif kind == Q8_0:
        b[:, :2] = half(deviation / 73.9)
    elif kind == OTHER["mxfp4"][0]:
        b[:, 0] = 128 + round(np.log2(deviation / 5.9))
    elif kind == OTHER["nvfp4"][0]:      # numbers below 16 are so many times 2^-10
        b[:, :4] = max(1, min(15, round(deviation / 5.9 * 1024)))
    elif kind in (id for id, *_ in OTHER.values()):
        at, unit = next(o[3:] for o in OTHER.values() if o[0] == kind)
        b[:, at:at + 2] = half(deviation / unit)
    elif kind == Q6_K:                   # all scales 32
        b[:, 192:208], b[:, 208:] = 32, half(deviation / 32 / 18.5)
    elif kind == Q4_K:                   # all scales 32, all minima 60
        b[:, :2], b[:, 2:4] = half(deviation / 32 / 4.61), half(deviation / 4.61 * 7.5 / 60)
        b[:, 4:8], b[:, 8:12], b[:, 12:16] = 160, 252, 192
    return b


def choose(mix, name, layer, layers, tied):
    if mix == "mxfp4" and (name.startswith("attn") or name == "token_embd"):     # as published
        return Q8_0
    if mix in OTHER:                     # the head as in a file of Q4_0
        return Q8_0 if name == "output" or (name == "token_embd" and tied) else OTHER[mix][0]
    if mix != "q4_k_m":
        return {"bf16": BF16, "q8_0": Q8_0, "q4_0": Q8_0 if name == "output" else Q4_0}[mix]
    more = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
    if name == "output" or (name == "token_embd" and tied):
        return Q6_K
    if more and name in ("attn_v", "ffn_down", "ffn_down_exps"):
        return Q6_K
    return Q4_K


def attention(matrix, shape, i, b, normed):
    arch, d, _, _, heads, kv, head, *_ = shape
    for name, rows in (("attn_q", heads * head * (2 if arch in HYBRID else 1)), ("attn_k", kv * head),
                       ("attn_v", kv * head)):
        yield matrix(name, rows, d, i, b)
        if arch == "qwen2":
            yield b + name + ".bias", (rows,), F32, 0
        if normed and name != "attn_v":
            yield b + name + "_norm.weight", (head,), F32, 1
    yield matrix("attn_output", d, heads * head, i, b)


def recurrence(matrix, shape, i, b):
    d = shape[1]
    conv, keys, values, width = HYBRID[shape[0]]
    channels = (2 * keys + values) * width
    for name, rows, cols in (("attn_qkv", channels, d), ("attn_gate", values * width, d),
                             ("ssm_beta", values, d), ("ssm_alpha", values, d),
                             ("ssm_out", d, values * width)):
        yield matrix(name, rows, cols, i, b)
    yield b + "ssm_conv1d.weight", (conv, channels), F32, 0.5
    yield b + "ssm_a", (values,), F32, -1
    yield b + "ssm_dt.bias", (values,), F32, 0
    yield b + "ssm_norm.weight", (width,), F32, 1


def is_global(shape, i):
    return i % 5 == 4 if shape is E2B else i % 6 == 5 or (shape[0] == "gemma4" and i == shape[3] - 1)


def kinds(shape):
    """KV heads and dimension of global layers, and the window of the others."""
    return (1, 512, 512) if shape is E2B else GEMMA[shape[0]]


def oss(matrix, shape, i, b, experts):
    """A layer after its first norm."""
    _, d, _, _, heads, kv, head, *_ = shape
    n, _, width = experts
    for name, rows, cols in (("attn_q", heads * head, d), ("attn_k", kv * head, d), ("attn_v", kv * head, d),
                             ("attn_output", d, heads * head)):
        yield matrix(name, rows, cols, i, b)
        yield b + name + ".bias", (rows,), F32, 0
    for name, rows, cols in (("gate", width, d), ("up", width, d), ("down", d, width)):
        full, dims, kind, deviation = matrix(f"ffn_{name}_exps", rows, cols, i, b)
        yield full, (*dims, n), kind, deviation
        yield b + f"ffn_{name}_exps.bias", (rows, n), F32, 0
    yield b + "ffn_gate_inp.weight", (d, n), ROUTER, d ** -0.5
    yield b + "ffn_gate_inp.bias", (n,), F32, 0
    yield b + "attn_sinks.weight", (heads,), F32, 0
    yield b + "post_attention_norm.weight", (d,), F32, 1


def gemma(matrix, shape, i, b, experts):
    """A layer after its first norm. In Gemma 4 a small norm of the queries stands for a scale of the scores,
    global layers have no values, and experts are beside the dense network."""
    arch, d, ffn, layers, heads, kv, head, *_ = shape
    four, own, shared = arch == "gemma4", is_global(shape, i), shape is E2B and i >= layers - SHARED
    if own:
        kv, head, _ = kinds(shape)
    ffn *= 1 + shared
    parts = (("attn_q", heads * head, d), ("attn_k", kv * head, d), ("attn_v", kv * head, d),
             ("attn_output", d, heads * head), ("ffn_gate", ffn, d), ("ffn_up", ffn, d), ("ffn_down", d, ffn))
    for name, rows, cols in parts:
        if not (name == "attn_v" and four and own and shape is not E2B) and not (
                shared and name in ("attn_k", "attn_v")):
            yield matrix(name, rows, cols, i, b)
    norms = {"attn_q_norm": (head, head ** -0.5 if four else 1), "attn_k_norm": (head, 1)}
    norms |= {k: (d, 1) for k in ("post_attention_norm", "ffn_norm", "post_ffw_norm")}
    if shape is E2B:
        yield matrix("inp_gate", EACH, d, i, b)
        yield matrix("proj", d, EACH, i, b)
        norms["post_norm"] = d, 1
    if experts:
        n, _, width = experts
        for name, rows, cols in (("gate_up", 2 * width, d), ("down", d, width)):
            full, dims, kind, deviation = matrix(f"ffn_{name}_exps", rows, cols, i, b)
            yield full, (*dims, n), kind, deviation
        yield b + "ffn_gate_inp.weight", (d, n), ROUTER, 1
        yield b + "ffn_gate_inp.scale", (d,), F32, 1
        yield b + "ffn_down_exps.scale", (n,), F32, 1
        norms |= {k: (d, 1) for k in ("post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2")}
    if four:
        norms["layer_output_scale"] = 1, 0.9
    for name, (n, x) in norms.items():
        yield b + name + ".weight", (n,), F32, x


def tensors(shape, mix, experts):
    arch, d, ffn, layers, heads, kv, head, vocab, tied, *_ = shape
    def matrix(name, rows, cols, layer=0, prefix=""):
        own = "q8_0" if mix == "q4_0" and tied and name == "token_embd" else mix
        kind = choose(own, name, layer, layers, tied)
        if cols % BLOCK[kind][0]:        # as llama.cpp does
            kind = {Q4_K: Q5_0, Q6_K: Q8_0}[kind]
        return prefix + name + ".weight", (cols, rows), kind, cols ** -0.5
    name, dims, kind, deviation = matrix("token_embd", vocab, d)
    # rows of different tokens: other experts; Gemma scales its rows
    yield name, dims, kind, 1 if experts and arch not in GEMMA else deviation
    if shape is E2B:
        yield "per_layer_token_embd.weight", (layers * EACH, vocab), Q8_0, 1
        yield "per_layer_model_proj.weight", (d, layers * EACH), BF16, d ** -0.5
        yield "per_layer_proj_norm.weight", (EACH,), F32, 1
    if arch == "gemma4":                 # a quarter of the pairs turns
        half_of = GEMMA[arch][1] // 2
        yield "rope_freqs.weight", (half_of,), F32, np.where(np.arange(half_of) < half_of // 4, 1, 1e30)
    for i in range(layers):
        b = f"blk.{i}."
        yield b + "attn_norm.weight", (d,), F32, 1
        if arch in GEMMA:
            yield from gemma(matrix, shape, i, b, experts)
            continue
        if arch == "gpt-oss":
            yield from oss(matrix, shape, i, b, experts)
            continue
        if arch in HYBRID and i % 4 != 3:
            yield from recurrence(matrix, shape, i, b)
        else:
            yield from attention(matrix, shape, i, b, experts or arch in HYBRID)
        yield b + ("post_attention_norm" if arch in HYBRID else "ffn_norm") + ".weight", (d,), F32, 1
        if experts:
            n, _, width = experts
            yield b + "ffn_gate_inp.weight", (d, n), ROUTER, d ** -0.5
            parts = (("gate", width, d), ("up", width, d), ("down", d, width))
            for name, rows, cols in parts:
                full, dims, kind, deviation = matrix(f"ffn_{name}_exps", rows, cols, i, b)
                yield full, (*dims, n), kind, deviation
            for name, rows, cols in parts if arch in HYBRID else ():
                yield matrix(f"ffn_{name}_shexp", rows, cols, i, b)
            if arch in HYBRID:
                yield b + "ffn_gate_inp_shexp.weight", (d,), F32, 0
            continue
        yield matrix("ffn_gate", ffn, d, i, b)
        yield matrix("ffn_up", ffn, d, i, b)
        yield matrix("ffn_down", d, ffn, i, b)
    yield "output_norm.weight", (d,), F32, 1
    if not tied:
        yield matrix("output", vocab, d)


def string(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def value(key, x):
    kinds = {bool: (7, "<?"), int: (4, "<I"), float: (6, "<f")}
    if isinstance(x, str):
        return string(key) + struct.pack("<I", 8) + string(x)
    if isinstance(x, list):
        kind = {str: 8, bool: 7, int: 5}[type(x[0])]
        return string(key) + struct.pack("<IIQ", 9, kind, len(x)) + b"".join(
            string(v) if kind == 8 else struct.pack("<?" if kind == 7 else "<i", v) for v in x)
    kind, form = kinds[type(x)]
    return string(key) + struct.pack("<I", kind) + struct.pack(form, x)


def metadata(shape, experts):
    arch, d, ffn, layers, heads, kv, head, vocab, tied, base, context, pre = shape
    visible = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    hidden = [b for b in range(256) if b not in visible]
    tokens = [chr(b) for b in visible] + [chr(256 + i) for i in range(len(hidden))] + ["he"]
    tokens += [f"<{i}>" for i in range(len(tokens), vocab - 1)] + ["<end>"]
    more = {} if not experts else {f"{arch}.{k}": v for k, v in zip(
        ("expert_count", "expert_used_count", "expert_feed_forward_length"), experts)}
    if arch in HYBRID:
        conv, keys, values, width = HYBRID[arch]
        more |= {f"{arch}.{k}": v for k, v in (
            ("ssm.conv_kernel", conv), ("ssm.state_size", width), ("ssm.group_count", keys),
            ("ssm.time_step_rank", values), ("ssm.inner_size", values * width),
            ("full_attention_interval", 4), ("rope.dimension_count", head // 4),
            ("rope.dimension_sections", [11, 11, 10, 0]))}
        if experts:
            more[f"{arch}.expert_shared_feed_forward_length"] = experts[2]
    if arch in GEMMA:
        few, wide, window = kinds(shape)
        local = [not is_global(shape, i) for i in range(layers)]
        more |= {f"{arch}.{k}": v for k, v in (
            ("attention.sliding_window", window), ("attention.sliding_window_pattern", local),
            ("rope.freq_base_swa", 1e4))}
        if arch == "gemma4":
            more |= {f"{arch}.{k}": v for k, v in (
                ("attention.key_length_swa", head), ("attention.value_length_swa", head),
                ("rope.dimension_count_swa", head), ("rope.dimension_count", wide),
                ("attention.shared_kv_layers", SHARED if shape is E2B else 0),
                ("embedding_length_per_layer_input", EACH if shape is E2B else 0),
                ("final_logit_softcapping", 30.0))}
            if shape is E2B:
                ffn = [ffn * (1 + (i >= layers - SHARED)) for i in range(layers)]
            head, kv = wide, [kv if x else few for x in local]
    if arch == "gpt-oss":
        more |= {f"{arch}.{k}": v for k, v in (
            ("attention.sliding_window", 128), ("rope.scaling.type", "yarn"), ("rope.scaling.factor", 32.0),
            ("rope.scaling.original_context_length", 4096))}
    return {**more, "general.architecture": arch, f"{arch}.attention.key_length": head,
            f"{arch}.attention.value_length": head, "general.name": "random",
            "general.quantization_version": 2,
            f"{arch}.context_length": context, f"{arch}.embedding_length": d, f"{arch}.block_count": layers,
            f"{arch}.feed_forward_length": ffn, f"{arch}.attention.head_count": heads,
            f"{arch}.attention.head_count_kv": kv, f"{arch}.rope.freq_base": base,
            f"{arch}.attention.layer_norm_rms_epsilon": 1e-5, "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [1] * (vocab - 1) + [3], "tokenizer.ggml.merges": ["h e"],
            "tokenizer.ggml.eos_token_id": vocab - 1, "tokenizer.ggml.add_bos_token": False}


def main(name, mix, path):
    shape = SHAPES[name]
    all = list(tensors(shape, mix, EXPERTS.get(name)))
    pairs = metadata(shape, EXPERTS.get(name))
    head, at = struct.pack("<4sIQQ", b"GGUF", 3, len(all), len(pairs)), 0
    head += b"".join(value(k, v) for k, v in pairs.items())
    sizes = []
    for tensor, dims, kind, _ in all:
        size, per = BLOCK[kind]
        sizes.append(int(np.prod(dims)) // size * per)
        head += string(tensor) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        head += struct.pack("<IQ", F32 if kind == ROUTER else kind, at)
        at += -(-sizes[-1] // 32) * 32
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32))
        for (tensor, dims, kind, deviation), bytes_ in zip(all, sizes):
            n, size = int(np.prod(dims)), BLOCK[kind][0]
            for done in range(0, n, PIECE):
                f.write(blocks(kind, min(PIECE, n - done), deviation).tobytes())
            f.write(bytes(-bytes_ % 32))
    print(f"{path}: {len(all)} tensors, {at / 1e9:.2f} GB")


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in SHAPES:
        sys.exit(__doc__)
    main(*sys.argv[1:])
