#!/bin/bash
# Chapters: extend and fork with parameters of their own, and what reading, resuming and verifying make of
# them.
. tests/cli/lib.inc
L="$LONGHAND"
submit() { "$L" submit -m $MODEL -p Hello "$@"; }
text() { "$L" text "$@"; }

# Without new options a text of two runs is that of one.
submit -n 80 -s 3 >/dev/null; submit -n 50 -s 3 >/dev/null; "$L" work -q
check extend_says_what_to_run_next 0 'job 2 is queued: longhand run --resume 2 writes it' extend 2 --tokens +30
"$L" work -q; text 1 >"$TMP/one"; text 2 >"$TMP/two"
same extend_without_options_is_one_longer_run "$TMP/one" "$TMP/two"

# With new options the first part stays, and the second follows them.
submit -n 50 -s 3 >/dev/null; "$L" work -q
check extend_takes_sampling_options 0 'job 3 is queued' extend 3 --tokens +30 --temp 0 --penalty 1.3
"$L" work -q; text 3 >"$TMP/three"
differ other_options_write_another_text "$TMP/one" "$TMP/three"
head -c 100 "$TMP/one" >"$TMP/a"; head -c 100 "$TMP/three" >"$TMP/b"
same the_tokens_before_stay "$TMP/a" "$TMP/b"
check verify_uses_the_parameters_of_each_part 0 '' verify 3 -q
grep -q '80 derived again: identical' "$TMP/out"; result every_token_is_derived $? "$(cat "$TMP/out")"
sql "DELETE FROM part WHERE job = 3" >/dev/null
check verify_needs_the_parts 1 'token 5[0-9] is' verify 3 -q

# An interrupted part resumes with its own parameters.
submit -n 50 -s 3 >/dev/null; "$L" work -q
"$L" extend 4 --tokens +30 --temp 0 --penalty 1.3 -q
"$L" run --resume 4 -q -o "$TMP/four"; same run_resume_uses_the_last_part "$TMP/three" "$TMP/four"
check extend_run_writes_the_text 0 '' extend 4 --tokens +20 --run -q
text 4 >"$TMP/text"; same extend_run_prints_the_text "$TMP/text" "$TMP/out"
check extend_keeps_the_last_parts_parameters 0 '' verify 4 -q

check fork_takes_sampling_options 0 'job 5 is queued' fork 1 --at 20 --seed 3 --temp 0.3 --top-k 5
[ "$(cat "$TMP/out")" = 5 ]; result fork_prints_the_number $? "$(cat "$TMP/out")"
"$L" work -q
check verify_of_a_fork 0 '' verify 5 -q
"$L" fork 1 --at 20 --seed 9 --run -q --tokens 40 >"$TMP/fork" </dev/null; text 6 >"$TMP/text"
same fork_run_writes_the_text "$TMP/text" "$TMP/fork"

# A stop string of one part does not end another.
word=$(head -c 60 "$TMP/one" | tail -c 4)
submit -n 80 -s 3 --stop "$word" >/dev/null; "$L" work -q
check an_ended_text_would_end_again 2 'another --stop' extend 7 --tokens +9
check a_new_stop_string_goes_on 0 '' extend 7 --tokens +60 --stop '@@@' -q
"$L" work -q; text 7 | head -c 100 >"$TMP/a"; head -c 100 "$TMP/one" >"$TMP/b"
same the_text_runs_over_the_old_stop_string "$TMP/a" "$TMP/b"
check verify_after_another_stop_string 0 '' verify 7 -q

printf '\xef\xbb\xbf And then came the night.' >"$TMP/more"
check append_file 0 '' extend 1 --tokens +10 --append-file "$TMP/more" -q
text 1 | grep -q ' And then came the night\.'; result the_file_is_in_the_text $? "$(text 1)"
check append_and_append_file 2 'only one of them' extend 3 --tokens +10 --append-file "$TMP/more" --append x
printf 'a\0b' >"$TMP/nul"
check nul_in_an_appended_file 2 'nul: NUL at offset 1' extend 3 --tokens +10 --append-file "$TMP/nul"
check nul_in_a_prompt_file 2 'nul: NUL at offset 1' run -m $MODEL -f "$TMP/nul" -n 3
check a_bad_value_for_a_part 2 "--temp: .-1" extend 3 --tokens +10 --temp -1
: >"$TMP/empty"
check an_empty_prompt_file_has_a_notice 0 'empty: the prompt is empty' submit -m $MODEL -f "$TMP/empty" -n 3
exit $failed
