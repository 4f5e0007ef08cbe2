#!/bin/bash
# The recipes of docs/architecture.md hold. A patch that adds a drafter is one file and one line; a patch that
# adds a filter of sampling is one row and its function; a patch that adds a line to a verb is one row. With
# them the program builds, and knows the new names wherever it lists names. The patches go to a copy of the
# tree with its objects, so that only what depends on the tables is compiled.
. tests/cli/lib.inc
if [ $slower != 1 ]; then skip an_added_drafter_and_filter "the copy is built without sanitizers"; exit 0; fi
tree=$TMP/tree objects=$(dirname "$LONGHAND")
mkdir -p "$tree/$objects" && cp -a Makefile ./*.mk src ngram kvmgr runs kernels scripts "$tree" &&
    cp -a "$objects"/{src,ngram,kvmgr,runs,kernels,cuda-*,liblonghand.a} "$tree/$objects" || exit 1
[ ! -d build/cu ] || cp -a build/cu "$tree/build"
patched() { (cd "$tree" && patch -p1 -s -E --no-backup-if-mismatch "$@" <tests.patch); }
cat tests/cli/echo.patch tests/cli/min-q.patch tests/cli/row.patch >"$tree/tests.patch"

[ "$(grep -c '^diff' tests/cli/echo.patch)" = 2 ] && [ "$(grep -c '^diff' tests/cli/min-q.patch)" = 3 ] &&
    [ "$(grep -c '^+[^+]' tests/cli/min-q.patch)" -le 12 ] &&
    [ "$(grep -c '^diff' tests/cli/row.patch)" = 1 ] &&
    [ "$(grep -c '^+[^+]' tests/cli/row.patch)" -le 2 ] && patched &&
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

patched -R && diff -r src "$tree/src"; result the_patch_can_be_taken_out $?
exit $failed
