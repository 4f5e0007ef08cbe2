#!/bin/bash
# Files of models: files that are cut short, projectors and adapters beside a model, tokens that no text has,
# experts of gpt-oss as transformers writes them.
. tests/cli/lib.inc
L=$LONGHAND D=build/data/models G=$TMP/model.gguf

# ---- files that are cut short ----
"$L" convert -m $MODEL --weights q4_0 -o "$G" -q
cut_at() # NAME BYTES: a GGUF file and a file of safetensors
{
    head -c "$2" "$G" >"$TMP/cut.gguf"
    check "$1_of_gguf" 2 'cut short' inspect -m "$TMP/cut.gguf"
    rm -rf "$TMP/cut"; cp -rL $MODEL "$TMP/cut"; truncate -s "$2" "$TMP/cut/model.safetensors"
    "$L" inspect -m "$TMP/cut" >"$TMP/out" 2>"$TMP/err"; [ $? = 2 ] && grep -q 'cut short' "$TMP/err"
    result "$1_of_safetensors" $? "$(cat "$TMP/err")"
}
cut_at nothing 0; cut_at a_number 13; cut_at a_header 2000; cut_at a_vocabulary 50000; cut_at data 1500000

# ---- general.type decides what is beside a model ----
python3 - "$G" "$TMP" <<'P'
import sys
data = open(sys.argv[1], "rb").read()
text = lambda s: len(s).to_bytes(8, "little") + s
value = lambda key, s: text(key) + (8).to_bytes(4, "little") + text(s)
typed, at = value(b"general.type", b"model"), data.index(text(b"general.type"))
assert data[at:at + len(typed)] == typed
def put(name, *values):
    head = b"GGUF\3\0\0\0" + bytes(8) + len(values).to_bytes(8, "little")
    open(f"{sys.argv[2]}/{name}", "wb").write(head + b"".join(values))
arch = value(b"general.architecture", b"llama")
put("projector", value(b"general.architecture", b"clip"), value(b"general.type", b"mmproj"))
put("old", value(b"general.architecture", b"clip"))
put("adapter", arch, value(b"general.type", b"adapter"))
put("matrix", value(b"general.type", b"imatrix"))
P
mkdir "$TMP/dir"; ln -s "$G" "$TMP/dir/X-Q4_0.gguf"
cp "$TMP/projector" "$TMP/dir/X.mmproj-q8_0.gguf"; cp "$TMP/old" "$TMP/dir/X.clip.gguf"
cp "$TMP/adapter" "$TMP/dir/a-lora.gguf"; cp "$TMP/matrix" "$TMP/dir/X-importance.gguf"
"$L" inspect -m "$TMP/dir" 2>"$TMP/err" | grep -q "dir/X-Q4_0.gguf$"
result what_is_no_model_does_not_count $? "$(cat "$TMP/err")"
hub=$TMP/hub/models--org--name/snapshots/00aa
mkdir -p "$hub"; ln -s "$G" "$hub/X-Q4_0.gguf"; cp "$TMP/projector" "$hub/mm-X-Q4_0.gguf"
cp "$TMP/adapter" "$hub/lora-Q4_0.gguf"
HF_HUB_CACHE=$TMP/hub "$L" inspect -m org/name:Q4_0 2>"$TMP/err" | grep -q "/X-Q4_0.gguf$"
result and_no_quant_picks_it $? "$(cat "$TMP/err")"
mv "$TMP/dir/X-Q4_0.gguf" "$TMP/dir/mmproj-X.gguf"
"$L" inspect -m "$TMP/dir" 2>"$TMP/err" | grep -q "dir/mmproj-X.gguf$"
result the_name_does_not_decide $? "$(cat "$TMP/err")"

# ---- tokens that no text has ----
python3 - "$G" "$MODEL" "$TMP" <<'P'
import json, shutil, sys
gguf, model, tmp = sys.argv[1:]
data = open(gguf, "rb").read()
vocab = json.load(open(model + "/tokenizer.json"))
v, merges = vocab["model"]["vocab"], vocab["model"]["merges"]
name = max((t for t in v if t.isascii() and len(t) > 5), key=len).encode()      # a token of the file
old = len(name).to_bytes(8, "little") + name
assert data.count(old) == 1
whole = b"tokenizer.huggingface.json"            # else the vocabulary does not count
data = data.replace(whole, whole[:-1] + b"x").replace(old, old[:8] + b"\0" * len(name))
open(tmp + "/nul.gguf", "wb").write(data)
same = sorted((t for t in v if t.isascii() and len(t) == 7), key=v.get)     # two tokens get one text
first, last = (len(t).to_bytes(8, "little") + t.encode() for t in (same[0], same[-1]))
data = open(gguf, "rb").read().replace(whole, whole[:-1] + b"x")
open(tmp + "/twice.gguf", "wb").write(data.replace(first, last))
open(tmp + "/twice", "w").write(same[-1])
open(tmp + "/ids", "w").write(f"{v[same[-1]]}\n")
def write(to, change):
    shutil.copytree(model, f"{tmp}/{to}")
    t = json.load(open(model + "/tokenizer.json"))
    change(t)
    json.dump(t, open(f"{tmp}/{to}/tokenizer.json", "w"))
one = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
n = json.load(open(model + "/config.json"))["vocab_size"]
for to, i in ("at", n), ("beyond", n + 7):
    write(to, lambda t: t["added_tokens"].append({"id": i, "content": "", **one}))
def nul(t):
    x = t["model"]
    text = lambda m: "".join(m if isinstance(m, list) else m.split(" "))
    x["merges"] = [m for m in x["merges"] if text(m) != name.decode()]
    x["vocab"]["\0"] = x["vocab"].pop(name.decode())
    x["merges"].append(["\0", "a"] if isinstance(x["merges"][0], list) else "\0 a")
write("json", nul)
P
"$L" tokenize -m $MODEL README.md >"$TMP/want"
for m in at beyond; do
    "$L" tokenize -m "$TMP/$m" README.md >"$TMP/a" 2>"$TMP/err"
    same "an_empty_token_${m}_the_vocabulary" "$TMP/want" "$TMP/a"
done
for m in nul.gguf json; do
    "$L" run -m "$TMP/$m" -p "The sea" -n 20 -s 1 -q >"$TMP/a" 2>"$TMP/err"
    [ -s "$TMP/a" ]; result "a_token_of_nul_in_$m" $? "$(cat "$TMP/err")"
done

"$L" tokenize -m "$TMP/twice.gguf" "$TMP/twice" 2>"$TMP/err" | tail -n +2 >"$TMP/a"
same the_last_of_equal_tokens "$TMP/ids" "$TMP/a"
"$L" run -m "$TMP/twice.gguf" -p "The sea" -n 20 -s 1 -q >"$TMP/a" 2>"$TMP/err"
[ -s "$TMP/a" ]; result equal_tokens_are_read $? "$(cat "$TMP/err")"

# ---- gpt-oss with experts of 16 and 32 bits: each transposed, gate and up in turn ----
python3 - "$TMP" "$D" <<'P'
import array, json, os, shutil, sys
tmp, models = sys.argv[1:]
for model, code in ("gptoss-bf16", "H"), ("gptoss-types-f32", "I"):
    raw = open(f"{models}/{model}/model.safetensors", "rb").read()
    n = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + n])
    header.pop("__metadata__", None)
    get = lambda t: array.array(code, raw[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
    out, experts = {}, {}
    for name, t in header.items():
        layer, found, rest = name.partition(".mlp.experts.")
        if not found:
            out[name] = (t["dtype"], t["shape"], get(t).tobytes())
            continue
        e, part, kind = rest.split(".")
        experts.setdefault(layer, {})[int(e), part[:-5], kind] = (t, get(t))
    for layer, x in experts.items():
        count = 1 + max(k[0] for k in x)
        for to, parts in ("gate_up_proj", ("gate", "up")), ("down_proj", ("down",)):
            for kind in "weight", "bias":
                first, all = x[0, parts[0], kind][0], array.array(code)
                rows, cols = first["shape"][0], (first["shape"] + [1])[1]
                for e in range(count):
                    each = [x[e, p, kind][1] for p in parts]
                    all.extend(y[r * cols + c] for c in range(cols) for r in range(rows) for y in each)
                shape = [count] + [cols] * (kind == "weight") + [rows * len(parts)]
                name = f"{layer}.mlp.experts.{to}" + "_bias" * (kind == "bias")
                out[name] = (first["dtype"], shape, all.tobytes())
    folder, head, at = f"{tmp}/{model}", {}, 0
    shutil.copytree(f"{models}/{model}", folder)
    for name, (dtype, shape, b) in out.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(b)]}
        at += len(b)
    text = json.dumps(head).encode()
    with open(folder + "/model.safetensors", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + b"".join(b for _, _, b in out.values()))
P
for m in gptoss-bf16 gptoss-types-f32; do
    for o in "" "--weights q8_0" "--weights q4_0"; do
        for k in "$D/$m" "$TMP/$m"; do
            "$L" score -m "$k" $o --json --per-token -q $D/short.txt >"$TMP/${k%%/*}.json" 2>"$TMP/err"
        done
        same "scores_of_$m$(echo "$o" | tr -c 'a-z0-9\n' _)" "$TMP/build.json" "$TMP/.json"
        rm "$TMP"/*.json
    done
    [ $m = gptoss-bf16 ] || continue
    for w in bf16 q8_0; do
        "$L" convert -m $D/$m --weights $w -o "$TMP/a.gguf" -q --force
        "$L" convert -m "$TMP/$m" --weights $w -o "$TMP/b.gguf" -q --force 2>"$TMP/err"
        same "a_file_of_${w}_of_$m" "$TMP/a.gguf" "$TMP/b.gguf"
    done
done
"$L" run -m "$TMP/gptoss-bf16" -p "The ship" -n 60 -s 3 -q >"$TMP/a"
"$L" run -m "$D/gptoss-bf16" -p "The ship" -n 60 -s 3 -q -t 2 --drafter none >"$TMP/b"
same the_text_of_gptoss "$TMP/b" "$TMP/a"
exit $failed
