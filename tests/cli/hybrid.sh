#!/bin/bash
# Hybrids: drafts, kills, snapshots, several texts at once, fork and extend change no byte of a text.
. tests/cli/lib.inc
M=build/data/models/qwen35-equal-f32
N=2500
job() { "$LONGHAND" $1 -m $M --prompt "The ship went on and on and on" -n $N -s 3 -q --ignore-eos "${@:2}"; }

job run --drafter none >"$TMP/whole.text"
job run --drafter none --format ids >"$TMP/whole"
for d in auto ngram,suffix mtp; do
    job run --drafter $d --format ids >"$TMP/a"; same "drafts_of_${d}_change_nothing" "$TMP/whole" "$TMP/a"
done
job run --drafter ngram,suffix,mtp --tree 3,2,2 --format ids -n 600 >"$TMP/a"
head -600 "$TMP/whole" >"$TMP/b"; same trees_change_nothing "$TMP/b" "$TMP/a"
for d in partial heads longspec spire gumiho; do
    check "drafter_${d}_is_refused" 2 "--drafter $d: not for qwen3_5 models, .*ngram, suffix" \
        run -m $M --prompt x -n 9 --drafter $d
done
check a_model_without_a_draft_layer 2 'qwen35-grouped-bf16 has no draft layer \(MTP\): .*mtp.fc.weight' \
    run -m build/data/models/qwen35-grouped-bf16 --prompt x -n 9 --drafter mtp
check the_draft_layer_has_no_file 2 "'mtp:x' is not one of .*mtp" run -m $M --prompt x -n 9 --drafter mtp:x

check the_published_verifier_is_tokenswifts 2 'verifier paper: .*does not check mtp' \
    run -m $M --prompt x -n 9 --drafter mtp --tree 1 --verifier paper

for k in heads longspec gumiho spire; do
    check "training_${k}_is_refused" 2 "train $k: no trained drafter supports models .*recurrent states" \
        train $k --model $M --data models/demo/openings/portrait.txt --out "$TMP/drafter"
done

# A smaller model drafts for a hybrid, but a hybrid for nobody; a GPU takes none.
job run --drafter model:build/data/models/qwen3-bf16 --format ids >"$TMP/a"
same drafts_of_a_model_change_nothing "$TMP/whole" "$TMP/a"
check a_hybrid_drafts_for_nobody 2 "models with recurrent states .qwen3_5. do not draft" \
    run -m build/data/models/qwen3-bf16 --prompt x -n 9 --drafter model:build/data/models/qwen35-grouped-bf16
if [ -x "$LONGHAND_TEST" ]; then
    LONGHAND=$LONGHAND_TEST check gpu_refuses_states 2 \
        'recurrent states .qwen3_5. are not supported on this device; --device cpu supports them' \
        run -m $M --prompt x -n 1 --device emulated
fi

# A tensor that the header lacks is named, though its data are there; data of no tensor are refused.
cp -r $M "$TMP/lacks"; cp -r $M "$TMP/more"; printf 12345678 >>"$TMP/more/model.safetensors"
python3 - "$TMP/lacks/model.safetensors" <<'END'
import json, sys
data = open(sys.argv[1], "rb").read()
n = int.from_bytes(data[:8], "little")
header = json.loads(data[8:8 + n])
del header["model.layers.0.linear_attn.A_log"]
text = json.dumps(header, separators=(",", ":")).encode().ljust(n)
open(sys.argv[1], "wb").write(data[:8] + text + data[8 + n:])
END
check a_missing_tensor_is_named 2 'tensor "model.layers.0.linear_attn.A_log" is missing, needed with' \
    run -m "$TMP/lacks" --prompt x -n 9
check data_of_no_tensor 2 'the tensors end at byte .*, nothing may follow' run -m "$TMP/more" --prompt x -n 9

# What is taken back, a loop or a banned phrase, is the same with drafts, kills and other texts beside it. The
# phrases are pairs of letters that begin after 600 tokens, where copies of the states are.
export LONGHAND_DB=$TMP/retakes.db
python3 - "$TMP/whole.text" >"$TMP/phrases" <<'END'
import re, sys
text = open(sys.argv[1], encoding="utf-8", errors="replace").read()
pairs = re.findall("(?=([A-Za-z]{2}))", text[len(text) // 4:])
print("\n".join(list(dict.fromkeys(p for p in pairs if p.lower() not in text[:len(text) // 4].lower()))[:20]))
END
[ "$(wc -l <"$TMP/phrases")" -gt 3 ]; result phrases_to_ban $? "$(cat "$TMP/phrases")"
retakes() { job submit --on-loop retake --ban-phrases-file "$TMP/phrases" --drafter "$1"; }
taken=$(retakes none); "$LONGHAND" work -q
"$LONGHAND" text "$taken" --format ids >"$TMP/taken"
some=$("$LONGHAND" show "$taken" | grep -c 'tokens\? taken back')
[ "$some" -gt 3 ]; result hybrids_have_retakes $? "$some retakes"
for d in ngram,suffix mtp auto; do retakes $d >>"$TMP/retaken"; done
held 4000 "'$LONGHAND' show 4 | grep -q 'taken back'" "$LONGHAND" run --resume 4 --format ids -q
[ $? = 137 ]; result a_text_with_retakes_is_killed $? "$("$LONGHAND" list)"
"$LONGHAND" work -q --parallel 3 --kv-snapshot on --max-attempts 0
for id in $(cat "$TMP/retaken"); do
    "$LONGHAND" text "$id" --format ids >"$TMP/a"; same "retakes_of_job_$id" "$TMP/taken" "$TMP/a"
done
check verify_derives_retakes_of_hybrids 0 '' verify -q "$taken"

# kill -9 while the text is being written; then another process completes it, with snapshots and without.
X=build/data/models/qwen35moe-each-f32
for w in on off experts; do
    [ $w = experts ] && M=$X && N=1000 && job run --drafter none --format ids >"$TMP/of_experts"
    [ $w = experts ] && text=$TMP/of_experts && use=on || { text=$TMP/whole; use=$w; }
    export LONGHAND_DB=$TMP/$w.db
    [ $w = on ] && id=$(job submit --drafter mtp,ngram --tree 1,1) || id=$(job submit)
    held 300 "[ \$('$LONGHAND' text $id --format ids | wc -l) -gt 40 ]" \
        "$LONGHAND" run --resume "$id" --format ids -q --kv-snapshot $use; r=$?
    some=$("$LONGHAND" text "$id" --format ids | wc -l)
    [ $r = 137 ] && [ "$some" -gt 40 ] && [ "$some" -lt $N ]
    result "killed_before_its_end_$w" $? "exit $r, $some tokens"
    "$LONGHAND" work -q --kv-snapshot $use 2>"$TMP/err"; "$LONGHAND" text "$id" --format ids >"$TMP/a"
    same "killed_and_continued_$w" "$text" "$TMP/a"
    [ ! -s "$TMP/err" ]; result "no_notice_$w" $? "$(cat "$TMP/err")"
done

# Quantised files of hybrids, whose blocks reach over value heads: drafts and kills change nothing.
for w in q8_0 q4_0; do
    "$LONGHAND" convert -m build/data/models/qwen35-wrapped-bf16 --weights $w -o "$TMP/$w.gguf" -q
    M=$TMP/$w.gguf
    job run --drafter none --format ids >"$TMP/b"
    job run --drafter ngram,suffix --tree 2,2,1 --format ids >"$TMP/a"
    same "trees_of_${w}_change_nothing" "$TMP/b" "$TMP/a"
    export LONGHAND_DB=$TMP/$w.db
    id=$(job submit)
    held 300 "[ \$('$LONGHAND' text $id --format ids | wc -l) -gt 40 ]" \
        "$LONGHAND" run --resume "$id" --format ids -q --kv-snapshot on
    "$LONGHAND" work -q --kv-snapshot on; "$LONGHAND" text "$id" --format ids >"$TMP/a"
    same "killed_and_continued_$w" "$TMP/b" "$TMP/a"
done
M=build/data/models/qwen35-equal-f32
N=2500

# A clean stop makes a snapshot at any position, and the next process goes on from there.
export LONGHAND_DB=$TMP/stop.db
held 900 close "$LONGHAND" run -m $M --prompt "The ship went on and on and on" -n $N -s 3 --ignore-eos \
    --progress none --kv-snapshot on --format ids 2>"$TMP/err"
id=$(sed -n 's/^job: //p' "$TMP/err"); "$LONGHAND" resume "$id" -q
"$LONGHAND" work -q --kv-snapshot on; "$LONGHAND" text "$id" --format ids >"$TMP/a"
same stopped_and_continued "$TMP/whole" "$TMP/a"
"$LONGHAND" show "$id" | grep -q '  restored: .* tokens of prompt and text from a snapshot'
result the_snapshot_was_used $? "$("$LONGHAND" show "$id" | tail -5)"

# Three texts of one prompt: the later ones begin with the rows and the states of the first.
export LONGHAND_DB=$TMP/alike.db
head -c 300 models/demo/openings/portrait.txt >"$TMP/prompt"
"$LONGHAND" submit -m $M -f "$TMP/prompt" -n 300 -s 5 --samples 3 --ignore-eos -q >/dev/null
"$LONGHAND" work -q 2>"$TMP/err"; result work_on_samples $? "$(cat "$TMP/err")"
for i in 1 2 3; do check "verify_sample_$i" 0 '' verify $i -q; done

# Four prompts with a common beginning of 268 tokens: the first text keeps its states at 256 for the others.
# Then three texts fork from one of them: the second, if not the first, keeps its states at their split, 576.
export LONGHAND_DB=$TMP/split.db
shared()
{
    python3 -c 'import sqlite3, sys
print(int(sqlite3.connect(sys.argv[1]).execute("SELECT ifnull(sum(value), 0) FROM metric WHERE name = ?",
                                               ("shared_tokens",)).fetchone()[0]))' "$LONGHAND_DB"
}
for i in 1 2 3 4; do
    { cat "$TMP/prompt"; echo "Part $i of the book begins here."; } >"$TMP/part"
    "$LONGHAND" submit -m $M -f "$TMP/part" -n 400 -s $i --ignore-eos -q >/dev/null
done
"$LONGHAND" work -q --parallel 2 2>"$TMP/err"; result work_on_parts $? "$(cat "$TMP/err")"
n=$(shared); [ "$n" = 768 ]; result three_texts_begin_with_the_states_at_the_split $? "$n tokens shared"
for s in 7 8 9; do "$LONGHAND" fork 1 --at 300 -n 600 -s $s -q >/dev/null; done
"$LONGHAND" work -q --parallel 3 2>"$TMP/err"; result work_on_forks $? "$(cat "$TMP/err")"
n=$(($(shared) - n)); [ "$n" -ge 832 ]; result forks_begin_with_states $? "$n tokens shared"
for i in 1 2 3 4 5 6 7; do check "verify_part_$i" 0 '' verify $i -q; done
"$LONGHAND" text 1 --format ids | head -300 >"$TMP/a"; "$LONGHAND" text 5 --format ids >"$TMP/f"
head -300 "$TMP/f" >"$TMP/b"; same a_fork_begins_with_the_text "$TMP/a" "$TMP/b"
"$LONGHAND" text 6 --format ids >"$TMP/b"; differ forks_of_two_seeds "$TMP/f" "$TMP/b"

# Four texts at once, of which two begin alike; then a longer form of one, and a branch of another.
export LONGHAND_DB=$TMP/many.db
for s in 3 4; do
    "$LONGHAND" submit -m $M --prompt "The ship went on and on and on" -n 600 -s $s --ignore-eos -q >/dev/null
    "$LONGHAND" submit -m $M --prompt "A lamp $s" -n 500 -s $s --ignore-eos -q >/dev/null
done
"$LONGHAND" work -q --parallel 4 2>"$TMP/err"; result work_on_four $? "$(cat "$TMP/err")"
for i in 1 2 3 4; do
    check "verify_$i" 0 '' verify $i -q
done
"$LONGHAND" extend 1 --tokens +300 -q >"$TMP/out" 2>"$TMP/err"; "$LONGHAND" work -q
"$LONGHAND" text 1 --format ids >"$TMP/a"; head -900 "$TMP/whole" >"$TMP/b"
same extended_text_is_that_of_a_longer_job "$TMP/b" "$TMP/a"
