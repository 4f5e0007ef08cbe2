#!/usr/bin/env python3
"""Writes tests/real/gemma.json: what Gemma 3 270M makes of the texts in tests/real/texts.

    python3 -m venv venv && venv/bin/pip install gguf numpy torch transformers
    venv/bin/python tests/make/make_real_gemma.py gemma-3-270m-Q4_K_M.gguf   # minutes

Token ids and negative log-likelihoods come from transformers, with the decoded weights of the file in
float32. make_real_fixture.py describes the file that is written.
"""
import sys
from pathlib import Path

import torch
from transformers import AutoTokenizer, Gemma3ForCausalLM, Gemma3TextConfig

from make_real_fixture import read, write

LAYER = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
         "attn_k_norm": "self_attn.k_norm", "post_attention_norm": "post_attention_layernorm",
         "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}


def load(fields, tensors):
    get = lambda name: fields["gemma3." + name]
    config = Gemma3TextConfig(
        vocab_size=len(fields["tokenizer.ggml.tokens"]), hidden_size=get("embedding_length"),
        intermediate_size=get("feed_forward_length"), num_hidden_layers=get("block_count"),
        num_attention_heads=get("attention.head_count"), num_key_value_heads=get("attention.head_count_kv"),
        head_dim=get("attention.key_length"), query_pre_attn_scalar=get("attention.key_length"),
        sliding_window=get("attention.sliding_window"), max_position_embeddings=get("context_length"),
        rms_norm_eps=get("attention.layer_norm_rms_epsilon"), attn_implementation="eager")
    state = {}
    for name, x in tensors.items():
        name = name.removesuffix(".weight")
        if name in OUTSIDE:
            to = OUTSIDE[name]
        else:
            _, layer, part = name.split(".")
            to = f"model.layers.{layer}.{LAYER[part]}"
        state[to + ".weight"] = torch.from_numpy(x - 1 if x.ndim == 1 else x)      # norms hold 1 + w
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model = Gemma3ForCausalLM(config).float().eval()
    model.load_state_dict(state)
    return model


def nll(model, ids):
    with torch.no_grad():
        x = model.model(torch.tensor(ids)[None]).last_hidden_state[0][:-1]
        rows = [torch.log_softmax((part @ model.lm_head.weight.T).double(), -1)[range(len(part)), of]
                for part, of in zip(x.split(128), torch.tensor(ids[1:]).split(128))]
    return -torch.cat(rows).numpy()


def main():
    path = Path(sys.argv[1])
    model = load(*read(path))
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    write("gemma", path, lambda text: tokenizer(text)["input_ids"], lambda ids: nll(model, ids))


if __name__ == "__main__":
    main()
