#!/bin/bash
# The recipes of CONTRIBUTING.md hold. A patch that adds a drafter or a family is one file and one line; a
# patch that adds a filter of sampling is one row and its function; a patch that adds a line to a verb, a
# figure to the reports, or a field to the body of a request, is one row. With them the program builds, and
# knows the new names wherever it lists them. All patches go to one copy of the tree with its objects, so that
# only what depends on the tables is compiled, once.
. tests/cli/lib.inc
if [ $slower != 1 ]; then skip an_added_drafter_and_filter "the copy is built without sanitizers"; exit 0; fi
tree=$TMP/tree objects=$(dirname "$LONGHAND")
mkdir -p "$tree/$objects" && cp -a Makefile ./*.mk src ngram kvmgr runs kernels scripts "$tree" &&
    cp -a "$objects"/{src,ngram,kvmgr,runs,kernels,cuda-*,liblonghand.a} "$tree/$objects" || exit 1
[ ! -d build/cu ] || cp -a build/cu "$tree/build"
patched() { (cd "$tree" && patch -p1 -s -E --no-backup-if-mismatch "$@" <tests.patch); }
cat tests/cli/*.patch >"$tree/tests.patch"
small() # NAME FILES LINES: the patch changes so many files, and adds at most so many lines
{
    [ "$(grep -c '^diff' "tests/cli/$1.patch")" = "$2" ] &&
        [ "$(grep -c '^+[^+]' "tests/cli/$1.patch")" -le "$3" ]
}

small echo 2 20 && small min-q 3 12 && small row 1 2 && small field 1 1 && small tiny 2 30 &&
    small figure 1 1 && small verb 5 16 && patched &&
    (cd "$tree" && make -j2 longhand) >"$TMP/log" 2>&1
result an_added_drafter_and_filter_build $? "$(grep -m 5 -iE 'error|warning' "$TMP/log")"
! grep -q 'warning:' "$TMP/log"; result and_without_warnings $? "$(grep -m 5 warning: "$TMP/log")"
L=$tree/$objects/longhand
LONGHAND=$L
"$L" help --all 2>/dev/null | grep -q 'assistant\[:FILE\], echo'; result it_is_in_the_help $?
G="-m $MODEL -n 200 -s 3 -q --drafter"
for drafter in none echo; do echo '{"prompt": "The king", "custom_id": "a"}' >"$TMP/$drafter"; done
"$L" run $G none --prompt 'The king' >"$TMP/plain"
"$L" run $G echo --prompt 'The king' >"$TMP/drafted"
same its_text_is_that_of_plain_decoding "$TMP/plain" "$TMP/drafted"
"$L" run $G echo,ngram --tree 2,2 --prompt 'The king' >"$TMP/drafted"
same also_with_others_and_a_fixed_tree "$TMP/plain" "$TMP/drafted"
for drafter in none echo; do "$L" submit $G $drafter --batch "$TMP/$drafter" >/dev/null; done
"$L" work -q >/dev/null; "$L" show 5 >"$TMP/show"
grep -q '"drafter": "echo"' "$TMP/show"; result a_job_of_a_batch_line_has_it $? "$(head -c 300 "$TMP/show")"
"$L" text 4 >"$TMP/plain"; "$L" text 5 >"$TMP/drafted"
same and_its_text "$TMP/plain" "$TMP/drafted"
"$L" report 2 >"$TMP/report"
grep -qE '^ *echo +[1-9][0-9,]* +[1-9][0-9,]* +[0-9.]+ %$' "$TMP/report"
result the_report_counts_its_candidates $? "$(head -c 600 "$TMP/report")"
check other_names_are_refused 2 'one of auto, none, .*echo' run $G nosuch --prompt x

# ---- the filter: --min-q ----
"$L" help run | grep -A 1 -e '--min-q Q' | grep -q 'at most Q below'; result a_filter_is_in_the_help $?
before=$(sql 'SELECT max(id) FROM job')
R="-m $MODEL -n 60 -s 3 -q --prompt The_king"
"$L" run $R >"$TMP/without"; "$L" run $R --min-q 0.7 >"$TMP/with"
"$L" run $R --min-q 0.7 --drafter none >"$TMP/plain"
differ a_filter_changes_the_text "$TMP/without" "$TMP/with"
same and_drafting_does_not "$TMP/plain" "$TMP/with"
"$L" run $R --min-q 1e-9 >"$TMP/narrow"; "$L" run $R --temperature 0 >"$TMP/greedy"
same a_filter_that_leaves_one_token_is_greedy "$TMP/greedy" "$TMP/narrow"
printf '%s' '{"custom_id": "a", "method": "POST", "url": "/v1/completions", ' \
    '"body": {"prompt": "The_king", "seed": 3, "min_q": 0.7}}' >"$TMP/line"
"$L" run -m $MODEL -n 60 -s 3 -q --batch "$TMP/line" -o "$TMP/answer" --name line
"$L" text @line >"$TMP/of_line"; same a_batch_line_has_it "$TMP/with" "$TMP/of_line"
"$L" show @line >"$TMP/show"; grep -q '"min_q": 0.7,' "$TMP/show"
result show_has_it $? "$(grep parameters "$TMP/show")"
"$L" show $((before + 1)) >"$TMP/show"; ! grep -q min_q "$TMP/show"
result a_job_without_it_keeps_its_bytes $?
"$L" submit $R --grid min_q=0,0.7 --name sweep >/dev/null; "$L" work -q
"$L" report @sweep --by min_q >"$TMP/report"
grep -q 'min_q' "$TMP/report" && grep -qE '^ *0\.7 ' "$TMP/report"
result a_grid_and_the_report_have_it $? "$(head -c 600 "$TMP/report")"
for how in "--min-q 1e-9" "--temperature 0"; do
    "$L" fork $((before + 1)) --at 20 --seed 3 $how --run -q >"$TMP/fork${how:2:3}"
done
same a_fork_takes_it "$TMP/forktem" "$TMP/forkmin"; differ and_the_text_changes "$TMP/without" "$TMP/forkmin"
check its_range_is_that_of_the_row 2 "^longhand: --min-q: '101' is not a number from 0 to 100$" run $R \
    --min-q 101

# ---- the row: a line of inspect ----
"$L" inspect -m $MODEL >"$TMP/text"; "$L" inspect -m $MODEL --json >"$TMP/json"
grep -q '^bytes .*, [0-9.]* a parameter' "$TMP/text" && grep -qE '"bytes_per_parameter": [0-9.]+,' "$TMP/json"
result inspect_has_an_added_row $? "$(grep '^bytes' "$TMP/text")"

# ---- the figure: rows of a round; the verb: twins ----
"$L" report 2 --csv >"$TMP/report"; "$L" report 2 --json >"$TMP/json"
head -1 "$TMP/report" | grep -q ',rows_per_round,' && grep -qE '"rows_per_round": [0-9.]+' "$TMP/json"
result a_report_has_an_added_figure $? "$(head -1 "$TMP/report")"
"$L" version | sed -n 's/ (not on this CPU)//g; s/^twins: //p' | tr ' ' '\n' >"$TMP/a"; "$L" twins >"$TMP/b"
same an_added_verb_runs "$TMP/a" "$TMP/b"
for list in 'help' 'help --man' 'help --completion bash'; do
    "$L" $list | grep -q twins || echo "$list"
done >"$TMP/missing"
[ ! -s "$TMP/missing" ]; result and_is_listed $? "$(cat "$TMP/missing")"
check and_takes_no_arguments 2 "twins" twins x

# ---- the field: a title ----
"$L" help batch | grep -qE '^ +title +the title of the text$'; result a_field_is_in_the_help $?
line='"method": "POST", "url": "/v1/completions", "body": {"prompt": "The king", "max_tokens": 4, "title"'
echo "{\"custom_id\": \"a\", $line: \"A \\\"king\\\"\"}}" >"$TMP/titled.jsonl"
echo '{"prompt": "The king", "custom_id": "b", "max_tokens": 4}' >>"$TMP/titled.jsonl"
printf 'custom_id,prompt,max_tokens,title\r\nc,The king,4,007\r\n' >"$TMP/sheet.csv"
for file in titled.jsonl sheet.csv; do "$L" submit -m $MODEL -q --batch "$TMP/$file" >/dev/null; done
"$L" work -q
"$L" show @titled/a >"$TMP/show"; "$L" show @titled/a --json >"$TMP/json"; "$L" show @titled/b >"$TMP/plain"
grep -q '^title *A "king"$' "$TMP/show" && grep -q '"title": "A \\"king\\""' "$TMP/json" &&
    ! grep -qE '^title|"title"' "$TMP/plain"
result show_has_a_field_of_a_line $? "$(grep title "$TMP/show" "$TMP/plain")"
"$L" export @sheet --format jsonl -o "$TMP/sheet.jsonl"; grep -q '"title": "007"' "$TMP/sheet.jsonl"
result a_cell_of_a_table_stays_a_text $? "$(cat "$TMP/sheet.jsonl")"
"$L" export @titled --format csv -o "$TMP/titled.csv"
head -1 "$TMP/titled.csv" | grep -q ',metadata,title,' && grep -q '"A ""king"""' "$TMP/titled.csv"
result a_table_has_its_column $? "$(cat "$TMP/titled.csv")"
"$L" export @titled --format jsonl --fields custom_id,prompt,title -o "$TMP/again.jsonl"
"$L" submit -m $MODEL -q --batch "$TMP/again.jsonl" >/dev/null; "$L" show @again/a --json >"$TMP/again"
grep -o '"title": .*' "$TMP/json" >"$TMP/one"; grep -o '"title": .*' "$TMP/again" >"$TMP/two"
same an_export_is_a_batch_with_the_field "$TMP/one" "$TMP/two"
echo '{"prompt": "The king", "title": 7}' >"$TMP/bad.jsonl"
check a_bad_value_is_refused 2 'line 1: body.title .*found 7, allowed is a text' submit -m $MODEL \
    --batch "$TMP/bad.jsonl"
"$L" serve -m $MODEL --port 0 >"$TMP/listens" 2>/dev/null & server=$!
for i in $(seq $((300 * slower))); do
    url=$(sed -n 's|\(/v1\) (model .*|\1|p' "$TMP/listens")
    [ -n "$url" ] && break
    sleep 0.1
done
python3 - "$url/completions" <<'PY' >/dev/null
import sys, urllib.request
body = b'{"prompt": "The king", "max_tokens": 4, "title": "Of a client"}'
urllib.request.urlopen(urllib.request.Request(sys.argv[1], body, {"Content-Type": "application/json",
                                                                 "Idempotency-Key": "1"}), timeout=60).read()
PY
kill $server; wait $server 2>/dev/null
"$L" export "$(sql 'SELECT max(id) FROM job')" --format jsonl -o "$TMP/client"
grep -q '"title": "Of a client"' "$TMP/client"
result a_body_of_a_client_has_the_field $? "$(cat "$TMP/client")"

# ---- the family: tiny ----
# OLMo's fixture without its norms of queries and keys, and with the names of tiny's keys.
python3 - build/data/models/olmo3-bf16 "$TMP/tiny" <<'END'
import json, os, shutil, sys
old, new = sys.argv[1:]
shutil.copytree(old, new)
config = json.load(open(old + "/config.json"))
names = {"hidden_size": "width", "num_hidden_layers": "depth", "intermediate_size": "inner",
         "max_position_embeddings": "positions"}
config = {names.get(k, k): v for k, v in config.items() if k not in ("architectures", "rope_scaling")}
json.dump({**config, "model_type": "tiny"}, open(new + "/config.json", "w"))
data = open(old + "/model.safetensors", "rb").read()
n = int.from_bytes(data[:8], "little")
header, out = {}, b""
for name, t in json.loads(data[8:8 + n]).items():
    if name != "__metadata__" and "_norm.weight" not in name:
        a, b = t["data_offsets"]
        header[name] = {**t, "data_offsets": [len(out), len(out) + b - a]}
        out += data[8 + n + a:8 + n + b]
text = json.dumps(header).encode()
open(new + "/model.safetensors", "wb").write(len(text).to_bytes(8, "little") + text + out)
END
score() { "$L" score -m "$1" build/data/models/middle.txt --json --per-token -q; }
"$L" convert -m "$TMP/tiny" --weights bf16 -o "$TMP/tiny.gguf" -q
score "$TMP/tiny" >"$TMP/a"; score "$TMP/tiny.gguf" >"$TMP/b"
same a_family_scores_alike_in_both_forms "$TMP/a" "$TMP/b"
# the configuration that the file becomes is one of the directory, too
cp -r "$TMP/tiny" "$TMP/back"
"$L" run -m "$TMP/tiny.gguf" --prompt x -n 1 --db "$TMP/tiny.db" -q >/dev/null
LONGHAND_DB=$TMP/tiny.db sql 'SELECT config FROM model' >"$TMP/back/config.json"
grep -q '"positions": 8192, "width": 64, "depth": 4' "$TMP/back/config.json"
result its_file_becomes_its_own_keys $? "$(cat "$TMP/back/config.json")"
score "$TMP/back" >"$TMP/b"; same and_back_again "$TMP/a" "$TMP/b"
sed 's/"sliding_window": 90/"sliding_window": 9000/' "$TMP/tiny/config.json" >"$TMP/back/config.json"
score "$TMP/back" >"$TMP/b"; differ its_window_counts "$TMP/a" "$TMP/b"
for d in none ngram,suffix,partial; do
    "$L" run -m "$TMP/tiny" --prompt "The ship" -n 200 -s 3 -q --ignore-eos --format ids \
        --drafter $d >"$TMP/$d"
done
same and_its_drafted_text_is_the_plain_one "$TMP/none" "$TMP/ngram,suffix,partial"
sed 's/"width": 64/"width": 0/' "$TMP/tiny/config.json" >"$TMP/back/config.json"
check its_keys_have_ranges 2 'config.json: width .offset [0-9]*.: found 0, allowed are whole numbers from 1' \
    inspect -m "$TMP/back"

patched -R && diff -r src "$tree/src" && diff -r runs "$tree/runs"; result the_patch_can_be_taken_out $?
exit $failed
