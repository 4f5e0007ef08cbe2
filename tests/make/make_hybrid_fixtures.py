#!/usr/bin/env python3
"""Makes the hybrids of build/data/models (Qwen3.5): tiny random models with the results of the float64
program tests/make/hybrid_reference.py, which transformers in float32 must confirm.

    tests/make/make_hybrid_fixtures.py [--out DIR] [NAME...]      without names: all of them

Needs what tests/make/make_fixtures.py needs (versions: tests/data/README.md, which also describes the files).
mtp.bin holds the logits of chains of drafts of the draft layer; transformers has no such layer."""
import argparse
import copy
import json
import math
import random
import shutil
import struct
import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).parent))
import make_fixtures as mf  # noqa: E402
from hybrid_reference import Hybrid  # noqa: E402

HF_MAX = 2e-4            # distance of transformers' nll in float32 from the program
DRAFTS, N_CHAINS = 3, 6

QWEN35 = {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "hidden_act": "silu",
          "hidden_size": 44, "intermediate_size": 52, "num_hidden_layers": 4, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 24, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6,
          "tie_word_embeddings": False, "vocab_size": 320, "attention_bias": False, "attn_output_gate": True,
          "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 12,
          "linear_value_head_dim": 12, "linear_conv_kernel_dim": 4, "mamba_ssm_dtype": "float32",
          "full_attention_interval": 4,
          "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25,
                              "mrope_section": [1, 1, 1], "mrope_interleaved": True}}
MOE = {**QWEN35, "architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text",
       "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
       "shared_expert_intermediate_size": 28}
del MOE["intermediate_size"]


def rope(**more):
    return {"set": {"rope_parameters": {**QWEN35["rope_parameters"], **more}}}


def zero(*names):
    return {"zero": list(names)}


STATE = {"no decay of its own": zero("A_log"), "dt bias off": zero("dt_bias"),
         "conv off": zero("conv1d.weight"), "z off": zero("in_proj_z.weight"),
         "a off": zero("in_proj_a.weight"), "b off": zero("in_proj_b.weight"),
         "norm of states ones": {"one": ["linear_attn.norm.weight"]}}
ATTENTION = {"q-norm ones": zero("q_norm.weight"), "k-norm ones": zero("k_norm.weight"),
             "norms ones": zero("layernorm.weight"), "attention off": zero("o_proj.weight"),
             "KV heads swapped": mf.SWAP}
SHARED = {"shared expert off": zero("shared_expert.down_proj.weight"),
          "its gate even": zero("shared_expert_gate.weight"),
          "2 experts": {"set": {"num_experts_per_tok": 2}}}

# wrap: config.json of a wrapper with a vision tower. mtp: a draft layer. f32: endings of tensors in F32.
FIXTURES = {
    # 3 value heads for each key head; the attention layer is named by the interval
    "qwen35-grouped-bf16": dict(dtype="bf16", config=QWEN35, controls={
        **STATE, **ATTENTION, "half of the head turns": rope(partial_rotary_factor=0.5),
        "theta 10000": rope(rope_theta=10000.0)}),
    # as many value heads as key heads; layer_types decides; values wider than keys, a short convolution
    "qwen35-equal-f32": dict(dtype="f32", mtp=True, config={
        **QWEN35, "hidden_size": 40, "linear_num_key_heads": 3, "linear_num_value_heads": 3,
        "linear_key_head_dim": 10, "linear_value_head_dim": 14, "linear_conv_kernel_dim": 3,
        "tie_word_embeddings": True, "head_dim": 16, "num_hidden_layers": 5, "mtp_num_hidden_layers": 1,
        "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention",
                        "full_attention"],
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}},
        controls={**STATE, **ATTENTION, "a quarter of the head turns": {"set": {
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}}}),
    # as published: a wrapper with a tower, A_log and norms of states in F32, a draft layer, shards
    "qwen35-wrapped-bf16": dict(dtype="bf16", wrap=True, mtp=True, shard="60KB",
                                f32=["A_log", "linear_attn.norm.weight"], config={
        **QWEN35, "linear_num_value_heads": 4, "num_attention_heads": 3, "num_key_value_heads": 1,
        "linear_key_head_dim": 16, "linear_value_head_dim": 16, "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False}, controls={
            k: v for k, v in {**STATE, **ATTENTION}.items() if "swap" not in k}),
    "qwen35moe-fused-bf16": dict(dtype="bf16", wrap=True, mtp=True, seed=10, config={
        **MOE, "linear_num_value_heads": 4, "mtp_num_hidden_layers": 1, "num_hidden_layers": 2,
        "full_attention_interval": 2},
        controls={"conv off": STATE["conv off"], "shared expert off": SHARED["shared expert off"],
                  "its gate even": SHARED["its gate even"]}),
    "qwen35moe-each-f32": dict(dtype="f32", each=True, config={
        **MOE, "num_experts": 7, "moe_intermediate_size": 23, "shared_expert_intermediate_size": 17,
        "tie_word_embeddings": True, "num_hidden_layers": 3, "full_attention_interval": 3},
        controls={**SHARED, "expert 6 without down": zero("experts.6.down_proj.weight")}),
}


def fill(state, seed, tied):
    """Weights with an effect: decays between 0.2 and 0.999, gates on both sides, norms around 1."""
    g = torch.Generator().manual_seed(seed)
    for name, p in state.items():
        normal = torch.randn(p.shape, generator=g)
        uniform = torch.rand(p.shape, generator=g)
        if name.endswith("A_log"):
            x = torch.log(0.02 * 100 ** uniform)
        elif name.endswith("dt_bias"):
            x = uniform * 3 - 2
        elif "conv1d" in name:
            x = normal * 0.5
        elif "linear_attn.norm" in name:
            x = 0.6 + 0.8 * uniform
        elif "q_norm" in name or "k_norm" in name:
            x = uniform * 1.2 - 0.3
        elif "norm" in name:
            x = uniform * 0.8 - 0.4
        elif "embed_tokens" in name:
            x = normal * (1.5 / math.sqrt(p.shape[1]) if tied else 0.8)
        elif "lm_head" in name:
            x = normal * 1.5 / math.sqrt(p.shape[1])
        elif "q_proj" in name or "k_proj" in name:
            x = normal * 1.45 / math.sqrt(p.shape[1])
        else:
            gain = 2 if name.endswith("mlp.gate.weight") else 0.5 if tied else 0.9
            x = normal * gain / math.sqrt(p.shape[-1])
        p.copy_(x)


def draft_layer(state, layer):
    """Tensors of a draft layer, shaped as layer `layer`, which has attention."""
    like, d = f"model.layers.{layer}.", state["model.norm.weight"].shape[0]
    out = {"mtp.layers.0." + k[len(like):]: torch.empty_like(v) for k, v in state.items()
           if k.startswith(like)}
    out["mtp.fc.weight"] = torch.empty(d, 2 * d)
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        out[f"mtp.{name}.weight"] = torch.empty(d)
    return out


def split_experts(state):
    """Tensors of each expert in place of the fused ones."""
    out = {}
    for name, t in state.items():
        at, _, part = name.partition("experts.")
        if part not in ("gate_up_proj", "down_proj"):
            out[name] = t
            continue
        for e, x in enumerate(t):
            parts = [("down_proj", x)]
            if part == "gate_up_proj":
                parts = zip(("gate_proj", "up_proj"), x.chunk(2))
            out.update({f"{at}experts.{e}.{p}.weight": y.clone() for p, y in parts})
    return out


def wrapped(config):
    """config.json of a model with a vision tower, whose settings do not matter here."""
    text = {k: v for k, v in config.items() if k not in ("architectures", "tie_word_embeddings")}
    kind = config["model_type"].removesuffix("_text")
    name = config["architectures"][0].replace("CausalLM", "ConditionalGeneration")
    return {"architectures": [name], "model_type": kind, "tie_word_embeddings": config["tie_word_embeddings"],
            "image_token_id": 317, "video_token_id": 318, "vision_start_token_id": 315,
            "vision_end_token_id": 316, "text_config": text,
            "vision_config": {"model_type": kind, "depth": 1, "hidden_size": 16, "num_heads": 2,
                              "intermediate_size": 16, "out_hidden_size": config["hidden_size"]}}


def write_chains(folder, program, ids, hidden, seed):
    """mtp.bin: LHMTP001, the numbers of chains, drafts and tokens of the vocabulary; then for each chain the
    index of the last token of its text, and the logits of its drafts."""
    at = sorted(random.Random(seed).sample(range(40, len(ids) - 4), N_CHAINS - 2) + [1, 2])
    with open(folder / "mtp.bin", "wb") as f:
        f.write(b"LHMTP001" + struct.pack("<III", len(at), DRAFTS, program.head.shape[0]))
        for p in at:
            logits = program.drafts(ids, hidden, p, DRAFTS).numpy().astype("<f4")
            f.write(struct.pack("<I", p) + logits.tobytes())


def stored_state(state, spec):
    if spec.get("each"):
        state = split_experts(state)
    out = mf.cast(state, spec["dtype"])
    for name in out:
        if any(name.endswith(x) for x in spec.get("f32", [])):
            out[name] = state[name].float().contiguous()
    if spec.get("wrap"):
        out = {k.replace("model.", "model.language_model.", 1) if k.startswith("model.") else k: v
               for k, v in out.items()}
        out["model.visual.patch_embed.proj.bias"] = torch.ones(16, dtype=torch.bfloat16)
        out["model.visual.blocks.0.attn.qkv.weight"] = torch.ones(48, 16, dtype=torch.bfloat16)
    return out


def make(name, spec, text, index, out):
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = copy.deepcopy(spec["config"])
    tok = mf.byte_tokenizer(text, config["vocab_size"], "qwen3.5", None)
    config["eos_token_id"] = tok.token_to_id("<|end|>")
    tok.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    hf = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(hf, dtype=torch.float32)
    tied, seed = config["tie_word_embeddings"], mf.BASE_SEED + 1000 + index + spec.get("seed", 0)
    state = {k: v.detach().clone() for k, v in model.state_dict().items()
             if not (tied and k == "lm_head.weight")}
    if spec.get("mtp"):
        state.update(draft_layer(state, hf.layer_types.index("full_attention")))
    fill(state, seed, tied)
    if spec.get("wrap"):
        (folder / "config.json").write_text(json.dumps(wrapped(config), indent=1) + "\n")
    mf.save_weights(stored_state(state, spec), folder, spec.get("shard"))

    ids = tok.encode(text).ids
    assert max(ids) < config["vocab_size"] and len(ids) >= 2000
    program, rows = Hybrid(folder), torch.tensor(ids)
    hidden = program.hidden(rows)
    logits = hidden @ program.head.T
    nll = mf.nll_of(logits, ids)
    off = (mf.nll_of(mf.logits_of(mf.load(folder), ids), ids) - nll).abs().max().item()
    divergence = mf.kl(logits, mf.logits_of(mf.imitate_bf16(folder), ids))
    if spec.get("mtp"):
        write_chains(folder, program, rows, hidden, seed)

    controls, weakest = [], math.inf
    for label, control in spec["controls"].items():
        mf.changed(folder, control, out / ".scratch")
        moved = mf.nll_of(Hybrid(out / ".scratch").logits(rows), ids)
        at = (moved - nll).abs().argmax().item()
        move = (moved[at] - nll[at]).abs().item()
        weakest = min(weakest, move)
        controls.append({"name": label, **control, "moves": round(move, 6), "at": at,
                         "nll": moved[at].item()})
    shutil.rmtree(out / ".scratch", ignore_errors=True)
    std = logits.std(-1).mean().item()
    (folder / "reference.json").write_text(json.dumps({
        "text": "middle.txt", "tokens": len(ids), "perplexity": math.exp(nll.mean().item()),
        "logits_std": round(std, 3), "transformers_float32": float(f"{off:.1e}"),
        "bf16_kl_imitated": float(f"{divergence:.2e}"), "controls": controls}, indent=1) + "\n")
    mf.write_reference(folder, ids, nll, logits, seed)
    size = sum(p.stat().st_size for p in folder.iterdir())
    good = std >= 1 and off <= HF_MAX and divergence <= mf.KL_MAX and weakest >= mf.MOVE_MIN
    print(f"{'ok  ' if good else 'BAD '} {name:24} {len(ids)} tokens  logit std {std:.2f}"
          f"  transformers {off:.1e}"
          f"  bf16 KL {divergence:.1e}  weakest control {weakest:.1e}  {size / 1000:.0f} KB", flush=True)
    return good


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("names", nargs="*")
    ap.add_argument("--out", type=Path, default=mf.OUT)
    a = ap.parse_args()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    text = mf.make_text(6200, 2)
    good = [make(n, FIXTURES[n], text, list(FIXTURES).index(n), a.out) for n in a.names or FIXTURES]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
