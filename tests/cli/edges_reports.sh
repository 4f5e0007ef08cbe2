#!/bin/bash
# Reports say what happened: one speed for a text with retakes, and one source for repetitions, the progress of
# a queue and the number of models.
. tests/cli/lib.inc
L=$LONGHAND
py() { python3 -c "import csv, json, os, subprocess, sys
L = os.environ['LONGHAND']
def out(*a): return subprocess.run([L, *a], capture_output=True, text=True, check=True).stdout
def js(*a): return json.loads(out(*a))
$2" 2>"$TMP/err"; result "$1" $? "$(tail -1 "$TMP/err" | cut -c1-300)"; }
export LONGHAND
job() { "$L" submit -q -m "$MODEL" -n 200 --ignore-eos --temp 0.7 "$@" >/dev/null; }

one=(-p "Once upon a time" -s 1)

# ---- retakes ----
la=(-q -m "$MODEL" -p "la la la la la la la la" -s 5 --temp 0 --ignore-eos --drafter none)
"$L" run "${la[@]}" -n 1200 --name cut --on-loop retake:4 --json-stats "$TMP/stats" >/dev/null
py one_speed_for_a_text_with_retakes "
r, s = js('report', '@cut', '--json'), js('show', '@cut', '--json')
l = js('list', '@cut', '--json')['jobs'][0]
assert r['cut_tokens'] > 300, r['cut_tokens']
speed = r['tokens'] / r['seconds']
c = list(csv.DictReader(out('report', '@cut', '--csv').splitlines()))[0]
w = list(csv.DictReader(out('report', '@cut', '--csv', '--windows').splitlines()))[0]
for x in (r['tokens_per_second'], l['tokens_per_second'], s['tokens_per_second'], s['mean_tokens_per_second'],
          json.load(open('$TMP/stats'))['tokens_per_second'], float(c['tokens_per_second']),
          float(w['tokens_per_second']), r['windows'][0]['tokens_per_second']):
    assert abs(x / speed - 1) < 0.01, (x, speed)
assert ('%.1f' % speed) in out('list', '@cut'), out('list', '@cut')"
[ "$(sql "SELECT round(s.tokens_per_second) = round(j.tokens / j.seconds) FROM speed s, job j JOIN batch b
     ON b.id = j.batch WHERE b.name = 'cut'")" = 1 ]
result estimates_have_the_same_speed $? "$(sql 'SELECT tokens_per_second FROM speed')"

# ---- one source ----
"$L" run "${la[@]}" -n 500 --name off --on-loop off >/dev/null
py loops_selects_what_report_shows "
j = js('report', '--all', '--json')
want = [x['job'] for x in j if x['repetition']]
off = js('report', '@off', '--json')['repetition']
assert off and not js('report', '@cut', '--json')['repetition']
assert [x['job'] for x in js('list', '--loops', '--json')['jobs']] == want, want
e = [json.loads(x) for x in out('export', '@cut', '@off', '--format', 'jsonl').splitlines()]
assert e[0]['repetition'] is None and e[1]['repetition']['start'] == off[0]['start']"
"$L" fork @off --at 400 --append "x y z" --name given -q >/dev/null; job "${one[@]}"
"$L" work --max-jobs 1 2>"$TMP/log"; grep -q 'model' "$TMP/log" && ! grep -q ' more,' "$TMP/log"
result one_model_is_one $? "$(head -1 "$TMP/log")"
job "${one[@]}"; job "${one[@]}"
"$L" work --progress json 2>"$TMP/log"
grep -m1 '"phase": "queue"' "$TMP/log" | grep -q '"tokens_per_second": null, "eta_seconds": null'
result an_unknown_speed_is_no_speed $? "$(grep -m1 queue "$TMP/log")"
exit $failed
