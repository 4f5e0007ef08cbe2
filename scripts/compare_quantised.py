#!/usr/bin/env python3
"""Accuracy of quantised weights: longhand, longhand with --compute f32, their F32 values, and llama.cpp.

    scripts/compare_quantised.py TEXT [--model models/demo] [--tokens 4096] [--window 512]
                                 [--longhand PROGRAM]

Needs llama-cpp-python, gguf and numpy, which are no part of the project. For each type llama.cpp quantises
the model, and gguf-py writes a second file with the decoded weights in F32. Columns:

    fast       the quantised file: mean absolute difference of a token's nll to that of the F32 weights
    decoded    the same with --compute f32
    ppl        perplexity of longhand, and of llama.cpp on the same file and the same windows
"""
import argparse
import ctypes
import json
import math
import os
import subprocess
import sys
import tempfile

try:
    import gguf
    import llama_cpp as L
    import numpy as np
except ImportError as missing:
    print(f"skip compare_quantised ({missing}; pip install llama-cpp-python gguf)")
    sys.exit(0)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bench_llamacpp import KEEP_LOG, ROOT

FILE_TYPES = {"Q8_0": 7, "Q4_0": 2, "Q4_1": 3, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K_M": 12, "Q4_K_M": 15,
              "Q5_K_M": 17, "Q6_K": 18, "IQ4_NL": 25, "IQ4_XS": 30}


def quantise(path, out, kind):
    params = L.llama_model_quantize_default_params()
    params.ftype = FILE_TYPES[kind]
    if L.llama_model_quantize(path.encode(), out.encode(), ctypes.byref(params)):
        sys.exit(f"llama.cpp: cannot quantise {path} to {kind}")


def decode(path, out):
    """The file with every tensor as F32. Returns the names of the types."""
    r = gguf.GGUFReader(path)
    w = gguf.GGUFWriter(out, r.get_field("general.architecture").contents())
    for f in r.fields.values():
        if f.name.startswith("GGUF.") or f.name in ("general.architecture", "general.file_type"):
            continue
        sub = f.types[1] if f.types[0] == gguf.GGUFValueType.ARRAY else None
        w.add_key_value(f.name, f.contents(), f.types[0], sub)
    for t in r.tensors:
        x = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        w.add_tensor(t.name, x.reshape([int(n) for n in reversed(t.shape)]))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return sorted({t.tensor_type.name for t in r.tensors if len(t.shape) > 1})


def longhand(args, model, *more):
    """Ids of the text and the nll of each."""
    command = [args.longhand, "score", "--model", model, args.text, "--window", str(args.window), "--json",
               "--per-token", "--quiet", *more]
    d = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return d["token_ids"], np.array([math.nan if x is None else x for x in d["token_nll"]])


def llamacpp(path, ids, window):
    """Mean nll of the tokens that have a token before them in their window."""
    model = L.llama_model_load_from_file(path.encode(), L.llama_model_default_params())
    p = L.llama_context_default_params()
    p.n_ctx = p.n_batch = p.n_ubatch = window
    p.flash_attn_type = L.LLAMA_FLASH_ATTN_TYPE_ENABLED
    context = L.llama_init_from_model(model, p)
    vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
    total, count = 0.0, 0
    for at in range(0, len(ids), window):
        some = ids[at:at + window]
        batch = L.llama_batch_init(window, 0, 1)
        batch.n_tokens = len(some)
        for i, token in enumerate(some):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, True
            batch.seq_id[i][0] = 0
        if L.llama_decode(context, batch):
            sys.exit("llama.cpp: llama_decode failed")
        for i in range(len(some) - 1):
            x = np.ctypeslib.as_array(L.llama_get_logits_ith(context, i), (vocab,)).astype(np.float64)
            total += np.logaddexp.reduce(x) - x[some[i + 1]]
            count += 1
        L.llama_memory_clear(L.llama_get_memory(context), True)
        L.llama_batch_free(batch)
    L.llama_free(context)
    L.llama_model_free(model)
    return total / count


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("text")
    a.add_argument("--model", default=os.path.join(ROOT, "models", "demo"))
    a.add_argument("--tokens", type=int, default=4096)
    a.add_argument("--window", type=int, default=512)
    a.add_argument("--longhand", default=os.path.join(ROOT, "longhand"))
    args = a.parse_args()
    L.llama_log_set(KEEP_LOG, ctypes.c_void_p(0))
    L.llama_backend_init()
    with tempfile.TemporaryDirectory() as work:
        at = lambda name: os.path.join(work, name)
        text = open(args.text, encoding="utf-8").read()
        args.text = at("text")
        open(args.text, "w", encoding="utf-8").write(text[:5 * args.tokens])
        subprocess.run([args.longhand, "convert", "--model", args.model, "--weights", "bf16", "-o",
                        at("bf16.gguf"), "--quiet"], check=True)
        print(f"{'type':8} {'tokens':>6} {'fast':>10} {'decoded':>10} {'ppl':>9} {'llama.cpp':>9}  tensors")
        for kind in FILE_TYPES:
            quantise(at("bf16.gguf"), at("q.gguf"), kind)
            types = decode(at("q.gguf"), at("f32.gguf"))
            ids, fast = longhand(args, at("q.gguf"))
            _, exact = longhand(args, at("q.gguf"), "--compute", "f32")
            same, plain = longhand(args, at("f32.gguf"), "--compute", "f32")
            assert ids == same
            use = np.isfinite(plain)
            d = [float(np.mean(np.abs((x - plain)[use]))) for x in (fast, exact)]
            theirs = llamacpp(at("q.gguf"), ids, args.window)
            print(f"{kind:8} {use.sum():6} {d[0]:10.2e} {d[1]:10.2e} {math.exp(fast[use].mean()):9.4f} "
                  f"{math.exp(theirs):9.4f}  {' '.join(types)}", flush=True)
            if max(d) >= 0.01:
                sys.exit(f"{kind}: the nll differs by {max(d):g}")


if __name__ == "__main__":
    main()
