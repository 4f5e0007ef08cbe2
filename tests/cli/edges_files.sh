#!/bin/bash
# Nothing is lost: outputs replace earlier outputs alone, "-" is no file, and a small stack holds every verb.
. tests/cli/lib.inc
L=$LONGHAND
"$L" run -q -m $MODEL -p Once -n 40 -s 1 --ignore-eos >"$TMP/text"
printf '{"custom_id": "%s", "prompt": "x", "max_tokens": 4}\n' a b >"$TMP/in.jsonl"

# kept NAME FILE OPTIONS..: a file of the user stays as it is, and --force replaces it.
kept()
{
    local name=$1 file=$2
    shift 2
    echo "notes of mine" >"$file"
    check "${name}_keeps_a_file" 2 'any other file is allowed' "$@"
    echo "notes of mine" | cmp -s - "$file"; result "${name}_leaves_its_bytes" $? "$(head -c 100 "$file")"
    "$L" "$@" --force >"$TMP/out" 2>"$TMP/err"
    r=$?; [ $r = 0 ] && [ -s "$file" ] && ! grep -qa "notes of mine" "$file"
    result "${name}_replaces_it_with_force" $? "exit $r: $(head -c 200 "$TMP/err")"
    [ "$(ls "$TMP" | grep -c part-)" = 0 ]; result "${name}_leaves_nothing_beside" $? "$(ls "$TMP")"
}
kept run "$TMP/f" run -m $MODEL -p Once -n 5 -o "$TMP/f"
kept text "$TMP/f" text 1 -o "$TMP/f"
kept export "$TMP/f" export 1 --format jsonl -o "$TMP/f"
kept export_text "$TMP/f" export 1 --format text -o "$TMP/f"
kept export_gzip "$TMP/f" export 1 --format jsonl --gzip -o "$TMP/f"
kept report "$TMP/f" report 1 -o "$TMP/f"
kept report_html "$TMP/f" report 1 --html -o "$TMP/f"
kept plan "$TMP/f" plan --hardware h200 --lengths 1000 --html -o "$TMP/f"
kept batch "$TMP/f" run --batch "$TMP/in.jsonl" -m $MODEL --name b -o "$TMP/f"
kept convert "$TMP/f" convert --model $MODEL --weights q8_0 -o "$TMP/f"
kept stats "$TMP/f" run -m $MODEL -p Once -n 5 --json-stats "$TMP/f"
kept metrics "$TMP/f" work --metrics "$TMP/f"
train=(train heads --model $MODEL --data models/demo/openings/malay.txt --steps 1 --heads 1)
kept train "$TMP/f" "${train[@]}" -o "$TMP/f"
check train_keeps_a_trained_drafter 2 "a file that is there already.*--force replaces it" "${train[@]}" \
    -o "$TMP/f"

# ---- earlier outputs ----
again() # NAME OPTIONS..: the same command twice
{
    local name=$1
    shift
    rm -f "$TMP/o"
    check "${name}_first" 0 '' "$@" -o "$TMP/o"
    check "${name}_again" 0 '' "$@" -o "$TMP/o"
}
again an_export export 1 --format jsonl -q
again an_export_of_text export 1 --format text -q
again a_text text 1
again a_table report 1
again a_page report 1 --html
again a_json report 1 --json
again a_batch run --batch "$TMP/in.jsonl" -m $MODEL --name again -q
echo '{"custom_id": "c", "prompt": "x", "max_tokens": 4}' >>"$TMP/in.jsonl"
check a_batch_that_grew 0 '' run --batch "$TMP/in.jsonl" -m $MODEL --name again -q -o "$TMP/o"
[ "$(wc -l <"$TMP/o")" = 3 ]; result a_batch_that_grew_is_whole $? "$(cat "$TMP/o")"
"$L" submit -q -m $MODEL -p Once -n 30 -s 1 --name grows --ignore-eos >"$TMP/id"; id=$(cat "$TMP/id")
check a_table_of_a_queued_job 0 '' report $id -o "$TMP/r"
"$L" work -q
check the_table_when_it_is_done 0 '' report $id -o "$TMP/r"
check extend_it 0 '' extend $id --tokens +10 --run -q
"$L" text $id >"$TMP/long"; head -c 50 "$TMP/long" >"$TMP/short"
check a_text_that_grew 0 '' text $id -o "$TMP/short"
same the_whole_text "$TMP/long" "$TMP/short"
check a_text_of_another_job 2 'is not an earlier form of this output' export @again --format text \
    -o "$TMP/short"
: >"$TMP/empty"; check an_empty_file_is_replaced 0 '' text $id -o "$TMP/empty"
"$L" text $id -o /dev/stdout | cmp -s - "$TMP/long"; result dev_stdout_is_standard_output $? ""
check dev_null_takes_everything 0 '' export --all --format jsonl --partial -q -o /dev/null
"$L" train heads --help | grep -q -- --force; result the_help_of_train_names_force $? ""
"$L" run --help | tr -d '\n' | grep -qE 'run: earlier outputs +are, with --batch'
result the_help_says_what_is_earlier $? ""

# ---- a database is never replaced, and --dir asks, too ----
mkdir "$TMP/dir"; cp "$LONGHAND_DB" "$TMP/dir/job-1.txt"; cp "$LONGHAND_DB" "$TMP/database"
check a_folder_with_a_database 2 'is a database' export 1 --format text --dir "$TMP/dir" --force
same the_database_stays "$TMP/database" "$TMP/dir/job-1.txt"
rm "$TMP/dir/job-1.txt"; ln -s "$TMP/database" "$TMP/dir/job-1.txt"
check a_link_to_a_database 2 'is a database' export 1 --format text --dir "$TMP/dir" --force
rm "$TMP/dir/job-1.txt"; echo notes >"$TMP/dir/job-1.txt"
check a_folder_with_notes 0 '' export 1 --format text --dir "$TMP/dir" --force -q
same the_notes_are_replaced_with_force "$TMP/text" "$TMP/dir/job-1.txt"

# ---- a file named - ----
check backup_to_no_file 2 "backup: '-' is not the name of a file" backup -
check a_store_without_a_name 2 "'-' is not the name of a file" list --db -
check a_folder_without_a_name 2 "'-' is not the name of a folder" export 1 --format text --dir -
[ ! -e - ]; result no_file_has_this_name $? "$(ls -la)"

# ---- longhand.sbatch: its worker is killed ----
mkdir "$TMP/bin" "$TMP/array"
printf '#!/bin/sh\necho "$@" >>"%s/asked"\n' "$TMP" >"$TMP/bin/scontrol"; chmod +x "$TMP/bin/scontrol"
# A longhand whose worker ends by SIGKILL.
printf '#!/bin/bash\n[ "$1" != work ] || [ -e "%s/spare" ] || kill -KILL $$\nexec "%s" "$@"\n' "$TMP" \
    "$(readlink -f "$L")" >"$TMP/bin/longhand"; chmod +x "$TMP/bin/longhand"
sbatch() # VARIABLES..: element 1 of 1
{
    env PATH="$TMP/bin:$PATH" LONGHAND="$TMP/bin/longhand" LONGHAND_DIR="$TMP/array" \
        SLURM_SUBMIT_DIR="$TMP" SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_COUNT=1 SLURM_ARRAY_TASK_MIN=1 \
        SLURM_ARRAY_TASK_MAX=1 SLURM_CPUS_PER_TASK=1 "$@" \
        bash scripts/longhand.sbatch "$TMP/in.jsonl" --model "$(readlink -f $MODEL)" >"$TMP/log" 2>&1
}
sbatch SLURM_ARRAY_TASK_ID=1; r=$?
[ $r = 137 ] && grep -q '3 unfinished' "$TMP/log" && ! ls "$TMP/array" | grep -q out.jsonl
result a_killed_worker_leaves_no_texts $? "exit $r: $(tail -n 2 "$TMP/log"); $(ls "$TMP/array")"
touch "$TMP/spare"; sbatch SLURM_ARRAY_TASK_ID=1; r=$?
[ $r = 0 ] && [ "$(wc -l <"$TMP/array/in-1-of-1.out.jsonl")" = 3 ]
result the_next_start_writes_them $? "exit $r: $(tail -n 2 "$TMP/log")"
bash scripts/longhand.sbatch "$TMP/in.jsonl" >"$TMP/log" 2>&1; r=$?
[ $r = 2 ] && ! grep -q unbound "$TMP/log" && grep -q 'no element of an array of Slurm' "$TMP/log"
result outside_slurm_a_line_says_so $? "exit $r: $(cat "$TMP/log")"

# ---- what is shown is whole, and in order ----
python3 -c 'import json
print(json.dumps({"custom_id": "a:", "prompt": "\u00e9" * 6000, "max_tokens": 3,
                  "logit_bias": {str(i): 0.5 for i in range(1500)}}))
print(json.dumps({"custom_id": "b", "prompt": "x", "max_tokens": 3}))' >"$TMP/long.jsonl"
"$L" submit -q -m $MODEL --batch "$TMP/long.jsonl" --allow-beyond-context >/dev/null
"$L" show @long/a: >"$TMP/show"
grep -q '"top_p": 1}$' "$TMP/show" && grep -q '^prompt .*\.\.\.$' "$TMP/show" &&
    python3 -c 'import sys; open(sys.argv[1], encoding="utf-8").read()' "$TMP/show"
result long_parameters_are_shown_whole $? "$(cut -c1-100 "$TMP/show")"
"$L" report @long --by custom_id >"$TMP/by"
[ "$(grep -E '^ *(a:|b) ' "$TMP/by" | awk '{ print match($0, / +[0-9]/) + RLENGTH }' | sort -u | wc -l)" = 1 ]
result a_name_with_a_colon_stays_in_its_column $? "$(cat "$TMP/by")"
"$L" list --columns rate --sort rate --json >"$TMP/rates"
python3 -c 'import json, sys
v = [j["rate"] for j in json.load(open(sys.argv[1]))["jobs"]]
assert None in v and any(v) and v == sorted(v, key=lambda x: x or 0), v' "$TMP/rates" 2>"$TMP/err"
result list_sorts_unknown_rates_first $? "$(tail -n 1 "$TMP/err")"

# ---- a small stack ----
small() # OPTIONS..: the verb with a stack of 256 KiB
{
    (ulimit -s 256; exec "$L" "$@") >"$TMP/out" 2>"$TMP/err" </dev/null
    result "small_stack_$1_$((small += 1))" $? "$(tail -n 1 "$TMP/err")"
}
if [ $slower -gt 1 ]; then
    skip small_stack "a sanitizer needs a larger one"
else
    small run -q -m $MODEL -p x -n 5; small submit -q -m $MODEL -p x -n 5; small work -q
    small submit -q -m $MODEL -p x -n 5 --grid temperature=0.5,1
    small submit -q -m $MODEL --batch "$TMP/in.jsonl"
    small run --batch "$TMP/in.jsonl" -m $MODEL --name s -q; small list; small list --json; small show 1
    small report --all; small report --all --html; small export --all --format jsonl --partial -q
    small text 1; small verify -q 1; small score -q -m $MODEL "$TMP/text"; small inspect -m $MODEL; small du
    small doctor; small distinct "$TMP/text"; small plan --hardware h200; small tokenize -m $MODEL "$TMP/text"
    small "${train[@]}" -q -o "$TMP/small.heads"
    small convert --model $MODEL --weights q8_0 -q -o "$TMP/small.gguf"; small inspect -m "$TMP/small.gguf"
    small run -q -m "$TMP/small.gguf" --chat --chat-template chatml -p x -n 5
    small fork 1 --at 2 --run -q; small backup "$TMP/backup.db" -q; small compact -q; small redo 1
    (ulimit -s 256; exec "$L" serve -m $MODEL --port 0) >"$TMP/out" 2>"$TMP/err" </dev/null & pid=$!
    for _ in $(seq 100); do grep -q http "$TMP/out" && break; sleep 0.1; done
    url=$(grep -o 'http[^ ]*' "$TMP/out" | head -n 1)
    python3 - "$url" <<'PY'
import json, sys, urllib.request
r = urllib.request.Request(sys.argv[1] + "/completions", b'{"prompt": "x", "max_tokens": 3}')
assert json.load(urllib.request.urlopen(r, timeout=60))["usage"]["completion_tokens"] == 3
PY
    result small_stack_serve_answers $? "$(tail -n 2 "$TMP/err")"
    kill -TERM $pid; wait $pid; r=$?; [ $r = 0 ] || [ $r = 75 ]; result small_stack_serve_ends $? "exit $r"
fi
exit $failed
