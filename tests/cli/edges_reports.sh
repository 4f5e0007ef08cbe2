#!/bin/bash
# Reports say what happened: the baseline of a speedup, groups of drafters, rounds without a draft, one speed
# for a text with retakes, and one source for repetitions, the progress of a queue and the number of models.
. tests/cli/lib.inc
L=$LONGHAND
py() { python3 -c "import csv, json, os, subprocess, sys
L = os.environ['LONGHAND']
def out(*a): return subprocess.run([L, *a], capture_output=True, text=True, check=True).stdout
def js(*a): return json.loads(out(*a))
$2" 2>"$TMP/err"; result "$1" $? "$(tail -1 "$TMP/err" | cut -c1-300)"; }
export LONGHAND
job() { "$L" submit -q -m "$MODEL" -n 200 --ignore-eos --temp 0.7 "$@" >/dev/null; }

# ---- baselines ----
one=(-p "Once upon a time" -s 1)
job "${one[@]}" --drafter none --samples 2                    # 1, 2
job "${one[@]}" --tree 2,1 --drafter ngram --samples 2        # 3, 4
job "${one[@]}" --drafter none --temp 0.9                     # 5: these have the same lengths
job -p "Once upon a time" -s 2 --drafter none                 # 6
job -p "Once upon a king" -s 1 --drafter none                 # 7
job "${one[@]}" --drafter ngram --logprobs 2 --alone          # 8: what cannot change the text
"$L" work -q --parallel 1
py the_baseline_wrote_the_same_text "
j = {x['job']: x for x in js('report', '--all', '--json')}
assert len({j[i]['prompt_tokens'] for i in (1, 7)}) == 1
assert [j[i]['plain_job'] for i in (3, 4, 8)] == [1, 2, 1], j
assert j[4]['speedup'] == round(j[4]['tokens_per_second'] / j[2]['tokens_per_second'], 9) or abs(
    j[4]['speedup'] * j[2]['tokens_per_second'] / j[4]['tokens_per_second'] - 1) < 1e-6
c = list(csv.DictReader(out('report', '--all', '--csv').splitlines()))
assert [r['plain_job'] for r in c] == ['', '', '1', '2', '', '', '', '1'], c"
py no_other_job_is_a_baseline "
j = js('report', '3-7', '--json')
assert all(x['speedup'] is None and x['plain_job'] is None for x in j)
assert j[0]['baseline_command'] == 'longhand fork 3 --at 0 --seed 1 --drafter none --alone', j[0]
assert j[2]['baseline_command'] is None
for form in '', '--html', '--csv', '--by drafter', '--by drafter --json', '--by drafter --csv':
    text = out('report', '3-7', *form.split())
    assert 'fork 3 --at 0' in text and '~' not in text, text[:300]
assert 'fork 3 --at 0' in out('report', '3') and 'one token at a time' not in out('report', '3')"
new=$("$L" fork 4 --at 0 --seed 1 --drafter none --alone -q); "$L" work -q
[ "$("$L" report 4 "$new" --json | grep -o "\"plain_job\": $new,")" ]
result the_command_makes_a_baseline $? "job $new: $("$L" report 4 "$new")"
check fork_takes_two_drafters 2 '--drafter ngram: fork takes auto and none' fork 4 --at 0 --drafter ngram

# ---- report --by drafter ----
py groups_have_pairs_and_intervals "
g = js('report', '1-7', '--by', 'drafter', '--json')
assert g == js('report', '1-7', '--by', 'drafter', '--json')
j = js('report', '3', '4', '1', '2', '--json')
s, ratio = g[0]['speedup'], [x['speedup'] for x in j if x['speedup']]
assert g[0]['drafter'] == 'ngram' and s['n'] == 2 and abs(s['mean'] - sum(ratio) / 2) < 1e-6, g[0]
assert abs(s['low'] - min(ratio)) < 1e-6 and abs(s['high'] - max(ratio)) < 1e-6 and 'sd' not in s
assert g[0]['baseline'] == 1 and g[1]['speedup']['n'] == 0 and g[1]['baseline'] is None
accepted, reached = (sum(x[k][0] for x in j if x['drafted'])
                     for k in ('accepted_per_depth', 'reached_per_depth'))
assert abs(g[0]['acceptance_at_1'] - accepted / reached) < 1e-9 and g[0]['rounds_drafted'] == reached
c = list(csv.DictReader(out('report', '1-7', '--by', 'drafter', '--csv').splitlines()))
assert c[0]['baseline'] == '1' and c[0]['acceptance_at_1']
assert float(c[0]['speedup low']) <= float(c[0]['speedup high'])
for form in ([], ['--html']):
    text = out('report', '1-7', '--by', 'drafter', *form)
    assert all(x in text for x in ('job 1 and 1 more', 'accepted at 1', ' [%.2f, ' % s['low'])), text[:600]"

# ---- rounds without a draft ----
sql "DELETE FROM metric WHERE job = 8 AND (source <> '' OR name IN ('reached', 'accepted_at', 'drafted'))" \
    >/dev/null
py rounds_without_a_draft_are_told "
rounds = js('report', '8', '--json')['rounds']
assert js('report', '8', '--json')['rounds_drafted'] == 0
for a in (['8'], ['8', '--html'], ['1', '8'], ['1', '8', '--html'], ['8', '--by', 'drafter']):
    assert ' of %d rounds: no draft pays yet' % rounds in out('report', *a), a
assert 'drafted in 0 of %d rounds' % rounds in out('report', '8')
assert 'no draft pays' not in out('report', '1', '3', '4')"
"$L" help run | tr -s '\n ' ' ' | grep -q 'To compare drafters, give --tree'
result the_help_names_tree $? ""

# ---- retakes ----
la=(-q -m "$MODEL" -p "la la la la la la la la" -s 5 --temp 0 --ignore-eos --drafter none)
"$L" run "${la[@]:1}" -n 1200 --name cut --on-loop retake:4 --json-stats "$TMP/stats" \
    --progress json >/dev/null 2>"$TMP/log"
py one_speed_for_a_text_with_retakes "
r, s = js('report', '@cut', '--json'), js('show', '@cut', '--json')
l = js('list', '@cut', '--json')['jobs'][0]
assert r['cut_tokens'] > 300, r['cut_tokens']
speed = r['tokens'] / r['seconds']
c = list(csv.DictReader(out('report', '@cut', '--csv').splitlines()))[0]
w = list(csv.DictReader(out('report', '@cut', '--csv', '--windows').splitlines()))[0]
for x in (r['tokens_per_second'], l['tokens_per_second'], s['tokens_per_second'], s['mean_tokens_per_second'],
          json.load(open('$TMP/stats'))['tokens_per_second'],
          [json.loads(x) for x in open('$TMP/log') if 'finish_reason' in x][0]['tokens_per_second'],
          float(c['tokens_per_second']),
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
