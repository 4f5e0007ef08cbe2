#!/usr/bin/env python3
"""Writes a GGUF file from a Hugging Face directory with gguf-py, the reference for longhand's reader and for
`longhand convert`. Needs gguf, numpy and the local packages only:

    scripts/make_gguf.py models/demo demo.gguf --type BF16 --pre dbrx [--split N] [--set KEY=U32]
"""
import argparse, json, pathlib, struct
import numpy as np, gguf

NAMES = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
         "lm_head.weight": "output.weight"}
LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def tensors(directory):
    for path in sorted(directory.glob("model*.safetensors")):
        data = path.read_bytes()
        n = struct.unpack("<Q", data[:8])[0]
        for name, t in json.loads(data[8:8 + n]).items():
            if name == "__metadata__":
                continue
            raw = data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]
            x = {"BF16": lambda: (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4"),
                 "F16": lambda: np.frombuffer(raw, "<f2").astype("<f4"),
                 "F32": lambda: np.frombuffer(raw, "<f4")}[t["dtype"]]()
            yield name, x.reshape(t["shape"])


def permute(x, heads):
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def add_metadata(w, c, arch):
    head_dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    rope = c.get("rope_parameters") or {"rope_theta": c.get("rope_theta", 10000.0)}
    w.add_type("model")
    w.add_name("fixture")
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    w.add_rope_dimension_count(head_dim)
    w.add_rope_freq_base(rope["rope_theta"])
    w.add_vocab_size(c["vocab_size"])
    w.add_quantization_version(2)


def add_tokenizer(w, directory, c, pre):
    t = json.loads((directory / "tokenizer.json").read_text())
    model, added = t["model"], t["added_tokens"]
    tokens = {i: s for s, i in model["vocab"].items()} | {a["id"]: a["content"] for a in added}
    special = {a["id"]: a["special"] for a in added}
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list([tokens.get(i, f"[PAD{i}]") for i in range(c["vocab_size"])])
    w.add_token_types([5 if i not in tokens else 3 if special.get(i) else 4 if i in special else 1
                       for i in range(c["vocab_size"])])
    merges = model["merges"]
    w.add_token_merges([m if isinstance(m, str) else " ".join(x.replace(" ", "\u0120") for x in m) for m in merges])
    eos = c["eos_token_id"]
    if c.get("bos_token_id") is not None:
        w.add_bos_token_id(c["bos_token_id"])
    w.add_eos_token_id(eos[0] if isinstance(eos, list) else eos)
    w.add_add_bos_token(t.get("post_processor") is not None and "SpecialToken" in json.dumps(t["post_processor"]))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("directory", type=pathlib.Path)
    p.add_argument("output")
    p.add_argument("--type", default="BF16")
    p.add_argument("--pre", default="dbrx")
    p.add_argument("--split", type=int, default=0)
    o = p.parse_args()
    c = json.loads((o.directory / "config.json").read_text())
    arch = {"mistral": "llama"}.get(c["model_type"], c["model_type"])
    w = gguf.GGUFWriter(o.output, arch, split_max_tensors=o.split)
    add_metadata(w, c, arch)
    add_tokenizer(w, o.directory, c, o.pre)
    kind = gguf.GGMLQuantizationType[o.type]
    for name, x in tensors(o.directory):
        if name in NAMES:
            to = NAMES[name]
        else:
            layer, rest = name.removeprefix("model.layers.").split(".", 1)
            to = f"blk.{layer}.{LAYER[rest.rsplit('.', 1)[0]]}.{rest.rsplit('.', 1)[1]}"
        if arch == "llama" and ".q_proj." in name:
            x = permute(x, c["num_attention_heads"])
        if arch == "llama" and ".k_proj." in name:
            x = permute(x, c["num_key_value_heads"])
        t = gguf.GGMLQuantizationType.F32 if x.ndim == 1 else kind
        w.add_tensor(to, gguf.quants.quantize(np.ascontiguousarray(x), t), raw_dtype=t)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


main()
