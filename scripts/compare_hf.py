#!/usr/bin/env python3
"""Compares `longhand score` with transformers, token by token, on any model directory and text.

    scripts/compare_hf.py MODEL_DIR TEXT [--longhand ./longhand] [--window N] [--attn eager|sdpa]

For --compute f32 and for the default bf16 it prints the largest difference of a token's nll (nats) and the
relative difference of the perplexity. It exits with 1 if f32 is off by more than --tolerance (1e-3) at any
token. transformers runs in float32 with the stored weights. Needs torch, transformers, tokenizers."""
import argparse
import json
import math
import subprocess
import sys
from pathlib import Path


def load_model(path, attn="eager"):
    import torch
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation=attn)
    return model.eval()


def encode(path, text):
    from tokenizers import Tokenizer
    return Tokenizer.from_file(str(Path(path) / "tokenizer.json")).encode(text).ids


def window_logits(model, ids):
    """float32 logits [len(ids)][vocab] of one piece."""
    import torch
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0]


def token_nll(logits, ids):
    """The nll of ids[1:] from the logits of ids[:-1], in float64, a thousand rows at a time."""
    import torch
    out = []
    for a in range(0, len(ids) - 1, 1024):
        b = min(a + 1024, len(ids) - 1)
        logp = torch.log_softmax(logits[a:b].double(), -1)
        out += (-logp[torch.arange(b - a), torch.tensor(ids[a + 1:b + 1])]).tolist()
    return out


def hf_nll(model, ids, window=0):
    """As in `score --per-token`, nll[i] belongs to ids[i+1]; None at the first token of a later piece."""
    window = window or len(ids)
    out = []
    for a in range(0, len(ids), window):
        piece = ids[a:a + window]
        if a:
            out.append(None)
        out += token_nll(window_logits(model, piece), piece)
    return out


def longhand_score(program, model_dir, text, compute, window=0, per_token=True):
    cmd = [program, "score", "--model", str(model_dir), str(text), "--json", "--compute", compute]
    cmd += ["--per-token"] if per_token else []
    cmd += ["--window", str(window)] if window else []
    done = subprocess.run(cmd, stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(f"{' '.join(cmd)}: exit {done.returncode}")
    return json.loads(done.stdout)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model")
    ap.add_argument("text")
    ap.add_argument("--longhand", default="./longhand")
    ap.add_argument("--window", type=int, default=0)
    ap.add_argument("--attn", choices=["eager", "sdpa"], default="eager", help="sdpa needs no n x n memory")
    ap.add_argument("--tolerance", type=float, default=1e-3)
    a = ap.parse_args()
    text = Path(a.text).read_bytes().decode()
    ids = encode(a.model, text)
    want = hf_nll(load_model(a.model, a.attn), ids, a.window)
    scored = [x for x in want if x is not None]
    print(f"{a.model}: {len(ids)} tokens, transformers perplexity {math.exp(sum(scored) / len(scored)):.6f}")
    failed = False
    for compute in "f32", "bf16":
        got = longhand_score(a.longhand, a.model, a.text, compute, a.window)
        if got["token_ids"] != ids:
            first = next((i for i, (x, y) in enumerate(zip(got["token_ids"], ids)) if x != y),
                         min(len(ids), len(got["token_ids"])))
            sys.exit(f"  token ids differ from position {first} on"
                     f" ({len(got['token_ids'])} and {len(ids)} tokens)")
        pairs = list(zip(got["token_nll"], want))
        if len(got["token_nll"]) != len(want) or any((x is None) != (y is None) for x, y in pairs):
            sys.exit("  token_nll has other places of null than the definition")
        diff = [abs(x - y) if x is not None else 0.0 for x, y in pairs]
        worst = max(range(len(diff)), key=diff.__getitem__)
        rel = math.exp((got["nll"] - sum(scored)) / len(scored)) - 1
        print(f"  --compute {compute:4}  max |d nll| {diff[worst]:.2e} at token {worst + 1}"
              f"   perplexity {got['perplexity']:.6f}, off by {100 * rel:+.5f} %")
        failed |= compute == "f32" and not diff[worst] <= a.tolerance
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
