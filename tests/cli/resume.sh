#!/bin/bash
# Resume leads to where it was going: the command that an interrupted run names, a job that is done already,
# pieces of outputs, and batches that are submitted again with other options.
. tests/cli/lib.inc
L=$LONGHAND
G=(-m "$MODEL" -f "$MODEL/openings/portrait.txt" -s 7)
"$L" run "${G[@]}" -n 1500 --ignore-eos -q >"$TMP/whole"
interrupt() # SIGNAL NAME ARGS..: a run that a signal ends after its first bytes in NAME.part-*
{
    local signal=$1 name=$2
    shift 2
    env --default-signal=INT "$L" "$@" -o "$name" >"$TMP/out" 2>"$TMP/err" & pid=$!
    for i in $(seq $((600 * slower))); do
        [ -n "$(find "$(dirname "$name")" -name "$(basename "$name").part-*" -size +20c)" ] && break
        sleep 0.01
    done
    kill -"$signal" $pid; wait $pid 2>/dev/null; r=$?
}
mkdir "$TMP/a book's folder"; book="$TMP/a book's folder/book.txt"
interrupt INT "$book" run "${G[@]}" -n 20000 --ignore-eos
command=$(sed -n 's/.*; \(longhand run --resume .*\) continues it, or .*/\1/p' "$TMP/err")
[ $r = 75 ] && [ "$command" = "longhand run --resume 2 -o '$TMP/a book'\\''s folder/book.txt'" ]
result the_hint_leads_to_the_output $? "exit $r, '$command': $(cat "$TMP/err")"
interrupt KILL "$TMP/k.txt" run "${G[@]}" -n 1500 --ignore-eos --threads 1
id=3; part=$(basename "$TMP"/k.txt.part-*)
"$L" run --resume $id -o "$TMP/k.txt" 2>"$TMP/err"; r=$?
[ $r = 0 ] && grep -q "^beside $TMP/k.txt: $part, of runs that were interrupted or still write\$" "$TMP/err"
result a_piece_of_a_killed_run_is_named $? "exit $r: $(cat "$TMP/err")"
same the_killed_run_went_on "$TMP/whole" "$TMP/k.txt"
# the store fails in the middle of a text: the piece is named
interrupt TERM "$TMP/s.txt" run "${G[@]}" -n 20000 --ignore-eos --db "$TMP/s.db"
grep -q "longhand run --resume 1 -o $TMP/s.txt --db $TMP/s.db continues it" "$TMP/err"
result the_hint_names_the_store $? "$(cat "$TMP/err")"

# a job that is done
check resume_of_a_done_job_writes_its_text 0 "^job 1 is done: 1500 tokens\$" run --resume 1
same its_text_goes_to_standard_output "$TMP/whole" "$TMP/out"
check resume_of_a_done_job_writes_a_file 0 '' run --resume 1 -o "$TMP/again.txt" -q
same its_text_goes_to_the_file "$TMP/whole" "$TMP/again.txt"
"$L" text 1 --format ids >"$TMP/ids"; "$L" run --resume 1 --format ids -q >"$TMP/b"
same its_ids_go_to_standard_output "$TMP/ids" "$TMP/b"
check nothing_of_a_done_job_is_new 0 '' run --resume 1 --from-here -q
[ ! -s "$TMP/out" ]; result from_here_writes_nothing_of_a_done_job $? "$(wc -c <"$TMP/out") bytes"
check a_done_job_has_no_statistics_of_a_run 2 'nothing is left to measure; longhand report 1 --json' run \
    --resume 1 \
    --json-stats "$TMP/stats"
# text and report write what can be written again: no piece stays
"$L" run "${G[@]}" -n 20 -q --name broken >/dev/null
sql 'UPDATE job SET text_sha = zeroblob(32) WHERE batch IS NOT NULL; SELECT 1' >/dev/null
check a_damaged_text_is_no_output 1 'SHA-256' text @broken -o "$TMP/broken.txt"
[ -z "$(ls "$TMP" | grep broken)" ]; result no_piece_of_a_failed_text_stays $? "$(ls "$TMP" | grep broken)"

# a batch again, with options that decide texts
printf '{"prompt": "Chapter %s"}\n' 1 2 3 >"$TMP/book.jsonl"
submit() { check "$1" "$2" "$3" submit --batch "$TMP/book.jsonl" -m $MODEL "${@:4}"; }
submit a_batch_is_submitted 0 '@book: 3 new jobs' -n 20 -s 5 --temp 0.8
"$L" list --json >"$TMP/before"
submit other_options_are_refused 2 \
    "@book: jobs of this name were queued with other options: tokens \(3 jobs\), \
temperature \(3 jobs\), top_p \(3 jobs\); --keep keeps" -n 30 -s 5 --temp 0.9 --top-p 0.5
submit another_seed_is_refused 2 'other options: seed \(3 jobs\);' -n 20 -s 6
printf '{"prompt": "Chapter %s"}\n' 1 2 3 4 >"$TMP/book.jsonl"
submit nothing_is_added_then 2 'temperature \(3 jobs\);' -n 20 -s 5 --temp 0.7
"$L" list --json >"$TMP/after"; same nothing_is_changed_then "$TMP/before" "$TMP/after"
check run_refuses_them_too 2 'temperature \(3 jobs\);' run --batch "$TMP/book.jsonl" -o "$TMP/o" -m $MODEL \
    -n 20 --temp 0
submit a_drawn_seed_never_counts 0 '@book: 1 new job, 3 exist already' -n 20 --temp 0.8
submit other_options_never_count 0 '@book: 0 new jobs' -n 20 --drafter ngram --threads 1 --kv-budget 64
submit keep_accepts_the_old_ones 0 '@book: 0 new jobs, 4 exist already' -n 99 --temp 0.1 --keep
submit options_that_are_not_given_never_count 0 '@book: 0 new jobs' -n 20
check keep_is_of_batches 2 '--keep needs --batch' submit "${G[@]}" -n 5 --keep
exit $failed
