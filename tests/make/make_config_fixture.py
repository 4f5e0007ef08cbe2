#!/usr/bin/env python3
"""Writes how transformers understands config.json files, for tests/model/test_config.c.

    make_config_fixture.py [CASES [SEED]] > tests/data/config_fixture.txt

Each line has four fields, separated by tabs: a config.json; the shape and flags as transformers (5.x) reads
them; the factor on cos and sin and the inverse frequencies as float32 bits in hex; the powers of rope_theta
as torch computes them. Named cases come first, then CASES random cases.
"""
import json, random, struct, sys, warnings
import torch
from transformers import AutoConfig, logging
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.mistral.modeling_mistral import MistralRotaryEmbedding
from transformers.models.mixtral.modeling_mixtral import MixtralRotaryEmbedding
from transformers.models.qwen2.modeling_qwen2 import Qwen2RotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeRotaryEmbedding

logging.set_verbosity_error()
warnings.simplefilter("ignore")
ROPE = {"llama": LlamaRotaryEmbedding, "mistral": MistralRotaryEmbedding, "qwen2": Qwen2RotaryEmbedding,
        "qwen3": Qwen3RotaryEmbedding}
MOE_ROPE = {"mixtral": MixtralRotaryEmbedding, "qwen3_moe": Qwen3MoeRotaryEmbedding}

LLAMA31 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 8192}
NAMED = [
    {"model_type": "llama"},
    {"model_type": "mistral"},
    {"model_type": "qwen2"},
    {"model_type": "qwen3"},
    {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
     "rope_theta": 500000.0,
     "max_position_embeddings": 131072, "rope_scaling": LLAMA31},
    {"model_type": "llama", "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8,
     "rope_theta": 500000.0,
     "max_position_embeddings": 131072, "tie_word_embeddings": True,
     "rope_scaling": dict(LLAMA31, factor=32.0)},
    {"model_type": "llama", "max_position_embeddings": 4096,
     "rope_scaling": {"type": "linear", "factor": 8.0}},
    {"model_type": "llama", "max_position_embeddings": 2048,
     "rope_scaling": {"type": "dynamic", "factor": 2.0}},
    {"model_type": "llama", "max_position_embeddings": 4096,
     "rope_scaling": {"rope_type": "dynamic", "factor": 1.1}},
    {"model_type": "llama", "attention_bias": True, "mlp_bias": True, "head_dim": 64},
    {"model_type": "llama", "num_key_value_heads": None, "head_dim": None, "rope_scaling": None},
    {"model_type": "llama", "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}},
    {"model_type": "llama", "rope_scaling": {}, "rope_parameters": {"rope_type": "linear",
    "rope_theta": 20000.0, "factor": 3.0}},
    {"model_type": "mistral", "sliding_window": None, "rope_theta": 1000000.0, "head_dim": 128,
     "hidden_size": 5120},
    {"model_type": "mistral", "sliding_window": 512, "num_hidden_layers": 3, "num_key_value_heads": 32},
    {"model_type": "qwen2", "hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2,
     "rope_theta": 1000000.0,
     "tie_word_embeddings": True, "use_sliding_window": False, "sliding_window": 32768,
     "max_window_layers": 21, "num_hidden_layers": 24},
    {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 100, "max_window_layers": 2,
     "num_hidden_layers": 4},
    {"model_type": "qwen2", "use_sliding_window": True, "num_hidden_layers": 30},
    {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": None, "max_window_layers": 2,
     "num_hidden_layers": 4},
    {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 64, "num_hidden_layers": 3,
     "max_window_layers": 3,
     "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    {"model_type": "qwen2", "rope_theta": 1000000.0,
     "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}},
    {"model_type": "qwen3", "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8,
     "rope_theta": 1000000,
     "max_position_embeddings": 40960, "tie_word_embeddings": True},
    {"model_type": "qwen3", "attention_bias": True,
     "rope_parameters": {"rope_type": "yarn", "rope_theta": 5000000, "factor": 4.0,
     "original_max_position_embeddings": 32768}, "max_position_embeddings": 131072},
    {"model_type": "llama", "max_position_embeddings": 131072, "rope_theta": 10000,
     "rope_scaling": {"type": "yarn", "factor": 32.0,
     "original_max_position_embeddings": 4096, "finetuned": True}},
    {"model_type": "llama", "rope_scaling": {"rope_type": "yarn", "factor": 40, "mscale": 0.707,
                                             "mscale_all_dim": 1.0, "truncate": False,
     "original_max_position_embeddings": 4096}},
    {"model_type": "llama", "rope_scaling": {"rope_type": "yarn", "factor": None,
                                             "original_max_position_embeddings": 512}},
    {"model_type": "llama", "rope_scaling": {"rope_type": "yarn", "factor": 2.5, "attention_factor": 1.25,
                                             "beta_fast": 16, "beta_slow": 2}},
    {"model_type": "llama", "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 2,
                                             "beta_slow": 2, "truncate": False}},
    {"model_type": "llama", "original_max_position_embeddings": 1024,
     "rope_scaling": {"rope_type": "yarn", "factor": 2,
     "original_max_position_embeddings": 512}},
    {"model_type": "mixtral"},
    {"model_type": "mixtral", "sliding_window": 4096, "num_local_experts": 16, "num_experts_per_tok": 4,
     "num_hidden_layers": 3, "rms_norm_eps": 1e-6, "rope_theta": 20000.0},
    {"model_type": "qwen3_moe"},
    {"model_type": "qwen3_moe", "head_dim": 128, "num_experts": 256, "num_experts_per_tok": 10,
     "moe_intermediate_size": 512, "norm_topk_prob": True, "rope_theta": 1e7, "num_hidden_layers": 4,
     "max_window_layers": 2, "sliding_window": None, "use_sliding_window": False},
    {"model_type": "qwen3_moe", "num_local_experts": 12, "num_hidden_layers": 6, "mlp_only_layers": [0, 5, 7],
     "attention_bias": True, "use_sliding_window": True, "head_dim": 64},
    {"model_type": "qwen3_moe", "decoder_sparse_step": 2, "num_hidden_layers": 5, "mlp_only_layers": [3],
     "use_sliding_window": True, "sliding_window": 77, "head_dim": 64},
]


def random_config(rng):
    c = {"model_type": rng.choice(list(ROPE)), "num_hidden_layers": rng.choice([1, 2, 5])}
    dim = rng.choice([2, 4, 6, 10, 16, 32, 48, 64, 80, 96, 112, 128, 128, 160, 192, 256, 512])
    heads = rng.choice([1, 2, 4, 8])
    c["num_attention_heads"] = heads
    c["num_key_value_heads"] = rng.choice([h for h in (1, 2, 4, 8) if heads % h == 0])
    if c["model_type"] == "qwen3" or rng.random() < 0.5:
        c["head_dim"] = dim
        c["hidden_size"] = heads * rng.choice([16, 24, 64])
    else:
        c["hidden_size"] = heads * dim
    theta = rng.choice([1e4, 1e5, 5e5, 1e6, 1e7, 1e8, 1.0, 2.5,
                        round(10 ** rng.uniform(0.5, 9), rng.choice([0, 3]))])
    longest = c["max_position_embeddings"] = rng.choice([512, 2048, 4096, 32768, 131072, 1000, 1048576])
    kind = rng.choice(["default", "linear", "dynamic", "llama3", "yarn", "yarn", "llama3"])
    if kind == "yarn" and theta == 1:
        theta = 1e4
    if kind == "dynamic" and dim == 2:
        kind = "linear"
    factor = rng.choice([1, 1.0, 2, 4.0, 8, 32.0, 1.1, 3.7, round(rng.uniform(1, 50), 3)])
    r = {"rope_type" if rng.random() < 0.5 else "type": kind}
    if kind != "default":
        r["factor"] = factor
    if kind in ("llama3", "yarn") and rng.random() < 0.8:
        r["original_max_position_embeddings"] = rng.choice([256, 2048, 8192, max(1, longest // 4)])
    if kind == "llama3":
        r["low_freq_factor"] = rng.choice([1, 1.0, 0.5, 2.0])
        r["high_freq_factor"] = rng.choice([4, 4.0, 8.5, 3.0])
    if kind == "yarn":
        for key, values in (("beta_fast", [32, 16.0, 64]), ("beta_slow", [1, 2.0, 0.25]),
                            ("truncate", [True, False]),
                            ("mscale", [1, 0.707, 1.5]), ("mscale_all_dim", [1.0, 0.5]),
                            ("attention_factor", [1.0, 0.8, 1.3])):
            if rng.random() < (0.15 if key == "attention_factor" else 0.4):
                r[key] = rng.choice(values)
    if rng.random() < 0.5:
        r["rope_theta"] = theta
        c["rope_parameters"] = r
    else:
        c["rope_theta"] = theta
        c["rope_scaling"] = r
    if c["model_type"] in ("qwen2", "qwen3"):
        c["use_sliding_window"] = rng.random() < 0.5
        c["sliding_window"] = rng.choice([None, 5, 4096])
        c["max_window_layers"] = rng.choice([0, 1, 3])
    if c["model_type"] == "mistral":
        c["sliding_window"] = rng.choice([None, 7, 4096])
    return c


def bits(x):
    return struct.pack(">f", x).hex()


def line(c):
    d = dict(c)
    hf = AutoConfig.for_model(d.pop("model_type"), **json.loads(json.dumps(d)))
    rope = {**ROPE, **MOE_ROPE}[hf.model_type](hf)
    dim = getattr(hf, "head_dim", None) or hf.hidden_size // hf.num_attention_heads
    window = getattr(hf, "sliding_window", None) if hf.model_type != "llama" else None
    if hf.model_type in ("qwen2", "qwen3"):
        layers = "".join("1" if t == "sliding_attention" else "0" for t in hf.layer_types)
    else:
        layers = ("1" if window else "0") * hf.num_hidden_layers
    eos = hf.eos_token_id
    shape = [hf.vocab_size, hf.hidden_size, hf.intermediate_size, hf.num_hidden_layers,
             hf.num_attention_heads, hf.num_key_value_heads, dim,
             hf.max_position_embeddings, int(hf.tie_word_embeddings), window or 0, layers,
             "%g" % hf.rms_norm_eps,
             -1 if hf.bos_token_id is None else hf.bos_token_id, -1 if eos is None else eos]
    if hf.model_type in MOE_ROPE:
        only, step = getattr(hf, "mlp_only_layers", []), getattr(hf, "decoder_sparse_step", 1)
        shape += [hf.num_experts, hf.num_experts_per_tok,
                  getattr(hf, "moe_intermediate_size", hf.intermediate_size),
                  int(getattr(hf, "norm_topk_prob", True)),
                  "".join(str(int(i not in only and (i + 1) % step == 0))
                          for i in range(hf.num_hidden_layers))]
    values = [float(rope.attention_scaling)] + rope.inv_freq.tolist()
    base, scale = hf.rope_parameters["rope_theta"], hf.rope_parameters.get("factor", 1)
    if hf.rope_parameters["rope_type"] == "dynamic":
        base = base * ((scale * hf.max_position_embeddings / hf.max_position_embeddings) - (
            scale - 1)) ** (dim / (dim - 2))
    powers = base ** (torch.arange(0, dim, 2, dtype=torch.int64).to(torch.float) / dim)
    return "%s\t%s\t%s\t%s" % (json.dumps(c), " ".join(map(str, shape)), " ".join(map(bits, values)),
                               " ".join(map(bits, powers.tolist())))


def main():
    cases = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    for c in NAMED:
        print(line(c))
    for _ in range(cases):
        print(line(random_config(rng)))


main()
