#!/bin/bash
# Drafting from the command line: a text ends where plain decoding ends it, in whatever part of a round its
# end falls, and --json-stats has its fields.
. tests/cli/draft.inc
L=$TMP/longspec.safetensors
S=$TMP/spire.safetensors
U=$TMP/gumiho.safetensors
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

# Killed, and resumed from a snapshot.
"$LONGHAND" $G -n 700 --ignore-eos --drafter none >"$TMP/want"
for h in longspec spire gumiho; do
    id=$("$LONGHAND" submit ${G#run} -n 700 --ignore-eos ${how[$h]})
    held 1500 "'$LONGHAND' show $id | grep -q 'snapshot of the KV cache'" \
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

# Statistics of a resumed job: the rounds of this attempt, in the windows of the whole text.
# The pipe is closed, and the job is paused.
held 2000 close "$LONGHAND" run -m $MODEL -p x -s 5 --ignore-eos -n 1300 --tree 1,1 -q 2>/dev/null
id=$("$LONGHAND" list --state paused --json |
    python3 -c 'import json,sys; print(json.load(sys.stdin)["jobs"][-1]["job"])')
"$LONGHAND" run --resume "$id" -q --json-stats "$TMP/s" >/dev/null && python3 - "$TMP/s" 2>"$TMP/err" <<'E'
import json, sys
s = json.load(open(sys.argv[1])); w = s["windows"]; made = sum(x["tokens"] for x in w)
assert 0 < s["from"] < 1300 and s["tokens"] == 1300 and made == 1300 - s["from"], s
assert w[0]["start"] == s["from"] and all(x["start"] % 1000 == 0 for x in w[1:]), w
assert w[-1]["start"] + w[-1]["tokens"] == 1300, w
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
check draft_weights_of_4_bits 2 "draft-weights: 'int4' is not one of int8|model" $G -n 5 --draft-weights int4
check verifier_needs_a_tree 2 'verifier paper: needs a fixed --tree' $G -n 5 --verifier paper
check verifier_needs_drafts 2 'nothing to verify' $G -n 5 --verifier paper --drafter none
check sinks_below_the_budget 2 'kv-sinks 16: must be 1 to 9' $G -n 5 --kv-budget 10
check trees_have_a_limit 2 'more than 1023 candidates' $G -n 5 --tree 31,31,31
check unknown_drafter 2 "'medusa' is not one of auto, none" $G -n 5 --drafter partial,medusa
exit $failed
