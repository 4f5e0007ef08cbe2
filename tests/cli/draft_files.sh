#!/bin/bash
# Drafters that lie in files: each thing that is wrong with a file is named in one line, and a drafter of any
# quality changes no text.
. tests/cli/draft.inc
L=$MODEL/drafters/longspec.safetensors
U=$MODEL/drafters/gumiho.safetensors
"$LONGHAND" $G -n 60 --drafter none >"$TMP/want"

# Files of trained drafters: each thing that is wrong with one is named in one line.
R="run -m $MODEL -p x -n 5 -q"
check no_drafter_beside_the_model 2 "no drafter of this kind in drafters/" $R --drafter longspec \
    -m build/data/models/mistral-nowindow-f16
check no_such_drafter_file 2 "longspec:/none: cannot open" $R --drafter longspec:/none
check a_file_of_heads 2 "kind is chained, allowed is longspec" $R --drafter longspec:$MODEL/heads.safetensors
LC_ALL=C sed 's/mlp.down_proj.weight/mlp.dawn_proj.weight/' "$L" >"$TMP/l1"
check a_missing_tensor 2 "mlp.down_proj.weight" $R --drafter longspec:$TMP/l1
LC_ALL=C sed 's/"hidden_size":"256"/"hidden_size":"128"/' "$L" >"$TMP/l1"
check a_drafter_of_another_size 2 "hidden_size 128, this model has 256" $R --drafter longspec:$TMP/l1
LC_ALL=C sed 's/"shape":\[704,256\]/"shape":[352,512]/' "$L" >"$TMP/l1"
check a_wrong_shape 2 "\[352, 512\], config.json needs \[704, 256\]" $R --drafter longspec:$TMP/l1
LC_ALL=C sed -E 's/("model":")[0-9a-f]{4}/\1zzzz/' "$L" >"$TMP/l1"
check a_drafter_of_another_model 2 "of another model: it was trained for zzzz" $R --drafter longspec:$TMP/l1
jobs=$("$LONGHAND" list | wc -l)
check a_drafter_of_another_model_is_not_queued 2 "of another model: it was trained for zzzz" \
    submit -m $MODEL -p x -n 5 --drafter longspec:$TMP/l1
[ "$("$LONGHAND" list | wc -l)" = "$jobs" ]; result no_job_for_it $? "$("$LONGHAND" list | tail -2)"
check a_drafter_of_the_model_in_other_bits 0 "" ${R/ -q/} --weights q8_0 --drafter longspec:$L --quiet
LC_ALL=C sed 's/"shape":\[256,512\]/"shape":[512,256]/' "$U" >"$TMP/l1"
check a_wrong_shape_of_gumiho 2 "\"fc.weight\".*\[512, 256\], config.json needs \[256, 512\]" $R \
    --drafter gumiho:$TMP/l1
check a_longspec_drafter_is_no_gumiho_drafter 2 "kind is longspec, allowed is gumiho" $R --drafter gumiho:$L
check the_published_verifier_is_tokenswifts 2 "does not check longspec" $R --drafter longspec:$L --tree 1 \
    --verifier paper
# Published files have no metadata, and projections that longhand does not read.
mkdir -p "$TMP/own/drafters" && cp $MODEL/*.json $MODEL/model.safetensors "$TMP/own" &&
    python3 - "$L" "$TMP/own/drafters/longspec-published.safetensors" <<'E'
import json, struct, sys
b = open(sys.argv[1], "rb").read(); n = struct.unpack("<Q", b[:8])[0]
h = json.loads(b[8:8 + n]); data = b[8 + n:]; del h["__metadata__"]
for x in "kv":
    t = h["self_attn.%s_proj.weight" % x]; size = t["data_offsets"][1] - t["data_offsets"][0]
    h["cross_attn.%s_proj.weight" % x] = dict(t, data_offsets=[len(data), len(data) + size])
    data += bytes(size)
j = json.dumps(h).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(j)) + j + data)
E
"$LONGHAND" $G -n 60 -m "$TMP/own" --drafter longspec --tree 2,1 --json-stats "$TMP/s" \
    >"$TMP/t" 2>"$TMP/err" &&
    cmp -s "$TMP/want" "$TMP/t" && grep -q '"longspec": {"drafted": [1-9]' "$TMP/s"
result a_published_file_beside_the_model $? "$(cat "$TMP/err")"
# The drafters of models/demo, by name alone, draft.
for h in longspec spire gumiho; do
    "$LONGHAND" $G -n 60 -m models/demo --drafter $h --tree 1,1 --json-stats "$TMP/s" \
        >"$TMP/t" 2>"$TMP/err" &&
        cmp -s "$TMP/want" "$TMP/t" && grep -qE "\"$h\": \{\"drafted\": [0-9]+, \"accepted\": [1-9]" "$TMP/s"
    result the_own_${h}_drafts $? "$(cat "$TMP/err")"
done
# More passes than a fixed tree has depths.
for h in partial longspec spire gumiho model:models/demo; do
    "$LONGHAND" $G -n 60 -m models/demo --drafter $h --tree 2,1 --draft-passes 4 >"$TMP/t" 2>"$TMP/err"
    same passes_beyond_the_tree_of_${h%:*} "$TMP/want" "$TMP/t"
done
every=heads,partial,ngram,suffix,longspec,spire,gumiho,model:models/demo
"$LONGHAND" $G -n 60 -m models/demo --drafter $every >"$TMP/t" 2>"$TMP/err"
same all_drafters_at_once "$TMP/want" "$TMP/t"
# A short vocabulary: guesses come true, and the text is the same. A defect is named in one line.
for h in heads longspec spire gumiho; do
    "$LONGHAND" train $h -m models/demo --data models/demo/openings/*.txt --window 64 --steps 2 -q \
        --draft-vocab-size 500 --out "$TMP/v_$h" >"$TMP/t" 2>"$TMP/err" &&
        grep -aq '"draft_vocab_size":"500"' "$TMP/v_$h" &&
        "$LONGHAND" $G -n 60 -m models/demo --drafter $h:$TMP/v_$h --tree 3,1 --json-stats "$TMP/s" \
            >"$TMP/t" 2>"$TMP/err" &&
        cmp -s "$TMP/want" "$TMP/t" &&
        grep -qE "\"$h\": \{\"drafted\": [1-9][0-9]*, \"accepted\": [1-9]" "$TMP/s"
    result a_short_vocabulary_of_$h $? "$(cat "$TMP/err" "$TMP/s")"
    LC_ALL=C sed 's/"dtype":"I64"/"dtype":"F64"/' "$TMP/v_$h" >"$TMP/l1"
    check a_vocabulary_of_floats_of_$h 2 '"d2t": dtype F64 with 1 dimensions, allowed is I64 with one' \
        $R --drafter $h:$TMP/l1
    head -c -8 "$TMP/v_$h" >"$TMP/l1"
    printf '\x0d\x0e\0\0\0\0\0\0' >>"$TMP/l1"
    check a_token_beyond_the_vocabulary_of_$h 2 '"d2t": element 499 is 3597, allowed are [0-9]* to 3596' \
        $R --drafter $h:$TMP/l1
done
# Drafted tokens with infinite hidden states do not end a text: every token that is not in the text gets an
# infinite embedding.
cp -r build/data/models/mistral-nowindow-f16 "$TMP/inf"
trains "$TMP/l1" "$TMP/inf" && LC_ALL=C sed 's/"model":"/"modex":"/' "$TMP/l1" >"$TMP/l2"
I="run -m $TMP/inf -s 3 -n 200 --ignore-eos --temperature 0.3 -q"
"$LONGHAND" $I -p "the cat sat on the mat" --drafter none --format ids >"$TMP/ids"
"$LONGHAND" $I -p "the cat sat on the mat" --drafter none >"$TMP/want"
echo "the cat sat on the mat" | python3 -c 'import json,sys; print(json.dumps(sys.stdin.read().strip()))' |
    "$LONGHAND" tokenize -m "$TMP/inf" --jsonl - | tr -d '[] ' | tr , '\n' >>"$TMP/ids"
python3 - "$TMP/inf/model.safetensors" "$TMP/ids" <<'E'
import json, struct, sys
b = bytearray(open(sys.argv[1], "rb").read())
n = struct.unpack("<Q", b[:8])[0]
t = json.loads(b[8:8 + n])["model.embed_tokens.weight"]
used = {int(x) for x in open(sys.argv[2]) if x.strip()}
rows, width = t["shape"]
at = 8 + n + t["data_offsets"][0]
for i in set(range(rows)) - used: b[at + 2 * width * i:at + 2 * width * i + 2] = b"\x00\x7c"
open(sys.argv[1], "wb").write(b)
E
bad=
for h in "--drafter none" "--drafter auto" "--drafter partial --tree 29" \
    "--drafter partial,ngram,suffix --tree 5,3" "--drafter partial --tree 1,1" \
    "--drafter longspec:$TMP/l2 --tree 20,20"; do
    "$LONGHAND" $I -p "the cat sat on the mat" $h >"$TMP/t" 2>"$TMP/err" && cmp -s "$TMP/want" "$TMP/t" ||
        bad+=" $h: $(head -c 200 "$TMP/err")"
done
[ -z "$bad" ]; result infinite_guesses_end_no_text $? "$bad"

check heads_of_a_file_that_is_not_there 2 'heads:/nonexistent: cannot open' \
    run -m $MODEL -p x -n 5 --drafter heads:/nonexistent
check heads_that_the_model_does_not_have 2 '^longhand: --drafter: .* has no drafting heads' \
    submit -m build/data/models/llama3-new-f16 -p x -n 5 --drafter ngram,heads
check heads_that_the_preset_needs 2 '^longhand: --preset: .* has no drafting heads' \
    submit -m build/data/models/llama3-new-f16 -p x -n 5 --preset tokenswift
# A heads file that a worker would reject queues nothing.
before=$("$LONGHAND" list | wc -l)
check heads_of_another_kind_of_file 2 'README.md: header length' \
    submit -m $MODEL -p x -n 5 --drafter heads:README.md
check heads_that_are_a_model 2 'model.safetensors: no tensor "heads.0.linear.weight"' \
    run -m $MODEL -p x -n 5 --drafter "heads:$MODEL/model.safetensors"
check heads_of_another_size 2 'heads of a model with hidden_size 256, this model has' \
    submit -m build/data/models/llama2-bf16 -p x -n 5 --drafter "partial,heads:$MODEL/heads.safetensors"
[ "$("$LONGHAND" list | wc -l)" = "$before" ]
result nothing_was_queued_for_them $? "$("$LONGHAND" list | tail -3)"
# Heads of another model: a notice, and the same text. The model's own heads: no notice.
LC_ALL=C sed 's/"model":"[0-9a-f]*"/"model":"0123456789abcdef"/' $MODEL/heads.safetensors >"$TMP/foreign"
check heads_of_another_model_are_told_of 0 'trained for another model' \
    ${G/ -q/} -n 60 --drafter "heads:$TMP/foreign"
cp "$TMP/out" "$TMP/t"
"$LONGHAND" $G -n 60 --drafter none >"$TMP/want"
same heads_of_another_model_write_the_same_text "$TMP/want" "$TMP/t"
"$LONGHAND" ${G/ -q/} -n 60 --drafter heads 2>&1 >"$TMP/t" | grep -q 'another model'
[ $? = 1 ] && cmp -s "$TMP/want" "$TMP/t"; result heads_of_the_model_are_not $?
"$LONGHAND" $G -n 60 --drafter partial,heads --tree 1,2 --draft-passes 1 --draft-weights model --json-stats \
    "$TMP/s" >"$TMP/t" && cmp -s "$TMP/want" "$TMP/t" && ! grep -q '"draft_passes": 0,' "$TMP/s"
result drafts_of_the_model_itself_write_the_same_text $?
exit $failed
