#!/bin/bash
# GGUF files: convert, reading what convert wrote, and a directory with one file.
. tests/cli/lib.inc
T=build/data/models/middle.txt
score() { "$LONGHAND" score -m "$1" $T --json --per-token -q; }

# Models of BF16: every permutation of rows, scaling of RoPE, bias and window survives the way there and back.
for name in llama2-bf16 llama3-old-bf16 llama-linear-old-bf16 llama-yarn-outer-bf16 mistral-window-bf16 \
    mistral-default-window-bf16 qwen2-tied-bf16 qwen2-yarn-old-bf16 qwen3-bf16 qwen3moe-each-bf16 \
    mixtral-each-bf16 qwen2moe-each-bf16 ministral3-bf16 gemma3-plain-bf16 \
    smollm3-bf16 phi3-window-bf16 phi4mini-bf16 gptoss-bf16 olmo3-bf16 \
    exaone4-bf16 exaone4-full-bf16; do
    "$LONGHAND" convert -m build/data/models/$name --weights bf16 -o "$TMP/$name.gguf" -q
    score build/data/models/$name >"$TMP/a"; score "$TMP/$name.gguf" >"$TMP/b"
    same "${name}_scores_the_same_as_gguf" "$TMP/a" "$TMP/b"
done
# Gemma 4 scales its embeddings by a rounded factor in a directory of bf16, not in one of f32.
"$LONGHAND" convert -m build/data/models/gemma4-experts-f32 --weights bf16 -o "$TMP/gemma4.gguf" -q
score build/data/models/gemma4-experts-f32 >"$TMP/a"; score "$TMP/gemma4.gguf" >"$TMP/b"
same gemma4_scores_the_same_as_gguf "$TMP/a" "$TMP/b"
check windows_of_smollm3_have_no_key 2 'no_rope_layers of other layers than each 4th cannot be written' \
    convert -m build/data/models/smollm3-windows-f32 --weights bf16 -o "$TMP/windows.gguf"
# Files of SmolLM3 have no divisors of frequencies, which those of Llama and EXAONE 4 have.
cp -r build/data/models/smollm3-bf16 "$TMP/divided"
scaling='{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}'
sed -i "s/\"rope_theta\"/\"rope_scaling\": $scaling, &/" "$TMP/divided/config.json"
check divisors_of_smollm3_are_not_written 2 'rope_type llama3 of another model than llama cannot be written' \
    convert -m "$TMP/divided" --weights bf16 -o "$TMP/divided.gguf"
# The BOS of the file is the one of the tokenizer, also where config.json names another.
cp -r build/data/models/llama2-bf16 "$TMP/bos"
sed -i 's/"bos_token_id": 1\b/"bos_token_id": 5/' "$TMP/bos/config.json"
"$LONGHAND" convert -m "$TMP/bos" --weights bf16 -o "$TMP/bos.gguf" -q
same the_bos_is_the_tokenizers "$TMP/llama2-bf16.gguf" "$TMP/bos.gguf"
# Hybrids: value heads in another order, 1 + w, -exp(A_log); experts, a shared one, a draft layer.
for name in qwen35-grouped-bf16 qwen35moe-fused-bf16; do
    "$LONGHAND" convert -m build/data/models/$name --weights bf16 -o "$TMP/$name.gguf" -q
    for m in build/data/models/$name tests/data/gguf/$name.gguf "$TMP/$name.gguf"; do
        "$LONGHAND" score -m $m $T --compute f32 -q 2>&1 | sed -n 's/.*nll \([0-9.]*\).*/\1/p'
    done >"$TMP/a"
    awk 'NR == 1 { x = $1 } { d = x - $1; near += d < 0.01 && d > -0.01 } END { exit near != 3 }' "$TMP/a"
    result "${name}_scores_the_same_as_gguf" $? "$(tr '\n' ' ' <"$TMP/a")"
done
# The draft layer of the file guesses what that of the directory guesses.
for m in build/data/models/qwen35moe-fused-bf16 "$TMP/qwen35moe-fused-bf16.gguf"; do
    "$LONGHAND" run -m $m --prompt "The ship" -n 200 -s 3 --progress none --ignore-eos --drafter mtp \
        --tree 1,1 --json-stats "$TMP/stats" >/dev/null 2>&1
    grep -o '"sources": {"mtp": {[^}]*}' "$TMP/stats"
done >"$TMP/a"
[ "$(sort -u "$TMP/a" | wc -l)" = 1 ] && [ "$(wc -l <"$TMP/a")" = 2 ]
result the_draft_layer_is_written $? "$(cat "$TMP/a")"
# A gate of the draft layer that is a vector already.
cp -r build/data/models/qwen35moe-fused-bf16 "$TMP/gate"
python3 - "$TMP"/gate/*.safetensors <<'END'
import json, sys
for path in sys.argv[1:]:
    data = open(path, "rb").read()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    for name, tensor in header.items():
        if name.endswith("mtp.layers.0.mlp.shared_expert_gate.weight"):
            tensor["shape"] = tensor["shape"][1:]
            text = json.dumps(header, separators=(",", ":")).encode()
            open(path, "wb").write(len(text).to_bytes(8, "little") + text + data[8 + n:])
END
"$LONGHAND" convert -m "$TMP/gate" --weights bf16 -o "$TMP/gate.gguf" -q
same a_gate_that_is_a_vector "$TMP/qwen35moe-fused-bf16.gguf" "$TMP/gate.gguf"
# Tensors of a layer that the hybrid does not have may have any shape.
stray() # NAME SHAPE MODEL: a copy of a hybrid with one more tensor of zeros
{
    cp -r build/data/models/$3 "$TMP/$1"
    python3 - "$TMP/$1/model.safetensors" "$1" "$2" <<'END'
import json, math, sys
path, name, shape = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
data = open(path, "rb").read()
n = int.from_bytes(data[:8], "little")
header, body = json.loads(data[8:8 + n]), data[8 + n:] + bytes(4 * math.prod(shape))
header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data) - 8 - n, len(body)]}
text = json.dumps(header).encode()
open(path, "wb").write(len(text).to_bytes(8, "little") + text + body)
END
}
long=model.layers.9.input_layernorm.weight; narrow=model.layers.9.linear_attn.out_proj.weight
empty=model.layers.9.mlp.up_proj.weight
stray $empty '[0, 44]' qwen35-grouped-bf16
check an_empty_tensor 2 "$empty. has no elements" convert -m "$TMP/$empty" --weights bf16 -o "$TMP/x.gguf"
expert=model.layers.9.mlp.experts.0.up_proj.weight
stray $long '[3000000]' qwen35-grouped-bf16; stray $narrow '[4, 24]' qwen35-grouped-bf16
stray $expert '[4, 44]' qwen35moe-each-f32
check a_vector_longer_than_a_slab 2 "$long.: rows of 12000000 bytes, at most" convert \
    -m "$TMP/$long" --weights bf16 -o "$TMP/x.gguf"
check a_tensor_without_the_value_heads 2 "$narrow.: 24 columns, needed are 72" convert \
    -m "$TMP/$narrow" --weights bf16 -o "$TMP/x.gguf"
check an_expert_without_the_others 2 "experts.1.up_proj.weight. is missing or has another shape" convert \
    -m "$TMP/$expert" --weights bf16 -o "$TMP/x.gguf"
check dynamic_rope_is_refused 2 "config.json: rope_type dynamic cannot be written" convert \
    -m build/data/models/llama-dynamic-old-bf16 -o "$TMP/x.gguf"
check window_in_some_layers_is_refused 2 "a window in some of the layers cannot be written" convert \
    -m build/data/models/qwen2-window-f16 -o "$TMP/x.gguf"
check experts_without_a_norm_are_refused 2 "norm_topk_prob false cannot be written" convert \
    -m build/data/models/qwen3moe-fused-f32 -o "$TMP/x.gguf"
check experts_with_a_norm_are_refused 2 "norm_topk_prob true of qwen2_moe cannot be written" convert \
    -m build/data/models/qwen2moe-fused-f32 -o "$TMP/x.gguf"
[ ! -e "$TMP/x.gguf" ] && [ -z "$(ls "$TMP" | grep part)" ]
result a_refused_model_leaves_no_file $? "$(ls "$TMP")"
check convert_needs_a_file 2 "convert: -o FILE.gguf is missing" convert -m $MODEL
check convert_takes_no_gguf 2 "is a GGUF file already" convert -m "$TMP/qwen3-bf16.gguf" -o "$TMP/x.gguf"
check convert_does_not_overwrite_its_model 2 "is a file of the model" convert -m $MODEL -o $MODEL/config.json

for w in bf16 q8_0 q4_0; do
    "$LONGHAND" convert -m $MODEL --weights $w -o "$TMP/$w.gguf" -q -t 3 && [ -s "$TMP/$w.gguf" ]
    result convert_to_$w $?
done
"$LONGHAND" convert -m $MODEL --weights q4_0 -o "$TMP/again.gguf" -q -t 1
same convert_does_not_depend_on_threads "$TMP/q4_0.gguf" "$TMP/again.gguf"

run() { "$LONGHAND" run --prompt "The ship" --tokens 60 --seed 1 -q --drafter none -m "$@"; }
run $MODEL >"$TMP/a"; run "$TMP/bf16.gguf" >"$TMP/b"
same text_of_the_file_is_that_of_the_directory "$TMP/a" "$TMP/b"
mkdir "$TMP/one"; cp "$TMP/bf16.gguf" "$TMP/one"; run "$TMP/one" >"$TMP/b"
same directory_with_one_file "$TMP/a" "$TMP/b"
cp "$TMP/q8_0.gguf" "$TMP/one"
check directory_with_two_files 2 "fits several models in .*: bf16.gguf, q8_0.gguf; name the path of one" \
    run --prompt x --tokens 1 -m "$TMP/one"
"$LONGHAND" tokenize -m $MODEL models/demo/openings/portrait.txt >"$TMP/ids1"
"$LONGHAND" tokenize -m "$TMP/bf16.gguf" models/demo/openings/portrait.txt >"$TMP/ids2"
same ids_are_equal "$TMP/ids1" "$TMP/ids2"
"$LONGHAND" inspect -m "$TMP/q8_0.gguf" --json >"$TMP/inspect"; grep -q '"Q8_0"' "$TMP/inspect"
result inspect_names_the_types $? "$(head -c 300 "$TMP/inspect")"
check output_is_the_model 2 "is a file of the model" \
    run --prompt x --tokens 1 -m "$TMP/bf16.gguf" -o "$TMP/bf16.gguf"

# --weights: a 16-bit directory writes the text of the converted file, and the job remembers the choice.
run $MODEL >"$TMP/a"
for w in q8_0 q4_0; do
    run $MODEL --weights $w >"$TMP/b"; run "$TMP/$w.gguf" >"$TMP/c"
    same text_of_weights_${w}_is_that_of_the_file "$TMP/b" "$TMP/c"
    score "$TMP/$w.gguf" >"$TMP/s1"
    "$LONGHAND" score -m $MODEL --weights $w $T --json --per-token -q >"$TMP/s2"
    same score_of_weights_${w}_is_that_of_the_file "$TMP/s1" "$TMP/s2"
    score $MODEL >"$TMP/s2"; differ score_of_weights_${w}_is_not_that_of_16_bits "$TMP/s1" "$TMP/s2"
done
"$LONGHAND" submit -m $MODEL --weights q4_0 --prompt "The ship" --tokens 60 --seed 1 -q \
    --db "$TMP/w.db" >"$TMP/id"
"$LONGHAND" work -q --db "$TMP/w.db" && "$LONGHAND" text 1 --db "$TMP/w.db" >"$TMP/b"
run "$TMP/q4_0.gguf" >"$TMP/c"; same queued_job_keeps_its_weights "$TMP/b" "$TMP/c"
"$LONGHAND" verify 1 --db "$TMP/w.db" >"$TMP/v" 2>&1; grep -q identical "$TMP/v"
result verify_uses_the_weights_of_the_job $? "$(cat "$TMP/v")"
check weights_of_a_quantised_file 2 "dtype Q8_0; encoded can be BF16, F16 and F32" run --prompt x --tokens 1 \
    -m "$TMP/q8_0.gguf" --weights q8_0
if [ -x "$LONGHAND_TEST" ]; then
    LONGHAND=$LONGHAND_TEST check gpu_refuses_quantised_weights 2 \
        'tensor "token_embd.weight": weights of type Q8_0 are not supported on this device; --device cpu' \
        run --prompt x --tokens 1 -m "$TMP/q4_0.gguf" --device emulated
fi

# The chat template travels too.
mkdir "$TMP/chat"; cp $MODEL/*.json $MODEL/model.safetensors "$TMP/chat"
cat >"$TMP/chat/chat_template.jinja" <<'T'
{%- for m in messages %}
    {{- '<|im_start|>' ~ m.role ~ '\n' ~ m.content ~ '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
T
"$LONGHAND" convert -m "$TMP/chat" --weights bf16 -o "$TMP/chat.gguf" -q
run "$TMP/chat" --chat >"$TMP/a"; run "$TMP/chat.gguf" --chat >"$TMP/b"
same chat_template_of_the_file_is_that_of_the_directory "$TMP/a" "$TMP/b"
check file_without_a_template 2 "the model has no chat template" \
    run --prompt x --tokens 1 --chat -m "$TMP/bf16.gguf"

# Drafts change nothing, in chains and in trees, and neither does a kill. Q4_K_M has products of two types.
python3 tests/cli/q4_k_m.py "$TMP/q4_k_m.gguf"
for w in small nvfp4 joined; do python3 tests/cli/q4_k_m.py "$TMP/$w.gguf" $w; done
export LONGHAND_DB=$TMP/k.db
for w in q4_k_m small nvfp4 q8_0; do
    long() { "$LONGHAND" run -m "$TMP/$w.gguf" --prompt "The ship" -n 700 --seed 3 --ignore-eos -q "$@"; }
    for t in 0 0.7 1; do
        long --temperature $t --drafter none >"$TMP/a"
        long --temperature $t --drafter partial,ngram,suffix --tree 1,1,1 >"$TMP/b"
        same "chains_of_${w}_change_nothing_at_$t" "$TMP/a" "$TMP/b"
        long --temperature $t --drafter partial,ngram --tree 3,2,2 --draft-passes 2 >"$TMP/b"
        same "trees_of_${w}_change_nothing_at_$t" "$TMP/a" "$TMP/b"
        long --temperature $t >"$TMP/b"; same "auto_drafts_of_${w}_change_nothing_at_$t" "$TMP/a" "$TMP/b"
    done
    long --temperature 1 --drafter none --format ids >"$TMP/a"
    id=$("$LONGHAND" submit -m "$TMP/$w.gguf" --prompt "The ship" -n 700 --seed 3 --ignore-eos \
        --temperature 1 -q)
    held 300 "[ \$('$LONGHAND' text $id --format ids | wc -l) -gt 40 ]" \
        "$LONGHAND" run --resume "$id" --format ids -q; r=$?
    n=$("$LONGHAND" text "$id" --format ids | wc -l)
    [ $r = 137 ] && [ "$n" -gt 40 ] && [ "$n" -lt 700 ]
    result "a_job_of_${w}_is_killed" $? "exit $r, $n tokens"
    "$LONGHAND" work -q; "$LONGHAND" text "$id" --format ids >"$TMP/b"
    same "a_killed_job_of_${w}_continues" "$TMP/a" "$TMP/b"
done

# All types of few bits: the hash is that of a file whose tensors gguf-py 0.19.0 decoded to F32, and numpy
# multiplied by their scales; llama.cpp decoded those of Q1_0 and Q2_0.
for w in small:dc1684ecec47a0ac1e86e340809c3e5e nvfp4:3d138a892cd1f8872096f47ebd09b05c \
    joined:40b1680c58f8f0b235fe8243fa1f3fa9; do
    "$LONGHAND" score -m "$TMP/${w%:*}.gguf" models/demo/openings/portrait.txt --compute f32 --window 512 \
        --json --per-token -q | python3 -c 'import hashlib, json, sys
print(hashlib.md5(json.dumps(json.load(sys.stdin)["token_nll"]).encode()).hexdigest())' >"$TMP/a"
    echo ${w#*:} >"$TMP/b"
    same "types_of_${w%:*}_are_decoded_as_gguf_py_does" "$TMP/a" "$TMP/b"
done
"$LONGHAND" inspect -m "$TMP/small.gguf" >"$TMP/inspect"
for t in IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S IQ1_S IQ1_M TQ1_0 TQ2_0 Q1_0 Q2_0 Q4_K Q6_K; do
    grep -q "[0-9] in $t[,)]" "$TMP/inspect" || echo $t
done >"$TMP/missing"
[ ! -s "$TMP/missing" ]; result inspect_names_the_types_of_few_bits $? "$(cat "$TMP/missing")"
"$LONGHAND" inspect -m "$TMP/nvfp4.gguf" >"$TMP/inspect"; grep -q "[0-9] in NVFP4[,)]" "$TMP/inspect"
result inspect_names_nvfp4 $? "$(cat "$TMP/inspect")"
check convert_takes_no_types_of_few_bits 2 "is a GGUF file already" convert -m "$TMP/small.gguf" \
    -o "$TMP/x.gguf"

# Heads and LongSpec learn from a quantised model, and the number of threads changes no bit.
for k in heads longspec; do
    [ $k = heads ] && rate=0.01 || rate=0.0005
    for t in 1 3; do
        "$LONGHAND" train $k -m "$TMP/q4_k_m.gguf" --data models/demo/openings/*.txt --window 128 --steps 8 \
            --batch-windows 1 --seed 2 -t $t --lr $rate --out "$TMP/$k$t.safetensors" \
            --curves "$TMP/$k$t.csv" -q >/dev/null 2>"$TMP/err"
        result "train_${k}_on_a_quantised_model_${t}" $? "$(tail -1 "$TMP/err")"
    done
    same "train_${k}_on_a_quantised_model_threads" "$TMP/${k}1.safetensors" "$TMP/${k}3.safetensors"
    awk -F, '$4 == "train" && $5 == 0 && $6 != "nan" { if (!n++) first = $6; last = $6 }
        END { exit !(n > 1 && first < 50 && last < first) }' "$TMP/${k}3.csv"
    result "train_${k}_on_a_quantised_model_lowers_the_loss" $? \
        "$(grep ',train,0' "$TMP/${k}3.csv" | tr '\n' ' ')"
done

# A mixture of experts: quantised experts, drafts and a kill change nothing; a GPU does not take it.
X=build/data/models/qwen3moe-each-bf16
for w in q8_0 q4_0; do
    "$LONGHAND" convert -m $X --weights $w -o "$TMP/x-$w.gguf" -q
    score "$TMP/x-$w.gguf" >"$TMP/s1"
    "$LONGHAND" score -m $X --weights $w $T --json --per-token -q >"$TMP/s2"
    same experts_of_weights_${w}_are_those_of_the_file "$TMP/s1" "$TMP/s2"
    score $X >"$TMP/s2"; differ experts_of_weights_${w}_are_not_those_of_16_bits "$TMP/s1" "$TMP/s2"
done
G=(-m "$TMP/x-q8_0.gguf" --prompt "The ship" --tokens 2500 --seed 3 -q --ignore-eos)
moe() { "$LONGHAND" $1 "${G[@]}" "${@:2}"; }
moe run --db "$TMP/x.db" --drafter none --format ids >"$TMP/a"
moe run --db "$TMP/x.db" --format ids >"$TMP/b"
same drafts_of_experts_change_nothing "$TMP/a" "$TMP/b"
moe submit --db "$TMP/x2.db" >"$TMP/id"
held 300 "[ \$('$LONGHAND' text 1 --db '$TMP/x2.db' --format ids | wc -l) -gt 40 ]" \
    "$LONGHAND" run --resume 1 --db "$TMP/x2.db" --format ids -q
some=$("$LONGHAND" text 1 --db "$TMP/x2.db" --format ids 2>/dev/null | wc -l); [ "$some" -lt 2500 ]
result killed_before_its_end $? "$some tokens"
"$LONGHAND" work -q --db "$TMP/x2.db"; "$LONGHAND" text 1 --db "$TMP/x2.db" --format ids >"$TMP/b"
same killed_and_continued_with_experts "$TMP/a" "$TMP/b"
if [ -x "$LONGHAND_TEST" ]; then
    LONGHAND=$LONGHAND_TEST check gpu_refuses_experts 2 \
        'mixtures of experts .qwen3_moe. are not supported on this device; --device cpu supports them' \
        run --prompt x --tokens 1 -m $X --device emulated
fi

# Damaged files.
head -c 1000000 "$TMP/bf16.gguf" >"$TMP/short.gguf"
check cut_short 2 "it is cut short" run --prompt x --tokens 1 -m "$TMP/short.gguf"
# The factor of the last block of output.weight, before 24 bytes of padding.
cp "$TMP/q4_k_m.gguf" "$TMP/infinite.gguf"
printf '\000\174' | dd of="$TMP/infinite.gguf" bs=1 seek=$(($(stat -c %s "$TMP/infinite.gguf") - 26)) \
    conv=notrunc 2>/dev/null
check infinite_factor 2 'tensor "output.weight": the factor of a block is infinite or NaN' run --prompt x \
    --tokens 1 -m "$TMP/infinite.gguf"
# Scales: of another shape, of a matrix that is missing or not quantised, not finite; a row of half a block.
python3 - "$TMP" <<'END'
import sys
for name, source, old, new, dim in (
        ("two", "nvfp4", b"blk.0.attn_q.scale", None, 2),
        ("three", "nvfp4", b"blk.1.ffn_up_exps.scale", None, 3),
        ("missing", "joined", b"blk.0.ffn_up.scale", b"blk.0.attn_q.scale", 1),
        ("float", "joined", b"blk.0.attn_qkv.scale", b"blk.0.ffn_norm.scale", 1),
        ("input", "joined", b"blk.0.attn_output.input_scale", b"blk.0.attn_outgut.input_scale", 1),
        ("rows", "nvfp4", b"blk.0.attn_q.weight", None, 224)):
    data = bytearray(open(f"{sys.argv[1]}/{source}.gguf", "rb").read())
    at = data.index(old)
    data[at:at + len(old)] = new or old
    data[at + len(old) + 4:at + len(old) + 12] = dim.to_bytes(8, "little")
    open(f"{sys.argv[1]}/scale-{name}.gguf", "wb").write(data)
data = bytearray(open(f"{sys.argv[1]}/nvfp4.gguf", "rb").read())
data[-32:-28] = b"\0\0\xc0\x7f"          # output.scale, before its padding
open(f"{sys.argv[1]}/scale-nan.gguf", "wb").write(data)
END
while read -r name message; do
    check scale_$name 2 "$message" run --prompt x --tokens 1 -m "$TMP/scale-$name.gguf"
done <<'END'
two tensor "blk.0.attn_q.scale": 2 elements of F32, needed are 1 of F32
three tensor "blk.1.ffn_up_exps.scale": 3 elements of F32, needed are 4 of F32
missing tensor "blk.0.attn_q.scale" is the scale of a missing tensor, allowed are quantised types
float tensor "blk.0.ffn_norm.scale" is the scale of weights of F32, allowed are quantised types
input tensor "blk.0.attn_outgut.input_scale" is not one of a llama model
rows tensor "blk.0.attn_q.weight": rows of 224 elements, NVFP4 needs a multiple of 64
nan tensor "output.scale" is infinite or NaN
END
printf 'version https://git-lfs.github.com/spec/v1\n' >"$TMP/lfs.gguf"
check lfs_pointer 2 "Git LFS pointer" run --prompt x --tokens 1 -m "$TMP/lfs.gguf"
check not_gguf 2 "it does not begin with GGUF" run --prompt x --tokens 1 -m models/demo/tokenizer.json
exit $failed
