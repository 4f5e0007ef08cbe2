#!/bin/bash
# Families of models whose logits test_logits compares with transformers: drafts, kills, several texts at
# once, fork and files change no byte of a text.
. tests/cli/lib.inc
T=build/data/models/middle.txt

# family NAME MODEL TOKENS [FILES]: FILES, or MODEL, is the model of which files are written.
family()
{
    local name=$1 m=$2 n=$3 files=${4:-$2} d p w db=$TMP/$1.db some short=$(($3 * 3 / 5))
    job() { "$LONGHAND" $1 -m "$m" --prompt "The ship went on and on" -n $n -s 3 -q --ignore-eos "${@:2}"; }
    job run --drafter none --format ids >"$TMP/whole"
    [ "$(wc -l <"$TMP/whole")" = $n ]; result ${name}_writes $?
    head -$short "$TMP/whole" >"$TMP/short"
    for d in auto ngram,suffix,partial "model:$m"; do
        job run --drafter $d --format ids -t 2 >"$TMP/a"
        same "${name}_drafts_of_${d%%:*}_change_nothing" "$TMP/whole" "$TMP/a"
    done
    for p in static dynamic window mean; do
        job run --drafter partial,ngram --tree 3,2 --kv-policy $p --format ids -n $short >"$TMP/a"
        same "${name}_trees_over_kv_${p}_change_nothing" "$TMP/short" "$TMP/a"
    done
    job run --drafter none --format ids --compute f32 -n $short >"$TMP/a"
    job run --drafter auto --format ids --compute f32 -n $short >"$TMP/b"
    same ${name}_drafts_in_f32_change_nothing "$TMP/a" "$TMP/b"

    job submit --db "$db" >"$TMP/id"
    held 300 "[ \$('$LONGHAND' text 1 --db '$db' --format ids | wc -l) -gt 40 ]" \
        "$LONGHAND" run --resume 1 --db "$db" --format ids -q
    some=$("$LONGHAND" text 1 --db "$db" --format ids 2>/dev/null | wc -l); [ "$some" -lt $n ]
    result ${name}_killed_before_its_end $? "$some tokens"
    "$LONGHAND" work -q --db "$db"; "$LONGHAND" text 1 --db "$db" --format ids >"$TMP/a"
    same ${name}_killed_and_continued "$TMP/whole" "$TMP/a"
    "$LONGHAND" verify 1 --db "$db" >"$TMP/v" 2>&1; grep -q identical "$TMP/v"
    result ${name}_verify_makes_it_again $? "$(cat "$TMP/v")"
    job submit --db "$TMP/$name-s.db" -n $short --samples 3 >"$TMP/id"
    "$LONGHAND" work -q --db "$TMP/$name-s.db" --parallel 3
    "$LONGHAND" text 1 --db "$TMP/$name-s.db" --format ids >"$TMP/a"
    same ${name}_several_texts_at_once "$TMP/short" "$TMP/a"
    "$LONGHAND" fork 1 --db "$db" --at $((n / 3)) -n 400 -q >/dev/null 2>"$TMP/err"
    "$LONGHAND" work -q --db "$db"
    "$LONGHAND" text 2 --db "$db" --format ids 2>>"$TMP/err" | head -$((n / 3)) >"$TMP/a"
    head -$((n / 3)) "$TMP/whole" >"$TMP/b"; same ${name}_a_fork_begins_alike "$TMP/b" "$TMP/a"

    for w in q8_0 q4_0; do
        "$LONGHAND" convert -m "$files" --weights $w -o "$TMP/$name-$w.gguf" -q
        "$LONGHAND" score -m "$TMP/$name-$w.gguf" $T --json --per-token -q >"$TMP/a"
        "$LONGHAND" score -m "$files" --weights $w $T --json --per-token -q >"$TMP/b"
        same "${name}_weights_of_${w}_are_those_of_the_file" "$TMP/a" "$TMP/b"
    done
    m=$TMP/$name-q8_0.gguf
    job run --drafter none --format ids -n $short >"$TMP/a"; job run --format ids -n $short >"$TMP/b"
    same ${name}_drafts_of_the_file_change_nothing "$TMP/a" "$TMP/b"
}

M=build/data/models/phi4mini-bf16
family phi "$M" 1000
# The file that gguf-py wrote is the directory.
"$LONGHAND" score -m $M $T --json --per-token -q >"$TMP/a"
"$LONGHAND" score -m tests/data/gguf/phi4mini-bf16.gguf $T --json --per-token -q >"$TMP/b"
same phi_is_the_file_of_another_writer "$TMP/a" "$TMP/b"
"$LONGHAND" inspect -m $M --json --context-scaling short >"$TMP/a"
grep -q '"context": 256' "$TMP/a"; result phi_short_has_the_original_context $? "$(head -c 600 "$TMP/a")"
short() { "$LONGHAND" run -m $M --prompt "The ship" -n 200 -s 3 -q --ignore-eos --format ids "$@"; }
short --context-scaling short >"$TMP/a"; short >"$TMP/b"
differ phi_short_has_other_divisors "$TMP/a" "$TMP/b"
check phi_takes_no_other_scaling 2 'found yarn:2, allowed for this phi3 model is short' \
    run -m $M --prompt x -n 1 --context-scaling yarn:2
# The lists are the last tensors of a file: 24 bytes each, padded to 32.
"$LONGHAND" convert -m $M --weights bf16 -o "$TMP/bad.gguf" -q
printf '\000\000\000\000' | dd of="$TMP/bad.gguf" bs=1 seek=$(($(stat -c %s "$TMP/bad.gguf") - 64)) \
    conv=notrunc 2>/dev/null
check phi_divisor_of_zero 2 'rope_factors_long.weight": element 0 is 0, allowed are numbers above 0' \
    run -m "$TMP/bad.gguf" --prompt x -n 1
M=build/data/models/gptoss-bf16
family oss "$M" 1000
check oss_other_alpha_has_no_key 2 'swiglu_alpha and swiglu_limit of another model than gpt-oss cannot be' \
    convert -m build/data/models/gptoss-types-f32 --weights bf16 -o "$TMP/no.gguf"
# The experts of MXFP4 as published: nothing is left unread, drafts and threads change nothing.
M=build/data/models/gptoss-published-bf16
published()
{
    "$LONGHAND" run -m $M --prompt "The ship" -n 300 -s 3 --ignore-eos --format ids "$@" 2>"$TMP/err"
}
published --drafter none --progress none >"$TMP/a"
! grep -q scales "$TMP/err" && "$LONGHAND" inspect -m $M | grep -q MXFP4
result oss_as_published_reads_every_tensor $? "$(cat "$TMP/err")"
published --drafter ngram,suffix,partial -t 2 >"$TMP/b"
same oss_as_published_drafts_change_nothing "$TMP/a" "$TMP/b"
cp -r $M "$TMP/cut"
truncate -s -4 "$TMP/cut/model.safetensors"
# Many layers; every byte of large blocks and of what follows them counts for the fingerprint.
python3 - "$M/model.safetensors" "$TMP/large" <<'END'
import json, shutil, sys, os
data = open(sys.argv[1], "rb").read()
n = int.from_bytes(data[:8], "little")
header, at = json.loads(data[8:8 + n]), len(data) - 8 - n
names = [("%d.mlp.experts.%s" % (i, x), s) for i in range(20, 60) for x, s in
         [("down_proj_blocks", [2, 4, 1, 16]), ("down_proj_scales", [2, 4, 1])]]
names += [("9.mlp.experts.down_proj_blocks", [2, 4096, 16, 16]),
          ("9.mlp.experts.down_proj_scales", [2, 4096, 16]), ("9.zz", [3 << 20])]
for name, shape in names:
    size = 1
    for x in shape:
        size *= x
    header["model.layers." + name] = {"dtype": "U8", "shape": shape, "data_offsets": [at, at + size]}
    at += size
text = json.dumps(header).encode()
for i, change in enumerate([None, at - 1, at - (3 << 20), at - (3 << 20) - 1, at - (4 << 20)]):
    folder = sys.argv[2] + str(i)
    shutil.copytree(os.path.dirname(sys.argv[1]), folder)
    rest = bytearray(data[8 + n:]) + bytes(at - len(data) + 8 + n)
    if change:
        rest[change] = 1
    open(folder + "/model.safetensors", "wb").write(len(text).to_bytes(8, "little") + text + rest)
END
for i in 0 1 2 3 4; do
    "$LONGHAND" submit -m "$TMP/large$i" --prompt x -n 1 --db "$TMP/large.db" -q >/dev/null 2>&1
done
"$LONGHAND" work --db "$TMP/large.db" -q 2>/dev/null
"$LONGHAND" report --all --db "$TMP/large.db" --json | grep -o '"fingerprint": "[^"]*"' | sort -u >"$TMP/a"
[ "$(wc -l <"$TMP/a")" = 5 ]; result oss_as_published_has_a_whole_fingerprint $? "$(cat "$TMP/a")"
check oss_as_published_cut 2 'the file has [0-9]* bytes of data' run -m "$TMP/cut" --prompt x -n 1
M=build/data/models/phi4mini-bf16
if [ -x "$LONGHAND_TEST" ]; then
    LONGHAND=$LONGHAND_TEST check gpu_refuses_a_part_that_turns 2 \
        'heads of which a part turns .phi3. are not supported on this device; --device cpu supports them' \
        run -m $M --prompt x -n 1 --device emulated
fi
# Layers of Gemma 4 have different heads; two values of its logits may become one at temperature 0.
M=build/data/models/gemma4-bf16 X=build/data/models/gemma4-experts-f32
family gemma4 "$M" 1000 "$X"            # a directory of bf16 rounds its embeddings where a file does not
job() { "$LONGHAND" run -m $m --prompt "The ship" -s 3 -n 300 -q --ignore-eos --format ids "$@"; }
m=$M; job --drafter none --temperature 0 >"$TMP/a"; job --temperature 0 >"$TMP/b"
same gemma4_drafts_of_the_likeliest_change_nothing "$TMP/a" "$TMP/b"
m=$X; job --drafter none >"$TMP/a"; job >"$TMP/b"
same gemma4_drafts_change_nothing_with_experts "$TMP/a" "$TMP/b"
# A file that says no BOS has one all the same.
"$LONGHAND" convert -m $M --weights bf16 -o "$TMP/bos.gguf" -q
"$LONGHAND" tokenize -m "$TMP/bos.gguf" $T >"$TMP/a"
python3 - "$TMP/bos.gguf" <<'END'
import sys
key, data = b"tokenizer.ggml.add_bos_token", bytearray(open(sys.argv[1], "rb").read())
at = data.index(key) + len(key) + 4
assert data[at] == 1
data[at] = 0
open(sys.argv[1], "wb").write(data)
END
"$LONGHAND" tokenize -m "$TMP/bos.gguf" $T >"$TMP/b"; same gemma4_always_has_a_bos "$TMP/a" "$TMP/b"
# A file in which one global layer has values and the last one has none.
"$LONGHAND" convert -m $M --weights bf16 -o "$TMP/values.gguf" -q
sed -i 's/blk\.0\.attn_v\.weight/blk.1.attn_v.weight/' "$TMP/values.gguf"
check gemma4_values_in_some_global_layers 2 \
    'blk.1.attn_v.weight": the last layer has no attn_v; values in some of the global layers' \
    run -m "$TMP/values.gguf" --prompt x -n 1

# A tensor of dense layers, without rows, in a layer that has experts alone.
cp -r build/data/models/qwen3moe-fused-f32 "$TMP/rows"
python3 - "$TMP/rows/model.safetensors" <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
header, rest = json.loads(data[8:8 + n]), data[8 + n:]
none = {"dtype": "F32", "shape": [0, 64], "data_offsets": [len(rest)] * 2}
header["model.layers.0.mlp.gate_up_proj.weight"] = none
text = json.dumps(header).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + rest)
END
check joined_tensor_without_rows 2 'gate_up_proj.weight" has 0 rows, needed are 0' \
    run -m "$TMP/rows" --prompt x -n 1

# OLMo 3 has norms after each part alone, and of all heads at once.
# Granite has factors; Granite 4 has no recurrent layers, and another name for its network.
M=build/data/models/granite4-f32
family granite "$M" 1000
"$LONGHAND" score -m build/data/models/granite-bf16 $T --json --per-token -q >"$TMP/a"
"$LONGHAND" convert -m build/data/models/granite-bf16 --weights bf16 -o "$TMP/granite.gguf" -q
"$LONGHAND" score -m "$TMP/granite.gguf" $T --json --per-token -q >"$TMP/b"
same granite_scores_the_same_as_gguf "$TMP/a" "$TMP/b"
if [ -x "$LONGHAND_TEST" ]; then
    LONGHAND=$LONGHAND_TEST check gpu_refuses_granite 2 \
        'factors of embeddings and logits .granite. are not supported on this device; --device cpu supports' \
        run -m $M --prompt x -n 1 --device emulated
fi
M=build/data/models/olmo3-bf16
family olmo3 "$M" 1000
if [ -x "$LONGHAND_TEST" ]; then
    LONGHAND=$LONGHAND_TEST check olmo3_gpu_refuses_it 2 \
        'norms after each part .olmo3. are not supported on this device; --device cpu supports them' \
        run -m $M --prompt x -n 1 --device emulated
fi

# Of EXAONE 4 the layers that see all keys do not turn; without a window all layers do.
M=build/data/models/exaone4-bf16
family exaone4 "$M" 1000
family exaone4_without_window build/data/models/exaone4-full-bf16 300
if [ -x "$LONGHAND_TEST" ]; then
    LONGHAND=$LONGHAND_TEST check exaone4_gpu_refuses_it 2 \
        'norms after each part .exaone4. are not supported on this device; --device cpu supports them' \
        run -m $M --prompt x -n 1 --device emulated
fi

# Of gemma4-layers-f32 the last layers read the cache of others, and a table stays in its file.
M=build/data/models/gemma4-layers-f32
family gemma4_layers "$M" 1000
"$LONGHAND" inspect -m $M --json >"$TMP/a"
grep -q '"kv_shared_layers": 3, "per_layer_embedding": 32' "$TMP/a"
result gemma4_inspect_names_shared_layers $? "$(head -c 600 "$TMP/a")"
# Its drafter lies in the folder assistant/, and has a GGUF file; beside a file with another name it is named.
for d in assistant assistant:$M/assistant/assistant.gguf assistant,ngram,partial; do
    "$LONGHAND" run -m $M --prompt "The ship" -n 300 -s 3 -q --ignore-eos --drafter $d --format ids \
        --json-stats "$TMP/stats" >"$TMP/b"
    "$LONGHAND" run -m $M --prompt "The ship" -n 300 -s 3 -q --ignore-eos --drafter none --format ids \
        >"$TMP/a"
    same "gemma4_drafts_of_${d%%:*}_change_nothing" "$TMP/a" "$TMP/b"
    grep -q '"assistant": {' "$TMP/stats"; result "gemma4_${d%%:*}_drafts" $? "$(cat "$TMP/stats")"
done
for at in shared-assistant:shared shared/assistant:shared file-assistant.gguf:file.gguf \
    assistant:file.gguf; do
    rm -rf "$TMP/shared" "$TMP/shared-assistant" "$TMP/file-assistant.gguf" "$TMP/assistant"
    mkdir "$TMP/shared"; cp $M/*.json $M/model.safetensors "$TMP/shared"
    cp "$TMP/gemma4_layers-q8_0.gguf" "$TMP/file.gguf"
    check gemma4_no_assistant_beside_${at#*:} 2 'no drafter of Gemma 4 beside it' \
        run -m "$TMP/${at#*:}" --prompt x -n 1 --drafter assistant
    case $at in
        *assistant.gguf:*) cp $M/assistant/assistant.gguf "$TMP/${at%%:*}" ;;
        *) cp -r $M/assistant "$TMP/${at%%:*}" ;;
    esac
    check gemma4_an_assistant_at_${at%%:*} 0 '' \
        run -m "$TMP/${at#*:}" --prompt x -n 9 --drafter assistant -q --ignore-eos
done
HUB=$TMP/hub; mkdir -p "$HUB"/models--org--name{,-assistant}/snapshots
cp -r "$TMP/shared" "$HUB/models--org--name/snapshots/aa"
cp -r $M/assistant "$HUB/models--org--name-assistant/snapshots/bb"
HF_HUB_CACHE=$HUB check gemma4_an_assistant_in_a_cache 0 '' \
    run -m org/name --prompt x -n 9 --drafter assistant -q --ignore-eos
cp "$TMP/gemma4_layers-q8_0.gguf" "$TMP/changes.gguf"
"$LONGHAND" run -m "$TMP/changes.gguf" --prompt x -n 8000 --ignore-eos -q >"$TMP/a" 2>"$TMP/err" &
for _ in $(seq 300); do [ "$(wc -c <"$TMP/a")" -gt 200 ] && break; sleep 0.1; done
printf 'x' | dd of="$TMP/changes.gguf" bs=1 seek=90000 conv=notrunc 2>/dev/null
wait $!; [ $? = 2 ] && grep -q 'changes.gguf: the file changed while it was read' "$TMP/err"
result gemma4_a_table_that_changes $? "$(cat "$TMP/err")"
check gemma4_an_assistant_is_no_model 2 'this is a drafter of Gemma 4; --drafter assistant:' \
    run -m $M/assistant --prompt x -n 1
check gemma4_a_model_is_no_assistant 2 'is a model, not a drafter of Gemma 4' \
    run -m $M --prompt x -n 1 --drafter assistant:build/data/models/gemma4-bf16
check gemma4_an_assistant_of_another_size 2 'states of 40 and 330 tokens, the model has 64' \
    run -m build/data/models/gemma4-experts-f32 --prompt x -n 1 --drafter assistant:$M/assistant
cp "$TMP/gemma4_layers-q8_0.gguf" "$TMP/shrinks.gguf"
"$LONGHAND" run -m "$TMP/shrinks.gguf" --prompt x -n 8000 --ignore-eos -q >"$TMP/a" 2>"$TMP/err" &
for _ in $(seq 300); do [ "$(wc -c <"$TMP/a")" -gt 200 ] && break; sleep 0.1; done
truncate -s 2000 "$TMP/shrinks.gguf"
wait $!; [ $? = 2 ] && [ "$(wc -l <"$TMP/err")" = 1 ] &&
    grep -q 'shrinks.gguf: the file changed while it was read' "$TMP/err"
result gemma4_a_table_that_shrinks $? "$(cat "$TMP/err")"
M=build/data/models/gemma4-bf16

"$LONGHAND" inspect -m $M --json >"$TMP/a"
grep -q '"kv_heads_by_layer": \[2, 1, 2, 1\], "head_dim_by_layer": \[16, 32, 16, 32\]' "$TMP/a"
result gemma4_inspect_names_the_heads $? "$(head -c 600 "$TMP/a")"
check gemma4_drafters_of_one_kind_of_heads 2 "not for gemma4 models, whose layers have different heads" \
    run -m $M --prompt x -n 1 --drafter spire:none
check gemma4_training_of_one_kind_of_heads 2 \
    "models whose layers have different heads .gemma4. are not supported" \
    train spire -m $M --data $T --out "$TMP/spire"
if [ -x "$LONGHAND_TEST" ]; then
    LONGHAND=$LONGHAND_TEST check gpu_refuses_gemma4 2 \
        'norms after each part .gemma4. are not supported on this device; --device cpu supports them' \
        run -m $M --prompt x -n 1 --device emulated
fi
exit $failed
