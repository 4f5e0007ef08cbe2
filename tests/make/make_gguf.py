#!/usr/bin/env python3
"""Writes a GGUF file from a Hugging Face directory with gguf-py, the reference for longhand's reader and for
`longhand convert`. Needs gguf, numpy and the local packages only:

    tests/make/make_gguf.py models/demo demo.gguf --type BF16 --pre dbrx [--split N] [--set KEY=U32]
"""
import argparse, json, math, pathlib, struct
import numpy as np, gguf

NAMES = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
         "lm_head.weight": "output.weight"}
LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}


EXPERTS = {"mlp.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
           **{f"mlp.shared_expert.{p}_proj": f"ffn_{p}_shexp" for p in ("gate", "up", "down")}}
HYBRID = {**LAYER, **EXPERTS, "post_attention_layernorm": "post_attention_norm",
          "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate",
          "linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_a": "ssm_alpha",
          "linear_attn.conv1d": "ssm_conv1d", "linear_attn.norm": "ssm_norm",
          "linear_attn.out_proj": "ssm_out"}
DRAFT = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm",
         "norm": "shared_head_norm"}


def deal(x, c, width, skip=0):
    """Value heads of `width` rows in GGUF's order: from (key head, member) to (member, key head). The first
    `skip` rows stay."""
    keys = c["linear_num_key_heads"]
    y = x[skip:].reshape(keys, -1, width, *x.shape[1:]).swapaxes(0, 1).reshape(x[skip:].shape)
    return np.concatenate([x[:skip], y])


def hybrid_tensor(name, x, c):
    """Name and values of a tensor of Qwen3.5 in GGUF; None: it is not part of the text model."""
    name = name.replace("model.language_model.", "model.", 1)
    if name.startswith("model.visual."):
        return None
    layers, dv = c["num_hidden_layers"], c["linear_value_head_dim"]
    plain = "linear_attn.norm" in name
    if "norm" in name and not plain:
        x = x + 1
    if name in NAMES:
        return NAMES[name], x
    head = f"blk.{layers}." if name.startswith("mtp.") else f"blk.{name.split('.')[2]}."
    if name.startswith("mtp.") and not name.startswith("mtp.layers."):
        return f"{head}nextn.{DRAFT[name.split('.')[1]]}.weight", x
    rest = name.split(".", 3)[3]
    if rest.endswith("experts.gate_up_proj"):
        return head + "ffn_gate_up_exps.weight", x
    if rest.endswith("experts.down_proj"):
        return head + "ffn_down_exps.weight", x
    if rest == "linear_attn.A_log":
        return head + "ssm_a", deal(-np.exp(x), c, 1)
    if rest == "linear_attn.dt_bias":
        return head + "ssm_dt.bias", deal(x, c, 1)
    part = rest.removesuffix(".weight")
    if part in ("linear_attn.in_proj_qkv", "linear_attn.conv1d"):
        x = deal(x.reshape(x.shape[0], -1), c, dv, 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"])
    elif part == "linear_attn.in_proj_z":
        x = deal(x, c, dv)
    elif part in ("linear_attn.in_proj_a", "linear_attn.in_proj_b"):
        x = deal(x, c, 1)
    elif part == "linear_attn.out_proj":
        x = deal(np.ascontiguousarray(x.T), c, dv).T
    return head + HYBRID[part] + ".weight", x.reshape(-1) if part == "mlp.shared_expert_gate" else x


def add_hybrid(w, c):
    w.add_ssm_conv_kernel(c["linear_conv_kernel_dim"])
    w.add_ssm_state_size(c["linear_key_head_dim"])
    w.add_ssm_group_count(c["linear_num_key_heads"])
    w.add_ssm_time_step_rank(c["linear_num_value_heads"])
    w.add_ssm_inner_size(c["linear_num_value_heads"] * c["linear_value_head_dim"])
    if "layer_types" in c:
        w.add_array(f"{w.arch}.attention.recurrent_layers", [t != "full_attention" for t in c["layer_types"]])
    else:
        w.add_uint32(f"{w.arch}.full_attention_interval", c["full_attention_interval"])
    if "num_experts" in c:
        w.add_expert_count(c["num_experts"])
        w.add_expert_used_count(c["num_experts_per_tok"])
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])
        w.add_expert_shared_feed_forward_length(c["shared_expert_intermediate_size"])
    if c.get("mtp_num_hidden_layers"):
        w.add_uint32(f"{w.arch}.nextn_predict_layers", 1)


def add_phi(w, c):
    """As llama.cpp's converter writes it: lists of longrope as tensors, and the factor that follows from the
    lengths."""
    rope, original = c["rope_scaling"], c["original_max_position_embeddings"]
    w.add_sliding_window(c["sliding_window"] or 0)
    w.add_rope_scaling_orig_ctx_len(original)
    w.add_rope_scaling_attn_factors(
        math.sqrt(1 + math.log(c["max_position_embeddings"] / original) / math.log(original)))
    for name in ("long", "short"):
        w.add_tensor(f"rope_factors_{name}.weight", np.array(rope[f"{name}_factor"], np.float32))


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
    w.add_block_count(c["num_hidden_layers"] + c.get("mtp_num_hidden_layers", 0))
    if "intermediate_size" in c:
        w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    partial = rope.get("partial_rotary_factor", c.get("partial_rotary_factor", 1))
    w.add_rope_dimension_count(int(head_dim * partial))
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
    w.add_token_merges([m if isinstance(m, str) else " ".join(x.replace(" ", "\u0120") for x in m)
                        for m in merges])
    eos = c["eos_token_id"]
    if c.get("bos_token_id") is not None:
        w.add_bos_token_id(c["bos_token_id"])
    w.add_eos_token_id(eos[0] if isinstance(eos, list) else eos)
    w.add_add_bos_token(t.get("post_processor") is not None
                        and "SpecialToken" in json.dumps(t["post_processor"]))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("directory", type=pathlib.Path)
    p.add_argument("output")
    p.add_argument("--type", default="BF16")
    p.add_argument("--pre", default="dbrx")
    p.add_argument("--split", type=int, default=0)
    o = p.parse_args()
    c = json.loads((o.directory / "config.json").read_text())
    c.update(c.get("text_config", {}))
    arch = {"mistral": "llama", "qwen3_5_text": "qwen35", "qwen3_5_moe_text": "qwen35moe"}.get(
        c["model_type"], c["model_type"])
    w = gguf.GGUFWriter(o.output, arch, split_max_tensors=o.split)
    add_metadata(w, c, arch)
    if arch.startswith("qwen35"):
        add_hybrid(w, c)
    if arch == "phi3":
        add_phi(w, c)
    add_tokenizer(w, o.directory, c, o.pre)
    kind = gguf.GGMLQuantizationType[o.type]
    for name, x in tensors(o.directory):
        if arch.startswith("qwen35"):
            named = hybrid_tensor(name, x, c)
            if named is None:
                continue
            to, x = named
        elif name in NAMES:
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
