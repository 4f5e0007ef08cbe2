#!/usr/bin/env python3
"""Makes build/data/models: tiny random models with the results of transformers.

    tests/make/make_fixtures.py [NAME...]                         without names: all of them
    tests/make/make_fixtures.py --random N --seed S --out DIR     N new models elsewhere; then
                                                               LOGITS_MODELS=DIR build/cc/test_logits

Needs torch, transformers, tokenizers, safetensors, numpy (versions used: tests/data/README.md, which also
describes the files). The reference is transformers in float32 with the stored weights and eager attention.
The script refuses a fixture whose logits are too flat, whose control does not move the nll, or for which
the arithmetic of --compute bf16, imitated in torch, is already too far from float32."""
import argparse
import copy
import json
import math
import random
import shutil
import struct
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors
from transformers.utils import logging
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

OUT = Path(__file__).parent.parent.parent / "build/data/models"
N_LOGITS = 24            # positions whose logits are stored
MOVE_MIN = 1e-2          # a control moves the nll of some token by this much
KL_MAX = 2e-4            # of the imitated bf16 arithmetic; the test allows 5e-4
BASE_SEED = 20240

# ---------------------------------------------------------------------------------------------- texts


def make_text(n, seed):
    """Pseudo-words with repeats, numbers, punctuation, some letters and signs of other scripts."""
    r = random.Random(seed)
    syllables = ["ka", "lo", "mi", "ren", "tu", "sha", "de", "vor", "il", "an", "pe", "qua", "zi", "st", "ou",
                 "bre"]
    words = ["".join(r.choices(syllables, k=r.choice([1, 2, 2, 3]))) for _ in range(150)]
    rare = [chr(c) for c in [*range(0xE0, 0x17F, 3), *range(0x391, 0x3A0), *range(0x410, 0x42F, 2), 0x20AC,
                             0x4E2D,
                             0x6587, 0x3042, 0x1F600, 0x10348, 0x301, 0xA0]]
    out = []
    while len("".join(out).encode()) < n:
        k = r.random()
        if k < 0.05:
            out.append(r.choice(rare) * r.choice([1, 1, 2]))
        elif k < 0.08:
            out.append(" " + str(r.randrange(10000)))
        elif k < 0.12 and len(out) > 60:
            a = r.randrange(len(out) - 30)
            out += out[a:a + r.randrange(5, 25)]
        elif k < 0.22:
            out.append(r.choice([".", ",", "!", "?\n", "\n\n", "  ", "'s", " -", ";"]))
        else:
            w = r.choice(words)
            out.append(" " + (w.capitalize() if r.random() < 0.1 else w))
    return "".join(out).lstrip() + "."


# ---------------------------------------------------------------------------------------------- tokenizers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
          r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
WORD = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]%s[\p{Ll}\p{Lm}\p{Lo}\p{M}]%s"
TEKKEN = (WORD % ("*", "+") + "|" + WORD % ("+", "*") +
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
         r"\s*[\r\n]+|\s+(?!\S)|\s+")
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O = (WORD % ("*", "+") + CONTRACTION + "|" + WORD % ("+", "*") + CONTRACTION +
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
PATTERNS = {"llama3": LLAMA3, "qwen3.5": QWEN35, "tekken": TEKKEN, "gpt4o": GPT4O}


def byte_tokenizer(text, size, kind, bos):
    """Byte-level BPE of `size` ids; bos: the content that the template puts first, or None."""
    t = Tokenizer(models.BPE(ignore_merges=kind in ("llama3", "tekken")))
    if kind == "gpt2":
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    else:
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(PATTERNS.get(kind, QWEN2)), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    if kind.startswith("qwen"):
        t.normalizer = normalizers.NFC()
    specials = ([bos] if bos else []) + ["<|end|>"]
    t.train_from_iterator([text], trainers.BpeTrainer(vocab_size=size - len(specials), show_progress=False,
                          initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), special_tokens=[]))
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    t.decoder = decoders.ByteLevel()
    byte_level = processors.ByteLevel(trim_offsets=False)
    t.post_processor = byte_level if not bos else processors.Sequence([byte_level,
        processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, t.token_to_id(bos))])])
    return t


def metaspace_tokenizer(text, size, gemma=False):
    """The form of Llama 2's file: byte fallback, U+2581 by the normalizer, <s> by the template. Gemma's has
    other names, no space before a text, and a split that cuts nothing."""
    names = ["<pad>", "<eos>", "<bos>", "<unk>"] if gemma else ["<unk>", "<s>", "</s>"]
    unk, bos = ("<unk>", "<bos>") if gemma else ("<unk>", "<s>")
    head = names + [f"<0x{i:02X}>" for i in range(256)]
    words = ("\u2581" + text.replace(" ", " \u2581")).split(" ")
    common = sorted(set("".join(words)), key=lambda c: (-text.count(c),
                                                        c))[:48]   # ties must not depend on a hash
    words = ["".join(c for c in w if c in common or c == "\u2581") for w in words]
    trained = Tokenizer(models.BPE())
    trained.train_from_iterator(words, trainers.BpeTrainer(vocab_size=size - len(head), show_progress=False))
    learned = json.loads(trained.to_str())["model"]
    pieces = sorted(learned["vocab"], key=learned["vocab"].get)[:size - len(head)]
    merges = [tuple(m) for m in learned["merges"] if "".join(m) in pieces]
    t = Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(head + pieces)}, merges=merges,
                             unk_token=unk,
                             fuse_unk=True, byte_fallback=True))
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in names])
    spaces = normalizers.Replace(" ", "\u2581")
    chain = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    if gemma:
        t.normalizer = spaces
        t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        t.decoder = decoders.Sequence(chain)
    else:
        t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), spaces])
        t.decoder = decoders.Sequence(chain + [decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, t.token_to_id(bos))])
    return t


# ---------------------------------------------------------------------------------------------- the models
# config: the text of config.json, written by hand, so that old and new spellings equal those of real files.
# resave: transformers rewrites it in its present spelling. drop: keys left to their defaults.

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
         "hidden_size": 32,
         "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
         "vocab_size": 320}
MISTRAL = {**LLAMA, "architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": None}
# Queries that grow with the position; the step of 32 positions is passed often.
GROWING = {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0,
           "original_max_position_embeddings": 32, "mscale": 1.0, "mscale_all_dim": 1.0,
           "llama_4_scaling_beta": 0.1}
MINISTRAL3 = {**MISTRAL, "architectures": ["Ministral3ForCausalLM"], "model_type": "ministral3",
              "head_dim": 16, "rope_parameters": GROWING}
QWEN2_CFG = {**LLAMA, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "rms_norm_eps": 1e-6,
             "use_sliding_window": False, "sliding_window": 64, "max_window_layers": 1}
QWEN3_CFG = {**QWEN2_CFG, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 16,
             "attention_bias": False}

# Five layers of six have a window and frequencies of their own.
GEMMA3_CFG = {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
              "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 40, "intermediate_size": 56,
              "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
              "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "vocab_size": 330,
              "query_pre_attn_scalar": 24, "rope_theta": 100000.0, "rope_local_base_freq": 1000.0,
              "rope_scaling": {"factor": 4.0, "rope_type": "linear"}, "sliding_window": 100}

# Layers with a window have other heads than global ones, whose values are their keys.
GEMMA4_CFG = {"architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text",
              "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 40, "intermediate_size": 56,
              "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
              "num_global_key_value_heads": 1, "global_head_dim": 32, "attention_k_eq_v": True,
              "layer_types": ["sliding_attention", "full_attention"] * 2, "hidden_size_per_layer_input": 0,
              "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "vocab_size": 330,
              "final_logit_softcapping": 6.0, "sliding_window": 100, "num_kv_shared_layers": 0,
              "rope_parameters": {
                  "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
                  "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5,
                                     "rope_theta": 100000.0}}}

# Layers without RoPE, other ones than every fourth, and every fourth without a list.
SMOLLM3_CFG = {**LLAMA, "architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3",
               "num_hidden_layers": 4, "rope_theta": 50000.0, "attention_bias": False, "mlp_bias": False,
               "pad_token_id": 0, "use_sliding_window": False, "sliding_window": None,
               "no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0], "tie_word_embeddings": True}

# Joined tensors. The texts are longer than the original length, so transformers takes the long list.
PHI3_CFG = {**LLAMA, "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "pad_token_id": 0,
            "original_max_position_embeddings": 8192, "sliding_window": None}
LONGROPE = {"type": "longrope", "long_factor": [1.0, 1.7, 2.5, 4.0, 9.0, 20.5],
            "short_factor": [1.0, 1.0, 1.1, 1.2, 1.5, 2.0]}

# Mixtures of experts. EACH: tensors of each expert, as published; otherwise fused, as transformers has them.
MIXTRAL_CFG = {**LLAMA, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
               "sliding_window": None, "num_local_experts": 5, "num_experts_per_tok": 2,
               "intermediate_size": 40}
QWEN3_MOE_CFG = {**QWEN3_CFG, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
                 "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
                 "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}
QWEN2_MOE_CFG = {**QWEN2_CFG, "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe",
                 "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                 "shared_expert_intermediate_size": 40, "norm_topk_prob": False, "sliding_window": 64}
EACH = {"gpt_oss": [("mlp.", "gate_proj", "up_proj", "down_proj")],
        "qwen2_moe": [("mlp.", "gate_proj", "up_proj", "down_proj")],
        "mixtral": [("block_sparse_moe.", "w1", "w3", "w2")],
        "qwen3_moe": [("mlp.", "gate_proj", "up_proj", "down_proj")]}

# Windows in every second layer, a further logit of each head, biases of router and experts, clamped SwiGLU.
# Stored per expert, under the names of other mixtures.
OSS_ROPE = {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
            "truncate": False, "original_max_position_embeddings": 128}
OSS_CFG = {**LLAMA, "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_hidden_layers": 4,
           "num_local_experts": 6, "num_experts_per_tok": 3, "intermediate_size": 40, "head_dim": 16,
           "sliding_window": 90, "attention_bias": True, "swiglu_limit": 7.0, "pad_token_id": 0,
           "rope_parameters": OSS_ROPE}

# Norms after each part alone, of queries and keys over all heads; windows in three of four layers; YaRN in
# the others.
OLMO3_ROPE = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 128,
              "attention_factor": 1.2079441541679836, "beta_fast": 32.0, "beta_slow": 1.0}
OLMO3_CFG = {**LLAMA, "architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "num_hidden_layers": 4,
             "head_dim": None, "hidden_size": 64, "sliding_window": 90, "attention_bias": False,
             "pad_token_id": 0, "rope_theta": 500000.0, "rope_scaling": OLMO3_ROPE}

# Norms after each part alone, of each head of queries and keys; layers that see all keys do not turn. As the
# 32B, and as the 1.2B, which has no window.
EXAONE4_CFG = {**LLAMA, "architectures": ["Exaone4ForCausalLM"], "model_type": "exaone4", "head_dim": 16,
               "num_hidden_layers": 4, "pad_token_id": 0, "rope_theta": 1000000, "sliding_window": 90,
               "sliding_window_pattern": "LLLG",
               "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
               "rope_scaling": {"factor": 16.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                                "original_max_position_embeddings": 512, "rope_type": "llama3"}}

# Llama with factors; dense layers of the hybrid Granite 4, whose network has a name of its own.
GRANITE_CFG = {**LLAMA, "architectures": ["GraniteForCausalLM"], "model_type": "granite", "hidden_size": 64,
               "pad_token_id": 0, "embedding_multiplier": 12.0, "attention_multiplier": 0.4,
               "residual_multiplier": 0.22, "logits_scaling": 1.25, "tie_word_embeddings": True}

LLAMA3_ROPE = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 512,
               "rope_type": "llama3"}


def rope(base, **more):
    """A control that replaces all of rope_parameters and removes the old spelling."""
    return {"set": {"rope_parameters": {"rope_theta": base, "rope_type": "default", **more}},
            "drop": ["rope_scaling", "rope_theta"]}


SWAP = {"swap_kv_heads": [0, 1]}
NO_SCALING = "no scaling"

FIXTURES = {
    # Llama 2: multi-head, no rope key at all, no num_key_value_heads; head_dim 8; a vocabulary of 309
    "llama2-bf16": dict(dtype="bf16", tok="metaspace",
                        config={**LLAMA, "vocab_size": 309, "torch_dtype": "bfloat16"},
                        drop=["num_key_value_heads"],
                        controls={"theta 20000": rope(20000.0), "KV heads swapped": SWAP,
                                  "eps 1e-2": {"set": {"rms_norm_eps": 1e-2}}}),
    # Llama 3.1: GQA with 3 query heads per KV head, llama3 scaling in the old spelling
    "llama3-old-bf16": dict(dtype="bf16", tok="llama3", config={
        **LLAMA, "hidden_size": 48, "num_attention_heads": 6, "head_dim": 16, "rope_theta": 500000.0,
        "rope_scaling": LLAMA3_ROPE, "torch_dtype": "bfloat16"},
        controls={NO_SCALING: rope(500000.0), "KV heads swapped": SWAP,
                  "factor 4": {"set": {"rope_scaling": {**LLAMA3_ROPE, "factor": 4.0}}},
                  "high_freq_factor 2": {"set": {"rope_scaling": {**LLAMA3_ROPE, "high_freq_factor": 2.0}}}}),
    "llama3-new-f16": dict(dtype="f16", tok="llama3", resave=True, shard="48KB", config={
        **LLAMA, "head_dim": 16, "rope_parameters": {**LLAMA3_ROPE, "rope_theta": 50000.0,
                                                     "low_freq_factor": 1.5,
                                                     "original_max_position_embeddings": 300}},
        controls={NO_SCALING: rope(50000.0), "KV heads swapped": SWAP}),
    "llama-bias-linear-f32": dict(dtype="f32", tok="gpt2", resave=True, config={
        **LLAMA, "attention_bias": True, "mlp_bias": True,
        "rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 10000.0}},
        controls={NO_SCALING: rope(10000.0), "q, k, v biases off": {"zero": ["q_proj.bias", "k_proj.bias",
    "v_proj.bias"]},
                  "o bias off": {"zero": ["o_proj.bias"]},
                  "gate, up biases off": {"zero": ["gate_proj.bias", "up_proj.bias"]},
                  "down bias off": {"zero": ["down_proj.bias"]}, "KV heads swapped": SWAP}),
    "llama-linear-old-bf16": dict(dtype="bf16", tok="llama3", config={
        **LLAMA, "tie_word_embeddings": True, "max_position_embeddings": 1024, "rope_theta": 10000.0,
        "rope_scaling": {"type": "linear", "factor": 2.5}},
        controls={NO_SCALING: {**rope(10000.0), "set": {**rope(10000.0)["set"],
                                                        "max_position_embeddings": 4096}},
                  "factor 2.4": {"set": {"rope_scaling": {"type": "linear", "factor": 2.4}}}}),
    # yarn as Qwen2.5's model card has it (old spelling), far beyond the original length
    "qwen2-yarn-old-bf16": dict(dtype="bf16", tok="qwen2", config={
        **QWEN2_CFG, "head_dim": 16, "max_position_embeddings": 512, "rope_theta": 10000.0,
        "rope_scaling": {"factor": 8.0, "original_max_position_embeddings": 512, "type": "yarn"}},
        controls={NO_SCALING: {**rope(10000.0), "set": {**rope(10000.0)["set"],
                                                        "max_position_embeddings": 4096}},
                  "attention_factor 1": {"set": {"rope_scaling": {"factor": 8.0,
    "original_max_position_embeddings": 512,
                                                                  "type": "yarn", "attention_factor": 1.0}}},
                  "q, k, v biases off": {"zero": ["q_proj.bias", "k_proj.bias", "v_proj.bias"]}}),
    "llama-yarn-mscale-f16": dict(dtype="f16", tok="llama3", resave=True, config={
        **LLAMA, "head_dim": 32, "max_position_embeddings": 4096, "rope_parameters": {
            "rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 256,
    "rope_theta": 10000.0,
            "mscale": 1.0, "mscale_all_dim": 0.4, "truncate": False, "beta_fast": 20.0, "beta_slow": 1.5}},
        controls={NO_SCALING: rope(10000.0),
                  "mscale left out": rope(10000.0, rope_type="yarn", factor=16.0,
                                          original_max_position_embeddings=256,
                                          truncate=False, beta_fast=20.0, beta_slow=1.5),
                  "truncated": rope(10000.0, rope_type="yarn", factor=16.0,
                                    original_max_position_embeddings=256, mscale=1.0,
                                    mscale_all_dim=0.4, beta_fast=20.0, beta_slow=1.5),
                  "beta_slow 1": rope(10000.0, rope_type="yarn", factor=16.0,
                                      original_max_position_embeddings=256, mscale=1.0,
                                      mscale_all_dim=0.4, beta_fast=20.0, truncate=False)}),
    # yarn without an original length: max_position_embeddings is used; attention_factor given
    "qwen3-yarn-factor-f32": dict(dtype="f32", tok="qwen2", resave=True, config={
        **QWEN3_CFG, "head_dim": 32, "attention_bias": True, "max_position_embeddings": 1024,
    "rope_parameters": {
            "rope_type": "yarn", "factor": 4.0, "attention_factor": 1.3, "rope_theta": 100000.0}},
        controls={NO_SCALING: {**rope(100000.0), "set": {**rope(100000.0)["set"],
                                                         "max_position_embeddings": 4096}},
                  "attention_factor derived": rope(100000.0, rope_type="yarn", factor=4.0,
                                                   original_max_position_embeddings=1024),
                  "q, k, v biases off": {"zero": ["q_proj.bias", "k_proj.bias", "v_proj.bias"]},
                  "o bias off": {"zero": ["o_proj.bias"]}}),
    # the original length next to the scaling, not in it: it wins
    "llama-yarn-outer-bf16": dict(dtype="bf16", tok="llama3", config={
        **LLAMA, "max_position_embeddings": 4096, "original_max_position_embeddings": 512,
    "rope_theta": 10000.0,
        "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 1024}},
        controls={"inner original length": {"drop": ["original_max_position_embeddings"]}}),
    # dynamic NTK within its length equals plain RoPE
    "llama-dynamic-old-bf16": dict(dtype="bf16", tok="gpt2", config={
        **LLAMA, "head_dim": 24, "max_position_embeddings": 2600, "rope_theta": 10000.0,
        "rope_scaling": {"type": "dynamic", "factor": 3.0}},
        controls={"linear instead": {"set": {"rope_scaling": {"type": "linear", "factor": 3.0}}},
                  "KV heads swapped": SWAP}),
    "qwen3-dynamic-new-f16": dict(dtype="f16", tok="qwen2", resave=True, config={
        **QWEN3_CFG, "max_position_embeddings": 4096, "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1000000.0}},
        controls={"linear instead": rope(1000000.0, rope_type="linear", factor=2.0),
                  "k-norm ones": {"one": ["k_norm.weight"]}}),
    # Mistral: window 100 (not a multiple of 64), 7 query heads per KV head
    "mistral-window-bf16": dict(dtype="bf16", tok="metaspace", text="middle", config={
        **MISTRAL, "hidden_size": 56, "intermediate_size": 56, "num_attention_heads": 14, "head_dim": 8,
    "rope_theta": 10000.0,
        "vocab_size": 330, "sliding_window": 100, "torch_dtype": "bfloat16"},
        controls={"window + 1": {"set": {"sliding_window": 101}},
                  "window - 1": {"set": {"sliding_window": 99}},
                  "no window": {"set": {"sliding_window": None}}, "KV heads swapped": SWAP}),
    # Mistral Nemo: no window, head_dim is not hidden/heads
    "mistral-nowindow-f16": dict(dtype="f16", tok="gpt2", resave=True, config={
        **MISTRAL, "head_dim": 24, "num_attention_heads": 2, "num_key_value_heads": 1,
    "intermediate_size": 40,
        "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}},
        controls={"window 1024": {"set": {"sliding_window": 1024}}, "theta 500000": rope(500000.0)}),
    # the key is missing: 4,096 keys, the default of transformers
    "mistral-default-window-bf16": dict(dtype="bf16", tok="llama3", text="long", drop=["sliding_window"],
                                        config={
        **MISTRAL, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
                                                "intermediate_size": 40, "rope_theta": 10000.0},
        controls={"no window": {"set": {"sliding_window": None}},
                  "window + 1": {"set": {"sliding_window": 4097}},
                  "window - 1": {"set": {"sliding_window": 4095}}}),
    # use_sliding_window is false: the window of 64 is not used
    "qwen2-tied-bf16": dict(dtype="bf16", tok="qwen2", config={
        **QWEN2_CFG, "tie_word_embeddings": True, "rope_theta": 1000000.0, "num_hidden_layers": 3},
        controls={"q bias off": {"zero": ["q_proj.bias"]}, "k bias off": {"zero": ["k_proj.bias"]},
                  "v bias off": {"zero": ["v_proj.bias"]},
                  "window used": {"set": {"use_sliding_window": True}},
                  "KV heads swapped": SWAP}),
    # window from layer max_window_layers on
    "qwen2-window-f16": dict(dtype="f16", tok="qwen2", shard="40KB", config={
        **QWEN2_CFG, "use_sliding_window": True, "sliding_window": 65, "max_window_layers": 1,
    "num_hidden_layers": 3,
        "rope_theta": 10000.0},
        controls={"window + 1": {"set": {"sliding_window": 66}},
                  "window - 1": {"set": {"sliding_window": 64}},
                  "max_window_layers 0": {"set": {"max_window_layers": 0}},
                  "max_window_layers 2": {"set": {"max_window_layers": 2}}}),
    "qwen2-layer-types-f32": dict(dtype="f32", tok="qwen2", resave=True, config={
        **QWEN2_CFG, "use_sliding_window": True, "sliding_window": 64, "max_window_layers": 3,
    "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}},
        controls={"window + 1": {"set": {"sliding_window": 65}},
                  "window - 1": {"set": {"sliding_window": 63}},
                  "types turned": {"set": {"layer_types": ["full_attention", "sliding_attention",
                                                           "sliding_attention"]}}}),
    # Qwen3: q/k norms, 4 heads of 16 in a hidden size of 32; theta is left to its default
    "qwen3-bf16": dict(dtype="bf16", tok="qwen2", config={**QWEN3_CFG, "tie_word_embeddings": True,
                                                          "torch_dtype": "bfloat16"},
                       controls={"q/k norms off": {"no_qk_norm": True},
                                 "q-norm ones": {"one": ["q_norm.weight"]}, "KV heads swapped": SWAP}),
    # head_dim is missing: 128 for Qwen3
    "qwen3-default-head-f16": dict(dtype="f16", tok="qwen2", drop=["head_dim"], config={
        **QWEN3_CFG, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 32,
        "rope_scaling": {"rope_type": "linear", "factor": 4.0, "type": "yarn"}, "rope_theta": 1000000.0},
        controls={NO_SCALING: rope(1000000.0), "q/k norms off": {"no_qk_norm": True}}),
    "qwen3-window-f32": dict(dtype="f32", tok="qwen2", config={
        **QWEN3_CFG, "use_sliding_window": True, "sliding_window": 128, "max_window_layers": 1,
    "num_key_value_heads": 4,
        "head_dim": 12, "rope_theta": 10000.0, "rope_scaling": None},
        controls={"window + 1": {"set": {"sliding_window": 129}},
                  "window - 1": {"set": {"sliding_window": 127}},
                  "q-norm ones": {"one": ["q_norm.weight"]}, "KV heads swapped": SWAP}),
    # one file with three types: matrices BF16, norms F32, embeddings F16
    "llama-mixed": dict(dtype="mixed", tok="llama3", config={
        **LLAMA, "head_dim": 16, "rope_parameters": {"rope_type": "default"}},
        controls={"theta 20000": rope(20000.0), "KV heads swapped": SWAP}),
    # Qwen3-MoE as published: tensors of each expert; an odd number of inputs of down_proj, tied embeddings
    "qwen3moe-each-bf16": dict(dtype="bf16", tok="qwen2", each=True, config={
        **QWEN3_MOE_CFG, "moe_intermediate_size": 23, "num_experts": 7, "tie_word_embeddings": True,
        "rope_theta": 1000000.0, "torch_dtype": "bfloat16"},
        controls={"norm_topk_prob off": {"set": {"norm_topk_prob": False}},
                  "2 experts": {"set": {"num_experts_per_tok": 2}},
                  "4 experts": {"set": {"num_experts_per_tok": 4}},
                  "expert 6 without down": {"zero": ["experts.6.down_proj.weight"]},
                  "q/k norms off": {"no_qk_norm": True}, "KV heads swapped": SWAP}),
    # fused experts; a layer without, by mlp_only_layers; weights of experts as the softmax gives them
    "qwen3moe-fused-f32": dict(dtype="f32", tok="qwen2", resave=True, config={
        **QWEN3_MOE_CFG, "norm_topk_prob": False, "mlp_only_layers": [1], "num_hidden_layers": 3,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}},
        controls={"norm_topk_prob on": {"set": {"norm_topk_prob": True}},
                  "1 expert": {"set": {"num_experts_per_tok": 1}},
                  "all experts": {"set": {"num_experts_per_tok": 8}},
                  "the dense layer off": {"zero": ["layers.1.mlp.down_proj.weight"]}}),
    # every second layer has experts, every layer a window; biases; one expert a token
    "qwen3moe-window-f16": dict(dtype="f16", tok="qwen2", each=True, shard="40KB", config={
        **QWEN3_MOE_CFG, "decoder_sparse_step": 2, "num_experts_per_tok": 1, "norm_topk_prob": False,
        "attention_bias": True, "use_sliding_window": True, "sliding_window": 65,
        "rope_theta": 10000.0},
        controls={"window + 1": {"set": {"sliding_window": 66}},
                  "no window": {"set": {"use_sliding_window": False}},
                  "norm_topk_prob on": {"set": {"norm_topk_prob": True}},
                  "2 experts": {"set": {"num_experts_per_tok": 2}},
                  "q, k, v biases off": {"zero": ["q_proj.bias", "k_proj.bias", "v_proj.bias"]}}),
    # Mixtral as published: names of its own, theta left to its default
    "mixtral-each-bf16": dict(dtype="bf16", tok="llama3", each=True, config={**MIXTRAL_CFG, "hidden_size": 36,
                                                                             "head_dim": 16},
        controls={"1 expert": {"set": {"num_experts_per_tok": 1}},
                  "3 experts": {"set": {"num_experts_per_tok": 3}},
                  "expert 0 without down": {"zero": ["experts.0.w2.weight"]},
                  "theta 10000": rope(10000.0), "KV heads swapped": SWAP}),
    "mixtral-fused-window-f32": dict(dtype="f32", tok="metaspace", text="middle", resave=True, config={
        **MIXTRAL_CFG, "vocab_size": 330, "num_local_experts": 4, "tie_word_embeddings": True,
        "sliding_window": 100, "rope_theta": 10000.0},
        controls={"window + 1": {"set": {"sliding_window": 101}},
                  "no window": {"set": {"sliding_window": None}},
                  "all experts": {"set": {"num_experts_per_tok": 4}}}),
    # Qwen2-MoE: an expert that every token has, with its gate; the first uses no window
    "qwen2moe-each-bf16": dict(dtype="bf16", tok="qwen2", each=True, config={
        **QWEN2_MOE_CFG, "shared_expert_intermediate_size": 37, "rope_theta": 1000000.0},
        controls={"shared expert off": {"zero": ["shared_expert.down_proj.weight"]},
                  "its gate even": {"zero": ["shared_expert_gate.weight"]},
                  "norm_topk_prob on": {"set": {"norm_topk_prob": True}},
                  "1 expert": {"set": {"num_experts_per_tok": 1}}, "KV heads swapped": SWAP}),
    "qwen2moe-fused-f32": dict(dtype="f32", tok="qwen2", resave=True, config={
        **QWEN2_MOE_CFG, "mlp_only_layers": [0], "qkv_bias": False, "tie_word_embeddings": True,
        "use_sliding_window": True, "max_window_layers": 1,
        "norm_topk_prob": True, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}},
        controls={"shared expert off": {"zero": ["shared_expert.down_proj.weight"]},
                  "its gate even": {"zero": ["shared_expert_gate.weight"]},
                  "the other window": {"set": {"layer_types": ["full_attention", "sliding_attention"]}},
                  "all experts": {"set": {"num_experts_per_tok": 6}}}),
    "ministral3-bf16": dict(dtype="bf16", tok="tekken", config={
        **MINISTRAL3, "tie_word_embeddings": True},
        controls={"growth off": {"set": {"rope_parameters": {**GROWING, "llama_4_scaling_beta": 0.0}}},
                  "growth 0.12": {"set": {"rope_parameters": {**GROWING, "llama_4_scaling_beta": 0.12}}},
                  "mscale": {"set": {"rope_parameters": {**GROWING, "mscale_all_dim": 0.0}}},
                  "KV heads swapped": SWAP}),
    # as mistralai publishes them: the text model in a wrapper with an eye
    "ministral3-wrapped-f32": dict(dtype="f32", tok="tekken", wrap=True, config=MINISTRAL3,
                                   controls={"KV heads swapped": SWAP}),
    "mistral3-wrapped-f16": dict(dtype="f16", tok="tekken", wrap=True, config={
        **MISTRAL, "head_dim": 24, "rope_theta": 1000000000.0}, controls={"KV heads swapped": SWAP}),
    "gemma3-bf16": dict(dtype="bf16", tok="gemma", config=GEMMA3_CFG, controls={
        "window + 1": {"set": {"sliding_window": 101}}, "window - 1": {"set": {"sliding_window": 99}},
        "a layer less has a window": {"set": {"sliding_window_pattern": 5}},
        "scale of head_dim": {"set": {"query_pre_attn_scalar": 16}},
        "factor 5": {"set": {"rope_scaling": {"factor": 5.0, "rope_type": "linear"}}},
        "local theta": {"set": {"rope_local_base_freq": 1100.0}},
        "global theta": {"set": {"rope_theta": 120000.0}},
        "ones after attention": {"zero": ["post_attention_layernorm.weight"]},
        "ones before the MLP": {"zero": ["pre_feedforward_layernorm.weight"]},
        "ones after the MLP": {"zero": ["post_feedforward_layernorm.weight"]},
        "k-norm ones": {"zero": ["k_norm.weight"]}, "KV heads swapped": SWAP}),
    # as Gemma 3 4B is published: the text model in a wrapper with an eye; the present spelling
    "gemma3-wrapped-f32": dict(dtype="f32", tok="gemma", wrap=True, resave=True, config={
        **GEMMA3_CFG, "sliding_window": 65,
        "layer_types": ["sliding_attention", "full_attention"] * 3},
        controls={"KV heads swapped": SWAP}),
    # as Gemma 3 270M: no scaling, one KV head, the scale of head_dim, which a GGUF file can say
    "gemma3-plain-bf16": dict(dtype="bf16", tok="gemma", drop=["rope_scaling", "rope_local_base_freq"],
                              config={
        **GEMMA3_CFG, "hidden_size": 64, "num_key_value_heads": 1, "head_dim": 24,
        "query_pre_attn_scalar": 24, "rope_theta": 1000000.0},
        controls={"scale of 16": {"set": {"query_pre_attn_scalar": 16}},
                  "window + 1": {"set": {"sliding_window": 101}}}),
    "gemma4-bf16": dict(dtype="bf16", tok="gemma", config=GEMMA4_CFG, controls={
        "window + 1": {"set": {"sliding_window": 101}}, "window - 1": {"set": {"sliding_window": 99}},
        "no cap": {"set": {"final_logit_softcapping": None}},
        "another part turns": {"set": {"rope_parameters": {
            **GEMMA4_CFG["rope_parameters"], "full_attention": {
                "rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 100000.0}}}},
        "local theta": {"set": {"rope_parameters": {
            **GEMMA4_CFG["rope_parameters"],
            "sliding_attention": {"rope_type": "default", "rope_theta": 1100.0}}}},
        "layers of one size": {"one": ["layer_scalar"]},
        "ones after attention": {"one": ["post_attention_layernorm.weight"]},
        "ones before the MLP": {"one": ["pre_feedforward_layernorm.weight"]},
        "ones after the MLP": {"one": ["post_feedforward_layernorm.weight"]},
        "k-norm ones": {"one": ["k_norm.weight"]}}),
    # as Gemma 4 26B-A4B is published, in a wrapper with an eye; experts; the present spelling; values of
    # their own
    "gemma4-experts-f32": dict(dtype="f32", tok="gemma", wrap=True, resave=True, config={
        **GEMMA4_CFG, "layer_types": None, "num_hidden_layers": 3, "attention_k_eq_v": False,
        "num_global_key_value_heads": None, "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2,
        "moe_intermediate_size": 16, "global_head_dim": 48, "hidden_size": 64},
        controls={"router of ones": {"one": ["router.scale"]}, "experts alike": {"one": ["per_expert_scale"]},
                  "ones after the MLP": {"one": ["post_feedforward_layernorm_1.weight"]},
                  "ones before experts": {"one": ["pre_feedforward_layernorm_2.weight"]},
                  "ones after experts": {"one": ["post_feedforward_layernorm_2.weight"]}}),
    "smollm3-bf16": dict(dtype="bf16", tok="llama3", config=SMOLLM3_CFG, controls={
        "RoPE in every layer": {"set": {"no_rope_layers": [1, 1, 1, 1]}},
        "another layer without": {"set": {"no_rope_layers": [1, 1, 0, 1]}},
        "theta 60000": {"set": {"rope_theta": 60000.0}}, "KV heads swapped": SWAP}),
    # the layers of the interval alone; windows in the layers without RoPE; biases
    "smollm3-windows-f32": dict(dtype="f32", tok="llama3", text="middle", resave=True, config={
        **SMOLLM3_CFG, "no_rope_layer_interval": 2, "no_rope_layers": None, "use_sliding_window": True,
        "sliding_window": 65, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False},
        controls={"window + 1": {"set": {"sliding_window": 66}},
                  "a layer more turns": {"set": {"no_rope_layers": [1, 1, 1, 0], "layer_types": [
                      "full_attention", "full_attention", "full_attention", "sliding_attention"]}}}),
    # Phi-3-mini-4k: a window in every layer, as many KV heads as heads, no scaling
    "phi3-window-bf16": dict(dtype="bf16", tok="metaspace", drop=["num_key_value_heads"], config={
        **PHI3_CFG, "sliding_window": 90, "vocab_size": 309, "rope_scaling": None, "rope_theta": 10000.0},
        controls={"window + 1": {"set": {"sliding_window": 91}},
                  "no window": {"set": {"sliding_window": None}}}),
    # Phi-4-mini: three quarters of a head turn, longrope beyond its original length, tied
    "phi4mini-bf16": dict(dtype="bf16", tok="gpt4o", config={
        **PHI3_CFG, "hidden_size": 64, "partial_rotary_factor": 0.75, "original_max_position_embeddings": 256,
        "rope_theta": 10000.0, "rope_scaling": LONGROPE, "tie_word_embeddings": True},
        controls={"the short list": {"set": {"rope_scaling": {**LONGROPE, "long_factor": [1.0, 1.0, 1.1, 1.2,
                                                                                          1.5, 2.0]}}},
                  "attention factor": {"set": {"rope_scaling": {**LONGROPE, "attention_factor": 1.0}}},
                  "no scaling": {"set": {"rope_scaling": None}}, "KV heads swapped": SWAP}),
    # the present spelling; a factor that is no ratio; 0.8 of 16 dimensions are 12
    "phi3-long-f32": dict(dtype="f32", tok="llama3", resave=True, config={
        **PHI3_CFG, "hidden_size": 64, "original_max_position_embeddings": 300, "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 50000.0, "factor": 4.0, "partial_rotary_factor": 0.8,
            "long_factor": LONGROPE["long_factor"], "short_factor": LONGROPE["short_factor"]}},
        controls={"factor 8": {"set": {"rope_parameters": {
            "rope_type": "longrope", "rope_theta": 50000.0, "factor": 8.0, "partial_rotary_factor": 0.8,
            "long_factor": LONGROPE["long_factor"], "short_factor": LONGROPE["short_factor"]}}}}),
    "gptoss-bf16": dict(dtype="bf16", tok="gpt4o", each=True, config=OSS_CFG, controls={
        "other logits of heads": {"zero": ["sinks"]},
        "no biases": {"zero": ["router.bias", "gate_proj.bias"]},
        "limit 6": {"set": {"swiglu_limit": 6.0}}, "window + 1": {"set": {"sliding_window": 91}},
        "truncated": {"set": {"rope_parameters": {**OSS_ROPE, "truncate": True}}}}),
    # layer_types, another alpha, one expert a token, more KV heads
    "gptoss-types-f32": dict(dtype="f32", tok="gpt4o", each=True, resave=True, config={
        **OSS_CFG, "num_experts_per_tok": 2, "num_key_value_heads": 4, "swiglu_alpha": 1.25,
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]},
        controls={"alpha 1.702": {"set": {"swiglu_alpha": 1.702}}}),
    # as published: experts of MXFP4 with their scales apart, rows of gate and up in turn
    "gptoss-published-bf16": dict(dtype="bf16", tok="gpt4o", publish=True, config={
        **OSS_CFG, "hidden_size": 64, "intermediate_size": 96, "num_local_experts": 4,
        "num_experts_per_tok": 2, "num_hidden_layers": 2,
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}},
        controls={"no gates": {"zero": ["gate_up_proj_scales"]}, "no down": {"zero": ["down_proj_scales"]},
                  "no biases": {"zero": ["down_proj_bias"]}}),
    "olmo3-bf16": dict(dtype="bf16", tok="llama3", config=OLMO3_CFG, drop=["head_dim"], controls={
        "window + 1": {"set": {"sliding_window": 91}}, "no scaling": {"drop": ["rope_scaling"]},
        "attention factor": {"set": {"rope_scaling": {**OLMO3_ROPE, "attention_factor": 1.1}}},
        "other layers": {"set": {"layer_types": ["sliding_attention", "full_attention"] * 2}},
        "ones after attention": {"one": ["post_attention_layernorm.weight"]},
        "ones after the MLP": {"one": ["post_feedforward_layernorm.weight"]},
        "q-norm ones": {"one": ["q_norm.weight"]}, "k-norm ones": {"one": ["k_norm.weight"]},
        "KV heads swapped": SWAP}),
    # as Gemma 4 E2B: layers that read the cache of others and have wider networks, embeddings of each layer
    "gemma4-layers-f32": dict(dtype="f32", tok="gemma", config={
        **GEMMA4_CFG, "layer_types": ["sliding_attention", "full_attention"] * 3, "num_hidden_layers": 6,
        "attention_k_eq_v": False, "num_global_key_value_heads": None, "num_kv_shared_layers": 3,
        "use_double_wide_mlp": True, "hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": 330},
        controls={
            "no keys in a shared cache": {"zero": ["layers.2.self_attn.k_proj.weight"]},
            "layers without tokens": {"zero": ["embed_tokens_per_layer.weight"]},
            "layers without words": {"zero": ["per_layer_model_projection.weight"]},
            "ones before layers": {"one": ["per_layer_projection_norm.weight"]},
            "ones after layers": {"one": ["post_per_layer_input_norm.weight"]}}),
    "granite-bf16": dict(dtype="bf16", tok="llama3", config=GRANITE_CFG, controls={
        "embeddings": {"set": {"embedding_multiplier": 10.0}},
        "scores": {"set": {"attention_multiplier": 0.3}},
        "residual": {"set": {"residual_multiplier": 0.3}}, "logits": {"set": {"logits_scaling": 1.5}},
        "KV heads swapped": SWAP}),
    "granite4-f32": dict(dtype="f32", tok="llama3", resave=True, config={
        **GRANITE_CFG, "architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid",
        "num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 56,
        "intermediate_size": 99, "position_embedding_type": "rope", "layer_types": ["attention"] * 3,
        "num_hidden_layers": 3, "tie_word_embeddings": False}, controls={
        "no network": {"zero": ["shared_mlp.output_linear.weight"]},
        "residual": {"set": {"residual_multiplier": 0.3}}}),
    "exaone4-bf16": dict(dtype="bf16", tok="gpt2", config=EXAONE4_CFG, controls={
        "window + 1": {"set": {"sliding_window": 91}}, "no scaling": {"drop": ["rope_scaling"]},
        "other layers": {"set": {"layer_types": ["sliding_attention", "full_attention"] * 2}},
        "ones after attention": {"one": ["post_attention_layernorm.weight"]},
        "ones after the MLP": {"one": ["post_feedforward_layernorm.weight"]},
        "q-norm ones": {"one": ["q_norm.weight"]}, "k-norm ones": {"one": ["k_norm.weight"]},
        "KV heads swapped": SWAP}),
    "exaone4-full-bf16": dict(dtype="bf16", tok="gpt2", resave=True, config={
        **EXAONE4_CFG, "num_hidden_layers": 2, "sliding_window": None, "sliding_window_pattern": None,
        "layer_types": ["full_attention"] * 2, "tie_word_embeddings": True}, controls={
        "no layer turns": {"set": {"sliding_window": 4096}}, "KV heads swapped": SWAP}),
    # a number of layers, the last of which has the window; frequencies and heads by default
    "exaone4-every-f32": dict(dtype="f32", tok="gpt2", config={
        **EXAONE4_CFG, "num_hidden_layers": 3, "sliding_window_pattern": 2, "num_key_value_heads": 4},
        drop=["layer_types", "rope_scaling", "rope_theta", "head_dim"], controls={
        "the last but one layer turns": {"set": {"sliding_window_pattern": 3}}}),
}


def randomise(model, seed, qk_gain, logit_gain):
    """Weights whose attention scores spread over several nats, norms around 1, biases with an effect."""
    g = torch.Generator().manual_seed(seed)
    normal = lambda p, std: p.copy_(torch.randn(p.shape, generator=g) * std)  # noqa: E731
    uniform = lambda p, a, b: p.copy_(torch.rand(p.shape, generator=g) * (b - a) + a)  # noqa: E731
    tied = model.config.tie_word_embeddings
    kind = model.config.model_type
    one = 1 if kind == "gemma3_text" else 0                          # norms hold w - 1
    low = 0.25 if kind == "gemma4_text" else 1                       # scores are not divided
    with torch.no_grad():
        for name, p in model.named_buffers():
            if name.endswith("layer_scalar"):
                uniform(p, 0.7, 1.2)
        for name, p in model.named_parameters():
            if name.endswith("bias"):            # of down small, as its weights: experts change by rounding
                normal(p, 0.02 if name.endswith("experts.down_proj_bias") else 0.3)
            elif name.endswith("sinks"):
                normal(p, 2)
            elif name.endswith(("experts.gate_up_proj", "experts.down_proj")) and "gpt_oss" in kind:
                normal(p, (3 if "gate_up" in name else 0.02) / math.sqrt(p.shape[-2]))    # [experts, in, out]
            elif name.endswith(("router.scale", "per_expert_scale")):
                uniform(p, 0.5, 1.5)
            elif name.endswith("router.proj.weight"):                # of rows of length 1
                normal(p, 2)
            elif "q_norm" in name and low < 1:
                uniform(p, 0.7 * low, 1.9 * low)
            elif "q_norm" in name or "k_norm" in name:
                uniform(p, 0.7 - one, 1.9 - one)
            elif "feedforward_layernorm_2" in name:                  # experts change by rounding
                uniform(p, 0.05, 0.15)
            elif "norm" in name:
                uniform(p, 0.6 - one, 1.4 - one)
            elif "embed_tokens" in name:
                normal(p, logit_gain / math.sqrt(p.shape[1]) if tied else 0.8)
            elif "lm_head" in name:
                normal(p, logit_gain / math.sqrt(p.shape[1]))
            elif "q_proj" in name or "k_proj" in name:
                normal(p, qk_gain / math.sqrt(p.shape[1]))
            elif "qkv_proj" in name:
                normal(p, qk_gain / math.sqrt(p.shape[1]))
                c = model.config
                rows = p.shape[0] // (c.num_attention_heads + 2 * c.num_key_value_heads)
                v = p[-rows * c.num_key_value_heads:]
                normal(v, (0.5 if tied else 0.9) / math.sqrt(p.shape[1]))
            else:
                gain = 2 if name.endswith(("mlp.gate.weight", "router.weight")) else 0.5 if tied else 0.9
                normal(p, gain / math.sqrt(p.shape[-1]))


def each_expert(state, model_type):
    """The tensors of a file as published: those of each expert, under the names of its time."""
    (prefix, gate, up, down), = EACH[model_type]
    out = {}
    if model_type == "gpt_oss":                  # [experts, in, out], gate and up in turn
        for name, t in state.items():
            layer, found, part = name.partition(".mlp.experts.")
            for e, x in enumerate(t if found else []):
                kind, at = ("bias" if part.endswith("_bias") else "weight"), f"{layer}.mlp.experts.{e}."
                x = x if kind == "bias" else x.T
                parts = [(gate, x[::2]), (up, x[1::2])] if "gate_up" in part else [(down, x)]
                out.update({f"{at}{n}.{kind}": y.clone() for n, y in parts})
            if not found:
                out[name] = t
        return out
    for name, t in state.items():
        layer, found, part = name.partition(".mlp.")
        if part not in ("experts.gate_up_proj", "experts.down_proj"):
            out[f"{layer}.{prefix}{part}" if found else name] = t
            continue
        for e, x in enumerate(t):
            halves = [(gate, x[:len(x) // 2]), (up, x[len(x) // 2:])] if "gate_up" in part else [(down, x)]
            for n, y in halves:
                out[f"{layer}.{prefix}experts.{e}.{n}.weight"] = y.clone()
    return out


def publish(state):
    """The tensors of gpt-oss as published: MXFP4, two weights in a byte, the first one in its low bits."""
    grid, out = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6]), {}
    for name, t in state.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            out[name] = t
            continue
        x = t.transpose(1, 2).unflatten(-1, (-1, 32))                # [experts, out, blocks, 32]
        power = torch.floor(torch.log2(x.abs().amax(-1, keepdim=True))) - 2
        code = (x.abs() / 2 ** power)[..., None].sub(grid).abs().argmin(-1) + 8 * (x < 0)
        out[name + "_blocks"] = (code[..., ::2] + 16 * code[..., 1::2]).to(torch.uint8)
        out[name + "_scales"] = (power[..., 0] + 127).to(torch.uint8)
    return out


def cast(state, dtype):
    kinds = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
    if dtype != "mixed":
        return {k: v.to(v.dtype if v.dtype == torch.uint8 else kinds[dtype]).contiguous()
                for k, v in state.items()}
    norm, embed = torch.float32, torch.float16
    return {k: v.to(norm if "norm" in k else embed if "embed" in k else torch.bfloat16).contiguous()
            for k, v in state.items()}


def save_weights(state, folder, shard):
    if not shard:
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        return
    limit, parts, size = int(shard[:-2]) * 1000, [{}], 0
    for name, t in state.items():
        n = t.numel() * t.element_size()
        if size and size + n > limit:
            parts.append({})
            size = 0
        parts[-1][name] = t
        size += n
    files = [f"model-{i + 1:05}-of-{len(parts):05}.safetensors" for i in range(len(parts))]
    for part, file in zip(parts, files):
        save_file(part, folder / file, metadata={"format": "pt"})
    index = {"metadata": {"total_size": sum(t.numel() * t.element_size() for t in state.values())},
             "weight_map": {name: f for part, f in zip(parts, files) for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))


# ---------------------------------------------------------------------------------------------- results


def fuse_oss(state):
    """The tensors of transformers from those of each expert, or from those of MXFP4."""
    if any(k.endswith("_blocks") for k in state):
        form = convert_moe_packed_tensors
        return {k.removesuffix("_blocks"): form(v, state[k[:-6] + "scales"], dtype=torch.float32)
                if k.endswith("_blocks") else v for k, v in state.items() if not k.endswith("_scales")}
    out = {k: v for k, v in state.items() if ".mlp.experts." not in k}
    for layer in {k.split(".mlp.")[0] for k in state if ".mlp.experts." in k}:
        at = layer + ".mlp.experts."
        for kind, form in ("weight", lambda x: x.T), ("bias", lambda x: x):
            n = sum(k.startswith(at) and k.endswith(".up_proj." + kind) for k in state)
            part = lambda e, p: state[f"{at}{e}.{p}_proj.{kind}"]                # noqa: E731
            both = [form(torch.stack([part(e, "gate"), part(e, "up")], 1).flatten(0, 1)) for e in range(n)]
            end = "_bias" if kind == "bias" else ""
            out[at + "gate_up_proj" + end] = torch.stack(both)
            out[at + "down_proj" + end] = torch.stack([form(part(e, "down")) for e in range(n)])
    return out


def load_oss(folder, dtype, attn):
    config = AutoConfig.from_pretrained(folder, attn_implementation=attn, experts_implementation="eager")
    config.__dict__.pop("quantization_config", None)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attn)
    state = fuse_oss(load_file(folder / "model.safetensors"))
    model.load_state_dict({k: v.to(dtype) for k, v in state.items()})
    return model.eval()


def load(folder, dtype=torch.float32, attn="eager"):
    if json.loads((folder / "config.json").read_text()).get("model_type") == "gpt_oss":
        return load_oss(folder, dtype, attn)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attn,
                                                 experts_implementation="eager").eval()
    embed = model.get_input_embeddings()
    if hasattr(embed, "embed_scale"):        # as in a model of the stored type
        stored = load_file(folder / "model.safetensors")["model.embed_tokens.weight"].dtype
        embed.embed_scale = embed.embed_scale.to(stored).to(dtype)
    return model


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].double()


def nll_of(logits, ids):
    return -torch.log_softmax(logits[:-1], -1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]


def kl(p_logits, q_logits):
    p, q = torch.log_softmax(p_logits, -1), torch.log_softmax(q_logits, -1)
    return (p.exp() * (p - q)).sum(-1).mean().item()


def bf16(x):
    return x.to(torch.bfloat16).to(torch.float32)


def bf16_attention(module, query, key, value, attention_mask, scaling, **kwargs):
    """The roundings of kernels/ops.h: q (scaled), k, v, the weights and the result become bf16."""
    n = module.num_key_value_groups
    q, k, v = bf16(query * scaling), bf16(key).repeat_interleave(n, 1), bf16(value).repeat_interleave(n, 1)
    s = q @ k.transpose(2, 3) + attention_mask
    top, more = s.amax(-1, keepdim=True), 0
    if kwargs.get("s_aux") is not None:
        more = kwargs["s_aux"].reshape(1, -1, 1, 1).float()
        top = torch.maximum(top, more)
        more = torch.exp(more - top)
    p = bf16(torch.exp(s - top))
    return bf16((p @ v) / (p.sum(-1, keepdim=True) + more)).transpose(1, 2).contiguous(), None


def imitate_bf16(folder):
    """The model with the roundings of --compute bf16; everything else stays float32."""
    ALL_ATTENTION_FUNCTIONS.register("bf16_roundings", bf16_attention)
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
    ALL_MASK_ATTENTION_FUNCTIONS.register("bf16_roundings", eager_mask)
    model = load(folder, attn="bf16_roundings")
    with torch.no_grad():
        for m in model.modules():
            if isinstance(m, torch.nn.Linear):
                m.weight.copy_(bf16(m.weight))
                m.register_forward_pre_hook(lambda _, x: (bf16(x[0]),))
    return model


def changed(folder, control, scratch):
    """A copy of the folder, changed by a control."""
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(folder, scratch)
    config = json.loads((scratch / "config.json").read_text())
    config.update(control.get("set", {}))
    for key in control.get("drop", []):
        config.pop(key, None)
    (scratch / "config.json").write_text(json.dumps(config))
    for file in scratch.glob("*.safetensors"):
        state = load_file(file)
        for name, t in state.items():
            if any(name.endswith(s) for s in control.get("zero", [])):
                t.zero_()
            if any(name.endswith(s) for s in control.get("one", [])):
                t.fill_(1)
            if "swap_kv_heads" in control and (".k_proj." in name or ".v_proj." in name or ".qkv_" in name):
                a, b = control["swap_kv_heads"]
                heads = AutoConfig.from_pretrained(scratch).get_text_config()
                kv = heads.num_key_value_heads
                rows = t.shape[0] // (heads.num_attention_heads + 2 * kv) * kv
                for x in [t[-2 * rows:-rows], t[-rows:]] if ".qkv_" in name else [t]:
                    t_heads = x.view(kv, -1)
                    t_heads[[a, b]] = t_heads[[b, a]].clone()
        save_file(state, file, metadata={"format": "pt"})


def controlled(folder, control, scratch):
    """transformers' model for a control."""
    changed(folder, control, scratch)
    model = load(scratch)
    if "no_qk_norm" in control:
        for layer in model.model.layers:
            layer.self_attn.q_norm = layer.self_attn.k_norm = torch.nn.Identity()
    return model


def check_spread(name, model, ids):
    """Standard deviation of a query's attention scores, the mean over heads and layers."""
    stds = []

    def spy(module, query, key, value, attention_mask, scaling, **kwargs):
        k = key.repeat_interleave(module.num_key_value_groups, 1)
        s = (query[:, :, -200:] @ k.transpose(2, 3)) * scaling
        stds.append(s.std(-1).mean().item())
        return bf16_attention(module, query, key, value, attention_mask, scaling, **kwargs)
    ALL_ATTENTION_FUNCTIONS.register("bf16_roundings", spy)
    logits_of(model, ids)
    return min(stds)


def random_rope(r, theta):
    """A scaling, whose spelling the caller chooses, and a max_position_embeddings that fits it."""
    original = r.choice([256, 600, 1024])
    kind = r.choice(["default", "linear", "llama3", "yarn", "yarn", "dynamic"])
    s = {"rope_type": kind, "rope_theta": theta}
    if kind != "default":
        s["factor"] = r.choice([1.0, 1.7, 4, 8.0, 20.0])
    if kind == "llama3":
        s.update(low_freq_factor=r.choice([1, 0.8]), high_freq_factor=r.choice([4.0, 3]),
                 original_max_position_embeddings=original)
    if kind == "yarn":
        some = {"mscale": 0.9, "mscale_all_dim": r.choice([0.5, 1.2]), "beta_fast": r.choice([32, 24.0]),
                "beta_slow": 2,
                "truncate": r.random() < 0.5, "attention_factor": r.choice([0.8, 1.25, None])}
        s.update({k: v for k, v in some.items() if r.random() < 0.4},
                 original_max_position_embeddings=original)
    return s, r.choice([4200, 5000, 8192])


def random_spec(r):
    """Any architecture with any of its features, awkward sizes included."""
    arch = r.choice(["llama", "mistral", "qwen2", "qwen3"])
    groups, kv = r.choice([(1, 1), (1, 3), (2, 2), (3, 1), (4, 2), (5, 1), (6, 1), (7, 1)])
    heads, layers = groups * kv, r.choice([1, 2, 3, 4])
    head_dim = r.choice([4, 6, 10, 16, 20, 32, 40, 64, 80, 96, 128])
    hidden = heads * r.choice([3, 5, 8, 11, 16]) if arch == "llama" else r.choice([17, 30, 48, 64, 100, 192])
    rope, longest = random_rope(r, r.choice([10000, 10000.0, 1e6, 500000.0]))
    config = {"architectures": [{"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2",
                                 "qwen3": "Qwen3"}[arch] + "ForCausalLM"],
              "model_type": arch, "hidden_act": "silu", "hidden_size": hidden,
              "intermediate_size": r.choice([7, 33, 64, 200]),
              "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
              "head_dim": head_dim,
              "max_position_embeddings": longest, "rms_norm_eps": r.choice([1e-5, 1e-6]),
              "vocab_size": r.randrange(300, 420),
              "tie_word_embeddings": r.random() < 0.4}
    if arch == "llama":
        config.update(attention_bias=r.random() < 0.4, mlp_bias=r.random() < 0.4)
    window = r.choice([1, 2, 63, 64, 65, 200, 1000, 2048])
    if arch == "mistral":
        config["sliding_window"] = r.choice([None, window])
    if arch == "qwen3":
        config["attention_bias"] = r.random() < 0.4
    if arch.startswith("qwen"):
        config.update(use_sliding_window=r.random() < 0.6, sliding_window=window,
                      max_window_layers=r.randrange(0, 5))
        if config["use_sliding_window"] and r.random() < 0.5:
            config["layer_types"] = [r.choice(["full_attention", "sliding_attention"]) for _ in range(layers)]
    resave = r.random() < 0.4
    if resave or r.random() < 0.3:
        config["rope_parameters"] = rope
    else:
        config["rope_theta"] = rope.pop("rope_theta")
        spelling = r.choice(["type", "rope_type"])
        config["rope_scaling"] = {**{k: v for k, v in rope.items() if k != "rope_type"},
                                  spelling: rope["rope_type"]}
        if rope["rope_type"] == "default":
            config["rope_scaling"] = r.choice([None, config["rope_scaling"]])
    dtype = r.choice(["bf16", "f16", "f32", "mixed"])
    return dict(config=config, dtype=dtype, resave=resave and dtype != "mixed",
                shard=r.choice([None, "60KB"]),
                tok=r.choice(["llama3", "qwen2", "gpt2"]), text="other", controls={})


def write_reference(folder, ids, nll, logits, seed):
    r = random.Random(seed)
    at = sorted(r.sample(range(2, len(ids) - 1), N_LOGITS - 3) + [0, 1, len(ids) - 1])
    with open(folder / "reference.bin", "wb") as f:
        f.write(b"LHREF001" + struct.pack("<III", len(ids), logits.shape[1], len(at)))
        f.write(np.array(ids, "<i4").tobytes() + nll.numpy().astype("<f4").tobytes())
        f.write(np.array(at, "<u4").tobytes() + logits[at].numpy().astype("<f4").tobytes())


def wrap(folder):
    """Gives the folder the form of a wrapper of Mistral or Gemma, with a tensor of the eye."""
    text = json.loads((folder / "config.json").read_text())
    text.pop("architectures")
    gemma = text["model_type"].startswith("gemma")
    kind = text["model_type"].removesuffix("_text") if gemma else "mistral3"
    (folder / "config.json").write_text(json.dumps({
        "architectures": [kind.capitalize() + "ForConditionalGeneration"], "model_type": kind,
        "image_token_index": 10, "multimodal_projector_bias": False, "spatial_merge_size": 2,
        "text_config": text, "vision_config": {"model_type": "pixtral", "hidden_size": 8},
        "vision_feature_layer": -1}, indent=1) + "\n")
    state = {"language_model." + k: v for k, v in load_file(folder / "model.safetensors").items()}
    state["vision_tower.ln_pre.weight"] = torch.ones(8)
    if kind == "gemma4":
        state = {"model." + k.replace(".model.", ".", 1): v for k, v in state.items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def make(name, spec, texts, index, out=OUT):
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = {k: v for k, v in copy.deepcopy(spec["config"]).items() if k not in spec.get("drop", [])}
    text_name = spec.get("text", "short" if spec["tok"] == "metaspace" else "middle")
    text = texts[text_name]
    vocab = config["vocab_size"]
    if spec["tok"] == "metaspace":
        tok = metaspace_tokenizer(text, vocab)
        config["bos_token_id"], config["eos_token_id"] = 1, 2
    elif spec["tok"] == "gemma":
        tok = metaspace_tokenizer(text, vocab, True)
    else:
        bos = "<|begin|>" if spec["tok"] in ("llama3", "tekken") else None
        tok = byte_tokenizer(text, vocab, spec["tok"], bos)
        config["bos_token_id"] = tok.token_to_id(bos) if bos else None
        config["eos_token_id"] = tok.token_to_id("<|end|>")
    tok.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")

    hf = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(hf, dtype=torch.float32)
    randomise(model, BASE_SEED + index, spec.get("qk", 1.45), spec.get("gain", 1.5))
    state = {k: v.detach().clone() for k, v in model.state_dict().items()
             if not (hf.tie_word_embeddings and k == "lm_head.weight")}
    if spec.get("resave"):
        hf.dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[spec["dtype"]]
        hf.architectures = config["architectures"]
        hf.save_pretrained(folder)
    if spec.get("publish"):
        state = publish(state)
    if spec.get("each"):
        state = each_expert(state, config["model_type"])
    save_weights(cast(state, spec["dtype"]), folder, spec.get("shard"))

    ids = tok.encode(text).ids
    assert max(ids) < vocab and len(ids) >= 2000, (name, max(ids), len(ids))
    model = load(folder)
    logits = logits_of(model, ids)
    nll = nll_of(logits, ids)
    heavy = config["num_attention_heads"] * len(ids) ** 2 > 2e8
    noise = 0.0 if heavy else (nll_of(logits_of(load(folder, torch.float64), ids),
                                      ids) - nll).abs().max().item()
    std = logits.std(-1).mean().item()
    imitated = imitate_bf16(folder)
    divergence = kl(logits, logits_of(imitated, ids))
    spread = check_spread(name, imitated, ids)
    ALL_ATTENTION_FUNCTIONS.register("bf16_roundings", bf16_attention)

    controls, weakest = [], math.inf
    for label, control in spec["controls"].items():
        moved = nll_of(logits_of(controlled(folder, control, out / ".scratch"), ids), ids)
        at = (moved - nll).abs().argmax().item()
        move = (moved[at] - nll[at]).abs().item()
        weakest = min(weakest, move)
        controls.append({"name": label, **control, "moves": round(move, 6), "at": at,
                         "nll": moved[at].item()})
        if move < MOVE_MIN:
            print(f"  {name}: control '{label}' moves the nll by {move:.2e} only")
    shutil.rmtree(out / ".scratch", ignore_errors=True)
    (folder / "reference.json").write_text(json.dumps({
        "text": f"{text_name}.txt", "tokens": len(ids), "perplexity": math.exp(nll.mean().item()),
        "logits_std": round(std, 3), "score_std": round(spread, 3), "float32_noise": float(f"{noise:.1e}"),
        "bf16_kl_imitated": float(f"{divergence:.2e}"), "controls": controls}, indent=1) + "\n")

    write_reference(folder, ids, nll, logits, BASE_SEED + index)
    if spec.get("wrap"):
        wrap(folder)
    size = sum(p.stat().st_size for p in folder.iterdir())
    good = std >= 1 and spread >= 1 and divergence <= KL_MAX and weakest >= MOVE_MIN and noise <= 2e-4
    print(f"{'ok  ' if good else 'BAD '} {name:28} {len(ids)} tokens  ppl {math.exp(nll.mean()):7.1f}"
          f"  logit std {std:.2f}  score std {spread:.2f}  f32 noise {noise:.1e}  bf16 KL {divergence:.1e}"
          f"  weakest control {weakest:.1e}  {size / 1000:.0f} KB", flush=True)
    return good


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("names", nargs="*")
    ap.add_argument("--random", type=int)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--out", type=Path, default=OUT)
    a = ap.parse_args()
    names = a.names or list(FIXTURES)
    if a.random and a.out == OUT:
        ap.error("--random needs --out: only the fixtures above belong there")
    logging.disable_progress_bar()
    a.out.mkdir(parents=True, exist_ok=True)
    texts = {"short": make_text(2600, 1), "middle": make_text(6200, 2), "long": make_text(13500, 3)}
    if a.random:
        texts = {"other": make_text(7500, 4 + a.seed)}
    for k, v in texts.items():
        (a.out / f"{k}.txt").write_text(v)
    if a.random:
        good = [make(f"random-{i}", random_spec(random.Random(i)), texts, i, a.out)
                for i in range(a.seed * 1000, a.seed * 1000 + a.random)]
        return 0 if all(good) else 1
    good = [make(n, FIXTURES[n], texts, list(FIXTURES).index(n), a.out) for n in names]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
