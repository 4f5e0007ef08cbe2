#!/bin/bash
# submit --grid, and exports as CSV and with chosen fields.
. tests/cli/lib.inc
L="$LONGHAND" G=(-m $MODEL -p "Once upon a time" -n 12)
names() { "$L" list "$1" --json | sed -n 's/.*"custom_id": "\([^"]*\)".*/\1/p' | sort | tr '\n' ' '; }

# ---- grids ----
check grid_of_two_options 0 '12 jobs .12 new., 6 combinations of 2 texts; seed 4' \
    submit "${G[@]}" --grid temperature=0.6,0.8,1.0 --grid penalty=1,1.2 --samples 2 -s 4
[ "$(cat "$TMP/out")" = grid-4 ]; result the_grid_has_a_name $? "$(cat "$TMP/out")"
want=
for t in 0.6 0.8 1.0; do for p in 1 1.2; do for i in 0 1; do want="$want temperature=$t,penalty=$p/$i"
done; done; done
[ "$(names @grid-4)" = "$(printf '%s\n' $want | sort | tr '\n' ' ')" ]
result custom_ids_name_the_combinations $? "$(names @grid-4)"
"$L" work -q
# A text is that of the same options alone, and sample i has the same coins in every combination.
"$L" run -q "${G[@]}" --temp 0.8 --penalty 1.2 --samples 2 -s 4 -o "$TMP/alone"
for i in 0 1; do
    "$L" text "@grid-4/temperature=0.8,penalty=1.2/$i" >"$TMP/text"
    same sample_${i}_is_that_of_a_run "$TMP/alone.$i" "$TMP/text"
done
seeds=$(sql "SELECT count(DISTINCT seed) || '-' || group_concat(DISTINCT sample) FROM job WHERE batch = 1")
[ "$seeds" = 1-0,1 ]
result the_same_seed_and_samples_in_every_combination $? "$seeds"
check the_same_grid_again_adds_nothing 0 '12 jobs .0 new.' \
    submit "${G[@]}" --grid temperature=0.6,0.8,1.0 --grid penalty=1,1.2 --samples 2 -s 4
check a_grid_with_a_name 0 '4 jobs .4 new.' \
    submit "${G[@]}" --grid drafter=none,ngram --grid tokens=5,6 --name sweep -s 1
[ "$(cat "$TMP/out")" = sweep ] &&
    [ "$(sql "SELECT sum(wanted) FROM job WHERE custom_id LIKE 'drafter%'")" = 22 ]
result length_and_drafter_can_be_swept $? "$(names @sweep)"
check another_grid_of_the_same_name 2 'name gives the grid another name' \
    submit "${G[@]}" --grid drafter=none,ngram --grid tokens=5,6 --name sweep -s 2
# A grid over drafting options is written alone, and its values may be lists. Seeds are values, too.
check a_grid_of_lists_and_seeds 0 \
    '12 jobs .12 new., 12 combinations of 1 text, each written alone; the seeds of --grid' \
    submit "${G[@]}" --grid drafter=none,heads+ngram --grid tree=2+1,1 --grid seed=1,2,3 --name lists
[ "$(sql "SELECT group_concat(DISTINCT seed) FROM job WHERE custom_id LIKE 'drafter=%,tree=%'")" = 1,2,3 ] &&
    [ "$(sql "SELECT count(*) FROM input JOIN job ON id = job
        WHERE custom_id LIKE 'drafter=heads+ngram,tree=2+1%' AND parameters GLOB
        '*\"drafter\": \"heads,ngram\"*\"tree\": ?2, 1?*' AND parameters GLOB '*\"alone\": true*'")" = 3 ]
result lists_and_seeds_are_values $? "$("$L" show @lists | grep parameters | head -3)"
"$L" list @lists --columns name,seed | grep -qE '^@lists/drafter=heads\+ngram,tree=2\+1,seed=2/0 +2 *$' &&
    "$L" list @lists | grep -q '@lists/drafter=heads+ngram,tree=2+1,seed  '
result chosen_columns_are_not_cut $? "$("$L" list @lists --columns name,seed | tail -3)"
"$L" work -q --parallel 4
[ "$("$L" list @lists --json | grep -c '"ran_alone": true')" = 12 ]
result a_grid_of_drafters_is_written_alone $? "$("$L" list @lists)"
"$L" run -q "${G[@]}" -s 2 >"$TMP/a"; "$L" text "@lists/drafter=heads+ngram,tree=2+1,seed=2/0" >"$TMP/b"
same a_text_of_a_seed $TMP/a $TMP/b
"$L" submit "${G[@]}" -n 40 -s 1 --samples 3 --name beside >/dev/null
"$L" submit "${G[@]}" -n 40 -s 1 --alone --name alone >/dev/null; "$L" work -q --parallel 4
"$L" list @alone --json | grep -q '"ran_alone": true' &&
    [ "$("$L" list @beside --json | grep -c '"ran_alone": false')" = 3 ]
result a_job_is_written_alone $? "$("$L" list @alone @beside)"
check a_bad_value 2 "grid top-p: '2' is not a number from 0 to 1" submit "${G[@]}" --grid top-p=0.5,2
check no_values 2 "is not NAME=A,B" submit "${G[@]}" --grid temperature
check no_such_option 2 "'model' is no option of sampling" submit "${G[@]}" --grid model=a,b
check a_value_twice 2 "the value 1 is given twice" submit "${G[@]}" --grid penalty=1,1
check an_option_twice 2 "temperature is given twice" submit "${G[@]}" --grid temp=1 --grid temperature=2
check grid_and_batch 2 "only one of them" submit -m $MODEL --batch x.jsonl --grid temperature=1

# ---- fields ----
line() { echo "{\"custom_id\": \"$1\", \"method\": \"POST\", \"url\": \"/v1/completions\", $2}"; }
{ line a '"body": {"prompt": "= 1, \"x\"\n", "max_tokens": 9}, "metadata": {"book": 7, "t": "x;y"}'
    line b '"body": {"prompt": "One day", "max_tokens": 9, "temperature": 0.5}'; } >"$TMP/b.jsonl"
for i in 1 2; do
    LONGHAND_DB=$TMP/$i.db "$L" run -q -m $MODEL --batch "$TMP/b.jsonl" -s 3 -o "$TMP/o.$i" --threads $i
done
export LONGHAND_DB=$TMP/1.db
F=custom_id,metadata.book,parameters.temperature,text,seed,stop_reason
for f in jsonl csv; do
    check export_fields_$f 0 '' export @b --format $f --fields $F -o "$TMP/1.$f"
    "$L" export @b --format $f --fields $F -o "$TMP/2.$f" --db "$TMP/2.db"
    same two_exports_of_the_same_seeds_$f "$TMP/1.$f" "$TMP/2.$f"
    "$L" export @b --format $f -o "$TMP/all.$f"
done
"$L" export @b --format jsonl --db "$TMP/2.db" -o "$TMP/all2.jsonl"
cut_rate() { sed -E 's/, "ran_alone": (true|false), "tokens_per_second": [0-9.e+]*}$//' "$1"; }
[ "$(grep -c '"tokens_per_second": [0-9.e+]*}$' "$TMP/all.jsonl")" = 2 ]
result the_rate_is_the_last_field $? "$(cat "$TMP/all.jsonl")"
cut_rate "$TMP/all.jsonl" >"$TMP/c1"; cut_rate "$TMP/all2.jsonl" >"$TMP/c2"
same lines_are_equal_up_to_the_rate "$TMP/c1" "$TMP/c2"
python3 - "$TMP" <<'P'
import csv, json, sys
lines = [json.loads(l) for l in open(sys.argv[1] + "/1.jsonl")]
assert [list(l) for l in lines] == [["custom_id", "metadata.book", "parameters.temperature", "text", "seed",
                                     "stop_reason"]] * 2, lines
assert [l["metadata.book"] for l in lines] == [7, None] and lines[1]["parameters.temperature"] == 0.5
def table(name): return list(csv.reader(open(f"{sys.argv[1]}/{name}.csv", newline="")))
def plain(s): return s[1:] if s[:2] in ("'=", "'+", "'-", "'@") else s
rows = table("1")
assert rows[0] == list(lines[0]) and len(rows) == 3
for row, line in zip(rows[1:], lines):
    for cell, v in zip(row, line.values()):
        assert plain(cell) == ("" if v is None else v if isinstance(v, str) else json.dumps(v)), (cell, v)
all = [json.loads(l) for l in open(sys.argv[1] + "/all.jsonl")]
rows = table("all")
assert rows[0][-1] == "tokens_per_second" and {len(r) for r in rows} == {20}, rows
assert rows[1][1] == "'= 1, \"x\"\n"
assert json.loads(rows[1][rows[0].index("metadata")]) == {"book": 7, "t": "x;y"}
assert [plain(r[2]) for r in rows[1:]] == [l["text"] for l in all] and all[0]["book"] == 7
P
result csv_has_the_same_values $? "$(cat "$TMP/1.csv")"
"$L" report @b --by metadata.book --json -o "$TMP/by.json"
python3 -c 'import json, sys
groups = json.load(open(sys.argv[1]))
assert [(g["metadata.book"], g["n"]) for g in groups] == [(None, 1), (7, 1)]' "$TMP/by.json"
result report_by_a_member_of_the_metadata $? "$(cat "$TMP/by.json")"
check a_field_that_is_none 2 '"rate" is no field; allowed are custom_id' \
    export @b --format csv --fields text,rate
check a_field_twice 2 'given twice' export @b --format csv --fields text,text
check fields_of_a_text 2 'needs --format jsonl or csv' export @b --format text --fields text
# a table that was exported is a batch again; its cell of metadata takes the columns that are no fields
printf 'custom_id,prompt,max_tokens,metadata,hue\r\na,The king,3,"{""book"": 7, ""hue"": ""red""}",blue\r\n' \
    >"$TMP/told.csv"
printf 'b,The queen,3,,green\r\nc,x,3,"[1]",\r\nd,x,3,"[1]",blue\r\n' >>"$TMP/told.csv"
"$L" submit -m $MODEL -q --batch "$TMP/told.csv" >/dev/null; "$L" work -q
"$L" export @told --format csv -o "$TMP/retold.csv"
"$L" submit -m $MODEL -q -n 3 --batch "$TMP/retold.csv" >/dev/null
"$L" export @told --format jsonl --partial --fields metadata >"$TMP/told"
"$L" export @retold --format jsonl --partial --fields metadata >"$TMP/retold"
printf '{"metadata": {"%s}}\n' 'book": 7, "hue": "red"' 'hue": "green"' >"$TMP/want"
sed -n '1,2p' "$TMP/told" >"$TMP/got"; same a_cell_of_metadata_has_precedence "$TMP/want" "$TMP/got"
printf '{"metadata": %s}\n' '[1]' '{"metadata": "[1]", "hue": "blue"}' >"$TMP/want"
sed -n '3,4p' "$TMP/told" >"$TMP/got"; same metadata_that_is_no_object "$TMP/want" "$TMP/got"
[ "$(grep -c '"hue": "\(red\|green\|blue\)".*"text": ' "$TMP/retold")" = 3 ]
result an_exported_table_is_a_batch $? "$(cat "$TMP/retold")"
check export_dir_csv 0 '' export @b --format csv --fields text --dir "$TMP/d"
[ "$(head -1 "$TMP/d/a.csv")" = $'text\r' ]
result a_file_of_csv_has_a_head $? "$(cat "$TMP/d/a.csv")"
exit $failed
