#!/bin/bash
# The HTML report of jobs of a worker, opened in headless Chromium, which returns the data of the plots. Some
# texts in it are hostile.
. tests/cli/lib.inc
L=$LONGHAND
hostile=$TMP/$'m<b onclick=alert(1)>\xe2\x80\xaetxt'
cp -r "$MODEL" "$hostile"
P=(--prompt-file "$MODEL/openings/portrait.txt" --ignore-eos -s 3 -q)
"$L" run --model "$hostile" "${P[@]}" -n 2300 --tree 1,2 --ngram-k 4 \
    --stop '</script></style><script>document.title="owned"</script>' --stop $'\x01\x1b[31m' --stop '=1+1' \
    --stop $'\xe2\x80\xab\xe2\x80\xaegpj.exe' -o "$TMP/text" </dev/null ||
    fail a_job_for_the_page "longhand run"
"$L" run --model "$MODEL" "${P[@]}" -n 1400 --penalty 1 --temperature 0 --drafter none -o "$TMP/text2" \
    </dev/null || fail a_plain_job_for_the_page "longhand run"
"$L" submit --model "$MODEL" "${P[@]}" -n 1400 --temperature 0 >/dev/null 2>&1; "$L" work -q
for i in 1 2 3; do "$L" report $i --html -o "$TMP/$i.html" && "$L" report $i --json -o "$TMP/$i.json" ||
    fail report_$i "longhand report"; done
"$L" report 1 2 3 --html -o "$TMP/all.html"; "$L" report 1 2 3 --by temperature --html -o "$TMP/by.html"

# the first figures of the page, from the JSON: length, time, speedup, end, repetition
python3 - "$TMP" <<'PY' 2>"$TMP/err"
import json, sys
j = [json.load(open(f"{sys.argv[1]}/{i}.json")) for i in (1, 2, 3)]
assert [x["tokens"] for x in j] == [2300, 1400, 1400] and all(x["finish_reason"] == "length" for x in j)
assert j[0]["beta"] is not None and j[1]["beta"] is None
assert j[1]["drafted"] == 0 and j[1]["speedup_estimate"] is None
assert j[2]["speedup_estimate"] is None or 0.05 < j[2]["speedup_estimate"] < 50
assert len(j[0]["windows"]) == 3 and j[0]["checkpoints"]["commits"] >= 1
assert j[1]["repetition"] and j[1]["repetition"][0]["excerpt"], "greedy text without a penalty repeats itself"
PY
result the_worker_left_all_figures $? "$(tail -1 "$TMP/err")"
if ! command -v chromium >/dev/null; then skip chromium_reads_the_page_back "no chromium here"
exit $failed; fi
dom() # FILE: the document as the browser has it
{
    timeout 120 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --user-data-dir="$TMP/profile" --virtual-time-budget=2000 --dump-dom "file://$TMP/$1" \
        2>"$TMP/chromium"
}
for i in 1 2 3; do
    dom $i.html >"$TMP/dom"
    words=(Length Speed Repetition 'Ended by' length checkpoints controller resumes temperature numerics)
    [ $i = 1 ] &&
        words+=('\u{202e}' '</style><script>document.title=' '=1+1' 'Alpha and beta' '<b onclick=alert(1)>')
    [ $i = 2 ] && words+=('found' 'from token')
    python3 tests/cli/report_page.py "$TMP/dom" "$TMP/$i.json" "${words[@]}" >"$TMP/wrong" 2>&1
    result chromium_reads_page_${i}_back $? "$(head -c 600 "$TMP/wrong")$(tail -n 2 "$TMP/chromium")"
    grep -q '<title>[^<]*longhand</title>' "$TMP/dom"
    result page_${i}_ran_nothing $? "$(grep -o '<title>[^<]*' "$TMP/dom")"
done
dom all.html >"$TMP/dom"
[ "$(grep -o '<article' "$TMP/dom" | wc -l)" = 3 ] &&
    [ "$(grep -o '<h1>3 jobs' "$TMP/dom" | wc -l)" = 1 ] &&
    [ "$(grep -o 'href="#job-' "$TMP/dom" | wc -l)" = 3 ]
    result several_jobs_begin_with_a_table $? "$(head -c 300 "$TMP/dom")"
dom by.html >"$TMP/dom"
grep -q 'By temperature' "$TMP/dom" && grep -q 'differ in length' "$TMP/dom" &&
    ! grep -q '<th[^>]*>distinct-1' "$TMP/dom"
    result by_a_parameter_leaves_distinct_of_unequal_lengths_out $? \
        "$(grep -o '<h2>[^<]*' "$TMP/dom" | head -3)"
exit $failed
