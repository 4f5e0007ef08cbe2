#!/bin/bash
# The recipes of docs/architecture.md hold: a patch that adds an example is one file and one line, and with it
# the program builds, drafts, and knows the new name wherever it lists names. The patch goes to a copy of the
# tree with its objects, so that only what depends on the table is compiled.
. tests/cli/lib.inc
if [ $slower != 1 ]; then skip an_added_drafter "the copy is built without sanitizers"; exit 0; fi
tree=$TMP/tree objects=$(dirname "$LONGHAND")
mkdir -p "$tree/$objects" && cp -a Makefile ./*.mk src ngram kvmgr runs kernels scripts "$tree" &&
    cp -a "$objects"/{src,ngram,kvmgr,runs,kernels,cuda-*,liblonghand.a} "$tree/$objects" || exit 1
[ ! -d build/cu ] || cp -a build/cu "$tree/build"
export GIT_CEILING_DIRECTORIES=$TMP      # git apply takes the copy for no part of a repository
patched() { (cd "$tree" && git apply "$@" - <tests.patch); }
cp tests/cli/echo.patch "$tree/tests.patch"

[ "$(grep -c '^diff' tests/cli/echo.patch)" = 2 ] && patched &&
    (cd "$tree" && make -j2 longhand) >"$TMP/log" 2>&1
result an_added_drafter_builds $? "$(grep -m 5 -iE 'error|warning' "$TMP/log")"
! grep -q 'warning:' "$TMP/log"; result and_without_warnings $? "$(grep -m 5 warning: "$TMP/log")"
L=$tree/$objects/longhand
LONGHAND=$L
"$L" help --all 2>/dev/null | grep -q 'mtp, echo'; result it_is_in_the_help $?
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
grep -qE '^ *echo +[1-9][0-9]* of [1-9][0-9]* candidates accepted' "$TMP/report"
result the_report_counts_its_candidates $? "$(head -c 600 "$TMP/report")"
check other_names_are_refused 2 'one of auto, none, .*echo' run $G nosuch --prompt x
patched -R && diff -r src "$tree/src"; result the_patch_can_be_taken_out $?
exit $failed
