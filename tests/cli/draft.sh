#!/bin/bash
# Drafting from the command line: a text ends where plain decoding ends it, in whatever part of a round its
# end falls, and --json-stats has its fields.
. tests/cli/lib.inc
P=$TMP/prompt
sentence="The king sat in his hall, and the lords sat beside him; and the king said:"
sentence+=" who will go with me to the sea?"
for i in 1 2 3 4 5 6; do echo "$sentence"; done >"$P"
G="run -m $MODEL -f $P -s 5 -q --temperature 0.6"
L=$TMP/longspec.safetensors
S=$TMP/spire.safetensors
U=$TMP/gumiho.safetensors
# trains FILE MODEL [KIND]: a drafter that has learned nearly nothing
trains()
{
    "$LONGHAND" train "${3:-longspec}" --model "$2" --data models/demo/openings/*.txt \
        --valid models/demo/openings/malay.txt --window 64 --steps 2 --out "$1" -q >/dev/null 2>"$TMP/err"
}
trains "$S" $MODEL spire; result a_spire_drafter_is_trained $? "$(tail -1 "$TMP/err")"
trains "$U" $MODEL gumiho; result a_gumiho_drafter_is_trained $? "$(tail -1 "$TMP/err")"
trains "$L" $MODEL; result a_drafter_is_trained $? "$(tail -1 "$TMP/err")"
declare -A how=(
    [longspec]="--drafter longspec:$L,suffix --tree 3,2,1"
    [spire]="--drafter spire:$S --tree 2,2,1"
    [gumiho]="--drafter gumiho:$U --tree 2,2,2,1"
    [auto]="--drafter auto"
    [tree]="--tree 1,3,3,3 --ngram-k 8"
    [passes]="--drafter partial,suffix --tree 2,2 --draft-passes 5 --kv-budget 64 --kv-policy window"
)

# Stop strings that end anywhere in a round, also inside a token, with output as text and as ids.
"$LONGHAND" $G -n 120 --drafter none >"$TMP/whole"
"$LONGHAND" $G -n 120 --drafter none --format ids >"$TMP/whole_ids"
n=$(wc -c <"$TMP/whole")
for at in 40 97 151 230; do
    stop=$(tail -c +$at "$TMP/whole" | head -c 7 | tr -d '\n')
    [ $at -lt $n ] && [ -n "$stop" ] || continue
    formats="text ids"
    [ -n "${LONG:-}" ] || case $at in 40 | 151) formats=text ;; *) formats=ids ;; esac
    for f in $formats; do
        "$LONGHAND" $G -n 120 --drafter none --stop "$stop" --format $f >"$TMP/want"
        bad=
        for h in auto tree passes longspec spire gumiho; do
            "$LONGHAND" $G -n 120 ${how[$h]} --stop "$stop" --format $f --json-stats "$TMP/stats" >"$TMP/t" &&
                cmp -s "$TMP/want" "$TMP/t" || bad+=" $h"
            [ $f = text ] || grep -q "\"tokens\": $(wc -l <"$TMP/want")," "$TMP/stats" || bad+=" $h(tokens)"
            [ -s "$TMP/want" ] && ! cmp -s "$TMP/want" "$TMP/whole" &&
                ! cmp -s "$TMP/want" "$TMP/whole_ids" || bad+=" (no stop)"
        done
        [ -z "$bad" ]; result stop_at_byte_${at}_${f}_is_that_of_plain_decoding $? "stop '$stop':$bad"
    done
done

# An end of text, or the last wanted token, in the middle of a round.
for bias in 8 9.5 11; do
    "$LONGHAND" $G -n 200 --drafter none --logit-bias 4095:$bias --format ids >"$TMP/want"
    bad=
    for h in auto tree passes longspec spire gumiho; do
        "$LONGHAND" $G -n 200 ${how[$h]} --logit-bias 4095:$bias --format ids >"$TMP/t" &&
            cmp -s "$TMP/want" "$TMP/t" || bad+=" $h"
    done
    n=$(wc -l <"$TMP/want")
    [ -z "$bad" ] && [ "$n" -gt 0 ] && [ "$n" -lt 200 ]
    result end_of_text_with_bias_${bias} $? "after $n tokens:$bad"
done
bad=
for n in 1 2 5 ${LONG:+3 8 13}; do
    head -$n "$TMP/whole_ids" >"$TMP/want"
    for h in auto tree passes longspec spire gumiho; do
        "$LONGHAND" $G -n $n ${how[$h]} --format ids >"$TMP/t" && cmp -s "$TMP/want" "$TMP/t" || bad+=" $n:$h"
    done
done
"$LONGHAND" run -m $MODEL -p "" -s 5 -q -n 40 --drafter none >"$TMP/want"
for h in auto tree passes longspec spire gumiho; do
    "$LONGHAND" run -m $MODEL -p "" -s 5 -q -n 40 ${how[$h]} >"$TMP/t" && cmp -s "$TMP/want" "$TMP/t" ||
        bad+=" empty:$h"
done
[ -z "$bad" ]; result short_texts_are_the_beginning_of_long_ones $? "$bad"

# Several samples: each has its own text and its own statistics.
"$LONGHAND" $G -n 60 --drafter none --samples 3 -o "$TMP/plain"
for h in auto tree passes longspec spire gumiho; do
    "$LONGHAND" $G -n 60 ${how[$h]} --samples 3 -o "$TMP/many" --json-stats "$TMP/many.json"
    cmp -s "$TMP/plain.0" "$TMP/many.0" && cmp -s "$TMP/plain.1" "$TMP/many.1" &&
        cmp -s "$TMP/plain.2" "$TMP/many.2"
    result samples_with_$h $? "differ"
    [ "$(cat "$TMP/many.json.0" "$TMP/many.json.1" "$TMP/many.json.2" | grep -c '"tokens": 60,')" = 3 ]
    result samples_have_their_statistics_with_$h $? "$(ls "$TMP")"
done
differ samples_differ "$TMP/plain.1" "$TMP/plain.2"
"$LONGHAND" $G -n 60 --compute f32 --drafter none >"$TMP/want"
"$LONGHAND" $G -n 60 --compute f32 --tree 2,2 >"$TMP/t"
same f32_drafted_is_f32_plain "$TMP/want" "$TMP/t"

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
"$LONGHAND" $G -n 60 --drafter none >"$TMP/want"
"$LONGHAND" $G -n 60 -m "$TMP/own" --drafter longspec --tree 2,1 --json-stats "$TMP/s" \
    >"$TMP/t" 2>"$TMP/err" &&
    cmp -s "$TMP/want" "$TMP/t" && grep -q '"longspec": {"drafted": [1-9]' "$TMP/s"
result a_published_file_beside_the_model $? "$(cat "$TMP/err")"
# The drafters of models/demo, by name alone, draft.
"$LONGHAND" $G -n 60 --drafter none >"$TMP/want"
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
# Killed, and resumed from a snapshot.
"$LONGHAND" $G -n 1500 --ignore-eos --drafter none >"$TMP/want"
for h in longspec spire gumiho; do
    id=$("$LONGHAND" submit ${G#run} -n 1500 --ignore-eos ${how[$h]})
    held 4000 "'$LONGHAND' show $id | grep -q 'snapshot of the KV cache'" \
        "$LONGHAND" run --resume "$id" -q --kv-snapshot on 2>/dev/null; r=$?
    "$LONGHAND" run --resume "$id" -q >/dev/null 2>"$TMP/err"
    "$LONGHAND" text "$id" >"$TMP/t"; same ${h}_killed_and_resumed "$TMP/want" "$TMP/t"
    [ $r = 137 ] && "$LONGHAND" show "$id" | grep -q ' restored: '
    result ${h}_resumed_from_a_snapshot $? "exit $r: $("$LONGHAND" show "$id" | tail -4)"
done

# Presets of other papers draft, and write the text of plain decoding.
"$LONGHAND" $G -n 60 --drafter none >"$TMP/want"
for p in magicdec medusa; do
    "$LONGHAND" $G -n 60 --preset $p --json-stats "$TMP/s" >"$TMP/t" && cmp -s "$TMP/want" "$TMP/t" &&
        grep -qE '"(partial|heads)": \{"drafted": [1-9][0-9]*, "accepted": [1-9]' "$TMP/s"
    result preset_$p $? "$(head -c 600 "$TMP/s")"
done

# --json-stats has every documented field, also for plain decoding.
"$LONGHAND" $G -n 120 ${how[tree]} --json-stats "$TMP/s" >/dev/null
"$LONGHAND" $G -n 120 ${how[auto]} --json-stats "$TMP/a" >/dev/null
"$LONGHAND" $G -n 120 --drafter none --json-stats "$TMP/p" >/dev/null
missing=
for f in finish_reason model seed prompt_tokens tokens seconds prefill_seconds tokens_per_second rounds \
    mean_acceptance_length alpha beta drafted verified_rows accepted reached_per_depth accepted_per_depth \
    acceptance_histogram sources time draft verify checkpoint controller other refreshes windows start; do
    for s in s a p; do grep -q "\"$f\": " "$TMP/$s" || missing+=" $f($s)"; done
done
[ -z "$missing" ]; result json_stats_has_the_fields_of_a_report $? "$missing"
grep -q '"rounds": 120, "mean_acceptance_length": 1.0000, "alpha": null, .*"accepted": 0,.*"sources": {}' \
    "$TMP/p"
result plain_decoding_has_a_round_per_token $? "$(cat "$TMP/p")"
grep -q '"beta": null' "$TMP/a" && grep -qE '"beta": [0-9.]+' "$TMP/s"
result beta_is_for_fixed_trees $? "$(cat "$TMP/a")"
rounds=$(sed -nE 's/.*"rounds": ([0-9]+),.*/\1/p' "$TMP/s")
[ "$rounds" -gt 0 ] && [ "$rounds" -lt 100 ] &&
    grep -qE '"partial": \{"drafted": [1-9][0-9]*, "accepted": [1-9]' "$TMP/s"
result a_repeating_text_takes_fewer_rounds $? "$(head -c 600 "$TMP/s")"

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

# Statistics of a resumed job: the rounds of this attempt, in the windows of the whole text.
# The pipe is closed, and the job is paused.
held 4000 close "$LONGHAND" run -m $MODEL -p x -s 5 --ignore-eos -n 2600 --tree 1,1 -q 2>/dev/null
id=$("$LONGHAND" list --state paused --json |
    python3 -c 'import json,sys; print(json.load(sys.stdin)["jobs"][-1]["job"])')
"$LONGHAND" run --resume "$id" -q --json-stats "$TMP/s" >/dev/null && python3 - "$TMP/s" 2>"$TMP/err" <<'E'
import json, sys
s = json.load(open(sys.argv[1])); w = s["windows"]; made = sum(x["tokens"] for x in w)
assert 0 < s["from"] < 2600 and s["tokens"] == 2600 and made == 2600 - s["from"], s
assert w[0]["start"] == s["from"] and all(x["start"] % 1000 == 0 for x in w[1:]), w
assert w[-1]["start"] + w[-1]["tokens"] == 2600, w
assert abs(s["mean_acceptance_length"] - made / s["rounds"]) < 1e-3, s
assert abs(s["tokens_per_second"] - made / s["seconds"]) < 1 and s["time"]["checkpoint"] > 0, s
E
result statistics_of_an_attempt_that_goes_on $? "$(tail -1 "$TMP/err")"

# The published verifier: with several candidates it writes another text, and its statistics say so.
"$LONGHAND" $G -n 60 --tree 3,2 --verifier paper --json-stats "$TMP/s" >"$TMP/t"; r=$?
[ $r = 0 ] && grep -q '"lossless": false' "$TMP/s" && grep -q '"lossless": true' "$TMP/a"
result the_published_rule_is_marked $? "exit $r: $(head -c 200 "$TMP/s")"
for a in "--tree 1 --drafter partial,ngram,suffix --ngram-lead all" "--preset tokenswift"; do
    "$LONGHAND" $G -n 60 $a --verifier paper >"$TMP/t" 2>"$TMP/err"; r=$?
    [ $r = 0 ] && [ -s "$TMP/t" ]
    result "the_published_rule_runs_with_${a// /_}" $? "exit $r: $(head -c 300 "$TMP/err")"
done
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
"$LONGHAND" $G -n 120 --drafter partial,heads --tree 1,2 --draft-passes 1 --draft-weights model --json-stats \
    "$TMP/s" >"$TMP/t" && cmp -s "$TMP/whole" "$TMP/t" && ! grep -q '"draft_passes": 0,' "$TMP/s"
result drafts_of_the_model_itself_write_the_same_text $?
check draft_weights_of_4_bits 2 "draft-weights: 'int4' is not one of int8|model" $G -n 5 --draft-weights int4
check verifier_needs_a_tree 2 'verifier paper: needs a fixed --tree' $G -n 5 --verifier paper
check verifier_needs_drafts 2 'nothing to verify' $G -n 5 --verifier paper --drafter none
check sinks_below_the_budget 2 'kv-sinks 16: must be 1 to 9' $G -n 5 --kv-budget 10
check trees_have_a_limit 2 'more than 1023 candidates' $G -n 5 --tree 31,31,31
check unknown_drafter 2 "'medusa' is not one of auto, none" $G -n 5 --drafter partial,medusa
exit $failed
