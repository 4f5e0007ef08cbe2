#!/usr/bin/env python3
"""Trains the small tokenizers of build/data/tokenizers and writes Hugging Face's results for some texts.

    python3 tests/make/make_tokenizers.py CORPUS OUT [MODEL ..]

CORPUS is a folder of English texts. Each KIND.json has the structure of the tokenizer.json that the family
ships (components, flags, spelling of merges, added tokens), with a small vocabulary of its own. KIND.jsonl
holds lines of [text, ids with special tokens, ids without, decoded, decoded without special tokens]. For
each folder MODEL the lines of its tokenizer.json go to OUT/MODEL.jsonl.
"""
import json
import pathlib
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers

MODERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
          r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
WORD = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]%s[\p{Ll}\p{Lm}\p{Lo}\p{M}]%s"
CASES = (WORD % ("*", "+") + "%s|" + WORD % ("+", "*")
         + r"%s|%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = CASES % ("", "", r"\p{N}")
GPT4O = CASES % ("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}{1,3}")
BPE_OPTIONS = {"dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None}


def added(content, **kw):
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"content": content, **flags, **kw}


def number(tokens, vocab):
    """Gives ids as Hugging Face does: the id in the vocabulary, else the next free id."""
    free, out = len(vocab), []
    for t in tokens:
        i = vocab.get(t["content"])
        if i is None:
            i, free = free, free + 1
        out.append({"id": i, **t})
    return sorted(out, key=lambda t: t["id"])


def mixed_lines(rng, n):
    """Lines that mix all kinds of parts, which splits must keep apart."""
    parts = ["1", "12", "345", "6789", " ", "  ", "    ", "\t", "\n", "\n\n", "\r\n", "'s", "'t", "'re",
             "'ll", "'S", ".", ",", "!!", "...", "--", "(", ")",
             "/", "é", "e\u0301", "\u0301", "٣", "²", "\u00a0", "\u3000", "日本", "한", "ſ", "👍", "the", "a",
             "x", "THE", "s", "ing"]
    return ["".join(rng.choices(parts, k=12)) for _ in range(n)]


def train_bytes(texts, size, pattern):
    """Merges of words, then merges that only splits prevent, so that a wrong split shows in the ids."""
    vocab, merges = train_words(texts, size - 300, pattern)
    across = Tokenizer(models.BPE())
    across.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=256 + 400,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
                                  show_progress=False)
    across.train_from_iterator(mixed_lines(random.Random(3), 20000), trainer)
    for a, b in json.loads(across.to_str())["model"]["merges"]:
        if len(vocab) < size and [a, b] not in merges and a in vocab and b in vocab:
            vocab.setdefault(a + b, len(vocab))
            merges.append([a, b])
    return vocab, merges


def train_words(texts, size, pattern):
    t = Tokenizer(models.BPE())
    if pattern:
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False,
            use_regex=False)])
    else:
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=size,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
                                  show_progress=False)
    t.train_from_iterator(texts, trainer)
    m = json.loads(t.to_str())["model"]
    return m["vocab"], m["merges"]


def train_sentence(texts, size):
    """A vocabulary like SentencePiece's: three control tokens, 256 bytes, pieces, then characters.
    The merges are all pairs that make a piece."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False)
    t.train_from_iterator(texts, trainer)
    m = json.loads(t.to_str())["model"]
    pieces = ["▁▁", "▁▁▁▁"] + [a + b for a, b in m["merges"]]
    chars = sorted(c for c in m["vocab"] if len(c) == 1)
    vocab = {s: i for i, s in enumerate(["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
                                        + list(dict.fromkeys(pieces)) + chars)}
    rank = {p: i for i, p in enumerate(dict.fromkeys(pieces))}
    merges = [[p[:k], p[k:]] for p in rank for k in range(1, len(p)) if p[:k] in vocab and p[k:] in vocab]
    return vocab, merges


def byte_level(prefix=False, regex=True, trim=True, **kw):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": trim,
            **({"use_regex": regex} if regex is not None else {}), **kw}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def template(prefix, suffix, vocab):
    names = prefix + suffix
    special = lambda s, kind: {"SpecialToken": {"id": s, "type_id": kind}}
    text = lambda s, kind: {"Sequence": {"id": s, "type_id": kind}}
    one = lambda name, kind: [special(s, kind) for s in prefix] + [text(name, kind)] + [special(s, kind)
        for s in suffix]
    return {"type": "TemplateProcessing", "single": one("A", 0), "pair": one("A", 0) + one("B", 1),
            "special_tokens": {s: {"id": s, "ids": [vocab[s]], "tokens": [s]} for s in names}}


def tokenizer(model, tokens, normalizer, pre, post, decoder):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens,
            "normalizer": normalizer,
            "pre_tokenizer": pre, "post_processor": post, "decoder": decoder, "model": model}


def pairs_as_text(merges):
    return [f"{a} {b}" for a, b in merges]


def byte_kinds(texts):
    vocab, merges = train_bytes(texts, 1000, None)
    vocab["<|endoftext|>"] = len(vocab)
    tokens = number([added("<|endoftext|>", normalized=True)], vocab)
    # the file GPT-2 ships has neither model.type nor use_regex, and empty strings for null
    model = {"dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
             "fuse_unk": False,
             "vocab": vocab, "merges": pairs_as_text(merges)}
    yield "gpt2", tokenizer(model, tokens, None, byte_level(regex=None), byte_level(regex=None, trim=False),
                            byte_level(regex=None))
    model = {"type": "BPE", **BPE_OPTIONS, "unk_token": None, "fuse_unk": False, "byte_fallback": False,
             "ignore_merges": False,
             "vocab": vocab, "merges": merges}
    extra = [added("<mask>", lstrip=True, normalized=True), added("ever", single_word=True, special=False),
             added("<r>", rstrip=True)]
    tokens = number([added("<|endoftext|>")] + extra, vocab)
    yield "gpt2-prefix", tokenizer(model, tokens, None, byte_level(prefix=True), byte_level(prefix=True),
                                   byte_level(prefix=True))

    vocab, merges = train_bytes(texts, 1500, MODERN % r"\p{N}{1,3}")
    # tokens that no merge makes: only ignore_merges finds them
    merges = [m for i, m in enumerate(merges) if i % 40 != 39 or any(m[0] + m[1] in n for n in merges)]
    tokens = number([added(f"<|{s}|>") for s in ["begin_of_text", "end_of_text"]
                     + [f"reserved_special_token_{i}" for i in range(4)]
                     + ["start_header_id", "end_header_id", "eot_id", "reserved_special_token_10"]], vocab)
    ids = {t["content"]: t["id"] for t in tokens}
    model = {"type": "BPE", **BPE_OPTIONS, "unk_token": None, "fuse_unk": False, "byte_fallback": False,
             "ignore_merges": True,
             "vocab": vocab, "merges": pairs_as_text(merges)}
    pre = {"type": "Sequence", "pretokenizers": [split(MODERN % r"\p{N}{1,3}"), byte_level(regex=False)]}
    post = {"type": "Sequence", "processors": [byte_level(prefix=True, trim=False),
                                               template(["<|begin_of_text|>"], [], ids)]}
    yield "llama3", tokenizer(model, tokens, None, pre, post, byte_level(prefix=True))

    vocab, merges = train_bytes(texts, 1200, MODERN % r"\p{N}")
    tokens = number([added(s) for s in ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]], vocab)
    model = {"type": "BPE", **BPE_OPTIONS, "unk_token": None, "continuing_subword_prefix": "",
             "end_of_word_suffix": "", "fuse_unk": False,
             "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": pairs_as_text(merges)}
    pre = {"type": "Sequence", "pretokenizers": [split(MODERN % r"\p{N}"),
                                                 byte_level(regex=False, trim=False)]}
    flat = byte_level(regex=False, trim=False)
    yield "qwen2", tokenizer(model, tokens, {"type": "NFC"}, pre, flat, flat)
    tokens = number([added(s) for s in ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]]
                    + [added(s, special=False) for s in ["<tool_call>", "</tool_call>", "<think>",
                                                         "</think>"]], vocab)
    model = {**model, "merges": merges}
    yield "qwen3", tokenizer(model, tokens, {"type": "NFC"}, pre, flat, flat)
    vocab, merges = train_bytes(texts, 1200, QWEN35)
    tokens = number([added(s) for s in ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>"]]
                    + [added(s, special=False) for s in ["<tool_call>", "</tool_call>", "<tool_response>",
                                                         "</tool_response>", "<think>", "</think>"]], vocab)
    model = {**model, "vocab": vocab, "merges": merges}
    pre = {"type": "Sequence", "pretokenizers": [split(QWEN35), byte_level(regex=False, trim=False)]}
    yield "qwen3.5", tokenizer(model, tokens, {"type": "NFC"}, pre, flat, flat)


def cased_kinds(texts):
    for name, pattern, ignore, specials in (
            ("tekken", TEKKEN, True, ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]"]),
            ("gpt-4o", GPT4O, False, ["<|startoftext|>", "<|endoftext|>", "<|start|>", "<|end|>"])):
        vocab, merges = train_bytes(texts, 1200, pattern)
        tokens = number([added(s) for s in specials], vocab)
        ids = {t["content"]: t["id"] for t in tokens}
        model = {"type": "BPE", **BPE_OPTIONS, "unk_token": None, "fuse_unk": False, "byte_fallback": False,
                 "ignore_merges": ignore, "vocab": vocab, "merges": merges}
        pre = {"type": "Sequence", "pretokenizers": [split(pattern), byte_level(regex=False)]}
        post = template([specials[1]], [], ids) if ignore else byte_level(regex=False)
        yield name, tokenizer(model, tokens, None, pre, post, byte_level(regex=False))


def sentence_kinds(texts):
    vocab, merges = train_sentence(texts, 900)
    specials = ["<unk>", "<s>", "</s>"]
    model = {"type": "BPE", **BPE_OPTIONS, "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
             "ignore_merges": False,
             "vocab": vocab, "merges": merges}
    old = {k: v for k, v in model.items() if k != "ignore_merges"} | {"merges": pairs_as_text(merges)}
    replace = lambda a, b: {"type": "Replace", "pattern": {"String": a}, "content": b}
    legacy = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")]}
    metaspace = lambda scheme, **kw: {"type": "Metaspace", "replacement": "▁",
                                      "prepend_scheme": scheme, **kw}
    chain = [replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    strip = {"type": "Sequence", "decoders": chain
             + [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    bos = template(["<s>"], [], vocab)
    plain = number([added(s) for s in specials], vocab)
    yield "llama2", tokenizer(old, plain, legacy, None, bos, strip)
    # early conversions mark the control tokens as normalized; fine-tunes add a padding token
    vicuna = number([added(s, normalized=True) for s in specials]
                    + [added("[PAD]", normalized=True, special=False)], vocab)
    yield "vicuna", tokenizer(old, vicuna, legacy, None, bos, strip)
    yield "llama2-metaspace", tokenizer(model, plain, None, metaspace("first", split=False), bos, strip)
    yield "mistral-v1", tokenizer(model, plain, legacy, None, bos, strip)
    control = [added(s) for s in specials + ["[INST]", "[/INST]", "[TOOL_CALLS]"]]
    yield "mistral-v3", tokenizer(model, number(control, vocab), None, metaspace("first", split=False), bos,
                                  strip)
    # other settings of these parts: split words, a space before every piece, no space, EOS, stripping added
    # tokens
    loose = number([added(s) for s in specials] + [added("<|end|>", rstrip=True),
                                                   added("<|user|>", lstrip=True, rstrip=True),
                                                   added("old", single_word=True, special=False,
                                                         normalized=True)], vocab)
    both = template(["<s>"], ["</s>"], vocab)
    yield "metaspace-always", tokenizer(model, loose, None, metaspace("always", split=True), both,
                                        metaspace("always", split=True))
    yield "metaspace-never", tokenizer({**model, "byte_fallback": False, "fuse_unk": False}, loose, None,
                                       metaspace("never", split=True), None,
                                       metaspace("never", split=True))
    # Gemma: a split that cuts nothing, no space before a text, runs of spaces and line ends as added tokens
    runs = ["\n" * n for n in range(1, 5)] + ["▁" * n for n in range(2, 6)]
    spaced = dict(vocab)
    for s in runs:
        spaced.setdefault(s, len(spaced))
    gemma = number([added(s) for s in specials] + [added(s, special=False) for s in runs]
                   + [added(s) for s in ("<start_of_turn>", "<end_of_turn>")], spaced)
    pre = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    yield "gemma", tokenizer({**model, "vocab": spaced}, gemma, replace(" ", "▁"), pre, bos,
                             {"type": "Sequence", "decoders": chain})
    # merges across words, so that a whole text is one word; unknown characters, some with missing bytes
    holes = {s: i for i, s in enumerate(s for s in vocab if s not in ("<0x80>", "<0xE2>"))}
    across = [["e", "▁"], ["▁", "t"], ["e▁", "t"], ["d", "▁"], ["d▁", "a"]]
    for a, b in across:
        holes.setdefault(a + b, len(holes))
    crossing = {**model, "vocab": holes, "merges": across + merges, "ignore_merges": True}
    yield "crossing", tokenizer(crossing, number([added(s) for s in specials], holes), legacy, None,
                                template([], ["</s>"], holes),
                                {"type": "Sequence", "decoders": chain})


SAMPLES = [
    "", " ", "  ", "\n", "Hello world", " Hello  world ", "Hello\tworld\r\n\r\n  next\n\n\n",
           "I'll SAY it'S he'Re 'tis don't 'S 'ſ 'ſſ '\u212a",
    "1234567 89 3.14 ٣٤٥٦ ⅷ²³ १२३४", "naïve café cafe\u0301 ﬁ Å A\u030a \u212b",
           "日本語 テキスト 한국어 \u1112\u1161\u11ab 漢字",
    "emoji 👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 \U0001f1e9\U0001f1ea", "<s>Hello</s> <s> x </s>",
           "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>",
    "<|im_start|>user\nhi<|im_end|>\n<think>\n\n</think>", "a<|endoftext|>b <mask> c   <mask>d <r>   e",
           "ever never ever-green forever ever",
    "<|user|>  old gold old \u0301old <|end|>  \n x", "[INST] hi [/INST] [PAD]", "▁▁a ▁b ▁",
           "\u00a0\u2003\u3000 \u0085 \u200b\ufeff end   ", "a" * 40 + " " * 40,
    "\u0301\u0300\u0345\u0334 q\u0323\u0307 q\u0307\u0323", "<0x0A> <0x41>\x01\x7f", "\U0010ffff\ue000\ufffd",
           "“Quote” — dash… ‘s", "x\u0344 \u0f73\u0f75 \uf900\U0002f800",
]


CASED_SAMPLES = [
    "HTMLParser camelCase iPhone McGregor USA's USA'S It'LL doN'T end",
    "ÉCOLE École éCOLE ΑΒγδ ΑΒΓ αβ ǅabc aǅB",
    "a/b //c\n/ ...\n\n/x :/\r\n 12345 A1b2C3", "日本ABC日本abc ABC日本 한국Abc ªº ABCª xªB ʰAʰb",
    "\u0301abc \u0301ABC A\u0301BC .\u0301A \u0301 e\u0301E\u0301", "\u00a0Abc \tABC _Abc _ABC -x--Y",
    "शिAक्ष ABशि शिक्षा", "'s's 'S'S a's'A",
]


def main():
    corpus, out = map(pathlib.Path, sys.argv[1:3])
    out.mkdir(parents=True, exist_ok=True)
    files = sorted(p for p in corpus.rglob("*.txt"))[:12]
    texts = [line for p in files for line in p.read_text(encoding="utf-8").splitlines()
             if line.strip()][:40000]
    rng = random.Random(7)
    samples = SAMPLES + ["\n".join(rng.sample(texts, 3))[:300] for _ in range(8)]
    for name, data in [*byte_kinds(texts), *cased_kinds(texts), *sentence_kinds(texts)]:
        (out / f"{name}.json").write_text(json.dumps(data, ensure_ascii=False, indent=None,
                                                     separators=(",", ":")), encoding="utf-8")
        write_expected(out / f"{name}.json", out / f"{name}.jsonl",
                       samples + CASED_SAMPLES * (name in ("tekken", "gpt-4o")))
    for model in map(pathlib.Path, sys.argv[3:]):
        write_expected(model / "tokenizer.json", out / f"{model.name}.jsonl", samples)


def write_expected(path, lines, samples):
    t = Tokenizer.from_file(str(path))
    with open(lines, "w", encoding="utf-8") as f:
        for s in samples:
            ids, bare = t.encode(s).ids, t.encode(s, add_special_tokens=False).ids
            row = [s, ids, bare, t.decode(ids, skip_special_tokens=False),
                   t.decode(ids, skip_special_tokens=True)]
            f.write(json.dumps(row, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
