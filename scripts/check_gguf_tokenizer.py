#!/usr/bin/env python3
"""Compares the token ids of GGUF metadata with those of Hugging Face tokenizers, on random strings. For each
tokenizer.json the script writes a GGUF file with the metadata alone (no tokenizer.json inside) and runs
`longhand tokenize` on it. Needs gguf and tokenizers:

    scripts/check_gguf_tokenizer.py ./longhand 100000 llama3.json=llama-bpe llama2.json=spm ...
"""
import json, os, random, subprocess, sys, tempfile
import gguf, tokenizers


def write(path, t, pre):
    model, added = t["model"], {a["id"]: a for a in t["added_tokens"]}
    tokens = {i: s for s, i in model["vocab"].items()} | {i: a["content"] for i, a in added.items()}
    n, spm = max(tokens) + 1, pre == "spm"
    kind = [5 if i not in tokens else (3 if added[i]["special"] else 4) if i in added else
            6 if spm and len(tokens[i]) == 6 and tokens[i].startswith("<0x") else 1 for i in range(n)]
    w = gguf.GGUFWriter(path, "llama")
    w.add_tokenizer_model("llama" if spm else "gpt2")
    w.add_tokenizer_pre("default" if spm else pre)
    w.add_token_list([tokens.get(i, f"[PAD{i}]") for i in range(n)])
    merges = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    if spm:
        unk = model["vocab"][model["unk_token"]]
        kind[unk] = 2
        w.add_unk_token_id(unk)
        score = [0.0] * n
        for rank, (a, b) in enumerate(merges):
            if score[model["vocab"][a + b]] == 0:
                score[model["vocab"][a + b]] = -rank - 1.0
        w.add_token_scores(score)
    else:
        w.add_token_merges([a + " " + b for a, b in merges])
    w.add_token_types(kind)
    post = t.get("post_processor") or {}
    first = [x["SpecialToken"]["id"] for p in post.get("processors", [post]) for x in p.get("single", [])[:1]
             if "SpecialToken" in x]
    w.add_add_bos_token(bool(first))
    if first:
        w.add_bos_token_id({s: i for i, s in tokens.items()}[first[0]])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()
    return [a["content"] for a in added.values()]


def strings(count, special):
    r = random.Random(1)
    words = ["the", "ship", "don't", "I'LL", "naïve", "Übermut", "12345", "\u3042\u3044",
             "\U0001f600", "\u0438\u043c\u044f", "e\u0301", "\u017f", "\u0085", "\u00a0", "<0x41>", "\u2581",
             "...", "--", "\r\n", "\n\n", "\t", "   ", " "]
    ranges = [(32, 126), (160, 383), (0x370, 0x52f), (0x5d0, 0x5ea), (0x900, 0x97f), (0x4e00, 0x4fff),
              (0x2000, 0x206f), (0x1f300, 0x1f64f), (0xac00, 0xad00), (0x300, 0x36f)]
    for _ in range(count):
        parts = []
        for _ in range(r.randrange(1, 12)):
            x = r.random()
            parts.append(r.choice(words) if x < 0.4 else r.choice(special) if special and x < 0.45 else
                         "".join(chr(r.randint(*r.choice(ranges))) for _ in range(r.randrange(1, 8))))
            if r.random() < 0.5:
                parts.append(" ")
        yield "".join(parts)


def main():
    program, count = sys.argv[1], int(sys.argv[2])
    bad = 0
    for argument in sys.argv[3:]:
        name, pre = argument.split("=")
        t = json.load(open(name))
        with tempfile.TemporaryDirectory() as d:
            special = write(os.path.join(d, "t.gguf"), t, pre)
            texts = list(strings(count, special))
            lines = "".join(json.dumps(s) + "\n" for s in texts).encode()
            out = subprocess.run([program, "tokenize", "--jsonl", "-m", os.path.join(d, "t.gguf"), "-"],
                                 input=lines, stdout=subprocess.PIPE, check=True).stdout.splitlines()
        hf = tokenizers.Tokenizer.from_file(name)
        assert len(out) == count
        pairs = zip(texts, hf.encode_batch(texts), map(json.loads, out))
        wrong = [(s, e.ids, o) for s, e, o in pairs if e.ids != o]
        print(f"{os.path.basename(name)} as {pre}: {count} strings, {len(wrong)} different")
        for s, a, b in wrong[:2]:
            print("   ", repr(s), a, b)
        bad |= bool(wrong)
    return bad


sys.exit(main())
