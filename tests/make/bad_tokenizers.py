#!/usr/bin/env python3
"""Writes malformed tokenizer.json files for tests/text/test_tokenizer.c, into FOLDER.

    bad_tokenizers.py FOLDER

Each file is a small valid file with one defect. t1 .. t10 in the names are the classes of the list of bad
inputs: ids, tokens, merges, added tokens, patterns, templates, unknown components, truncation and the like,
JSON, numbers. tests/data/bad_expected.txt, which is kept by hand, has the line of each refusal. The test
reads the files with 64 ids.
"""
import copy
import json
import os
import sys

ROOT = sys.argv[1]
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def added(i, content, **kw):
    return {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True, **kw}


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
SPLIT = {"type": "Split", "pattern": {"Regex": GPT2}, "behavior": "Isolated", "invert": False}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PREPEND = {"type": "Prepend", "prepend": "▁"}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
TEMPLATE = {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}}
BYTES = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [added(4, "<s>")],
         "normalizer": None,
         "pre_tokenizer": BYTE_LEVEL, "post_processor": TEMPLATE, "decoder": BYTE_LEVEL,
         "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                   "end_of_word_suffix": None,
                   "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                   "vocab": {"a": 0, "b": 1, "Ġ": 2, "ab": 3}, "merges": ["a b"]}}
SENTENCE = {**BYTES, "normalizer": {"type": "Sequence", "normalizers": [PREPEND, REPLACE]},
            "pre_tokenizer": None,
            "decoder": {"type": "Sequence", "decoders": [{**REPLACE, "pattern": {"String": "▁"},
                                                          "content": " "}, {"type": "ByteFallback"},
                                                         {"type": "Fuse"}, STRIP]},
            "model": {**BYTES["model"], "unk_token": "a", "byte_fallback": True}}
DROP = object()


def change(base, *changes):
    """The file with values set at paths: (path, value), ..; DROP removes the key."""
    data = copy.deepcopy(base)
    for path, value in changes:
        at = data
        for key in path[:-1]:
            at = at[key]
        if value is DROP:
            del at[path[-1]]
        else:
            at[path[-1]] = value
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def vocab(text, base=BYTES):
    """The file with the vocabulary spelled as in `text`."""
    return change(base, (("model", "vocab"), "@@")).replace('"@@"', text)


def merges(*items):
    return change(BYTES, (("model", "merges"), list(items)))


def tokens(*items):
    return change(BYTES, (("added_tokens",), list(items)))


def at(path, value, base=BYTES):
    return change(base, (tuple(path.split(".")), value))


def seq(name, *items):
    return {"type": "Sequence", name: list(items)}


def template(**kw):
    return at("post_processor", {**TEMPLATE, **kw})


def ids():
    v = '{"a":0,"b":1,"Ġ":2,"ab":%s}'
    for name, x in {"duplicate": "2", "gap": "9", "negative": "-1", "2p24": "16777216",
                    "2p64": "18446744073709551616", "minus_zero": "-0",
                    "one_point_zero": "1.0", "1e400": "1e400", "string": '"3"', "null": "null",
                    "true": "true", "list": "[3]"}.items():
        kind = "t10" if name in ("minus_zero", "one_point_zero", "1e400") else "t1"
        yield f"{kind}_id_{name}", vocab(v % x)
    many = {chr(0x100 + i): i for i in range(66)}
    yield "t1_id_over_model", change(BYTES, (("model", "vocab"), {**{c: i for c, i in many.items()}}),
                                     (("model", "merges"), []))
    full = {**BYTES["model"]["vocab"], **{chr(0x101 + i): 4 + i for i in range(28)},
            **{chr(0x30 + i): 32 + i for i in range(32)}}
    yield "t1_added_id_over_model", change(BYTES, (("model", "vocab"), full),
                                           (("added_tokens",), [added(64, "<s>")]))
    yield "t1_added_id_gap", tokens(added(5, "<s>"))
    yield "t1_added_id_of_another", tokens(added(1, "<s>"))
    yield "t1_added_id_not_that_of_the_vocabulary", tokens(added(4, "ab"))
    yield "t1_added_id_negative", tokens(added(-1, "<s>"))
    yield "t1_added_id_float", tokens(added(4.0, "<s>"))


def contents():
    yield "t2_token_empty", vocab('{"a":0,"b":1,"":2,"ab":3}')
    yield "t2_token_twice", vocab('{"a":0,"b":1,"Ġ":2,"ab":3,"b":4}')
    yield "t2_token_twice_escaped", vocab('{"a":0,"b":1,"Ġ":2,"ab":3,"\\u0062":4}')
    yield "t2_not_utf8", vocab('{"a":0,"b":1,"@":2,"ab":3}').encode().replace(b"@", b"\xff")
    yield "t2_cut_utf8", vocab('{"a":0,"b":1,"@":2,"ab":3}').encode().replace(b"@", b"\xe2\x82")
    yield "t2_no_byte_character", vocab('{"a":0,"b":1," b":2,"ab":3}')
    yield "t2_no_byte_character_wide", vocab('{"a":0,"b":1,"▁":2,"ab":3}')
    for name in ("-1", "ZZ", "100", "+1", "", "4", " 4"):
        yield f"t2_byte_token_{name.replace(' ', 'space').replace('+', 'plus') or 'empty'}", vocab(
            '{"a":0,"b":1,"<0x%s>":2,"ab":3}' % name, SENTENCE)
    yield "t2_unk_not_there", at("model.unk_token", "<unk>")
    yield "t2_unk_number", at("model.unk_token", 0)
    yield "t2_vocab_list", at("model.vocab", ["a", "b"])


def all_merges():
    for name, m in {"first_unknown": "x b", "second_unknown": "a x", "makes_unknown": "b a", "grows": "ab ab",
                    "longer_than_any_token": "ab ab",
                    "no_space": "ab", "two_spaces": "a  b", "three": "a b b", "empty_part": "a ",
                    "only_space": " ", "empty": ""}.items():
        yield f"t3_{name}", merges(m)
    for name, m in {"one": ["a"], "three": ["a", "b", "b"], "none": [], "numbers": [0, 1],
                    "empty_part": ["", "ab"], "unknown": ["a", "a b"]}.items():
        yield f"t3_pair_{name}", merges(m)
    yield "t3_number", merges(7)
    yield "t3_null", merges(None)
    yield "t3_mixed", merges("a b", ["a", "b"])
    yield "t3_object", at("model.merges", {"a": "b"})
    yield "t3_missing", at("model.merges", DROP)


def added_tokens():
    yield "t4_twice", tokens(added(4, "<s>"), added(4, "<s>"))
    yield "t4_twice_other_flags", tokens(added(4, "<s>"), added(5, "<s>", normalized=True))
    yield "t4_empty", tokens(added(4, ""))
    yield "t4_content_number", tokens(added(4, 7))
    yield "t4_long", tokens(added(4, "x" * 1025))
    yield "t4_same_normalized", change(SENTENCE, (("added_tokens",),
                                                  [added(4, "x y", normalized=True),
                                                   added(5, "x▁y", normalized=True)]))
    yield "t4_normalized_to_nothing", change(SENTENCE,
                                             (("normalizer",),
                                              {**REPLACE, "pattern": {"String": "<s>"}, "content": ""}),
                                             (("added_tokens",), [added(4, "<s>", normalized=True)]))
    yield "t4_flag_missing", tokens({k: v for k, v in added(4, "<s>").items() if k != "lstrip"})
    yield "t4_flag_number", tokens(added(4, "<s>", special=1))
    yield "t4_flag_unknown", tokens(added(4, "<s>", strip=True))
    yield "t4_object", at("added_tokens", {"<s>": 4})
    yield "t4_string", tokens("<s>")


def patterns():
    for name, rx in {"unknown": r"\w+|\s+", "nested": "(a+)+$", "nearly": GPT2 + "|x", "empty": "",
                     "invalid": "(["}.items():
        yield f"t5_{name}", at("pre_tokenizer", seq("pretokenizers", {**SPLIT, "pattern": {"Regex": rx}},
                                                    BYTE_LEVEL))
    yield "t5_string", at("pre_tokenizer", seq("pretokenizers", {**SPLIT, "pattern": {"String": " "}},
                                               BYTE_LEVEL))
    yield "t5_both", at("pre_tokenizer", seq("pretokenizers",
                                             {**SPLIT, "pattern": {"String": " ", "Regex": GPT2}},
                                             BYTE_LEVEL))
    yield "t5_plain_string", at("pre_tokenizer", seq("pretokenizers", {**SPLIT, "pattern": GPT2}, BYTE_LEVEL))
    for b in ("Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous", "isolated"):
        yield f"t5_behavior_{b}", at("pre_tokenizer",
                                     seq("pretokenizers", {**SPLIT, "behavior": b}, BYTE_LEVEL))
    yield "t5_split_alone", at("pre_tokenizer", SPLIT)
    yield "t5_replace_regex", at("normalizer", {**REPLACE, "pattern": {"Regex": " +"}})
    yield "t5_replace_empty", at("normalizer", {**REPLACE, "pattern": {"String": ""}})


def templates():
    yield "t6_undefined", template(single=[{"SpecialToken": {"id": "<cls>", "type_id": 0}},
                                           {"Sequence": {"id": "A", "type_id": 0}}])
    yield "t6_id_over", template(special_tokens={"<s>": {"id": "<s>", "ids": [5], "tokens": ["<s>"]}})
    yield "t6_id_negative", template(special_tokens={"<s>": {"id": "<s>", "ids": [-1], "tokens": ["<s>"]}})
    yield "t6_ids_number", template(special_tokens={"<s>": {"id": "<s>", "ids": 4, "tokens": ["<s>"]}})
    yield "t6_no_text", template(single=[{"SpecialToken": {"id": "<s>", "type_id": 0}}])
    yield "t6_text_twice", template(single=[{"Sequence": {"id": "A", "type_id": 0}}] * 2)
    yield "t6_text_b", template(single=[{"Sequence": {"id": "B", "type_id": 0}}])
    yield "t6_piece_of_both", template(single=[{"Sequence": {"id": "A", "type_id": 0},
                                                "SpecialToken": {"id": "<s>", "type_id": 0}}])
    yield "t6_single_string", template(single="$A")
    yield "t6_too_many", template(single=[{"SpecialToken": {"id": "<s>", "type_id": 0}}] * 65
                                  + [{"Sequence": {"id": "A", "type_id": 0}}])
    yield "t6_two_templates", at("post_processor", seq("processors", TEMPLATE, TEMPLATE))


def components():
    for name, x in {"lowercase": {"type": "Lowercase"}, "nfkc": {"type": "NFKC"},
                    "strip": {"type": "Strip", "strip_left": True, "strip_right": True},
                    "precompiled": {"type": "Precompiled", "precompiled_charsmap": "AAA="}, "no_type": {},
                    "type_number": {"type": 1}, "list": [],
                    "nested": seq("normalizers", seq("normalizers", {"type": "NFD"})),
                    "unknown_key": {"type": "NFC", "form": "C"},
                    "prepend_missing": {"type": "Prepend"},
                    "prepend_long": {"type": "Prepend", "prepend": "x" * 257},
                    "nine": seq("normalizers", *[{"type": "NFC"}] * 9)}.items():
        yield f"t7_normalizer_{name}", at("normalizer", x)
    for name, x in {"whitespace": {"type": "Whitespace"},
                    "digits": {"type": "Digits", "individual_digits": True}, "string": "ByteLevel",
                    "bytes_not_last": seq("pretokenizers", BYTE_LEVEL, SPLIT),
                    "metaspace_not_alone": seq("pretokenizers", SPLIT, METASPACE),
                    "metaspace_flags": {**METASPACE, "add_prefix_space": False},
                    "metaspace_scheme": {**METASPACE, "prepend_scheme": "last"},
                    "metaspace_two_characters": {**METASPACE, "replacement": "__"},
                    "metaspace_no_character": {**METASPACE, "replacement": ""},
                    "flag_missing": {"type": "ByteLevel", "trim_offsets": True},
                    "flag_string": {**BYTE_LEVEL, "use_regex": "yes"},
                    "list_missing": {"type": "Sequence"}}.items():
        yield f"t7_pre_tokenizer_{name}", at("pre_tokenizer", x)
    yield "t7_metaspace_first_normalized", change(SENTENCE, (("pre_tokenizer",), METASPACE),
                                                  (("normalizer",), {"type": "NFC"}),
                                                  (("added_tokens",), [added(4, "<s>", normalized=True)]))
    for name, x in {"roberta": {"type": "RobertaProcessing", "sep": ["a", 0], "cls": ["b", 1],
                                "trim_offsets": True, "add_prefix_space": True},
                    "bert": {"type": "BertProcessing", "sep": ["a", 0], "cls": ["b", 1]}}.items():
        yield f"t7_post_processor_{name}", at("post_processor", x)
    chain = SENTENCE["decoder"]["decoders"]
    for name, x in {"wordpiece": {"type": "WordPiece", "prefix": "##", "cleanup": True},
                    "ctc": {"type": "CTC"}, "null": None, "empty": seq("decoders"),
                    "strip_alone": STRIP, "order": seq("decoders", *reversed(chain)),
                    "two": seq("decoders", BYTE_LEVEL, BYTE_LEVEL),
                    "bytes_behind": seq("decoders", *chain, BYTE_LEVEL)}.items():
        yield f"t7_decoder_{name}", at("decoder", x)
    yield "t7_decoder_missing", at("decoder", DROP)
    for name in ("Unigram", "WordPiece", "WordLevel"):
        yield f"t7_model_{name.lower()}", at("model", {"type": name, "vocab": [], "unk_id": 0})
    yield "t7_model_missing", at("model", DROP)
    yield "t7_model_null", at("model", None)
    yield "t7_model_prefix", at("model.continuing_subword_prefix", "##")
    yield "t7_model_suffix", at("model.end_of_word_suffix", "</w>")
    yield "t7_model_unknown_key", at("model.max_input_chars_per_word", 100)
    yield "t7_model_flag", at("model.ignore_merges", "true")
    yield "t7_unknown_key", at("tokens", [])
    yield "t7_version", at("version", "2.0")


def numbers():
    cut = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 4}
    yield "t8_truncation", at("truncation", cut)
    yield "t8_padding", at("padding", {"strategy": {"Fixed": 0}, "direction": "Right",
                                       "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
                                       "pad_token": "a"})
    yield "t8_fixed_length", at("pre_tokenizer", {"type": "FixedLength", "length": 0})
    for name, x in {"stop": {"stop": 1}, "stop_huge": {"stop": 2 ** 63}, "start_huge": {"start": 2 ** 63},
                    "start_negative": {"start": -1},
                    "content": {"content": "xy"}}.items():
        chain = copy.deepcopy(SENTENCE["decoder"])
        chain["decoders"][-1].update(x)
        yield f"t8_strip_{name}", at("decoder", chain, SENTENCE)
    for x in ("0.1", "1", "1e400", '"0"'):
        yield f"t10_dropout_{x.strip(chr(34))}", at("model.dropout", "@@").replace('"@@"', x)


def plain_json():
    good = change(BYTES)
    yield "t9_empty", ""
    yield "t9_space", " \n"
    yield "t9_list", "[]"
    yield "t9_string", '"x"'
    yield "t9_bom", b"\xef\xbb\xbf" + good.encode()
    yield "t9_cut", good[:-1]
    yield "t9_more", good + "{}"
    yield "t9_comma", good[:-1] + ",}"
    yield "t9_depth_65", '{"normalizer":' + "[" * 64 + "]" * 64 + "}"
    yield "t9_depth_unclosed", "[" * 2000
    yield "t9_lone_surrogate", vocab('{"a":0,"b":1,"\\ud800":2,"ab":3}')
    yield "t9_low_surrogate", vocab('{"a":0,"b":1,"\\udc00x":2,"ab":3}')
    yield "t9_nul_escape", vocab('{"a":0,"b":1,"\\u0000":2,"ab":3}')
    yield "t9_nul_byte", vocab('{"a":0,"b":1,"@":2,"ab":3}').replace("@", "\0")
    yield "t9_tab_in_string", vocab('{"a":0,"b":1,"\t":2,"ab":3}')
    yield "t9_model_twice", good[:-1] + ',"model":{}}'
    yield "t9_vocab_twice", good[:-2] + ',"vocab":{}}}'
    yield "t9_type_twice", good.replace('"type":"ByteLevel",', '"type":"ByteLevel","type":"ByteLevel",', 1)
    yield "t9_model_type_twice", good.replace('"type":"BPE"', '"type":"BPE","type":"BPE"', 1)


def main():
    os.makedirs(ROOT, exist_ok=True)
    for old in os.listdir(ROOT):
        os.unlink(os.path.join(ROOT, old))
    for group in (ids, contents, all_merges, added_tokens, patterns, templates, components, numbers,
                  plain_json):
        for name, data in group():
            with open(os.path.join(ROOT, name + ".json"), "wb") as f:
                f.write(data if isinstance(data, bytes) else data.encode())


if __name__ == "__main__":
    main()
