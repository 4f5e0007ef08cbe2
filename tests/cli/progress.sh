#!/bin/bash
# Progress on standard error: a redrawn line on a terminal, plain lines every 10 s elsewhere, JSON, or
# nothing.
. tests/cli/lib.inc
L=$LONGHAND
G=(--model "$MODEL" --prompt-file "$MODEL/openings/portrait.txt" -s 1 --drafter none)
export TERM=xterm
unset NO_COLOR

on_terminal() # COLUMNS ARGS...: prints all that the terminal received
{
    local wide=$1
    shift
    timeout $((60 * slower)) python3 tests/cli/terminal.py bash -c "stty cols $wide; exec \"\$@\"" _ "$L" \
        "$@" </dev/null
}
on_terminal 140 run "${G[@]}" -n 3000 -o "$TMP/a" --force >"$TMP/tty"
counts='[0-9]+ of 3000 tokens \([0-9.]+ %\), [0-9.]+ tokens/s, 1\.00 a pass, [0-9:]+ left, '
counts+='checkpoint at [0-9]+'
grep -qE $'\r\x1b\\[K\x1b\\[36mwriting\x1b\\[0m '"$counts" "$TMP/tty"
tty_result terminal_has_one_line_with_everything $? "$(tail -c 400 "$TMP/tty" | cat -v)"
[ "$(grep -c writing "$TMP/tty")" = 1 ] && [ "$(tr '\r' '\n' <"$TMP/tty" | grep -c writing)" -ge 2 ]
tty_result terminal_line_is_redrawn $? "$(grep -c writing "$TMP/tty") lines"
tail -1 "$TMP/tty" | grep -qE $'^(.*\r)?\x1b\\[K3000 tokens, '
tty_result terminal_line_is_removed_at_the_end $? "$(tail -c 100 "$TMP/tty" | cat -v)"
"$L" submit "${G[@]}" -n 2000 >/dev/null
on_terminal 46 work >"$TMP/tty"
wide=$(tr '\r' '\n' <"$TMP/tty" | sed $'s/\x1b\\[[0-9]*[mK]//g' | grep writing |
    awk '{ if (length($0) > w) w = length($0) } END { print w + 0 }')
[ "$wide" -gt 20 ] && [ "$wide" -le 45 ]; tty_result terminal_line_fits_a_narrow_terminal $? "$wide columns"
tr '\r' '\n' <"$TMP/tty" | grep -qE 'job [0-9]+: writing.* [0-9]+/2000, '
tty_result work_shows_the_number_of_the_job $? "$(tail -c 300 "$TMP/tty" | cat -v)"

# Several jobs: a line for the worker and one for each job, as far as the window has lines.
three() # a new queue
{
    rm -f "$LONGHAND_DB"*
    for i in 1 2 3; do "$L" submit "${G[@]}" -n 30000 -q >/dev/null; done
}
three
worker='[012] of 3 jobs, [0-9]+ of 90000 tokens \([0-9.]+ %\), [0-9.]+ tokens/s, [0-9:-]+ left'
on_terminal "160 rows 20" work --max-time 4 >"$TMP/tty"
sed $'s/\x1b\\[[0-9]*[A-Zm]//g' "$TMP/tty" | tr -d '\r' >"$TMP/lines"
grep -qE "$worker; 3 running, 0 waiting, [0-9]+ MB\$" "$TMP/lines" &&
    [ "$(grep -oE '^job [123]: writing [0-9]+ of 30000 tokens .*tokens/s, .* left' "$TMP/lines" | cut -c1-5 |
        sort -u | wc -l)" = 3 ]
tty_result terminal_has_a_line_for_each_job $? "$(tail -c 900 "$TMP/tty" | cat -v)"
grep -q $'\x1b\\[3A\r\x1b\\[J' "$TMP/tty"; tty_result terminal_lines_are_redrawn_together $? ""
three
on_terminal "160 rows 4" work --max-time 4 >"$TMP/tty"
grep -q $'\x1b\\[2A\r\x1b\\[J' "$TMP/tty" && ! grep -q $'\x1b\\[3A' "$TMP/tty"
tty_result terminal_lines_fit_a_low_window $? "$(tail -c 900 "$TMP/tty" | cat -v)"
three
"$L" work --max-time 7 --progress json 2>"$TMP/json" </dev/null
python3 - "$TMP/json" <<'PY' 2>"$TMP/err"
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1]) if l[0] == "{"]
assert {l["job"] for l in lines if l["phase"] == "writing"} == {1, 2, 3}, lines[-1]
q = [l for l in lines if l["phase"] == "queue"][-1]
assert q["running"] == 3 and q["waiting"] == 0 and q["memory_bytes"] > 1e7, q
PY
result progress_json_of_several_jobs $? "$(tail -1 "$TMP/err")"
rm -f "$LONGHAND_DB"*
NO_COLOR=1 on_terminal 140 run "${G[@]}" -n 2000 -o "$TMP/a" --force >"$TMP/tty"
grep -q $'\x1b\\[K' "$TMP/tty" && grep -q writing "$TMP/tty" && ! grep -q $'\x1b\\[[0-9]*m' "$TMP/tty"
tty_result no_color_is_obeyed $? "$(tail -c 300 "$TMP/tty" | cat -v)"
TERM=dumb on_terminal 140 run "${G[@]}" -n 2000 -o "$TMP/a" --force >"$TMP/tty"
grep -q '^2000 tokens, ' "$TMP/tty" && ! grep -q $'\x1b' "$TMP/tty"
tty_result a_dumb_terminal_gets_plain_lines $? "$(head -c 300 "$TMP/tty" | cat -v)"
on_terminal 140 run "${G[@]}" -n 2000 -o "$TMP/a" --force --progress none >"$TMP/tty"
grep -q '^job: ' "$TMP/tty" && ! grep -q writing "$TMP/tty"
tty_result progress_none_shows_none $? "$(head -c 300 "$TMP/tty" | cat -v)"

# JSON
"$L" run "${G[@]}" -n 5000 --progress json 2>"$TMP/json" >"$TMP/a" </dev/null
python3 - "$TMP/json" <<'PY' 2>"$TMP/err"
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
assert lines[-1]["phase"] == "done" and lines[-1]["tokens"] == 5000, lines[-1]
writing = [l for l in lines if l["phase"] == "writing"]
assert writing, lines
for l in writing:
    assert l["of"] == 5000 and l["unit"] == "tokens" and l["per_second"] >= 0, l
    assert 0 <= l["stored"] <= l["done"] <= 5000 and l["mean_acceptance_length"] == 1, l
    assert l["eta_seconds"] is None or l["eta_seconds"] >= 0
PY
result progress_json_is_one_object_a_line $? "$(tail -1 "$TMP/err")"
printf '%s\n' '{"custom_id": "a", "method": "POST", "url": "/v1/completions",' \
    '"body": {"prompt": "x", "max_tokens": 5, "user": "u"}}' | tr '\n' ' ' >"$TMP/in.jsonl"
"$L" run --batch "$TMP/in.jsonl" -o "$TMP/a" --force -m $MODEL --progress json 2>"$TMP/json" </dev/null
python3 - "$TMP/json" <<'PY' 2>"$TMP/err"
import json, sys
lines = {l["phase"]: l for l in map(json.loads, open(sys.argv[1]))}
submitted = lines["submitted"]
assert lines["fields passed over"]["fields"] == "user", lines
assert submitted["new"] == 1 and submitted["name"] == "in" and submitted["seed"] >= 0, lines
assert "min-p" in lines["settings"]["generation_config"] and lines["done"]["tokens"] == 5, lines
PY
result progress_json_of_a_batch $? "$(tail -1 "$TMP/err")"

# A plain line appears after 10 s and not before. The program is stopped meanwhile.
start=$SECONDS
"$L" run "${G[@]}" -n 60000 -o "$TMP/long" 2>"$TMP/plain" </dev/null & pid=$!
for _ in $(seq $((100 * slower))); do grep -q '^job:' "$TMP/plain" && break; sleep 0.1; done
sleep 0.3; kill -STOP $pid; sleep 10.2; kill -CONT $pid
for _ in $(seq $((100 * slower))); do grep -q '^writing' "$TMP/plain" && break; sleep 0.1; done
kill -TERM $pid; wait $pid
grep -qE "^writing ${counts/3000/60000}\$" "$TMP/plain" &&
    [ "$(grep -c '^writing' "$TMP/plain")" -le $(((SECONDS - start) / 10)) ] &&
        ! grep -q $'[\x1b\r]' "$TMP/plain"
result plain_lines_every_ten_seconds $? "$(cat "$TMP/plain")"
exit $failed
