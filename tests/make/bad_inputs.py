#!/usr/bin/env python3
"""Writes malformed model files for tests/model/test_safetensors.c and tests/model/test_config.c, into FOLDER.

    bad_inputs.py FOLDER

The letters in the names are the classes of the list of bad inputs: A any file, S safetensors, C
config.json. tests/data/bad_expected.txt, which is kept by hand, has the line of each refusal.
"""
import json, os, struct, sys

ROOT = sys.argv[1]


def write(path, data):
    path = os.path.join(ROOT, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def st(header, data=0, length=None):
    h = header if isinstance(header, bytes) else header.encode() if isinstance(header,
        str) else json.dumps(header).encode()
    return struct.pack("<Q", len(h) if length is None else length) + h + bytes(data)


def entry(dtype="F32", shape=(2,), at=(0, 8), **more):
    return dict(dtype=dtype, shape=list(shape), data_offsets=list(at), **more)


def one(text, data=8):
    """A header with one tensor, whose JSON is `text`."""
    return st('{"a": %s}' % text, data)


def safetensors():
    ok = json.dumps(entry())
    c = {
        "a2_empty": b"", "a3_seven_bytes": b"\x10\0\0\0\0\0\0", "a3_header_cut": st({"a": entry()}, 8)[:40],
         "a3_data_cut": st({"a": entry()}, 7),
        "a4_gguf": b"GGUF\x03\0\0\0" + bytes(64), "a4_zip": b"PK\x03\x04\x14\0\0\0" + bytes(64),
        "a4_lfs_pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4\n",
         "a6_tail": st({"a": entry()}, 9),
        "s1_length_0": st("", 0), "s1_length_1": st(" ", 8), "s1_length_2p63": st("{}", 0, 1 << 63),
         "s1_length_2p64m1": st("{}", 0, (1 << 64) - 1),
        "s1_length_above_max": st("{}", 0, 100000001), "s1_length_above_file": st("{}", 0, 3),
        "s2_not_utf8": st(b'{"a\xff": ' + ok.encode() + b"}", 8),
         "s2_overlong": st(b'{"a\xc0\xaf": ' + ok.encode() + b"}", 8),
        "s2_nul": st(b'{"a": ' + ok.encode() + b"}\0\0", 8),
         "s2_bom": st(b'\xef\xbb\xbf{"a": ' + ok.encode() + b"}", 8),
        "s2_escaped_nul": st('{"a\\u0000": %s}' % ok, 8), "s2_lone_surrogate": st('{"\\ud800": %s}' % ok, 8),
        "s3_array": st("[1, 2]"), "s3_string": st('"abc"'), "s3_number": st("12"),
         "s3_trailing": st('{"a": %s} x' % ok, 8),
        "s3_two_objects": st('{"a": %s}{}' % ok, 8), "s3_truncated_json": st('{"a": %s' % ok, 8),
         "s3_trailing_comma": st('{"a": %s,}' % ok, 8),
        "s3_single_quotes": st("{'a': 1}"), "s4_nested": st('{"a": ' + "[" * 100 + "]" * 100 + "}"),
        "s5_name_twice": st('{"a": %s, "a": %s}' % (ok, json.dumps(entry(at=(8, 16)))), 16),
        "s5_name_twice_escaped": st('{"a": %s, "\\u0061": %s}' % (ok, json.dumps(entry(at=(8, 16)))), 16),
        "s5_dtype_twice": one('{"dtype": "F32", "dtype": "F32", "shape": [2], "data_offsets": [0, 8]}'),
        "s5_shape_twice": one('{"dtype": "F32", "shape": [2], "shape": [2], "data_offsets": [0, 8]}'),
        "s5_metadata_twice": st('{"__metadata__": {}, "a": %s, "__metadata__": {}}' % ok, 8),
        "s6_unknown": st({"a": entry("F128")}, 8), "s6_lower_case": st({"a": entry("f32")}, 8),
         "s6_number": one('{"dtype": 5, "shape": [2], "data_offsets": [0, 8]}'),
        "s7_string": one('{"dtype": "F32", "shape": "2", "data_offsets": [0, 8]}'),
         "s7_number": one('{"dtype": "F32", "shape": 2, "data_offsets": [0, 8]}'),
        "s7_nine_dims": st({"a": entry(shape=[1] * 8 + [2])}, 8),
         "s7_negative": st({"a": entry(shape=[-2])}, 8), "s7_float": st({"a": entry(shape=[2.0])}, 8),
        "s7_1e30": one('{"dtype": "F32", "shape": [1e30], "data_offsets": [0, 8]}'),
         "s7_2p64": st({"a": entry(shape=[1 << 64])}, 8),
        "s7_null": st({"a": entry(shape=[None])}, 8),
         "s8_2p32_2p32": st({"a": entry(shape=[1 << 32, 1 << 32], at=(0, 0))}),
        "s8_2_2p64m2": st({"a": entry(shape=[2, (1 << 64) - 2], at=(0, 0))}),
         "s8_2_2p63m1": st({"a": entry(shape=[2, (1 << 63) - 1], at=(0, 0))}),
        "s8_0_2p64m1": st({"a": entry(shape=[0, (1 << 64) - 1], at=(0, 0))}),
         "s8_bytes": st({"a": entry(shape=[1 << 62], at=(0, 0))}),
        "s9_begin_after_end": st({"a": entry(at=(8, 0))}, 8), "s9_negative": st({"a": entry(at=(-8, 0))}, 8),
         "s9_float": st({"a": entry(at=(0, 8.0))}, 8),
        "s9_three": st({"a": entry(at=(0, 8, 8))}, 8), "s9_one": st({"a": entry(at=(8,))}, 8),
         "s9_string": one('{"dtype": "F32", "shape": [2], "data_offsets": "0, 8"}'),
        "s9_2p64": st({"a": entry(at=(0, 1 << 64))}, 8),
         "s9_beyond_file": st({"a": entry(shape=[4], at=(0, 16))}, 8),
        "s10_too_small": st({"a": entry(at=(0, 7))}, 7), "s10_too_large": st({"a": entry(at=(0, 9))}, 9),
         "s10_part_of_a_byte": st({"a": entry("F4", [3], (0, 1))}, 1),
        "s11_overlap": st({"a": entry(), "b": entry(at=(4, 12))}, 12),
         "s11_same_bytes": st({"a": entry(), "b": entry()}, 8),
        "s11_hole": st({"a": entry(), "b": entry(at=(12, 20))}, 20),
         "s11_begins_late": st({"a": entry(at=(4, 12))}, 12),
        "s11_data_without_tensors": st("{}", 4), "s12_long_name": st({"n" * 4097: entry()}, 8),
         "s12_empty_name": st({"": entry()}, 8),
        "s12_control": st({"a\x1bb": entry()}, 8), "s12_delete": st({"a\x7fb": entry()}, 8),
         "s14_number": st({"__metadata__": {"format": 1}, "a": entry()}, 8),
        "s14_object": st({"__metadata__": {"format": {}}, "a": entry()}, 8),
         "s14_list": st({"__metadata__": [], "a": entry()}, 8),
        "entry_null": one("null"), "entry_list": one("[]"), "entry_empty": one("{}"),
         "no_dtype": one('{"shape": [2], "data_offsets": [0, 8]}'),
        "no_shape": one('{"dtype": "F32", "data_offsets": [0, 8]}'),
         "no_offsets": one('{"dtype": "F32", "shape": [2]}'),
        "unknown_key": st({"a": entry(strides=[1])}, 8),
    }
    x = "model.layers.0.mlp.experts."
    blocks, scales = entry("U8", [2, 4, 1, 16], (0, 128)), entry("U8", [2, 4, 1], (128, 136))

    def dealt(**change):
        both = {"gate_up_proj_blocks": blocks, "gate_up_proj_scales": scales, **change}
        both = {x + k: v for k, v in both.items() if v}
        return st(both, max(v["data_offsets"][1] for v in both.values()))
    c.update({
        "m1_no_scales": dealt(gate_up_proj_scales=None, bias=entry(at=(128, 136))),
        "m1_scales_of_fewer_rows": dealt(gate_up_proj_scales=entry("U8", [2, 3, 1], (128, 134))),
        "m1_scales_are_floats": dealt(gate_up_proj_scales=entry("BF16", [2, 4, 1], (128, 144))),
        "m1_odd_rows": dealt(gate_up_proj_blocks=entry("U8", [2, 1, 4, 16], (0, 128))),
        "m1_blocks_of_8": dealt(gate_up_proj_blocks=entry("U8", [2, 4, 2, 8], (0, 128))),
        "m1_blocks_are_i8": dealt(gate_up_proj_blocks=entry("I8", [2, 4, 1, 16], (0, 128))),
        "m1_blocks_of_3_dimensions": dealt(gate_up_proj_blocks=entry("U8", [2, 4, 16], (0, 128))),
        "m1_bias_is_u8": dealt(gate_up_proj_bias=entry("U8", [2, 4], (136, 144))),
        "m1_bias_of_odd_rows": dealt(gate_up_proj_bias=entry("F32", [2, 3], (136, 160))),
        "m1_experts_twice": dealt(**{"0.gate_proj.weight": entry("F32", [2], (136, 144))}),
        "m1_no_experts": dealt(gate_up_proj_bias=entry("F32", [0, 4], (136, 136))),
    })
    for name, data in c.items():
        write("safetensors/%s.safetensors" % name, data)


def index():
    a, b = st({"a": entry()}, 8), st({"b": entry(shape=[3], at=(0, 12))}, 12)
    x, y = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    good = {"metadata": {"total_size": 20}, "weight_map": {"a": x, "b": y}}

    def case(name, idx, shards=((x, a), (y, b))):
        write("index/%s/model.safetensors.index.json" % name, idx if isinstance(idx, (str, bytes))
              else json.dumps(idx))
        for file, data in shards:
            write("index/%s/%s" % (name, file), data)

    def names(v):
        return {"weight_map": {"a": v, "b": y}}

    case("a2_empty", "")
    case("a3_cut", json.dumps(good)[:-1])
    case("a7_slash", names("sub/" + x))
    case("a7_absolute", names("/etc/" + x))
    case("a7_dotdot", names("..safetensors"))
    case("a7_parent", names("../" + x))
    case("a7_extension", names("model.bin"))
    case("a7_empty_name", names(""))
    case("a7_only_extension", names(".safetensors"))
    case("a7_long_name", names("m" * 250 + ".safetensors"))
    case("a8_number", names(7))
    case("a8_shard_missing", good, [(x, a)])
    case("a8_shard_bad", good, [(x, a), (y, b[:-1])])
    case("a8_shard_is_folder", good, [(x, a), (y + "/keep", b"")])
    case("a8_in_two_shards", good, [(x, a), (y, st({"a": entry(), "b": entry(shape=[3], at=(8, 20))}, 20))])
    case("a8_named_twice", '{"weight_map": {"a": "%s", "b": "%s", "a": "%s"}}' % (x, y, x))
    case("a8_not_in_shard", {"weight_map": {"a": x, "b": y, "c": y}})
    case("a8_in_the_other_shard", {"weight_map": {"a": y, "b": x}})
    case("a8_not_in_index", {"weight_map": {"a": x, "b": y}},
         [(x, a), (y, st({"b": entry(), "c": entry(at=(8, 16))}, 16))])
    case("a8_total_size", {"metadata": {"total_size": 21}, "weight_map": good["weight_map"]})
    case("a8_total_size_text", {"metadata": {"total_size": "20"}, "weight_map": good["weight_map"]})
    case("a8_metadata_list", {"metadata": [], "weight_map": good["weight_map"]})
    case("map_missing", {"metadata": {"total_size": 20}})
    case("map_list", {"weight_map": [x, y]})
    case("map_empty", {"weight_map": {}})
    case("map_twice", '{"weight_map": {}, "weight_map": {"a": "%s"}}' % x)
    case("not_object", "[]")


SMALL = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2,
         "vocab_size": 100, "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2}


def config_text(c):
    """JSON, where a string that begins with = is inserted verbatim."""
    return "{" + ", ".join("%s: %s" % (json.dumps(k), v[1:] if isinstance(v, str) and v[:1] == "="
                                       else json.dumps(v)) for k, v in c.items()) + "}\n"


def config():
    def case(name, base=SMALL, **change):
        c = dict(base)
        for k, v in change.items():
            c.pop(k)if v == "=" else c.update({k: v})
        write("config/%s.json" % name, config_text(c))

    def generation(name, text):
        write("config/%s.generation.json" % name, text if isinstance(text, str) else json.dumps(text))

    qwen = dict(SMALL, model_type="qwen2", use_sliding_window=True, sliding_window=16, max_window_layers=1)
    mistral = dict(SMALL, model_type="mistral", sliding_window=16)
    values = {"0": 0, "minus_1": -1, "2p31": 1 << 31, "2p53": (1 << 53) + 1, "2p64": 1 << 64, "float": 2.0,
              "exponent": "=1e1", "string": "2", "null": None,
              "true": True, "list": [2]}
    keys = {"hidden_size": SMALL, "intermediate_size": SMALL, "num_hidden_layers": SMALL,
            "num_attention_heads": SMALL, "num_key_value_heads": SMALL,
            "vocab_size": SMALL, "max_position_embeddings": SMALL, "head_dim": SMALL,
            "sliding_window": mistral, "max_window_layers": qwen}
    for key, base in keys.items():
        for name, v in values.items():
            if (name == "null" and key in ("num_key_value_heads", "head_dim",
                                           "sliding_window")) or (name == "0" and key == "max_window_layers"):
                continue
            case("c1_%s_%s" % (key, name), base, **{key: v})
    case("c1_qwen3_head_dim_null", dict(SMALL, model_type="qwen3"), head_dim=None)
    case("c2_hidden_by_heads", hidden_size=62)
    case("c2_hidden_by_heads_head_dim", hidden_size=62, head_dim=16)
    case("c2_heads_by_kv_heads", num_key_value_heads=3)
    case("c2_kv_heads_above_heads", num_key_value_heads=8)
    case("c2_head_dim_odd", head_dim=15)
    case("c2_head_dim_odd_derived", hidden_size=60)
    case("c2_head_dim_514", head_dim=514)
    case("c2_head_dim_1026", head_dim=1026)
    case("c2_head_dim_derived_1024", hidden_size=4096)
    case("c3_layers_1025", num_hidden_layers=1025)
    for name, v in {"0": 0, "minus": -1e-5, "1e38": "=1e38", "nan": "=NaN", "string": "1e-5",
                    "1e400": "=1e400", "tiny": "=1e-40"}.items():
        case("c5_eps_" + name, rms_norm_eps=v)
    for name, v in {"0": 0, "minus": -10000, "nan": "=NaN", "infinity": "=Infinity", "1e400": "=1e400",
                    "string": "10000", "digits": "=1" + "0" * 70}.items():
        case("c5_theta_" + name, rope_theta=v)
    linear = {"type": "linear", "factor": 2.0}
    for name, v in {"0": 0, "minus": -2.0, "half": 0.5, "string": "2", "null": None, "1e7": 1e7}.items():
        case("c5_factor_" + name, rope_scaling=dict(linear, factor=v))
    case("c5_factor_missing", rope_scaling={"type": "linear"})
    case("c5_context_too_long", max_position_embeddings=1 << 20, rope_scaling=dict(linear, factor=2000))
    case("c5_theta_in_parameters", rope_parameters={"rope_type": "default", "rope_theta": 0})
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 128}
    case("c5_llama3_low_missing", rope_scaling={k: v for k, v in llama3.items() if k != "low_freq_factor"})
    case("c5_llama3_low_is_high", rope_scaling=dict(llama3, low_freq_factor=4.0))
    case("c5_llama3_original_0", rope_scaling=dict(llama3, original_max_position_embeddings=0))
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    case("c5_yarn_factor_missing", rope_scaling={"rope_type": "yarn"})
    case("c5_yarn_factor_null_shrinks", rope_scaling=dict(yarn, factor=None,
                                                          original_max_position_embeddings=1024))
    case("c5_yarn_theta_1", rope_theta=1, rope_scaling=yarn)
    case("c5_yarn_truncate", rope_scaling=dict(yarn, truncate=None))
    case("c5_yarn_attention_factor", rope_scaling=dict(yarn, attention_factor=0))
    case("c5_yarn_beta", rope_scaling=dict(yarn, beta_fast=-1))
    case("c5_yarn_original_float", rope_scaling=dict(yarn, original_max_position_embeddings=128.0))
    case("c5_dynamic_head_dim_2", head_dim=2, rope_scaling={"type": "dynamic", "factor": 2.0})
    for key in ("eos", "bos"):
        for name, v in {"vocab": 100, "minus_1": -1, "float": 1.0, "string": "2", "true": True,
                        "2p64": 1 << 64}.items():
            case("c6_%s_%s" % (key, name), **{key + "_token_id": v})
    case("c6_bos_list", bos_token_id=[1])
    case("c6_eos_empty", eos_token_id=[])
    case("c6_eos_65", eos_token_id=list(range(65)))
    case("c6_eos_65_same", eos_token_id=[2] * 65)
    case("c6_eos_list_vocab", eos_token_id=[2, 100])
    case("c6_eos_nested", eos_token_id=[[2]])
    case("c6_eos_object", eos_token_id={})
    case("c7_model_type", model_type="gpt2")
    case("c7_model_type_number", model_type=1)
    case("c7_architecture", model_type="=", architectures=["GemmaForCausalLM"])
    case("c7_other_head", architectures=["LlamaForSequenceClassification"])
    case("c7_disagree", architectures=["MistralForCausalLM"])
    case("c7_architectures_string", architectures="LlamaForCausalLM")
    case("c7_nothing_says", model_type="=")
    case("c7_nothing_says_empty", model_type="=", architectures=[])
    case("c7_activation", hidden_act="gelu")
    case("c7_activation_null", hidden_act=None)
    for kind in ("longrope", "su", "mrope", "ntk", "proportional", 3):
        case("c7_rope_%s" % kind, rope_scaling={"type": kind, "factor": 2.0})
    case("c7_rope_type_null", rope_scaling={"rope_type": None, "factor": 2.0})
    case("c7_rope_key", rope_scaling=dict(linear, alpha=1000.0))
    case("c7_rope_list", rope_scaling=[1])
    case("c7_rope_per_layer", rope_parameters={"full_attention": {"rope_type": "default"}})
    case("c7_rope_partial", rope_parameters={"rope_type": "default", "partial_rotary_factor": 0.5})
    case("c7_partial_rotary_factor", partial_rotary_factor=0.25)
    case("c7_quantization", quantization_config={"quant_method": "gptq", "bits": 4})
    case("c7_softcap", attn_logit_softcapping=50.0)
    case("c7_experts", num_local_experts=8)
    case("c7_embedding_multiplier", embedding_multiplier=12.0)
    case("c7_not_causal", is_causal=False)
    case("c7_mistral_bias", mistral, attention_bias=True)
    case("c7_qwen_mlp_bias", qwen, mlp_bias=True)
    case("c7_bias_string", attention_bias="yes")
    case("c7_tied_number", tie_word_embeddings=1)
    case("c7_llama_window", sliding_window=16)
    case("c7_llama_layer_types", layer_types=["sliding_attention"] * 2)
    case("c7_mistral_layer_types", mistral, layer_types=["sliding_attention", "full_attention"])
    case("c7_layer_types_short", qwen, layer_types=["sliding_attention"])
    case("c7_layer_types_long", qwen, layer_types=["sliding_attention"] * 3)
    case("c7_layer_types_unknown", qwen, layer_types=["chunked_attention"] * 2)
    case("c7_layer_types_string", qwen, layer_types="full_attention")
    case("c7_layer_types_no_window", qwen, use_sliding_window=False, layer_types=["sliding_attention"] * 2)
    moe = dict(SMALL, model_type="qwen3_moe", num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32)
    mixtral = dict(SMALL, model_type="mixtral", num_local_experts=8, num_experts_per_tok=2)
    for key in ("num_experts", "num_experts_per_tok", "moe_intermediate_size"):
        for name in ("0", "2p31", "float", "null", "string"):
            case("c11_%s_%s" % (key, name), moe, **{key: values[name]})
    case("c11_experts_1025", moe, num_experts=1025)
    case("c11_used_above", moe, num_experts_per_tok=9)
    case("c11_mixtral_used_above", mixtral, num_experts_per_tok=9)
    case("c11_mixtral_experts_null", mixtral, num_local_experts=None)
    case("c11_mixtral_wide", mixtral, intermediate_size=(1 << 20) + 1)
    case("c11_norm_topk", moe, norm_topk_prob=1)
    case("c11_sparse_step_0", moe, decoder_sparse_step=0)
    case("c11_mlp_only_number", moe, mlp_only_layers=1)
    case("c11_mlp_only_minus", moe, mlp_only_layers=[0, -1])
    case("c11_shared_expert", moe, shared_expert_intermediate_size=64)
    case("c11_qwen3_experts", dict(SMALL, model_type="qwen3"), num_experts=8)
    case("c11_layer_types", moe, use_sliding_window=True, sliding_window=16,
         layer_types=["sliding_attention", "full_attention"])
    case("c11_architecture", moe, architectures=["MixtralForCausalLM"])
    qwen2_moe = dict(moe, model_type="qwen2_moe", shared_expert_intermediate_size=48)
    states = dict(SMALL, model_type="qwen3_5_text", head_dim=16, linear_num_key_heads=2,
                  linear_num_value_heads=4, linear_key_head_dim=12, linear_value_head_dim=20,
                  layer_types=["linear_attention", "full_attention"])
    for key in ("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
                "linear_value_head_dim", "linear_conv_kernel_dim"):
        for name in ("0", "2p31", "float", "null", "string"):
            case("c12_%s_%s" % (key, name), states, **{key: values[name]})
    case("c12_heads", states, linear_num_value_heads=5)
    case("c12_conv_1", states, linear_conv_kernel_dim=1)
    case("c12_gate_off", states, attn_output_gate=False)
    case("c12_gate_number", states, attn_output_gate=1)
    case("c12_gate_type", states, output_gate_type="sigmoid")
    case("c12_state_type", states, mamba_ssm_dtype="bfloat16")
    case("c12_layer_type", states, layer_types=["linear_attention", "mamba"])
    case("c12_layer_types_sliding", states, layer_types=["linear_attention", "sliding_attention"])
    case("c12_layer_types_short", states, layer_types=["linear_attention"])
    case("c12_layer_types_string", states, layer_types="linear_attention")
    case("c12_no_attention", states, layer_types=["linear_attention"] * 2)
    case("c12_interval_0", states, layer_types="=null", full_attention_interval=0)
    case("c12_interval_above", states, layer_types="=null", full_attention_interval=3)
    case("c12_rotary_odd", states, partial_rotary_factor=0.2)
    case("c12_rotary_above", states, partial_rotary_factor=1.5)
    case("c12_rotary_0", states, rope_parameters={"rope_type": "default", "partial_rotary_factor": 0})
    case("c12_rope_key", states, rope_parameters={"rope_type": "default", "mrope_scale": 2})
    case("c12_text_config", {"model_type": "qwen3_5", "text_config": 3})
    case("c12_text_type", {"model_type": "qwen3_5", "text_config": dict(states, model_type="qwen3")})
    case("c12_other_wrapper", {"model_type": "gemma5", "text_config": states})
    case("c12_shared_0", qwen2_moe, shared_expert_intermediate_size=0)
    case("c12_shared_wide", qwen2_moe, shared_expert_intermediate_size=(1 << 20) + 1)
    case("c12_shared_string", qwen2_moe, shared_expert_intermediate_size="48")
    case("c12_window_null", qwen2_moe, use_sliding_window=True, sliding_window=None,
         layer_types=["sliding_attention", "full_attention"])
    case("c12_experts_of_states", dict(states, model_type="qwen3_5_moe_text"), num_experts=4,
         num_experts_per_tok=5)
    gemma = dict(SMALL, model_type="gemma3_text", head_dim=16, sliding_window=16)
    for key in ("sliding_window", "sliding_window_pattern", "query_pre_attn_scalar", "rope_local_base_freq"):
        for name in ["0", "minus_1", "2p31", "string", "list", "true"] + ["null"] * (key == "sliding_window"):
            if name != "2p31" or key.startswith("sliding"):
                case("c13_%s_%s" % (key, name), gemma, **{key: values[name]})
    case("c13_scalar_huge", gemma, query_pre_attn_scalar="=1e40")
    case("c13_local_huge", gemma, rope_local_base_freq="=1e400")
    case("c13_activation", gemma, hidden_activation="silu")
    case("c13_activation_null", gemma, hidden_activation=None)
    case("c13_softcap", gemma, final_logit_softcapping=30.0)
    case("c13_both_ways", gemma, use_bidirectional_attention=True)
    case("c13_hidden_by_heads", gemma, hidden_size=62)
    case("c13_layer_types_short", gemma, layer_types=["sliding_attention"])
    case("c13_layer_types_linear", gemma, layer_types=["sliding_attention", "linear_attention"])
    case("c13_layer_types_disagree", gemma, sliding_window_pattern=2, layer_types=["full_attention"] * 2)
    case("c13_rope_flat", gemma, rope_parameters={"rope_type": "linear", "factor": 8.0})
    case("c13_rope_list", gemma, rope_parameters=[1])
    case("c13_rope_full_list", gemma, rope_parameters={"full_attention": [1]})
    case("c13_rope_full_key", gemma, rope_parameters={"full_attention": {"rope_type": "linear"}})
    case("c13_rope_sliding_list", gemma, rope_parameters={"sliding_attention": [1]})
    case("c13_rope_sliding_scaled", gemma,
         rope_parameters={"sliding_attention": {"rope_type": "linear", "factor": 8.0}})
    case("c13_rope_sliding_factor", gemma, rope_parameters={"sliding_attention": {"factor": 8.0}})
    case("c13_rope_sliding_theta", gemma, rope_parameters={"sliding_attention": {"rope_theta": 0}})
    case("c13_rope_other_kind", gemma, rope_parameters={"chunked_attention": {"rope_theta": 1.0}})
    gemma4 = dict(SMALL, model_type="gemma4_text", head_dim=16, sliding_window=16, global_head_dim=32,
                  hidden_size_per_layer_input=0)
    moe = dict(gemma4, enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=8)
    for key in ("sliding_window", "global_head_dim", "num_global_key_value_heads", "num_kv_shared_layers",
                "hidden_size_per_layer_input", "final_logit_softcapping"):
        for name in ["minus_1", "2p31", "string", "list", "true"]:
            if name != "2p31" or key != "final_logit_softcapping":
                case("c17_%s_%s" % (key, name), gemma4, **{key: values[name]})
    for key in ("num_experts", "top_k_experts", "moe_intermediate_size"):
        for name in ["0", "minus_1", "2p31", "string", "null"]:
            case("c17_%s_%s" % (key, name), moe, **{key: values[name]})
    for key in ("attention_k_eq_v", "enable_moe_block", "use_double_wide_mlp"):
        case("c17_%s_number" % key, gemma4, **{key: 1})
    case("c17_more_than_all", moe, top_k_experts=5)
    case("c17_head_dim_17", gemma4, head_dim=18)
    case("c17_global_head_dim_40", gemma4, global_head_dim=40)
    case("c17_global_heads_3", gemma4, attention_k_eq_v=True, num_global_key_value_heads=3)
    case("c17_shared", gemma4, num_kv_shared_layers=1)
    case("c17_shared_all", gemma4, num_kv_shared_layers=2)
    alike = dict(gemma4, layer_types=["full_attention"] * 2, num_kv_shared_layers=1)
    case("c17_shared_alike", alike)
    case("c17_shared_heads", alike, per_layer_config={"1": {"num_key_value_heads": 1}})
    embeds = dict(gemma4, hidden_size_per_layer_input=8)
    case("c17_embeddings", embeds)
    for name in ["0", "minus_1", "2p31", "string", "list", "null"]:
        case("c17_embedding_rows_%s" % name, embeds, vocab_size_per_layer_input=values[name])
    case("c17_embedding_rows_few", embeds, vocab_size_per_layer_input=2)
    case("c17_embeddings_missing", {k: v for k, v in gemma4.items() if "per_layer" not in k})
    case("c17_both_ways", gemma4, use_bidirectional_attention="all")
    case("c17_activation", gemma4, hidden_activation="silu")
    case("c17_bias", gemma4, attention_bias=True)
    case("c17_softcap_huge", gemma4, final_logit_softcapping="=1e40")
    case("c17_layer_types_short", gemma4, layer_types=["sliding_attention"])
    case("c17_each_list", gemma4, per_layer_config=[1])
    case("c17_each_empty", gemma4, per_layer_config={})
    case("c17_each_windowed", gemma4, per_layer_config={"0": {"head_dim": 32}})
    case("c17_each_name", gemma4, per_layer_config={"x": {"head_dim": 32}})
    case("c17_each_beyond", gemma4, per_layer_config={"2": {"head_dim": 32}})
    case("c17_each_number", gemma4, per_layer_config={"1": 32})
    case("c17_each_key", gemma4, per_layer_config={"1": {"sliding_window": 32}})
    case("c17_each_string", gemma4, per_layer_config={"1": {"head_dim": "32"}})
    case("c17_each_differs", gemma4, layer_types=["full_attention"] * 2,
         per_layer_config={"0": {"head_dim": 32}, "1": {"head_dim": 48}})
    for name, full in [("type", {"rope_type": "default"}), ("part", {"rope_type": "proportional",
                       "partial_rotary_factor": 2}), ("list", [1]), ("key", {"rope_type": "proportional",
                       "short_factor": 1})]:
        case("c17_rope_%s" % name, gemma4, rope_parameters={"full_attention": full})
    case("c19_windows_too_wide", model_type="mistral", num_hidden_layers=512, num_attention_heads=65536,
         num_key_value_heads=65536, head_dim=512, sliding_window=64)
    granite = dict(SMALL, model_type="granite")
    hybrid = dict(granite, model_type="granitemoehybrid", num_local_experts=0, position_embedding_type="rope",
                  layer_types=["attention"] * 2, shared_intermediate_size=8)
    case("c19_granite", granite)
    case("c19_hybrid", hybrid)
    for key in ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"):
        for name in ["0", "minus_1", "string", "list"]:
            case("c19_%s_%s" % (key, name), granite, **{key: values[name]})
        case("c19_%s_huge" % key, granite, **{key: "=1e40"})
    for key in ("num_local_experts", "position_embedding_type", "layer_types"):
        case("c19_no_%s" % key, {k: v for k, v in hybrid.items() if k != key})
        for name in ["2p31", "string", "list"]:
            case("c19_%s_%s" % (key, name), hybrid, **{key: values[name]})
    case("c19_mamba", hybrid, layer_types=["attention", "mamba"])
    case("c19_layer_types_short", hybrid, layer_types=["attention"])
    case("c19_experts", hybrid, num_local_experts=8)
    case("c19_width_0", hybrid, shared_intermediate_size=0)
    case("c19_llama", embedding_multiplier=2.0)
    olmo3 = dict(SMALL, model_type="olmo3")
    case("c18_olmo3", olmo3)
    for name in ["0", "minus_1", "2p31", "string", "list", "null"]:
        case("c18_window_%s" % name, olmo3, sliding_window=values[name])
    case("c18_head_dim_20", olmo3, head_dim=20)
    case("c18_layer_types_short", olmo3, layer_types=["full_attention"])
    case("c18_layer_types_linear", olmo3, layer_types=["full_attention", "linear_attention"])
    case("c18_bias", olmo3, attention_bias=True)
    case("c18_rope_flat", olmo3, rope_parameters={"rope_type": "yarn", "factor": 8.0})
    case("c18_rope_sliding", olmo3, rope_parameters={"sliding_attention": {"rope_type": "yarn"}})
    case("c18_rope_full", olmo3, rope_parameters={"full_attention": {"rope_type": "yarn"}})
    case("c18_rope_attention_factor", olmo3, rope_scaling={"rope_type": "yarn", "factor": 8.0,
                                                           "attention_factor": 0})
    case("c18_local_theta", olmo3, rope_local_base_freq=10000.0)
    exaone4 = dict(SMALL, model_type="exaone4")
    for name in ["0", "minus_1", "2p31", "string", "list", "true", "null"]:
        case("c20_window_%s" % name, exaone4, sliding_window=values[name])
        case("c20_pattern_%s" % name, exaone4, sliding_window_pattern=values[name])
    for name, letters in [("none", ""), ("small", "lllg"), ("long", "L" * 513), ("longest", "L" * 512),
                          ("control", "L\nG")]:
        case("c20_letters_%s" % name, exaone4, sliding_window_pattern=letters)
    case("c20_layer_types_short", exaone4, layer_types=["full_attention"])
    case("c20_layer_types_linear", exaone4, layer_types=["full_attention", "linear_attention"])
    case("c20_layer_types_without_window", exaone4, sliding_window=None,
         layer_types=["full_attention", "sliding_attention"])
    case("c20_bias", exaone4, attention_bias=True)
    case("c20_local_theta", exaone4, rope_local_base_freq=10000.0)
    case("c20_rope_of_layers", exaone4, rope_parameters={"full_attention": {"rope_theta": 10000.0}})
    case("c20_longrope", exaone4, rope_scaling={"rope_type": "longrope", "factor": 4.0})
    case("c13_text_type", {"model_type": "gemma3", "text_config": dict(gemma, model_type="llama")})
    case("c13_llama_scalar", query_pre_attn_scalar=256)
    smollm3 = dict(SMALL, model_type="smollm3")
    for name in ["0", "minus_1", "2p31", "string", "list", "null"]:
        case("c14_interval_%s" % name, smollm3, no_rope_layer_interval=values[name])
    case("c14_layers_number", smollm3, no_rope_layers=4)
    case("c14_layers_two", smollm3, no_rope_layers=[1, 2])
    case("c14_layers_short", smollm3, no_rope_layers=[1])
    case("c14_layers_true", smollm3, no_rope_layers=[True, False])
    case("c14_layer_types_disagree", smollm3, use_sliding_window=True, sliding_window=16,
         no_rope_layers=[1, 0], layer_types=["sliding_attention", "full_attention"])
    case("c14_window_without_switch", smollm3, sliding_window=16, no_rope_layers=[1, 0],
         layer_types=["full_attention", "sliding_attention"])
    case("c14_llama_without_rope", no_rope_layers=[1, 0])
    phi3, half = dict(SMALL, model_type="phi3"), SMALL["hidden_size"] // SMALL["num_attention_heads"] // 2
    scaling = {"type": "longrope", "long_factor": [2.0] * half, "short_factor": [1.0] * half}
    case("c15_longrope", phi3, rope_scaling=scaling)
    for key in ["long_factor", "short_factor"]:
        lists = {"missing": None, "number": 2, "empty": [], "string": ["1"] * half,
                 "short": [1.0] * (half - 1), "long": [1.0] * (half + 1), "zero": [0] + [1.0] * (half - 1),
                 "huge": [1e30] + [1.0] * (half - 1)}
        for name, value in lists.items():
            changed = {k: v for k, v in {**scaling, key: value}.items() if v is not None}
            case("c15_%s_%s" % (key, name), phi3, rope_scaling=changed)
    for name in ["0", "minus_1", "2p31", "string", "list"]:
        case("c15_original_%s" % name, phi3, rope_scaling=scaling,
             original_max_position_embeddings=values[name])
    case("c15_original_1", phi3, rope_scaling=scaling, original_max_position_embeddings=1)
    case("c15_factor_string", phi3, rope_scaling=dict(scaling, factor="4"))
    case("c15_attention_factor_0", phi3, rope_scaling=dict(scaling, attention_factor=0))
    case("c15_linear", phi3, rope_scaling={"type": "linear", "factor": 2.0})
    for name, value in {"0": 0, "above_1": 1.5, "odd": 1.6 / half, "string": "0.5"}.items():
        case("c15_partial_%s" % name, phi3, partial_rotary_factor=value)
    oss = dict(SMALL, model_type="gpt_oss", head_dim=16, num_local_experts=4, num_experts_per_tok=2,
               rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64})
    case("c16_oss", oss)
    for key in ["sliding_window", "num_local_experts", "num_experts_per_tok", "swiglu_limit", "swiglu_alpha"]:
        for name in ["0", "minus_1", "2p31", "string", "list"]:
            case("c16_%s_%s" % (key, name), oss, **{key: values[name]})
    case("c16_more_used", oss, num_experts_per_tok=5)
    case("c16_layer_types_short", oss, layer_types=["full_attention"])
    case("c16_gptq", oss, quantization_config={"quant_method": "gptq"})
    case("c16_quantization_list", oss, quantization_config=["mxfp4"])
    case("c16_llama_mxfp4", quantization_config={"quant_method": "mxfp4"})
    case("c15_llama_lists", rope_scaling=dict(scaling, type="linear", factor=2.0))
    write("config/key_twice.json", config_text(SMALL).replace('"vocab_size": 100',
        '"vocab_size": 100, "vocab\\u005fsize": 100'))
    twice = '={"type": "linear", "factor": 2, "factor": 3}'
    write("config/rope_key_twice.json", config_text(dict(SMALL, rope_scaling=twice)))
    write("config/a2_empty.json", "")
    write("config/a2_space.json", " \n")
    write("config/a3_cut.json", config_text(SMALL)[:-2])
    write("config/a6_more.json", config_text(SMALL) + "{}")
    write("config/s2_bom.json", b"\xef\xbb\xbf" + config_text(SMALL).encode())
    write("config/s2_nul.json", config_text(SMALL).encode() + b"\0")
    write("config/s2_latin1.json", config_text(SMALL).encode().replace(b"llama", b"ll\xe4ma"))
    write("config/s3_array.json", "[]")
    write("config/s3_number.json", "1")
    write("config/s4_nested.json", config_text(dict(SMALL, x="=" + "[" * 64 + "]" * 64)))
    write("config/comment.json", "// llama\n" + config_text(SMALL))
    write("config/leading_zero.json", config_text(dict(SMALL, vocab_size="=0100")))
    write("config/plus.json", config_text(dict(SMALL, vocab_size="=+100")))
    write("config/hex.json", config_text(dict(SMALL, vocab_size="=0x64")))
    write("config/escape.json", config_text(dict(SMALL, x='="\\x41"')))
    write("config/newline_in_string.json", config_text(dict(SMALL, x='="a\nb"')))
    for name, v in {"eos_vocab": {"eos_token_id": [2, 100]}, "eos_minus_1": {"eos_token_id": -1},
                    "eos_empty": {"eos_token_id": []},
                    "eos_union": {"eos_token_id": list(range(3, 67))},
                    "bos_vocab": {"bos_token_id": 100}}.items():
        generation("c6_" + name, v)
    for name, v in {"temperature_minus": {"temperature": -0.1}, "temperature_string": {"temperature": "hot"},
                    "temperature_1e400": '{"temperature": 1e400}',
                    "temperature_nan": '{"temperature": NaN}', "top_p_above_1": {"top_p": 1.5},
                    "min_p_minus": {"min_p": -0.1}, "eta_above_1": {"eta_cutoff": 2},
                    "penalty_0": {"repetition_penalty": 0}, "top_k_minus": {"top_k": -1},
                    "top_k_float": {"top_k": 50.5}, "do_sample_string": {"do_sample": "yes"},
                    "twice": '{"top_k": 5, "top_k": 6}', "not_object": "[]", "empty": ""}.items():
        generation(name, v)


safetensors()
index()
config()
