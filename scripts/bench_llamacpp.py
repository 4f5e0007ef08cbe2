#!/usr/bin/env python3
"""longhand and llama.cpp on the same model, machine and moment.

    scripts/bench_llamacpp.py [--work DIR] [--depths 0,4096,..] [--rows 1,8] [--rounds 3] [--json FILE]
                              [--models demo,random,random-3b] [--weights bf16,q8_0,q4_0,q4_k_m] [--texts 8]
                              [--prefill 2048] [--files A.gguf,B.gguf] [--real SMOLLM2.gguf]

Needs llama-cpp-python and gguf from PyPI, which are no part of the project. Without them the script says so
and exits with 0. It writes a bf16 GGUF of models/demo and of a random model with Qwen2.5-0.5B's body. With
other --weights llama.cpp quantises that file, and both programs read the result. It fills llama.cpp's cache
with random values up to each depth, through llama.cpp's own state format, which it first checks against a
real state. --files compares both programs on GGUF files, such as make_random_gguf.py writes. A text with
recurrent states cannot be cut back, so it grows with the passes of such a file. A round is: passes of M rows
with flash attention and a cache of f16, longhand bench, passes with flash attention and a cache of q8_0,
passes without flash attention (f16). With --texts the passes have one row of each of so many texts: sequences
of one llama.cpp context. --real writes the table of the README from the file of tests/real: one text and
eight, a prompt of 512 tokens, and how far the negative log-likelihoods of the four texts there are from those
of the file's weights in float32. The report has medians over the rounds, and llama.cpp's time divided by
longhand's time: with flash attention and f16, and of the best mode.
"""
import argparse
import ctypes
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time

try:
    import gguf
    import llama_cpp as L
    import numpy as np
except ImportError as missing:
    print(f"skip bench_llamacpp ({missing}; pip install llama-cpp-python gguf)")
    sys.exit(0)

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BODY = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
    "hidden_size": 896, "intermediate_size": 4864,
    "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "hidden_act": "silu",
    "tie_word_embeddings": True, "use_sliding_window": False, "torch_dtype": "bfloat16",
    "bos_token_id": 1, "eos_token_id": 2,
}
BODIES = {"random": BODY, "random-3b": {**BODY, "hidden_size": 2048, "intermediate_size": 11008,
                                        "num_hidden_layers": 36, "num_attention_heads": 16}}
FILE_TYPES = {"q8_0": 7, "q4_0": 2, "q4_k_m": 15}


# ---- models ----

def normal_bf16(n, scale, rng):
    """n bf16 values drawn from 65,536 normal ones, as uint16."""
    table = (rng.standard_normal(65536).astype(np.float32) * scale).view(np.uint32) >> 16
    return table.astype(np.uint16)[rng.integers(0, 65536, n, dtype=np.uint16)]


def make_random_body(path, body):
    """A Hugging Face directory of the body's shape with random weights."""
    os.makedirs(path, exist_ok=True)
    h, f = body["hidden_size"], body["intermediate_size"]
    kv = body["num_key_value_heads"] * h // body["num_attention_heads"]
    shapes = [("model.embed_tokens.weight", (body["vocab_size"], h)), ("model.norm.weight", (h,))]
    for l in range(body["num_hidden_layers"]):
        for name, shape in (("input_layernorm.weight", (h,)), ("post_attention_layernorm.weight", (h,)),
                            ("self_attn.q_proj.weight", (h, h)), ("self_attn.q_proj.bias", (h,)),
                            ("self_attn.k_proj.weight", (kv, h)), ("self_attn.k_proj.bias", (kv,)),
                            ("self_attn.v_proj.weight", (kv, h)), ("self_attn.v_proj.bias", (kv,)),
                            ("self_attn.o_proj.weight", (h, h)), ("mlp.gate_proj.weight", (f, h)),
                            ("mlp.up_proj.weight", (f, h)), ("mlp.down_proj.weight", (h, f))):
            shapes.append((f"model.layers.{l}.{name}", shape))
    header, at = {}, 0
    for name, shape in shapes:
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = np.random.default_rng(1)
    with open(os.path.join(path, "config.json"), "w") as out:
        json.dump(body, out)
    with open(os.path.join(path, "model.safetensors"), "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes:
            n = int(np.prod(shape))
            norm = "norm" in name
            out.write((np.full(n, 0x3F80, np.uint16) if norm else normal_bf16(n, 0.03, rng)).tobytes())


def read_model(path):
    """config, {name: uint16 array of bf16 bits}."""
    with open(os.path.join(path, "config.json")) as f:
        config = json.load(f)
    file = os.path.join(path, "model.safetensors")
    with open(file, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(n))
    data = np.memmap(file, np.uint8, "r", offset=8 + n)
    tensors = {}
    for name, t in header.items():
        if name == "__metadata__":
            continue
        if t["dtype"] != "BF16":
            sys.exit(f"{file}: tensor {name} is {t['dtype']}; this script converts BF16 only")
        a, b = t["data_offsets"]
        tensors[name] = data[a:b].view(np.uint16).reshape(t["shape"])
    return config, tensors


def interleave_pairs(w, heads):
    """Rows of a Llama projection in the order of llama.cpp, which rotates neighbours: i next to i + half."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def to_gguf(path, out):
    c, tensors = read_model(path)
    arch = c["model_type"]
    if arch not in ("llama", "qwen2"):
        sys.exit(f"{path}: model_type {arch}; this script converts llama and qwen2")
    heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
    head_dim = c.get("head_dim") or c["hidden_size"] // heads
    rope = c.get("rope_parameters") or {}
    w = gguf.GGUFWriter(out, arch)
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(kv_heads)
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    w.add_rope_dimension_count(head_dim)
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_rope_freq_base(float(rope.get("rope_theta") or c.get("rope_theta") or 10000.0))
    w.add_vocab_size(c["vocab_size"])
    w.add_tokenizer_model("gpt2")            # longhand reads no file without tokens
    w.add_tokenizer_pre("qwen2")
    w.add_token_list([f"t{i}" for i in range(c["vocab_size"])])
    w.add_token_types([1] * c["vocab_size"])
    w.add_token_merges(["a b"])
    w.add_eos_token_id(2)
    names = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
             "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    for name, t in tensors.items():
        part, kind = name.rsplit(".", 1)
        if part.startswith("model.layers."):
            layer, tensor = part[len("model.layers."):].split(".", 1)
            to = f"blk.{layer}.{names[tensor]}.{kind}"
            if arch == "llama" and tensor in ("self_attn.q_proj", "self_attn.k_proj"):
                t = interleave_pairs(t, heads if tensor.endswith("q_proj") else kv_heads)
        else:
            to = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}[part]
            to += "." + kind
        if t.ndim == 1:
            w.add_tensor(to, (t.astype(np.uint32) << 16).view(np.float32))
        else:
            bits = np.ascontiguousarray(t).view(np.uint8)
            w.add_tensor(to, bits, raw_dtype=gguf.GGMLQuantizationType.BF16)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return c


def gguf_config(path):
    """What Session asks of a model, from the metadata of a GGUF file. Layers with a state have no cache."""
    fields = gguf.GGUFReader(path).fields
    arch = fields["general.architecture"].contents()
    get = lambda key, other=None: fields[f"{arch}.{key}"].contents() if f"{arch}.{key}" in fields else other
    interval = get("full_attention_interval", 1)
    return {"vocab_size": len(fields["tokenizer.ggml.tokens"].data), "recurrent": interval > 1,
            "hidden_size": get("embedding_length"), "num_hidden_layers": get("block_count") // interval,
            "num_attention_heads": get("attention.head_count"), "head_dim": get("attention.key_length"),
            "num_key_value_heads": get("attention.head_count_kv")}


def quantise(path, out, weights):
    params = L.llama_model_quantize_default_params()
    params.ftype = FILE_TYPES[weights]
    if L.llama_model_quantize(path.encode(), out.encode(), ctypes.byref(params)):
        sys.exit(f"llama.cpp: cannot quantise {path} to {weights}")


# ---- llama.cpp ----

MODES = ("fa", "q8", "nofa")             # flash attention with a cache of f16 or q8_0; without, f16
KEEP_LOG = L.llama_log_callback(lambda level, text, data: None)


class Session:
    """A llama.cpp context whose cache holds `depth` positions of random values."""

    def __init__(self, model, config, depth, mode, threads, rows, prefill=0, texts=1):
        p = L.llama_context_default_params()
        self.recurrent = config.get("recurrent", False)
        more = 2048 if self.recurrent else 256
        p.n_ctx = texts * ((max(depth + max(rows), prefill) + more + 255) // 256 * 256)
        p.n_batch = p.n_ubatch = 512
        p.n_threads = p.n_threads_batch = threads
        p.n_seq_max = texts                      # n_ctx is divided among them
        p.flash_attn_type = L.LLAMA_FLASH_ATTN_TYPE_DISABLED if mode == "nofa" else \
            L.LLAMA_FLASH_ATTN_TYPE_ENABLED
        self.q8 = mode == "q8"
        if self.q8:
            p.type_k = p.type_v = L.GGML_TYPE_Q8_0
        p.no_perf = True
        self.depth, self.vocab, self.config, self.texts = depth, config["vocab_size"], config, texts
        self.context = L.llama_init_from_model(model, p)
        if not self.context:
            sys.exit("llama.cpp: no context")
        self.batch = L.llama_batch_init(512, 0, 1)
        self.memory = L.llama_get_memory(self.context)
        if depth:
            self.inject(depth)

    def close(self):
        L.llama_batch_free(self.batch)
        L.llama_free(self.context)

    def decode(self, first, n, logits=True, texts=1):
        """Seconds of a pass of n rows from position `first` of each text."""
        b = self.batch
        b.n_tokens = n * texts
        for i in range(n * texts):
            b.token[i] = (first + i) * 7919 % self.vocab
            b.pos[i] = first + i % n
            b.n_seq_id[i] = 1
            b.seq_id[i][0] = i // n
            b.logits[i] = logits or i == n - 1
        t0 = time.perf_counter()
        if L.llama_decode(self.context, b):
            sys.exit("llama.cpp: llama_decode failed")
        L.llama_synchronize(self.context)
        return time.perf_counter() - t0

    def state(self):
        n = L.llama_state_seq_get_size(self.context, 0)
        buffer = (ctypes.c_uint8 * n)()
        if L.llama_state_seq_get_data(self.context, buffer, n, 0) != n:
            sys.exit("llama.cpp: cannot read its state")
        return bytes(buffer)

    def layout(self, state, cells):
        """The parts of a sequence's state of `cells` cells, checked as they are read. Only the count of
        cells, the positions and the data depend on the number of cells; everything else is copied."""
        c = self.config
        head_dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
        width, layers = c["num_key_value_heads"] * head_dim, c["num_hidden_layers"]
        row = width // 32 * 34 if self.q8 else width * 2
        u32 = lambda at: struct.unpack_from("<I", state, at)[0]
        u64 = lambda at: struct.unpack_from("<Q", state, at)[0]
        for start in range(0, 64, 4):           # skips the header of this version before the streams
            if u32(start) == self.texts and u32(start + 4) == cells and u32(start + 8) == 0:
                break
        else:
            sys.exit("llama.cpp: unknown state format (no count of cells)")
        at = start + 8
        cell_bytes = next((b for b in range(8, 28, 4) if all(u32(at + i * b) == i for i in range(cells)) and
                           u32(at + cells * b + 4) == layers), 0)
        if not cell_bytes:
            sys.exit("llama.cpp: unknown state format (cells)")
        # a position, which models of images have three times, among words that do not depend on it
        cell, other = (struct.unpack_from(f"<{cell_bytes // 4}I", state, at + i * cell_bytes) for i in (1, 2))
        parts = {"head": state[:start + 4], "layers": [],
                 "cell": [None if (x, y) == (1, 2) else x for x, y in zip(cell, other)]}
        at += cells * cell_bytes
        transposed = u32(at)
        parts["transposed"] = transposed
        parts["meta"] = state[at:at + 8]
        at += 8
        for _ in range(layers):
            if u64(at + 4) != row:
                sys.exit(f"llama.cpp: rows of {u64(at + 4)} bytes in its cache, {row} expected")
            parts["layers"].append(state[at:at + 12])
            at += 12 + cells * row
        for _ in range(layers):
            head = 12
            if (u32(at + 4) != 2 or u32(at + 8) != width) if transposed else u64(at + 4) != row:
                sys.exit("llama.cpp: unknown state format (values)")
            parts["layers"].append(state[at:at + head])
            at += head + cells * row
        parts["tail"] = state[at:]
        parts["row"] = row
        return parts

    def moved(self, tail, cells, depth):
        """The part after the cache: with states it begins with their count, 1, and their position."""
        if not self.recurrent:
            return tail
        if struct.unpack_from("<II", tail) != (1, cells - 1):
            sys.exit("llama.cpp: unknown state format (recurrent states)")
        return tail[:4] + struct.pack("<I", depth - 1) + tail[8:]

    def inject(self, depth):
        cells = 8
        self.decode(0, cells)
        p = self.layout(self.state(), cells)
        L.llama_memory_seq_rm(self.memory, 0, -1, -1)
        size = p["row"] * depth
        rng = np.random.default_rng(depth)
        if self.q8:                              # blocks of a 16-bit scale and 32 numbers
            noise = rng.integers(0, 256, (1 << 15, 34), np.uint8)
            noise[:, :2] = np.frombuffer(np.float16(1 / 74).tobytes(), np.uint8)
            skip = 34 * 64
        else:
            noise = rng.standard_normal(1 << 20).astype(np.float16).view(np.uint8)
            skip = 2048
        noise = np.resize(noise.reshape(-1), size + skip * len(p["layers"]))
        out = bytearray(p["head"] + struct.pack("<I", depth))
        out += b"".join(struct.pack(f"<{len(p['cell'])}I", *(i if x is None else x for x in p["cell"]))
                        for i in range(depth))
        out += p["meta"]
        for i, head in enumerate(p["layers"]):
            out += head
            out += noise[i * skip:i * skip + size].tobytes()
        out += self.moved(p["tail"], cells, depth)
        buffer = (ctypes.c_uint8 * len(out)).from_buffer(out)
        for text in range(self.texts):
            if L.llama_state_seq_set_data(self.context, buffer, len(out), text) != len(out):
                sys.exit("llama.cpp: rejects the injected state")
            if L.llama_memory_seq_pos_max(self.memory, text) != depth - 1:
                sys.exit("llama.cpp: the injected state does not reach the depth")

    def passes(self, rows, seconds=0.5, most=9):
        """Median seconds of a pass of `rows` rows after the cache: of one text, or one row of each text."""
        n = rows // self.texts
        times, start = [], time.perf_counter()
        while len(times) < 3 or (len(times) < most and time.perf_counter() - start < seconds) or \
                time.perf_counter() - start < 0.05:
            times.append(self.decode(self.depth, n, texts=self.texts))
            if self.recurrent:                   # the text grows: its states cannot be cut back
                self.depth += n
                continue
            for text in range(self.texts):
                L.llama_memory_seq_rm(self.memory, text, self.depth, -1)
        return statistics.median(times[1:])

    def prefill(self, tokens):
        total = 0.0
        for at in range(0, tokens, 512):
            total += self.decode(at, 512, logits=False)
        L.llama_memory_seq_rm(self.memory, 0, -1, -1)
        return total


# ---- the comparison ----

def longhand(args, model, words):
    command = [args.longhand, "bench", "--model", model, "--json", "--quiet", "--repeat", "5", "--points",
               ",".join(words)]
    if args.threads:
        command += ["--threads", str(args.threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}")
    return json.loads(done.stdout)["points"]


def compare(args, name, model, gguf_path, config):
    params = L.llama_model_default_params()
    handle = L.llama_model_load_from_file(gguf_path.encode(), params)
    if not handle:
        sys.exit(f"llama.cpp: cannot load {gguf_path}")
    results = []
    for depth in args.depths:
        sessions = {mode: Session(handle, config, depth, mode, args.threads, args.rows, texts=args.texts)
                    for mode in MODES}
        times = {(who, m): [] for who in (*MODES, "longhand") for m in args.rows}
        words = [f"depth={depth}", "decode"]
        if args.texts > 1:
            words = [f"depth={depth}", "texts", f"m={args.texts}"]
        elif max(args.rows) > 1:
            words += ["rows"] + [f"m={m}" for m in args.rows if m > 1]
        for _ in range(args.rounds):
            for m in args.rows:
                times["fa", m].append(sessions["fa"].passes(m))
            for point in longhand(args, model, words):
                if ("longhand", point["rows"]) in times:
                    times["longhand", point["rows"]].append(point["seconds"])
            for mode in ("q8", "nofa"):
                for m in args.rows:
                    times[mode, m].append(sessions[mode].passes(m))
        for s in sessions.values():
            s.close()
        for m in args.rows:
            fa, q8, nofa, ours = (statistics.median(times[who, m]) for who in (*MODES, "longhand"))
            best = min(fa, q8, nofa)
            row = {"model": name, "depth": depth, "rows": m, "llamacpp_flash": fa, "llamacpp_flash_q8_0": q8,
                   "llamacpp": nofa, "longhand": ours, "ratio_flash": fa / ours, "ratio_best": best / ours,
                   "all": {who: times[who, m] for who in (*MODES, "longhand")}}
            results.append(row)
            print(f"{name:16} {depth:7} {m:5} {fa * 1e3:11.3f} {q8 * 1e3:11.3f} {nofa * 1e3:11.3f} "
                  f"{ours * 1e3:11.3f} {fa / ours:8.2f} {best / ours:9.2f}", flush=True)
    if args.prefill:
        s = Session(handle, config, 0, "fa", args.threads, [512], args.prefill)
        fa, ours = [], []
        for _ in range(args.rounds):
            fa.append(s.prefill(args.prefill))
            ours += [p["seconds"] for p in longhand(args, model, [f"prefill={args.prefill}", "depth=0"])]
        s.close()
        fa, ours = statistics.median(fa), statistics.median(ours)
        print(f"{name:12} prefill of {args.prefill}: llama.cpp {args.prefill / fa:.0f} tokens/s, "
              f"longhand {args.prefill / ours:.0f} tokens/s, {fa / ours:.2f}x", flush=True)
        results.append({"model": name, "prefill": args.prefill, "llamacpp_flash": fa, "longhand": ours,
                        "ratio_flash": fa / ours})
    L.llama_model_free(handle)
    return results


def llama_likelihoods(handle, config, ids, threads):
    """The negative log-likelihood of each id after the first."""
    s = Session(handle, config, 0, "fa", threads, [512], len(ids))
    nll = []
    for at in range(0, len(ids), 512):
        part = ids[at:at + 512]
        s.batch.n_tokens = len(part)
        for i, token in enumerate(part):
            s.batch.token[i], s.batch.pos[i], s.batch.n_seq_id[i] = token, at + i, 1
            s.batch.seq_id[i][0], s.batch.logits[i] = 0, True
        if L.llama_decode(s.context, s.batch):
            sys.exit("llama.cpp: llama_decode failed")
        logits = np.ctypeslib.as_array(L.llama_get_logits(s.context), (len(part), s.vocab)).astype(np.float64)
        for row, token in zip(logits, ids[at + 1:at + 513]):
            top = row.max()
            nll.append(top + np.log(np.exp(row - top).sum()) - row[token])
    s.close()
    return nll


def likelihoods(args, file):
    """Mean distances from the likelihoods of tests/real: llama.cpp's, and longhand's."""
    handle = L.llama_model_load_from_file(file.encode(), L.llama_model_default_params())
    tests, off = os.path.join(ROOT, "tests", "real"), ([], [])
    with open(os.path.join(tests, "smollm2.json"), encoding="utf-8") as f:
        wanted = json.load(f)
    for name, want in wanted.items():
        if name == "model_sha256":
            continue
        rows = subprocess.run([args.longhand, "score", "-q", "--per-token", "-m", file,
                               os.path.join(tests, "texts", name + ".txt")],
                              stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
        rows = [row.split("\t") for row in rows[:want["tokens"]]]
        exact = [1e-4 * x for x in want["nll"]]
        theirs = llama_likelihoods(handle, gguf_config(file), [int(row[0]) for row in rows], args.threads)
        off[0].extend(abs(x - y) for x, y in zip(theirs, exact))
        off[1].extend(abs(float(row[1]) - y) for row, y in zip(rows[1:], exact))
    L.llama_model_free(handle)
    return [statistics.mean(x) for x in off]


def real(args):
    """The README's table: milliseconds of the fastest mode, and their ratios."""
    columns, args.depths = [], [0, 4096]
    for texts in 1, 8:
        args.texts, args.rows, args.prefill = texts, [texts], 512 if texts == 1 else 0
        for r in compare(args, "SmolLM2", args.real, args.real, gguf_config(args.real)):
            theirs = 1e3 * min(r[k] for k in ("llamacpp_flash", "llamacpp_flash_q8_0", "llamacpp") if k in r)
            ours = 1e3 * r["longhand"]
            columns.append((f"prompt of {r['prefill']}" if "prefill" in r else
                            f"{'one text' if texts == 1 else f'{texts} texts'} at {r['depth']:,}",
                            f"{theirs:.4g}", f"{ours:.4g}", f"{theirs / ours:.1f}"))
    theirs, ours = likelihoods(args, args.real)
    columns.append(("error of nll", f"{theirs:.4f}", f"{ours:.4f}", f"{theirs / ours:.0f}"))
    rows = list(zip(("ms", "llama.cpp", "longhand", "ratio"), *columns))
    rows.insert(1, ["---"] * len(rows[0]))
    for row in rows:
        print(f"| {' | '.join(row)} |")


def main():
    numbers = lambda s: [int(x) for x in s.split(",")]
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--longhand", default=os.path.join(ROOT, "longhand"))
    a.add_argument("--models", default="demo,random", help="some of demo, random, random-3b")
    a.add_argument("--weights", default="bf16", help="some of bf16, " + ", ".join(FILE_TYPES))
    a.add_argument("--depths", type=numbers, default=[0, 4096, 16384, 32768, 65536, 100000])
    a.add_argument("--rows", type=numbers, default=[1, 8])
    a.add_argument("--texts", type=int, default=1, help="one row of each of so many texts, instead of --rows")
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    a.add_argument("--prefill", type=int, default=2048, help="tokens, a multiple of 512; 0: none")
    a.add_argument("--files", type=lambda s: s.split(","), help="GGUF files, in place of --models")
    a.add_argument("--real", help="the file of SmolLM2 of scripts/real-models.sh: the README's table")
    a.add_argument("--work", help="keeps the GGUF files and the random model (default: a temporary one)")
    a.add_argument("--json", help="receives all figures")
    args = a.parse_args()
    if args.texts > 1:
        args.rows = [args.texts]
    L.llama_log_set(KEEP_LOG, ctypes.c_void_p(0))
    L.llama_backend_init()
    if args.real:
        real(args)
        return
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        work = args.work or temporary
        os.makedirs(work, exist_ok=True)
        print(f"llama-cpp-python {L.__version__}, {args.threads} threads; ms per pass, median of "
              f"{args.rounds} rounds")
        print(f"{'model':16} {'depth':>7} {'rows':>5} {'FA f16':>11} {'FA q8_0':>11} {'no FA f16':>11} "
              f"{'longhand':>11} {'FA/ours':>8} {'best/ours':>9}")
        for file in args.files or []:
            results += compare(args, os.path.basename(file)[:-5], file, file, gguf_config(file))
        for name in args.models.split(",") if not args.files else []:
            model = os.path.join(ROOT, "models", "demo") if name == "demo" else os.path.join(work, name)
            if name != "demo" and not os.path.exists(os.path.join(model, "model.safetensors")):
                make_random_body(model, BODIES[name])
            out = os.path.join(work, name + ".gguf")
            if not os.path.exists(out):
                to_gguf(model, out)
            with open(os.path.join(model, "config.json")) as f:
                config = json.load(f)
            for weights in args.weights.split(","):
                if weights == "bf16":
                    results += compare(args, name, model, out, config)
                    continue
                file = os.path.join(work, f"{name}-{weights}.gguf")
                if not os.path.exists(file):
                    quantise(out, file, weights)
                results += compare(args, f"{name} {weights}", file, file, config)
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"llama_cpp_python": L.__version__, "threads": args.threads, "results": results}, f,
                      indent=1)


if __name__ == "__main__":
    main()
