#!/bin/bash
# Which files an output replaces: what is an earlier output, and what is none (edges_files.sh has every verb).
# No large array lies on the stack. Tests on machines without pseudo-terminals.
. tests/cli/lib.inc
L=$LONGHAND
# kept NAME PATTERN FILE ARGS..: ARGS are refused with exit status 2, and FILE keeps its bytes.
kept()
{
    local name=$1 pattern=$2 file=$3 before
    shift 3
    before=$(sha256sum <"$file")
    check "$name" 2 "$pattern" "$@"
    [ "$before" = "$(sha256sum <"$file")" ]; result "${name}_keeps_the_file" $? "$(ls -l "$file")"
}
# replaced NAME FILE ARGS..: ARGS succeed, and FILE has other bytes afterwards, or at least a new inode.
replaced()
{
    local name=$1 file=$2 before
    shift 2
    before=$(stat -c %i "$file")
    "$L" "$@" >"$TMP/out" 2>"$TMP/err" </dev/null && [ "$before" != "$(stat -c %i "$file")" ]
    result "$name" $? "$(tail -1 "$TMP/err")"
}
notes() { echo "Notes of mine, nowhere else." >"$TMP/notes"; }
there='notes is a file that is there already; any other file is allowed, and --force replaces it'
earlier='notes is not an earlier form of this output; any other file is allowed, and --force replaces it'
R=(run -m "$MODEL" -p x -n 5 -q)
T=(train heads -m "$MODEL" --data README.md --steps 1 --window 128 -q)

# ---- work whose result is not known before ----
notes; : >"$TMP/empty"
kept run_keeps_notes "--output: .*$there" "$TMP/notes" "${R[@]}" -o "$TMP/notes"
replaced run_replaces_an_empty_file "$TMP/empty" "${R[@]}" -s 1 -o "$TMP/empty"
kept run_keeps_the_text_of_another_run "--output: .*there already" "$TMP/empty" "${R[@]}" -s 2 -o "$TMP/empty"
replaced run_replaces_with_force "$TMP/empty" "${R[@]}" -s 2 -o "$TMP/empty" --force
cp "$TMP/notes" "$TMP/n.1"
kept several_texts_keep_each_file '--output: .*n.1 is a file that is there' "$TMP/n.1" "${R[@]}" --samples 2 \
    -o "$TMP/n"
kept statistics_keep_notes "--json-stats: .*$there" "$TMP/notes" "${R[@]}" --json-stats "$TMP/notes"
"$L" "${R[@]}" --json-stats "$TMP/stats" >/dev/null
check statistics_replace_statistics 0 '' "${R[@]}" --json-stats "$TMP/stats"
kept metrics_keep_notes "--metrics: .*$there" "$TMP/notes" work --until-empty --metrics "$TMP/notes"
echo mine >"$TMP/m.prom.tmp"
"$L" work --until-empty -q --metrics "$TMP/m.prom" </dev/null
replaced metrics_replace_metrics "$TMP/m.prom" work --until-empty -q --metrics "$TMP/m.prom"
grep -qx mine "$TMP/m.prom.tmp"; result metrics_keep_the_file_beside $? "$(ls "$TMP")"
kept fork_keeps_notes "--output: .*$there" "$TMP/notes" fork 1 --at 3 --run -o "$TMP/notes"
kept convert_keeps_notes "--output: .*$there" "$TMP/notes" convert -m "$MODEL" -o "$TMP/notes" -q
kept train_keeps_notes "--out: .*$there" "$TMP/notes" "${T[@]}" --out "$TMP/notes"
kept curves_keep_notes "--curves: .*$there" "$TMP/notes" "${T[@]}" --out "$TMP/h" --curves "$TMP/notes"
cp "$TMP/notes" "$TMP/h.html"
kept the_page_of_a_training_keeps_notes '--out: .*h.html is a file that is there' "$TMP/h.html" "${T[@]}" \
    --out "$TMP/h" --html
rm "$TMP/h.html"
"$L" "${T[@]}" --out "$TMP/h" >/dev/null
kept train_keeps_a_trained_drafter '--out: .*h is a file that is there already' "$TMP/h" "${T[@]}" \
    --out "$TMP/h"
replaced train_replaces_with_force "$TMP/h" "${T[@]}" --out "$TMP/h" --force

# ---- texts that the store has ----
"$L" text 1 -o "$TMP/t"; head -c 4 "$TMP/t" >"$TMP/begins"; cp "$TMP/t" "$TMP/edited"
printf X | dd of="$TMP/edited" bs=1 seek=2 conv=notrunc status=none
for verb in "text 1" "export 1 --format text" "run --resume 1 -q"; do
    name=${verb%% *}
    kept "stored_${name}_keeps_notes" "$earlier" "$TMP/notes" $verb -o "$TMP/notes"
    kept "stored_${name}_keeps_an_edited_text" 'not an earlier form' "$TMP/edited" $verb -o "$TMP/edited"
    replaced "stored_${name}_replaces_the_same" "$TMP/t" $verb -o "$TMP/t"
    head -c 4 "$TMP/t" >"$TMP/begins"
    replaced "stored_${name}_replaces_its_beginning" "$TMP/begins" $verb -o "$TMP/begins"
    same "stored_${name}_is_whole" "$TMP/t" "$TMP/begins"
done
id=$("$L" submit -m "$MODEL" -p x -n 5 -q)
kept run_goes_on_with_no_notes "$earlier" "$TMP/notes" run --resume "$id" -o "$TMP/notes" -q
[ "$("$L" list --json | grep -c '"state": "queued"')" = 1 ]; result and_wrote_nothing $? "$("$L" list)"
"$L" cancel "$id" -q
kept ids_are_no_text 'not an earlier form' "$TMP/t" text 1 --format ids -o "$TMP/t"
for form in --csv --json --html ""; do
    kept "report_keeps_notes:$form" "$earlier" "$TMP/notes" report 1 $form -o "$TMP/notes"
    "$L" report 1 2 $form -o "$TMP/r$form"
    replaced "report_replaces_a_report:$form" "$TMP/r$form" report 1 2 3 $form -o "$TMP/r$form"
done
echo '<!DOCTYPE html><html><body>mine</body></html>' >"$TMP/page"
kept report_keeps_another_page 'not an earlier form' "$TMP/page" report 1 --html -o "$TMP/page"
P=(plan --shape llama3-8b --hardware 1000:100 --html)
kept plan_keeps_notes "$earlier" "$TMP/notes" "${P[@]}" -o "$TMP/notes"
"$L" "${P[@]}" -o "$TMP/p" 2>"$TMP/err"
replaced plan_replaces_a_plan "$TMP/p" "${P[@]}" -o "$TMP/p"
"$L" "${R[@]}" -s 1 -o /dev/stdout >>"$TMP/notes"
grep -q Notes "$TMP/notes" && [ "$(wc -c <"$TMP/notes")" -gt 30 ]
result standard_output_is_appended_to $? "$(cat "$TMP/notes")"
check pipes_and_devices_are_no_files 0 '' "${R[@]}" -o /dev/null

# ---- batches ----
notes
batch() { for i; do echo "{\"custom_id\": \"$i\", \"prompt\": \"Day $i\", \"max_tokens\": 5}"; done; }
B=(run --batch "$TMP/b.jsonl" -m "$MODEL" -s 1 -q)
batch b >"$TMP/b.jsonl"
kept a_batch_keeps_notes "$earlier" "$TMP/notes" "${B[@]}" -o "$TMP/notes"
[ "$("$L" list --json --columns custom_id | grep -c '"b"')" = 0 ]; result no_line_was_queued $? "$("$L" list)"
"$L" "${B[@]}" -o "$TMP/b.out"; "$L" export @b --format jsonl -o "$TMP/b.flat"
"$L" export @b --format csv -o "$TMP/b.csv"; "$L" export @b --format text -o "$TMP/b.text"
batch a b c >"$TMP/b.jsonl"
replaced new_lines_of_a_batch "$TMP/b.out" "${B[@]}" -o "$TMP/b.out"
[ "$(wc -l <"$TMP/b.out")" = 3 ]; result are_in_the_output $? "$(cut -c1-60 "$TMP/b.out")"
for form in flat:jsonl csv:csv out:openai-batch; do
    replaced "export_after_new_lines:_${form#*:}" "$TMP/b.${form%:*}" export @b --format "${form#*:}" \
        -o "$TMP/b.${form%:*}"
done
# a line that failed, and was written later
sql "UPDATE job SET state = 'failed', error = 'x' WHERE custom_id = 'c'" >/dev/null
"$L" export @b --format openai-batch -o "$TMP/b.out"; cp "$TMP/b.out" "$TMP/failed.out"
sql "UPDATE job SET state = 'done', error = NULL WHERE custom_id = 'c'" >/dev/null
replaced a_line_that_had_failed "$TMP/failed.out" "${B[@]}" -o "$TMP/failed.out"
"$L" export @b --format openai-batch >"$TMP/now"; same is_replaced_by_its_text "$TMP/failed.out" "$TMP/now"
cp "$TMP/b.jsonl" "$TMP/other.jsonl"
kept another_batch_keeps_the_output 'not an earlier form' "$TMP/failed.out" run --batch "$TMP/other.jsonl" \
    -m "$MODEL" -s 1 -q -o "$TMP/failed.out"
(export LONGHAND_DB=$TMP/new.db
    kept another_store_keeps_the_output 'not an earlier form' "$TMP/failed.out" "${B[@]}" -o "$TMP/failed.out"
    exit $failed) || failed=1
kept a_smaller_export_keeps_the_rest 'not an earlier form' "$TMP/b.flat" export @b/a --format jsonl \
    -o "$TMP/b.flat"
kept another_form_keeps_the_file 'not an earlier form' "$TMP/b.csv" export @b --format jsonl -o "$TMP/b.csv"
replaced export_replaces_with_force "$TMP/b.csv" export @b --format jsonl -o "$TMP/b.csv" --force
"$L" export @b --format text --dir "$TMP/dir" 2>"$TMP/err"
kept a_folder_keeps_its_files 'no file is overwritten without --force' "$TMP/dir/a.txt" export @b \
    --format text --dir "$TMP/dir"
replaced a_folder_replaces_with_force "$TMP/dir/a.txt" export @b --format text --dir "$TMP/dir" --force
for verb in run export text report plan; do
    "$L" $verb --help | grep -A 8 -- '--output FILE' | tr '\n' ' ' | grep -q 'earlier output'
    result "help_of_${verb}_names_earlier_outputs" $? "$("$L" $verb --help | grep -A 8 -- '--output FILE')"
done

# ---- the stack ----
# the frames beyond 64 KiB: only the rows that avx2_matmul makes floats of, for the cache of a core
if [ $slower = 1 ] && [ "$(uname -m)" = x86_64 ] && command -v objdump >/dev/null; then
    objdump -d --no-show-raw-insn "$L" | awk '/^[0-9a-f]+ </ { f = $2 }
        match($0, /sub +\$0x[0-9a-f]+,%rsp/) { n = substr($0, RSTART, RLENGTH); gsub(/.*0x|,.*/, "", n)
            if (length(n) > 4 && n !~ /^ffffffff/) print n, f }' | grep -v avx2_matmul >"$TMP/frames"
    [ ! -s "$TMP/frames" ]; result no_large_array_lies_on_the_stack $? "$(cat "$TMP/frames")"
else
    skip no_large_array_lies_on_the_stack "needs x86-64, objdump, no sanitizer"
fi

# ---- no pseudo-terminals ----
if unshare --mount true 2>/dev/null; then
    unshare --mount bash -c 'mount -t tmpfs none /dev/pts && mount --bind /dev/null /dev/ptmx &&
        . tests/cli/lib.inc && tty_result a_test 1' >"$TMP/out" 2>&1
    [ "$(cat "$TMP/out")" = 'skip a_test (no pseudo-terminal)' ]
    result tests_of_terminals_are_skipped_without_one $? "$(cat "$TMP/out")"
else
    skip tests_of_terminals_are_skipped_without_one "no unshare here"
fi
exit $failed
