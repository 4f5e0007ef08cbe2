#!/bin/bash
# Numbers pass through unread: what a user writes comes out with the same bits. tests/cli/edges_numbers.py
# sends random values through every form; LONG=1 sends 1,000 of each parameter.
. tests/cli/lib.inc
count=12; [ "${LONG:-}" = 1 ] && count=1000
L=$LONGHAND
# ---- seeds: -1 is drawn once, null and an empty cell are no seed ----
seeds()
{
    sql "SELECT group_concat(seed) FROM (SELECT seed FROM job JOIN batch b ON b.id = batch
        WHERE b.name = '$1' ORDER BY job.id)"
}
cat >"$TMP/s.jsonl" <<'E'
{"prompt": "x", "seed": -1, "max_tokens": 3}
{"prompt": "x", "seed": -1.0, "max_tokens": 3}
{"prompt": "x", "seed": null, "max_tokens": 3}
E
printf 'prompt,seed,max_tokens\nx,-1,3\nx,,3.0\n' >"$TMP/t.csv"
check seeds_in_lines 0 '3 new' submit -m $MODEL --batch "$TMP/s.jsonl" -s 7
check seeds_in_cells 0 '2 new' submit -m $MODEL --batch "$TMP/t.csv" -s 7
check a_grid_of_a_drawn_seed 0 '2 new' submit -m $MODEL -p x -n 3 --name g --grid seed=-1,5
check a_drawn_seed_of_a_grid 0 '2 new' submit -m $MODEL -p x -n 3 -s -1 --name h --grid top-k=4,5.0
check a_drawn_seed_of_a_flag 0 '^seed: [0-9]+$' run -m $MODEL -p x -n 3 --seed -1
check a_drawn_seed_of_a_batch 0 '3 new' submit -m $MODEL --batch "$TMP/s.jsonl" --name all --seed=-1
chats="--batch $TMP/s.jsonl --name chats --chat --chat-template chatml"
check a_drawn_seed_of_chats 0 '3 new' submit -m $MODEL $chats
before="$(seeds s) $(seeds t) $(seeds g) $(seeds h) $(seeds all) $(seeds chats)"
for a in "--batch $TMP/s.jsonl -s 7" "--batch $TMP/s.jsonl -s -1" "--batch $TMP/t.csv -s 7" \
    "-p x -n 3 --name g --grid seed=-1,5.0" \
    "-p x -n 3 -s -1 --name h --grid top-k=4.0,5" "--batch $TMP/s.jsonl --name all --seed -1" \
    "$chats"; do
    check "again_$((again += 1))" 0 '0 new' submit -m $MODEL $a
done
[ "$before" = "$(seeds s) $(seeds t) $(seeds g) $(seeds h) $(seeds all) $(seeds chats)" ]
result seeds_are_drawn_once $? "$before"
[ "$(tr ' ,' '\n\n' <<<"$before" | sort -u | wc -l)" -ge 13 ]; result drawn_seeds_differ $? "$before"
other=$(seeds s); [ "${other##*,}" = "$(python3 -c 'import hashlib
h = hashlib.sha256((7).to_bytes(8, "little") + b"3").digest()
print(int.from_bytes(h[:8], "little", signed=True))')" ]
result null_is_a_missing_seed $? "$other"

# ---- whole numbers ----
for n in 4.5 1e-1 .5 4. 1e 0x4 1e99 18446744073709551616; do
    check "no_whole_number_$n" 2 "^longhand: --tokens: '$n' is not a whole number" \
        submit -m $MODEL -p x --tokens $n
done
for n in 4.5 1e-1 1e99; do
    why="body.max_tokens: '$n' is not a whole number"
    printf '{"prompt": "x", "max_tokens": %s}\n' $n >"$TMP/n.jsonl"
    printf 'prompt,max_tokens\nx,%s\n' $n >"$TMP/n.csv"
    check "no_whole_number_in_a_line_$n" 2 "n.jsonl: line 1: $why" submit -m $MODEL --batch "$TMP/n.jsonl"
    check "no_whole_number_in_a_cell_$n" 2 "n.csv: row 2: $why" submit -m $MODEL --batch "$TMP/n.csv"
done
cat >"$TMP/w.jsonl" <<'E'
{"prompt": [5.0, 1e1], "n": 2.0, "best_of": 1.0, "stop_token_ids": [3.0], "max_tokens": 20e-1}
{"prompt": "x", "after": "b", "carry": 2.0, "max_tokens": 2.0, "custom_id": "c"}
{"prompt": "x", "logprobs": 3.0, "max_tokens": 2, "custom_id": "b"}
E
check whole_numbers_everywhere 0 '4 new' submit -m $MODEL --batch "$TMP/w.jsonl"
sed -i 's/5.0, 1e1/5, 10/; s/2\.0/2/g; s/1\.0/1/; s/3\.0/3/g; s/20e-1/2/' "$TMP/w.jsonl"
check the_same_whole_numbers 0 '0 new' submit -m $MODEL --batch "$TMP/w.jsonl"
check an_empty_text_with_logprobs 0 '' export @w -q --partial --format openai-batch
check bytes_and_ages 1 'no new job' submit -m $MODEL -p x -n 2 --max-store 1.0

# ---- seeds of 64 bits are texts, too ----
S=18446744073709551615
"$L" run -m $MODEL -p x -n 3 -s $S --name wide --json-stats "$TMP/stats" --progress json >/dev/null \
    2>"$TMP/progress"
echo '{"prompt": "x", "custom_id": "a", "max_tokens": 3, "seed": 18446744073709551615}' >"$TMP/one.jsonl"
"$L" submit -m $MODEL --batch "$TMP/one.jsonl" -q >/dev/null
for f in jsonl openai-batch; do "$L" export @wide @one -q --partial --format $f >"$TMP/$f"; done
"$L" export @wide --format csv --fields seed,seed_text >"$TMP/csv" 2>/dev/null
"$L" report @wide --json >"$TMP/report"; "$L" report @wide --json --by seed >"$TMP/by"
"$L" list @wide --json >"$TMP/list"; "$L" show @wide --json >"$TMP/show"
"$L" list @wide --json --columns seed >"$TMP/columns"
for f in jsonl openai-batch report by list columns show stats progress; do
    grep -qE "\"seed\": $S, ?\"seed_text\": \"$S\"" <(tr -d '\n' <"$TMP/$f" | sed 's/,  */, /g')
    result "seed_text_in_$f" $? "$(head -c 300 "$TMP/$f")"
done
grep -q "^$S,$S" "$TMP/csv"; result seed_text_in_csv $? "$(cat "$TMP/csv")"

python3 tests/cli/edges_numbers.py "$LONGHAND" "$MODEL" "$TMP" $count >"$TMP/asked" 2>&1; r=$?
cat "$TMP/asked"
! grep -q '^FAIL' "$TMP/asked" || failed=1
result numbers_pass_through $r "$(tail -3 "$TMP/asked")"
exit $failed
