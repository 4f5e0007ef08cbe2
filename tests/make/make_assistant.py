#!/usr/bin/env python3
"""Makes the drafter of the fixture gemma4-layers-f32, which make_fixtures.py has made: the folder assistant/
in it, with drafts of transformers, and as the GGUF file that llama.cpp's converter would write. pack.sh then
packs the fixtures again.

    assistant/reference.bin     "LHASST01", then as 32-bit numbers: rows of the text that the drafts follow,
                                drafts, vocabulary; the model's likeliest token after these rows, and the
                                drafted tokens after it; the logits of each draft, as floats
"""
import struct
import sys
from pathlib import Path

import gguf
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, Gemma4AssistantConfig, Gemma4AssistantForCausalLM

TARGET = Path("build/data/models/gemma4-layers-f32")
ROWS, DRAFTS, SEED = 300, 4, 7
OUTSIDE = {"model.embed_tokens.weight": "token_embd", "model.norm.weight": "output_norm",
           "pre_projection.weight": "nextn.pre_projection", "post_projection.weight": "nextn.post_projection"}
IN_LAYER = {"layer_scalar": "layer_output_scale", "self_attn.q_proj.weight": "attn_q",
            "self_attn.q_norm.weight": "attn_q_norm", "self_attn.o_proj.weight": "attn_output",
            "mlp.gate_proj.weight": "ffn_gate", "mlp.up_proj.weight": "ffn_up",
            "mlp.down_proj.weight": "ffn_down",
            "input_layernorm.weight": "attn_norm", "post_attention_layernorm.weight": "post_attention_norm",
            "pre_feedforward_layernorm.weight": "ffn_norm",
            "post_feedforward_layernorm.weight": "post_ffw_norm"}


def drafter(target):
    text = {k: getattr(target.config, k) for k in ("vocab_size", "sliding_window", "rope_parameters",
                                                   "rms_norm_eps", "hidden_activation")}
    config = Gemma4AssistantConfig(backbone_hidden_size=target.config.hidden_size, text_config={
        **text, "model_type": "gemma4_text", "hidden_size": 24, "intermediate_size": 48,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "global_head_dim": 32,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0, "max_position_embeddings": 8192})
    model = Gemma4AssistantForCausalLM(config).eval()
    g = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, p in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith("layer_scalar") or "norm" in name:
                low, high = (0.2, 0.5) if "q_norm" in name else (0.7, 1.3)
                p.copy_(torch.rand(p.shape, generator=g) * (high - low) + low)
            elif p.dim() == 2:
                p.copy_(torch.randn(p.shape, generator=g) * 1.3 / p.shape[1] ** 0.5)
    return model


def write_gguf(path, model, state):
    c = model.config.get_text_config()
    w = gguf.GGUFWriter(path, "gemma4-assistant")
    w.add_type("model")
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_embedding_length_out(model.config.backbone_hidden_size)
    w.add_embedding_length_per_layer_input(0)
    w.add_block_count(c.num_hidden_layers)
    w.add_nextn_predict_layers(c.num_hidden_layers)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv([2] * c.num_hidden_layers)
    w.add_shared_kv_layers(c.num_hidden_layers)
    w.add_key_length(32)
    w.add_value_length(32)
    w.add_key_length_swa(16)
    w.add_value_length_swa(16)
    w.add_sliding_window(c.sliding_window)
    w.add_sliding_window_pattern([t == "sliding_attention" for t in c.layer_types])
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_rope_freq_base(c.rope_parameters["full_attention"]["rope_theta"])
    w.add_rope_freq_base_swa(c.rope_parameters["sliding_attention"]["rope_theta"])
    w.add_tokenizer_model("gemma4")
    w.add_token_list([f"t{i}" for i in range(c.vocab_size)])
    for name, x in state.items():
        _, layer, part = name.partition(".layers.")
        n, _, part = part.partition(".")
        w.add_tensor(f"blk.{n}.{IN_LAYER[part]}.weight" if layer else OUTSIDE[name] + ".weight", x.numpy())
    turns = int(0.5 * 32) // 2
    w.add_tensor("rope_freqs.weight", torch.tensor([1.0] * turns + [1e30] * (16 - turns)).numpy())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    target = AutoModelForCausalLM.from_pretrained(TARGET, dtype=torch.float32).eval()
    reference = (TARGET / "reference.bin").read_bytes()
    ids = torch.tensor(struct.unpack_from(f"<{ROWS}i", reference, 20))
    model, folder = drafter(target), TARGET / "assistant"
    folder.mkdir(exist_ok=True)
    with torch.no_grad():
        seen = target(ids[None], output_hidden_states=True, return_shared_kv_states=True, use_cache=False)
        kv = {k: tuple(x[:, :, -target.config.sliding_window if k == "sliding_attention" else 0:] for x in v)
              for k, v in seen.shared_kv_states.items()}
        h, token, logits = seen.hidden_states[-1][:, -1:], seen.logits[:, -1:].argmax(-1), []
        tokens = [token.item()]
        for _ in range(DRAFTS):
            x = torch.cat([target.get_input_embeddings()(token), h], dim=-1)
            out = model(inputs_embeds=x, position_ids=torch.tensor([[ROWS]]), shared_kv_states=kv,
                        use_cache=False)
            h, token = out.last_hidden_state, out.logits.argmax(-1)
            tokens.append(token.item())
            logits.append(out.logits[0, 0])
    state = {k: v.clone() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    write_gguf(folder / "assistant.gguf", model, state)
    model.config.architectures = ["Gemma4AssistantForCausalLM"]
    model.config.save_pretrained(folder)
    (folder / "reference.bin").write_bytes(
        b"LHASST01" + struct.pack("<III", ROWS, DRAFTS, len(logits[0])) +
        struct.pack(f"<{DRAFTS + 1}i", *tokens) + torch.stack(logits).numpy().astype("<f4").tobytes())
    print(tokens, [round(x.std().item(), 2) for x in logits])


if __name__ == "__main__":
    sys.exit(main())
